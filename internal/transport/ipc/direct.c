#include "core.h"

/* ---- receiver: publications and replies ----------------------------------------------------------------------- */

/* Sends the handle of a buffer, and the offset of the memory `slot` bytes into it. Handles are exported per buffer. */
static int send_handle(struct run *x, struct p2p_message m, uint32_t buffer, uint64_t slot) {
	int owned;
	m.version = x->s->version;
	int rc = ipc_export(x, ipc_buffer(x->end, buffer), &m.handle, &m.offset, &owned);
	if (rc)
		return rc;
	m.offset += slot;
	m.flags = m.handle.fd >= 0 ? FLAG_FD : 0;
	rc = ipc_send(x, &m);
	if (owned)
		ipc_close_fd(&m.handle.fd);
	return rc;
}

/* Publishes one buffer, if its allocation has changed since its last publication or if `always`. */
static int publish_one(struct run *x, uint32_t buffer, int always) {
	struct ipc_end *end = x->end;
	struct p2p_range r;
	uint8_t *p = ipc_buffer(end, buffer);
	int rc = end->memory->range(end->memory->self, p, &r, x->l.e);
	if (rc || (!always && x->s->published[buffer] == r.id))
		return rc;
	x->s->published[buffer] = r.id;
	x->s->version++;
	end->count.published++;
	struct p2p_message m = {.type = MSG_PUBLISH, .tag = buffer, .size = end->cfg.region};
	return send_handle(x, m, buffer, 0);
}

int ipc_publish(struct run *x, uint32_t n) {
	int rc = P2P_OK;
	for (uint32_t i = 0; rc == P2P_OK && i < n; i++)
		rc = publish_one(x, i, 0);
	return rc;
}

/* With --same-process nothing is published: the peer has the pointer. */
static int prepare_direct(struct run *x, uint32_t i) {
	int changed, always = (int)x->end->cfg.publish_always;
	int rc = ipc_renew(x, &changed);
	if (rc || x->end->cfg.threads || !(changed || always))
		return rc;
	uint32_t window = x->l.b->window < x->s->buffers ? x->l.b->window : x->s->buffers;
	for (uint32_t w = 0; rc == P2P_OK && w < window; w++)
		rc = publish_one(x, ipc_turn(x->s, ipc_number(x, i, w)), always);
	return rc;
}

static int prepare_handshake(struct run *x, uint32_t i) {
	int changed;
	(void)i;
	return ipc_renew(x, &changed);
}

static int answer(struct run *x, const struct p2p_message *q) {
	uint32_t w = (uint32_t)(q->tag % x->l.b->window);
	struct p2p_message m = {.type = MSG_HANDLE, .tag = q->tag, .seq = q->seq, .size = q->size};
	return send_handle(x, m, ipc_turn(x->s, q->tag), ipc_slot(x, w));
}

/* Sending a reply may wait for space in the ring, and handle more requests meanwhile: those are queued. */
int ipc_take_request(struct run *x, const struct p2p_message *m) {
	struct ipc_state *s = x->s;
	int rc = P2P_OK;
	if (s->asked_tail - s->asked_head == MAX_REQUESTS)
		return p2p_fail(x->l.e, P2P_ERR_INVALID, 0, "the peer sent too many requests at a time");
	s->asked[s->asked_tail++ % MAX_REQUESTS] = *m;
	if (s->answering)
		return P2P_OK;
	s->answering = 1;
	while (rc == P2P_OK && s->asked_head != s->asked_tail) {
		struct p2p_message q = s->asked[s->asked_head++ % MAX_REQUESTS];
		rc = answer(x, &q);
	}
	s->answering = 0;
	return rc;
}

/* Receives a window; replies to requests while it waits. */
static int receive(struct run *x, uint64_t seq, uint32_t i) {
	(void)i;
	return ipc_await_done(x, seq);
}

/* ---- sender: bindings ----------------------------------------------------------------------------------------- */

