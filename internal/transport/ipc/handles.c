#include "core.h"

#include <stdlib.h>
#include <unistd.h>

void ipc_close_fd(int32_t *fd) {
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int ipc_handles_open(struct ipc_end *end, struct p2p_error *e) {
	struct ipc_state *s = end->state;
	s->maps_cap = s->buffers + P2P_LRU_MAX + 1;
	s->exports = calloc(s->buffers, sizeof *s->exports);
	s->maps = calloc(s->maps_cap, sizeof *s->maps);
	s->bindings = calloc(s->buffers, sizeof *s->bindings);
	for (uint32_t i = 0; s->bindings && i < s->buffers; i++) {
		s->bindings[i].mapping = -1;
		s->bindings[i].handle.fd = -1;
	}
	if (!s->exports || !s->maps || !s->bindings)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	return P2P_OK;
}

int ipc_handles_close(struct ipc_end *end, struct p2p_error *e) {
	struct ipc_state *s = end->state;
	struct p2p_error later;
	int rc = P2P_OK;
	for (uint32_t i = 0; i < s->maps_len; i++) {
		if (!s->maps[i].live)
			continue;
		int last = end->memory->close(end->memory->self, s->maps[i].base, rc ? &later : e);
		rc = rc ? rc : last;
	}
	for (uint32_t i = 0; i < s->exports_len; i++)
		ipc_close_fd(&s->exports[i].handle.fd);
	for (uint32_t i = 0; s->bindings && i < s->buffers; i++)
		ipc_close_fd(&s->bindings[i].handle.fd);
	free(s->exports);
	free(s->maps);
	free(s->bindings);
	return rc;
}

/* ---- exports -------------------------------------------------------------------------------------------------- */

int ipc_export_now(struct run *x, uint8_t *base, struct p2p_handle *h) {
	struct ipc_end *end = x->end;
	uint64_t t0 = p2p_raw_ns();
	int rc = end->memory->export(end->memory->self, base, h, x->l.e);
	uint64_t ns = p2p_raw_ns() - t0;
	if (end->count.exports++ == 0)
		end->first_export_ns = ns;
	end->count.export_ns += ns;
	return rc;
}

static int find_export(const struct ipc_end *end, const uint8_t *p) {
	const struct ipc_state *s = end->state;
	for (uint32_t i = 0; i < s->exports_len; i++) {
		const struct exported *x = &s->exports[i];
		if (x->live && (uint64_t)(p - x->key) < x->length)
			return (int)i;
	}
	return -1;
}

static struct exported *new_export(struct ipc_state *s) {
	for (uint32_t i = 0; i < s->exports_len; i++)
		if (!s->exports[i].live)
			return &s->exports[i];
	return &s->exports[s->exports_len++];
}

int ipc_export(struct run *x, uint8_t *p, struct p2p_handle *h, uint64_t *offset, int *owned) {
	struct ipc_end *end = x->end;
	struct p2p_range r;
	uint32_t mode = end->cfg.export_cache;
	int i = mode == IPC_EXPORT_OFF ? -1 : find_export(end, p);
	*owned = 0;
	if (i >= 0) {
		const struct exported *known = &x->s->exports[i];
		end->count.hits++;
		*h = known->handle;
		*offset = known->offset + (uint64_t)(p - known->key);
		return P2P_OK;
	}
	end->count.misses++;
	int rc = end->memory->range(end->memory->self, p, &r, x->l.e);
	if (rc || (rc = ipc_export_now(x, r.base, h)))
		return rc;
	*offset = (uint64_t)(p - r.base);
	*owned = mode == IPC_EXPORT_OFF;
	if (mode == IPC_EXPORT_ALLOCATION)
		*new_export(x->s) = (struct exported){.key = r.base, .length = r.length, .handle = *h, .live = 1};
	else if (mode == IPC_EXPORT_POINTER)
		*new_export(x->s) =
			(struct exported){.key = p, .length = 1, .offset = *offset, .handle = *h, .live = 1};
	return P2P_OK;
}

void ipc_forget_exports(struct ipc_end *end, uint8_t *base) {
	struct ipc_state *s = end->state;
	for (uint32_t i = 0; i < s->exports_len; i++) {
		struct exported *x = &s->exports[i];
		if (x->live && (uint64_t)(x->key - base) < s->allocated_bytes) {
			ipc_close_fd(&x->handle.fd);
			x->live = 0;
		}
	}
}

/* ---- mappings ------------------------------------------------------------------------------------------------- */

int ipc_find_mapping(const struct ipc_end *end, uint64_t id) {
	const struct ipc_state *s = end->state;
	for (uint32_t i = 0; i < s->maps_len; i++)
		if (s->maps[i].live && s->maps[i].id == id)
			return (int)i;
	return -1;
}

/* Needed with --cache dual only: its receiver keeps mappings that the sender has evicted. */
static int grow_mappings(struct ipc_state *s) {
	struct mapping *more = realloc(s->maps, 2 * s->maps_cap * sizeof *more);
	if (!more)
		return 1;
	s->maps = more;
	s->maps_cap *= 2;
	return 0;
}

static int new_mapping(struct run *x, int *out) {
	struct ipc_state *s = x->s;
	for (uint32_t i = 0; i < s->maps_len; i++)
		if (!s->maps[i].live) {
			*out = (int)i;
			return P2P_OK;
		}
	if (s->maps_len == s->maps_cap && grow_mappings(s))
		return p2p_fail(x->l.e, P2P_ERR_DEVICE, 0, "out of host memory");
	*out = (int)s->maps_len++;
	return P2P_OK;
}

int ipc_map(struct run *x, const struct p2p_handle *h, int *out) {
	struct ipc_end *end = x->end;
	void *base = NULL;
	int i = ipc_find_mapping(end, h->id), rc;
	if (i >= 0) {
		*out = i;
		return P2P_OK;
	}
	if ((rc = new_mapping(x, &i)))
		return rc;
	uint64_t t0 = p2p_raw_ns();
	rc = end->memory->open(end->memory->self, h, &base, x->l.e);
	uint64_t ns = p2p_raw_ns() - t0;
	if (rc)
		return rc;
	if (end->count.opens++ == 0)
		end->first_open_ns = ns;
	end->count.open_ns += ns;
	end->count.mapped_bytes += h->length;
	x->s->maps[i] = (struct mapping){.id = h->id, .length = h->length, .base = base, .live = 1};
	*out = i;
	return P2P_OK;
}

int ipc_unmap(struct run *x, int i) {
	struct ipc_end *end = x->end;
	struct mapping *m = &x->s->maps[i];
	uint64_t t0 = p2p_raw_ns();
	int rc = end->memory->close(end->memory->self, m->base, x->l.e);
	end->count.close_ns += p2p_raw_ns() - t0;
	end->count.closes++;
	end->count.mapped_bytes -= m->length;
	m->live = 0;
	return rc;
}
