#include "core.h"

#include <stdlib.h>

/*
 * MPICH's design: the receiver maps the sender's buffer and copies from it. The sender identifies the buffer by the
 * address at which the receiver has mapped it, by a handle from the cache, or by a handle exported for this message.
 */

/* Smaller allocations are shared only when they are used again. */
#define SHARED_AT_ONCE (1u << 20)

int ipc_get_open(struct ipc_end *end, struct p2p_error *e) {
	struct ipc_state *s = end->state;
	s->lru = calloc(1, sizeof *s->lru);
	s->held = calloc(MAX_WINDOW, sizeof *s->held);
	s->transient = calloc(MAX_WINDOW, sizeof *s->transient);
	s->late = calloc(MAX_WINDOW, sizeof *s->late);
	if (!s->lru || !s->held || !s->transient || !s->late)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	p2p_lru_init(s->lru, end->cfg.cache_size);
	return P2P_OK;
}

static uint8_t *bounce(const struct run *x, uint32_t sender) { return x->end->link->pool + sender * SHARED_AT_ONCE; }

/* ---- sender --------------------------------------------------------------------------------------------------- */

#define SEEN (sizeof((struct ipc_state *)0)->seen / sizeof(uint64_t))

/* Whether a message goes through CPU memory: the first one from a small allocation does. */
static int bounces(const struct ipc_state *s, uint64_t length, uint64_t base) {
	if (length >= SHARED_AT_ONCE)
		return 0;
	for (uint32_t i = 0; i < SEEN; i++)
		if (s->seen[i] == base)
			return 0;
	return 1;
}

/* Removes an entry, and lets the receiver close its mapping; with --cache dual the receiver is not notified. */
static int evict(struct run *x, int i) {
	struct p2p_lru *c = x->s->lru;
	struct p2p_message m = {.type = MSG_UNMAP, .version = c->id[i], .base = c->base[i]};
	int rc = x->end->cfg.cache == IPC_CACHE_SENDER ? ipc_send(x, &m) : P2P_OK;
	ipc_close_fd(&c->handle[i].fd);
	p2p_lru_remove(c, i);
	return rc;
}

/* Makes an entry; *out is -1 if the cache is full of entries in use. */
static int insert(struct run *x, const struct p2p_range *r, int *out) {
	struct p2p_lru *c = x->s->lru;
	uint64_t base = (uint64_t)(uintptr_t)r->base;
	int i, rc;
	while ((i = p2p_lru_overlap(c, base, r->length)) >= 0) {
		x->end->count.overlap_deletes += c->base[i] != base;
		if ((rc = evict(x, i)))
			return rc;
	}
	*out = -1;
	if (c->limit == 0)
		return P2P_OK;
	if (c->count == c->limit) {
		if ((i = p2p_lru_victim(c)) < 0) /* all are in use */
			return P2P_OK;
		x->end->count.evictions++;
		for (uint32_t k = 0; k < x->s->held_len; k++)
			x->end->count.triggered += x->s->held[k] == i; /* only with a fault */
		if ((rc = evict(x, i)))
			return rc;
	}
	i = p2p_lru_insert(c, base, r->length, r->id);
	if ((rc = ipc_export_now(x, r->base, &c->handle[i]))) {
		p2p_lru_remove(c, i);
		return rc;
	}
	*out = i;
	return P2P_OK;
}

/* Finds or makes the allocation's entry. *remap: the receiver's mapping of this address is stale. */
static int look_up(struct run *x, const struct p2p_range *r, int *out, uint32_t *remap) {
	struct p2p_lru *c = x->s->lru;
	int i = p2p_lru_find(c, (uint64_t)(uintptr_t)r->base);
	if (i >= 0 && (c->id[i] == r->id || x->end->cfg.fault == IPC_NO_VALIDATION)) {
		x->end->count.triggered += c->id[i] != r->id;
		x->end->count.hits++;
		p2p_lru_touch(c, i);
		*out = i;
		return P2P_OK;
	}
	if (i >= 0) {
		x->end->count.stale++;
		*remap = FLAG_REMAP;
	}
	x->end->count.misses++;
	return insert(x, r, out);
}

static void hold(struct run *x, int i) {
	if (x->end->cfg.fault != IPC_EVICT_IN_FLIGHT)
		p2p_lru_hold(x->s->lru, i);
	x->s->held[x->s->held_len++] = i;
}

static int cleanup(struct run *x) {
	for (uint32_t k = 0; k < x->s->held_len && x->end->cfg.fault != IPC_EVICT_IN_FLIGHT; k++)
		p2p_lru_drop(x->s->lru, x->s->held[k]);
	x->s->held_len = 0;
	return P2P_OK;
}

/* Sends a message with a handle that is not cached. */
static int send_uncached(struct run *x, struct p2p_message *m, uint8_t *base) {
	int rc = ipc_export_now(x, base, &m->handle);
	if (rc)
		return rc;
	m->flags |= m->handle.fd >= 0 ? FLAG_FD : 0;
	rc = ipc_send(x, m);
	ipc_close_fd(&m->handle.fd);
	return rc;
}