/* Replaces a binding; the old mapping is closed when the new one is opened. */
static void bind(struct binding *b, const struct p2p_message *m) {
	ipc_close_fd(&b->handle.fd);
	b->handle = m->handle;
	b->offset = m->offset;
	b->fresh = 1;
}

void ipc_take_publication(struct run *x, const struct p2p_message *m) {
	if (m->tag >= x->s->buffers)
		return;
	bind(&x->s->bindings[m->tag], m);
	x->s->introduced++;
}

int ipc_await_publications(struct run *x, uint32_t n) {
	struct p2p_wait w = {0};
	while (x->s->introduced < n) {
		int rc = ipc_wait_step(x, &w, P2P_WAIT_READY, n, x->s->introduced);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

int ipc_close_binding(struct run *x, struct binding *b) {
	int i = b->mapping;
	b->mapping = -1;
	if (i < 0 || --x->s->maps[i].refs > 0)
		return P2P_OK;
	return ipc_unmap(x, i);
}

int ipc_open_binding(struct run *x, struct binding *b) {
	int i, rc;
	if (b->mapping >= 0 && !b->fresh)
		return P2P_OK;
	if ((rc = ipc_close_binding(x, b)) || (rc = ipc_map(x, &b->handle, &i)))
		return rc;
	x->s->maps[i].refs++;
	b->mapping = i;
	b->fresh = 0;
	return P2P_OK;
}

static inline uint8_t *bound(const struct run *x, const struct binding *b) {
	return b->at ? b->at : x->s->maps[b->mapping].base + b->offset;
}

/* ---- sender: direct ------------------------------------------------------------------------------------------- */

/* Maps a binding that stays mapped, so its handle can be closed. */
static int open_for_good(struct run *x, struct binding *b) {
	int rc = ipc_open_binding(x, b);
	ipc_close_fd(&b->handle.fd);
	return rc;
}

/* Maps the buffers that were published since the last iteration. */
static int arm_direct(struct run *x, uint32_t i) {
	int rc;
	(void)i;
	if (x->end->cfg.open != IPC_OPEN_EAGER || x->end->cfg.threads)
		return P2P_OK;
	if ((rc = ipc_progress(x)))
		return rc;
	for (uint32_t k = 0; rc == P2P_OK && k < x->s->buffers; k++)
		rc = open_for_good(x, &x->s->bindings[k]);
	return rc;
}

/* One buffer, mapped already. */
static int copy_simple(struct run *x) {
	struct p2p_engine *g = x->end->engine;
	return p2p_loop_post(&x->l, g, bound(x, &x->s->bindings[0]), x->end->own);
}

static int map_now(struct run *x, struct binding *b) {
	switch (x->end->cfg.open) {
	case IPC_OPEN_LAZY:
		return open_for_good(x, b);
	case IPC_OPEN_PER_CALL:
		return ipc_open_binding(x, b);
	}
	return P2P_OK;
}

static int copy_bound(struct run *x, uint32_t i) {
	struct p2p_engine *g = x->end->engine;
	int rc = ipc_progress(x);
	if (rc)
		return rc;
	for (uint32_t w = 0; w < x->l.b->window; w++) {
		struct binding *b = &x->s->bindings[ipc_turn(x->s, ipc_number(x, i, w))];
		if ((rc = map_now(x, b)))
			return rc;
		if ((rc = g->copy(g->self, bound(x, b) + ipc_slot(x, w), ipc_own_slot(x, w), x->l.b->size, x->l.e)))
			return rc;
	}
	return P2P_OK;
}

/* --open per-call: closes the mappings of this window. */
static int close_used(struct run *x, uint32_t i) {
	int rc = P2P_OK;
	if (x->end->cfg.open != IPC_OPEN_PER_CALL)
		return rc;
	for (uint32_t w = 0; rc == P2P_OK && w < x->l.b->window; w++) {
		struct binding *b = &x->s->bindings[ipc_turn(x->s, ipc_number(x, i, w))];
		rc = ipc_close_binding(x, b);
	}
	return rc;
}

static int send_direct(struct run *x, uint64_t seq, uint32_t i) {
	struct p2p_engine *g = x->end->engine;
	int simple = x->s->buffers == 1 && x->end->cfg.open == IPC_OPEN_EAGER;
	int rc = simple ? copy_simple(x) : copy_bound(x, i);
	if (rc || (rc = g->wait(g->self, x->l.ctx, x->l.e)) || (rc = ipc_publish_done(x, seq)))
		return rc;
	return close_used(x, i);
}

const struct ipc_path ipc_direct_path = {
	.prepare = prepare_direct,
	.arm = arm_direct,
	.send = send_direct,
	.receive = receive,
};

/* ---- sender: handshake ---------------------------------------------------------------------------------------- */

static int ask(struct run *x, uint64_t seq, uint64_t n) {
	/* UCCL's match_seq: the pair's sequence number and the direction. */
	struct p2p_message m = {
		.type = MSG_REQUEST, .tag = n, .seq = seq << 1 | x->end->cfg.rank, .size = x->l.b->size};
	return ipc_send(x, &m);
}

void ipc_take_answer(struct run *x, const struct p2p_message *m) {
	x->s->answer[m->tag % x->l.b->window] = *m;
	x->s->answers++;
}

/* Replies come in the order of the requests. */
static int await_answer(struct run *x, uint32_t w) {
	struct p2p_wait wait = {0};
	int rc;
	for (int i = 0; i < 512 && x->l.ctx->wake == P2P_WAKE_SPIN; i++) {
		if (x->s->answers > w)
			return P2P_OK;
		if ((rc = ipc_progress(x)))
			return rc;
	}
	while (x->s->answers <= w)
		if ((rc = ipc_wait_step(x, &wait, P2P_WAIT_READY, w + 1, x->s->answers)))
			return rc;
	ipc_waited(x, &wait);
	return P2P_OK;
}

/* Updates a binding from a reply; keeps the mapping if the allocation is the same. */
static int use_answer(struct run *x, struct binding *b, struct p2p_message *m) {
	if (b->mapping >= 0 && x->s->maps[b->mapping].id == m->handle.id) {
		b->offset = m->offset;
		ipc_close_fd(&m->handle.fd);
		return P2P_OK;
	}
	bind(b, m);
	int rc = ipc_open_binding(x, b);
	ipc_close_fd(&b->handle.fd);
	return rc;
}

static int copy_asked(struct run *x, uint64_t seq, uint32_t i) {
	struct p2p_engine *g = x->end->engine;
	uint32_t asked = 0, window = x->l.b->window;
	int rc;
	x->s->answers = 0;
	for (uint32_t w = 0; w < window; w++) {
		for (; asked < window && asked - w < MAX_REQUESTS; asked++)
			if ((rc = ask(x, seq, ipc_number(x, i, asked))))
				return rc;
		struct binding *b = &x->s->bindings[ipc_turn(x->s, ipc_number(x, i, w))];
		if ((rc = await_answer(x, w)))
			return rc;
		if (x->s->answer[w].tag != ipc_number(x, i, w))
			return p2p_fail(x->l.e, P2P_ERR_INVALID, 0, "the peer replied to another request");
		if ((rc = use_answer(x, b, &x->s->answer[w])) ||
		    (rc = g->copy(g->self, bound(x, b), ipc_own_slot(x, w), x->l.b->size, x->l.e)))
			return rc;
	}
	return g->wait(g->self, x->l.ctx, x->l.e);
}

static int send_handshake(struct run *x, uint64_t seq, uint32_t i) {
	int rc = copy_asked(x, seq, i);
	if (rc || (rc = ipc_publish_done(x, seq)))
		return rc;
	return close_used(x, i);
}

const struct ipc_path ipc_handshake_path = {
	.prepare = prepare_handshake,
	.send = send_handshake,
	.receive = receive,
};
