#include "core.h"

#include <stdlib.h>

/* ---- payload -------------------------------------------------------------------------------------------------- */

/* Writes the messages of iteration i. Not timed. */
static int fill(struct run *x, uint32_t i, uint64_t step) {
	struct p2p_engine *g = x->end->engine;
	for (uint32_t w = 0; w < x->l.b->window; w++) {
		int rc = p2p_loop_fill_message(&x->l, g, ipc_source(x, i, w), x->end->cfg.rank, i, w, step);
		if (rc)
			return rc;
	}
	return g->wait(g->self, x->l.ctx, x->l.e);
}

static int supply(struct run *x, uint32_t i) {
	int rc = x->path->supply ? x->path->supply(x) : P2P_OK;
	if (rc == P2P_OK && x->l.b->check != P2P_CHECK_OFF)
		rc = fill(x, i, p2p_loop_step(&x->l, i));
	return rc || !x->path->leave ? rc : x->path->leave(x, i);
}

static int verify(struct run *x, uint32_t i) {
	for (uint32_t w = 0; x->l.b->check != P2P_CHECK_OFF && w < x->l.b->window; w++) {
		int rc = p2p_loop_verify_message(&x->l, x->end->engine, ipc_inbox(x, i, w), 1 - x->end->cfg.rank, i, w);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

static int poison(struct run *x) {
	struct ipc_end *end = x->end;
	if (end->cfg.path == IPC_GET)
		return p2p_loop_poison(&x->l, end->engine, end->own);
	int rc = P2P_OK;
	for (uint32_t k = 0; rc == P2P_OK && k < x->s->buffers; k++)
		rc = p2p_loop_poison(&x->l, end->engine, ipc_buffer(end, k));
	return rc;
}

/* ---- operations ----------------------------------------------------------------------------------------------- */

/* Lets the peer send the next operation. */
static inline int grant(struct run *x, uint32_t i) {
	int rc = x->path->prepare ? x->path->prepare(x, i) : P2P_OK;
	if (rc)
		return rc;
	atomic_store_explicit(&x->in->ready, *x->received + 1, memory_order_release);
	return P2P_OK;
}

static inline int await_grant(struct run *x, uint32_t i) {
	struct p2p_wait w = {0};
	uint64_t want = *x->sent + 1, have;
	int rc;
	while (ipc_before(have = atomic_load_explicit(&x->out->ready, memory_order_acquire), want))
		if ((rc = ipc_wait_step(x, &w, P2P_WAIT_READY, want, have)))
			return rc;
	ipc_waited(x, &w);
	return x->path->arm ? x->path->arm(x, i) : P2P_OK;
}

static inline int settle(struct run *x) { return x->path->settle ? x->path->settle(x) : P2P_OK; }

/* latency and stream, rank 0. */
static int send_one(struct run *x, uint32_t i) {
	int rc;
	if ((rc = supply(x, i)) || (rc = await_grant(x, i)))
		return rc;
	uint64_t seq = ++*x->sent, t0 = p2p_loop_now(&x->l);
	if ((rc = x->path->send(x, seq, i)) || (rc = ipc_await_ack(x, seq)))
		return rc;
	p2p_loop_take(&x->l, i, t0, p2p_loop_now(&x->l));
	return settle(x);
}

/* latency and stream, rank 1. */
static int receive_one(struct run *x, uint32_t i) {
	int rc;
	if ((rc = grant(x, i)))
		return rc;
	uint64_t seq = ++*x->received;
	if ((rc = x->path->receive(x, seq, i)) || (rc = ipc_acknowledge(x, seq)))
		return rc;
	return verify(x, i);
}

/* Both directions, for paths that have no way of their own. */
static int send_and_receive(struct run *x, uint64_t out, uint64_t in, uint32_t i) {
	int rc = x->path->send(x, out, i);
	return rc ? rc : x->path->receive(x, in, i);
}

/* bidir, both ranks. */
static int exchange_one(struct run *x, uint32_t i) {
	int (*both)(struct run *, uint64_t, uint64_t, uint32_t) =
		x->path->exchange ? x->path->exchange : send_and_receive;
	int rc;
	if ((rc = supply(x, i)) || (rc = grant(x, i)) || (rc = await_grant(x, i)))
		return rc;
	uint64_t out = ++*x->sent, in = ++*x->received, t0 = p2p_loop_now(&x->l);
	if ((rc = both(x, out, in, i)) || (rc = ipc_acknowledge(x, in)) || (rc = ipc_await_ack(x, out)))
		return rc;
	p2p_loop_take(&x->l, i, t0, p2p_loop_now(&x->l));
	return (rc = settle(x)) ? rc : verify(x, i);
}

/* pingpong, rank 0: there and back. The answer says that the question has arrived; nothing else acknowledges it. */
static int ping_one(struct run *x, uint32_t i) {
	int rc;
	if ((rc = supply(x, i)) || (rc = grant(x, i)) || (rc = await_grant(x, i)))
		return rc;
	uint64_t out = ++*x->sent, in = ++*x->received, t0 = p2p_loop_now(&x->l);
	if ((rc = x->path->send(x, out, i)) || (rc = x->path->receive(x, in, i)))
		return rc;
	p2p_loop_take(&x->l, i, t0, p2p_loop_now(&x->l));
	if ((rc = ipc_acknowledge(x, in)) || (rc = settle(x)))
		return rc;
	return verify(x, i);
}

/* pingpong, rank 1. */
static int pong_one(struct run *x, uint32_t i) {
	int rc;
	if ((rc = supply(x, i)) || (rc = grant(x, i)) || (rc = await_grant(x, i)))
		return rc;
	uint64_t in = ++*x->received, out = ++*x->sent;
	if ((rc = x->path->receive(x, in, i)) || (rc = x->path->send(x, out, i)) || (rc = ipc_await_ack(x, out)) ||
	    (rc = settle(x)))
		return rc;
	return verify(x, i);
}

static int (*iteration(const struct run *x))(struct run *, uint32_t) {
	int first = x->end->cfg.rank == 0;
	switch (x->l.b->op) {
	case P2P_OP_BIDIR:
		return exchange_one;
	case P2P_OP_PINGPONG:
		return first ? ping_one : pong_one;
	default:
		return first ? send_one : receive_one;
	}
}

static int sends(const struct run *x) {
	return x->end->cfg.rank == 0 || x->l.b->op == P2P_OP_BIDIR || x->l.b->op == P2P_OP_PINGPONG;
}

/* ---- batches -------------------------------------------------------------------------------------------------- */

static struct run begin(struct ipc_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
			struct p2p_error *e) {
	static const struct ipc_path *const paths[] = {
		[IPC_DIRECT] = &ipc_direct_path,
		[IPC_HANDSHAKE] = &ipc_handshake_path,
		[IPC_RELAY_POOLED] = &ipc_pooled_path,
		[IPC_RELAY_FRESH] = &ipc_fresh_path,
		[IPC_GET] = &ipc_get_path,
	};
	uint32_t me = end->cfg.rank, peer = 1 - me;
	return (struct run){
		.l = {.ctx = end->ctx, .b = b, .r = r, .e = e, .samples = samples},
		.end = end,
		.s = end->state,
		.out = &end->link->from[me],
		.in = &end->link->from[peer],
		.sent = &end->seq[me],
		.received = &end->seq[peer],
		.path = paths[end->cfg.path],
	};
}

static int set_up(struct run *x) {
	struct ipc_end *end = x->end;
	struct p2p_engine *g = end->engine;
	int rc = g->bind(g->self, x->l.e);
	if (rc || (rc = poison(x)))
		return rc;
	if (sends(x) && x->l.b->check != P2P_CHECK_FULL && (rc = fill(x, 0, 0)))
		return rc;
	if (sends(x) && x->l.b->graph && (rc = p2p_loop_record(&x->l, g, p2p_ipc_remote(end), end->own)))
		return rc;
	return p2p_loop_barrier(&x->l);
}

int p2p_ipc_run(struct ipc_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		struct p2p_error *e) {
	struct run x = begin(end, b, samples, r, e);
	int (*one)(struct run *, uint32_t) = iteration(&x);
	int rc = set_up(&x);
	uint32_t n = p2p_loop_length(&x.l);
	for (uint32_t i = 0; rc == P2P_OK && i < n; i++) {
		p2p_loop_at(&x.l, i);
		rc = one(&x, i);
	}
	if (rc)
		return rc;
	if (sends(&x))
		end->count.path[end->cfg.path] += (uint64_t)n * b->window;
	p2p_at(end->ctx, P2P_PHASE_IDLE, b->size, n);
	return P2P_OK;
}

/* ---- an end's life -------------------------------------------------------------------------------------------- */

int p2p_ipc_open(const struct ipc_config *c, struct p2p_engine *g, struct p2p_memory *m, const struct p2p_ctx *ctx,
		 struct ipc_end **out, struct p2p_error *e) {
	struct ipc_end *end = calloc(1, sizeof *end);
	struct ipc_state *s = end ? end->state = calloc(1, sizeof *s) : NULL;
	struct p2p_error ignored;
	if (!s) {
		free(end);
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	}
	end->cfg = *c;
	end->engine = g;
	end->memory = m;
	end->ctx = ctx;
	end->socket = -1;
	end->seq[0] = end->seq[1] = s->rung_done = s->rung_ack = c->start;
	int rc = ipc_buffers_open(end, e);
	if (rc || (rc = ipc_handles_open(end, e)) || (c->path == IPC_GET && (rc = ipc_get_open(end, e)))) {
		p2p_ipc_close(end, &ignored);
		return rc;
	}
	s->answer = calloc(MOST_WINDOW, sizeof *s->answer);
	if (!s->answer) {
		p2p_ipc_close(end, &ignored);
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	}
	*out = end;
	return P2P_OK;
}

/* The words of both directions begin at the same number as the ends' own. */
static void start_words(struct ipc_end *end) {
	struct ipc_direction *d = &end->link->from[end->cfg.rank];
	atomic_store(&d->ready, end->cfg.start);
	atomic_store(&d->done, end->cfg.start);
	atomic_store(&d->ack, end->cfg.start);
}

/* Waits until the peer has begun too: from then on its ring and its words may be read. */
static int meet(struct run *x) {
	struct ipc_end *end = x->end;
	struct p2p_wait w = {0};
	uint32_t peer = 1 - end->cfg.rank;
	int rc = ipc_talk_open(end, x->l.e);
	if (rc)
		return rc;
	start_words(end);
	atomic_store_explicit(&end->link->started[end->cfg.rank], 1, memory_order_release);
	while (!atomic_load_explicit(&end->link->started[peer], memory_order_acquire))
		if ((rc = p2p_wait_step(x->l.ctx, &w, P2P_WAIT_RANKS, 1, 0, x->l.e)))
			return rc;
	p2p_ring_reader_init(&x->s->in, &end->link->ring[peer]);
	return P2P_OK;
}

/* Whether each rank maps the other's memory. */
static int maps_memory(const struct ipc_end *end) {
	return end->cfg.path != IPC_RELAY_POOLED && end->cfg.path != IPC_RELAY_FRESH && !end->cfg.threads;
}

static int maps_beforehand(const struct ipc_end *end) {
	return end->cfg.path == IPC_DIRECT && end->cfg.open == IPC_OPEN_EAGER;
}

int p2p_ipc_connect(struct ipc_end *end, int introduce, struct p2p_error *e) {
	static const struct p2p_batch none = {.window = 1};
	struct p2p_result r = {0};
	struct run x = begin(end, &none, NULL, &r, e);
	int rc = end->engine->bind(end->engine->self, e);
	if (rc || (rc = ipc_pin_pool(&x)) || (rc = meet(&x)) || !maps_memory(end))
		return rc;
	uint32_t n = end->cfg.path == IPC_DIRECT ? x.s->buffers : introduce ? 1 : 0;
	if ((rc = ipc_publish(&x, n)) || (rc = ipc_await_publications(&x, n)))
		return rc;
	return introduce || maps_beforehand(end) ? ipc_open_binding(&x, &x.s->bindings[0]) : P2P_OK;
}

void p2p_ipc_join(struct ipc_end *a, struct ipc_end *b) {
	a->state->bindings[0].at = b->state->base[0];
	b->state->bindings[0].at = a->state->base[0];
}

uint8_t *p2p_ipc_remote(const struct ipc_end *end) {
	const struct binding *b = &end->state->bindings[0];
	if (b->at)
		return b->at;
	return b->mapping < 0 ? NULL : end->state->maps[b->mapping].base + b->offset;
}

/* A path that maps as it goes begins with nothing mapped, exported or counted. */
static int forget_introduction(struct run *x) {
	struct ipc_end *end = x->end;
	struct binding *b = &x->s->bindings[0];
	int rc = ipc_close_binding(x, b);
	b->fresh = 0;
	if (end->cfg.path != IPC_DIRECT) {
		ipc_close_fd(&b->handle.fd);
		for (uint32_t i = 0; i < end->cfg.allocations; i++)
			ipc_forget_exports(end, x->s->base[i]);
	}
	memset(&end->count, 0, sizeof end->count);
	return rc;
}

int p2p_ipc_ready(struct ipc_end *end, struct p2p_error *e) {
	static const struct p2p_batch none = {.window = 1};
	struct p2p_result r = {0};
	struct run x = begin(end, &none, NULL, &r, e);
	int rc = end->engine->bind(end->engine->self, e);
	if (rc == P2P_OK && maps_memory(end)) {
		if (maps_beforehand(end))
			rc = ipc_direct_path.arm(&x, 0);
		else
			rc = forget_introduction(&x);
	}
	return rc ? rc : ipc_confirm(&x);
}

uint8_t *p2p_ipc_shared(const struct ipc_end *end) { return end->state->base[0]; }

void p2p_ipc_stop(struct ipc_end *end) { atomic_store(&end->ctx->progress->abort, 1); }

uint64_t p2p_ipc_unused(struct ipc_end *end) {
	struct p2p_error ignored;
	uint64_t n = 0;
	if (end->engine->bind(end->engine->self, &ignored) || end->memory->unused(end->memory->self, &n, &ignored))
		return 0;
	return n;
}

/* Notes the first failure. */
static void closing(int *rc, struct p2p_error *first, int last, const struct p2p_error *e) {
	if (*rc == P2P_OK && last != P2P_OK) {
		*rc = last;
		*first = *e;
	}
}

int p2p_ipc_close(struct ipc_end *end, struct p2p_error *e) {
	struct ipc_state *s = end->state;
	struct p2p_error one;
	int rc = end->engine ? end->engine->bind(end->engine->self, e) : P2P_OK; /* none: it could not be chosen */
	closing(&rc, e, ipc_unpin_pool(end, &one), &one);
	closing(&rc, e, ipc_handles_close(end, &one), &one);
	closing(&rc, e, ipc_buffers_close(end, &one), &one);
	for (uint32_t i = 0; s->lru && i < P2P_LRU_MAX; i++)
		if (s->lru->handle[i].fd > 0)
			ipc_close_fd(&s->lru->handle[i].fd);
	for (; s->inbound_head != s->inbound_tail; s->inbound_head++)
		ipc_close_fd(&s->inbound[s->inbound_head % INBOUND].handle.fd);
	free(s->inbound);
	free(s->answer);
	free(s->late);
	free(s->lru);
	free(s->held);
	free(s->transient);
	free(s);
	free(end);
	return rc;
}