static int send_cached(struct run *x, struct p2p_message *m, const struct p2p_range *r) {
	struct p2p_lru *c = x->s->lru;
	int i, rc = look_up(x, r, &i, &m->flags);
	if (rc)
		return rc;
	if (i < 0)
		return send_uncached(x, m, r->base);
	hold(x, i);
	if (c->mapped[i]) {
		x->end->count.direct++;
		m->flags |= FLAG_DIRECT;
		m->address = c->mapped[i];
		m->version = c->id[i];
		return ipc_send(x, m);
	}
	m->handle = c->handle[i];
	m->flags |= FLAG_KEEP | (m->handle.fd >= 0 ? FLAG_FD : 0);
	return ipc_send(x, m);
}

static int send_bounced(struct run *x, struct p2p_message *m, const uint8_t *p, uint32_t w) {
	struct p2p_engine *g = x->end->engine;
	m->offset = ipc_slot(x, w);
	m->flags |= FLAG_BOUNCE;
	x->s->seen[x->s->seen_next++ % SEEN] = m->base;
	x->end->count.bounced++;
	int rc = g->copy(g->self, bounce(x, x->end->cfg.rank) + m->offset, p, m->size, x->l.e);
	if (rc || (rc = g->wait(g->self, x->l.ctx, x->l.e)))
		return rc;
	return ipc_send(x, m);
}

static int send_one(struct run *x, uint64_t seq, uint32_t i, uint32_t w) {
	uint8_t *buffer = ipc_buffer(x->end, ipc_turn(x->s, ipc_number(x, i, w))), *p = buffer + ipc_slot(x, w);
	struct p2p_message m = {
		.type = MSG_SEND, .tag = ipc_number(x, i, w), .seq = seq << 1 | x->end->cfg.rank, .size = x->l.b->size};
	struct p2p_range r;
	int rc = x->end->memory->range(x->end->memory->self, buffer, &r, x->l.e);
	if (rc)
		return rc;
	m.base = (uint64_t)(uintptr_t)r.base;
	m.offset = (uint64_t)(buffer - r.base) + ipc_slot(x, w);
	m.handle.fd = -1;
	if (bounces(x->s, r.length, m.base))
		return send_bounced(x, &m, p, w);
	if (x->end->cfg.cache != IPC_CACHE_OFF)
		return send_cached(x, &m, &r);
	x->end->count.misses++;
	return send_uncached(x, &m, r.base);
}

/* The receiver copies the payload and acknowledges. */
static int send_get(struct run *x, uint64_t seq, uint32_t i) {
	int rc = P2P_OK;
	for (uint32_t w = 0; rc == P2P_OK && w < x->l.b->window; w++)
		rc = send_one(x, seq, i, w);
	return rc;
}

/* The entry may have been evicted or replaced before the address of its mapping arrives. */
void ipc_take_address(struct run *x, const struct p2p_message *m) {
	struct p2p_lru *c = x->s->lru;
	int i = c ? p2p_lru_find(c, m->base) : -1;
	if (i >= 0 && c->id[i] == m->version)
		c->mapped[i] = m->address;
}

/* ---- receiver ------------------------------------------------------------------------------------------------- */

static int unmap_id(struct run *x, uint64_t id) {
	int i = ipc_find_mapping(x->end, id);
	return i < 0 ? P2P_OK : ipc_unmap(x, i);
}

static int send_address(struct run *x, const struct p2p_message *m, const struct mapping *at) {
	struct p2p_message a = {.type = MSG_MAPADDR,
				.seq = m->seq,
				.base = m->base,
				.version = m->handle.id,
				.address = (uint64_t)(uintptr_t)at->base};
	return ipc_send(x, &a);
}

/* Maps an allocation for one window, unless it is mapped already. */
static int map_for_now(struct run *x, const struct p2p_handle *h, int *out) {
	int known = ipc_find_mapping(x->end, h->id);
	if (known < 0)
		x->s->transient[x->s->transient_len++] = h->id;
	return ipc_map(x, h, out);
}

/* --cache dual, the older design: a cache of mappings by the sender's address, in addition to the sender's cache. */
static int map_by_address(struct run *x, const struct p2p_message *m, int *out) {
	struct ipc_state *s = x->s;
	uint64_t end = m->base + m->handle.length;
	int rc;
	for (uint32_t i = 0; i < s->maps_len; i++) {
		struct mapping *k = &s->maps[i];
		if (!k->live)
			continue;
		if (k->key == m->base && !(m->flags & FLAG_REMAP)) {
			*out = (int)i;
			return P2P_OK;
		}
		if (k->key < end && m->base < k->key + k->length && (rc = ipc_unmap(x, (int)i)))
			return rc;
	}
	if ((rc = ipc_map(x, &m->handle, out)))
		return rc;
	s->maps[*out].key = m->base;
	return P2P_OK;
}

