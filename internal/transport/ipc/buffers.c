#include "core.h"

#include <stdlib.h>

static uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

static int allocate(struct ipc_end *end, uint32_t i, uint8_t *at, uint64_t bytes, struct p2p_error *e) {
	void *p = NULL;
	int rc = end->memory->alloc(end->memory->self, bytes, at, &p, e);
	end->state->base[i] = p;
	return rc;
}

int ipc_buffers_open(struct ipc_end *end, struct p2p_error *e) {
	struct ipc_state *s = end->state;
	const struct ipc_config *c = &end->cfg;
	s->buffers = c->slices > 1 ? c->slices : c->allocations;
	s->slice = round_up(c->region, 512);
	s->allocated_bytes = round_up(c->slices > 1 ? s->slice * c->slices : c->region, end->memory->granule);
	if (c->realloc == IPC_REALLOC_OVERLAP)
		s->allocated_bytes += 2 * end->memory->granule;
	s->base = calloc(c->allocations, sizeof *s->base);
	s->published = calloc(s->buffers, sizeof *s->published);
	if (!s->base || !s->published)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	int rc = end->engine->bind(end->engine->self, e);
	for (uint32_t i = 0; rc == P2P_OK && i < c->allocations; i++)
		rc = allocate(end, i, NULL, s->allocated_bytes, e);
	s->first_base = s->base[0];
	return rc;
}

int ipc_buffers_close(struct ipc_end *end, struct p2p_error *e) {
	struct ipc_state *s = end->state;
	struct p2p_error later;
	int rc = P2P_OK;
	for (uint32_t i = 0; s->base && i < end->cfg.allocations; i++) {
		if (!s->base[i])
			continue;
		int last = end->memory->release(end->memory->self, s->base[i], rc ? &later : e);
		rc = rc ? rc : last;
	}
	free(s->base);
	free(s->published);
	return rc;
}

/* No message is in flight: the peer has acknowledged the last one, or has no credit for the next. */
int ipc_renew(struct run *x, int *changed) {
	struct ipc_end *end = x->end;
	struct ipc_state *s = x->s;
	*changed = 0;
	if (end->cfg.realloc == IPC_KEEP)
		return P2P_OK;
	uint8_t *old = s->base[0], *at = s->first_base;
	uint64_t bytes = s->allocated_bytes;
	if (end->cfg.realloc == IPC_REALLOC_OVERLAP && ++s->turn % 2) { /* a range within the old one */
		at += end->memory->granule;
		bytes -= 2 * end->memory->granule;
	}
	ipc_forget_exports(end, old);
	s->base[0] = NULL;
	int rc = end->memory->release(end->memory->self, old, x->l.e);
	if (rc || (rc = allocate(end, 0, at, bytes, x->l.e)))
		return rc;
	end->count.moved += s->base[0] != at;
	*changed = 1;
	return P2P_OK;
}