static int map_message(struct run *x, const struct p2p_message *m, const uint8_t **from) {
	int i, rc;
	if (!(m->flags & FLAG_KEEP))
		rc = map_for_now(x, &m->handle, &i);
	else if (x->end->cfg.cache == IPC_CACHE_DUAL)
		rc = map_by_address(x, m, &i);
	else if ((rc = ipc_map(x, &m->handle, &i)) == P2P_OK)
		rc = send_address(x, m, &x->s->maps[i]);
	if (rc == P2P_OK)
		*from = x->s->maps[i].base + m->offset;
	return rc;
}

/* Finds the address to copy a message from. */
static int locate(struct run *x, struct p2p_message *m, const uint8_t **from) {
	if (m->flags & FLAG_BOUNCE) {
		*from = bounce(x, 1 - x->end->cfg.rank) + m->offset;
		return P2P_OK;
	}
	if (m->flags & FLAG_DIRECT) {
		*from = (const uint8_t *)(uintptr_t)m->address + m->offset;
		return P2P_OK;
	}
	int rc = map_message(x, m, from);
	ipc_close_fd(&m->handle.fd);
	return rc;
}

int ipc_next(struct run *x, struct p2p_message **m) {
	struct ipc_state *s = x->s;
	struct p2p_wait w = {0};
	int rc, polls = x->l.ctx->wake == P2P_WAKE_SPIN ? 512 : 1;
	while (s->inbound_head == s->inbound_tail) {
		rc = polls-- > 0 ? ipc_progress(x)
				 : ipc_wait_step(x, &w, P2P_WAIT_DONE, *x->received, *x->received - 1);
		if (rc)
			return rc;
	}
	ipc_waited(x, &w);
	*m = &s->inbound[s->inbound_head++ % INBOUND];
	return P2P_OK;
}

static int fetch(struct run *x, uint64_t number, const uint8_t *from) {
	struct p2p_engine *g = x->end->engine;
	uint32_t w = (uint32_t)(number % x->l.b->window);
	return g->copy(g->self, ipc_own_slot(x, w), from, x->l.b->size, x->l.e);
}

static int close_transient(struct run *x) {
	int rc = P2P_OK;
	for (uint32_t k = 0; rc == P2P_OK && k < x->s->transient_len; k++)
		rc = unmap_id(x, x->s->transient[k]);
	x->s->transient_len = 0;
	return rc;
}

/* late: copies after all messages have come, so that evictions by a faulty sender have an effect. */
static int receive_window(struct run *x, uint32_t late) {
	struct p2p_engine *g = x->end->engine;
	uint32_t window = x->l.b->window;
	struct p2p_message *m;
	int rc;
	for (uint32_t got = 0; got < window;) {
		const uint8_t *from;
		if ((rc = ipc_next(x, &m)))
			return rc;
		if (m->type == MSG_UNMAP) {
			if ((rc = unmap_id(x, m->version)))
				return rc;
			continue;
		}
		if ((rc = locate(x, m, &from)))
			return rc;
		if (late)
			x->s->late[got] = from;
		else if ((rc = fetch(x, m->tag, from)))
			return rc;
		got++;
	}
	for (uint32_t w = 0; late && w < window; w++)
		if ((rc = fetch(x, w, x->s->late[w])))
			return rc;
	return g->wait(g->self, x->l.ctx, x->l.e);
}

static int receive_get(struct run *x, uint64_t seq, uint32_t i) {
	(void)seq, (void)i;
	int rc = receive_window(x, x->end->cfg.fault == IPC_EVICT_IN_FLIGHT);
	return rc ? rc : close_transient(x);
}

static int supply_get(struct run *x) {
	int changed;
	return ipc_renew(x, &changed);
}

/* The hook of fault injection, since the sender's engine does not copy. */
static int leave_get(struct run *x, uint32_t i) {
	struct p2p_engine *g = x->end->engine;
	int rc = P2P_OK;
	for (uint32_t w = 0; rc == P2P_OK && g->leave && w < x->l.b->window; w++) {
		uint32_t buffer = ipc_turn(x->s, ipc_number(x, i, w));
		int sliced = x->end->cfg.slices > 1, first = sliced ? w == 0 : w < x->s->buffers;
		uint8_t *base = x->s->base[sliced ? 0 : buffer];
		if (!first || !bounces(x->s, x->s->allocated_bytes, (uint64_t)(uintptr_t)base))
			rc = g->leave(g->self, ipc_shared_slot(x, i, w), x->l.b->size, x->l.e);
	}
	return rc;
}

/*
 * Handles every MAPADDR that the peer sent before its acknowledgement. If it were handled after its entry was evicted
 * and replaced, it would name a closed mapping.
 */
static int arm_get(struct run *x, uint32_t i) {
	(void)i;
	return ipc_progress(x);
}

const struct ipc_path ipc_get_path = {
	.supply = supply_get,
	.leave = leave_get,
	.arm = arm_get,
	.send = send_get,
	.receive = receive_get,
	.cleanup = cleanup,
};
