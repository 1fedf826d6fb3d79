#include "core.h"

#include <stdlib.h>

/* ---- payload -------------------------------------------------------------------------------------------------- */

static int poison(struct run *x, uint32_t k) {
	struct ipc_end *end = x->end;
	(void)k;
	if (end->cfg.path == IPC_GET)
		return p2p_loop_poison(&x->l, end->engine, end->own);
	int rc = P2P_OK;
	for (uint32_t buffer = 0; rc == P2P_OK && buffer < x->s->buffers; buffer++)
		rc = p2p_loop_poison(&x->l, end->engine, ipc_buffer(end, buffer));
	return rc;
}

static int fill(struct run *x, uint32_t i, uint32_t k, uint64_t step) {
	struct p2p_engine *g = x->end->engine;
	(void)k;
	for (uint32_t w = 0; w < x->l.b->window; w++) {
		int rc = p2p_loop_fill_message(&x->l, g, ipc_source(x, i, w), x->end->cfg.rank, i, w, step);
		if (rc)
			return rc;
	}
	return g->wait(g->self, x->l.ctx, x->l.e);
}

static int leave(struct run *x, uint32_t i, uint32_t k) {
	(void)k;
	return x->path->leave ? x->path->leave(x, i) : P2P_OK;
}

static int verify(struct run *x, uint32_t i, uint32_t k) {
	(void)k;
	for (uint32_t w = 0; w < x->l.b->window; w++) {
		int rc = p2p_loop_verify_message(&x->l, x->end->engine, ipc_inbox(x, i, w), 1 - x->end->cfg.rank, i, w);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

/* ---- steps of an operation ------------------------------------------------------------------------------------ */

static int sends(const struct run *x) { return p2p_sends(p2p_role_of(&x->l, x->end->cfg.rank == 0)); }

static int bind(struct run *x) { return x->end->engine->bind(x->end->engine->self, x->l.e); }

static int record(struct run *x) {
	struct ipc_end *end = x->end;
	return sends(x) ? p2p_loop_record(&x->l, end->engine, p2p_ipc_remote(end), end->own) : P2P_OK;
}

static int begin(struct run *x, uint32_t i, uint32_t *n) {
	(void)i, (void)n;
	return sends(x) && x->path->supply ? x->path->supply(x) : P2P_OK;
}

/* Allows the peer to send the next operation. */
static int credit(struct run *x, enum p2p_role role, uint32_t i) {
	int rc = x->path->prepare ? x->path->prepare(x, i) : P2P_OK;
	(void)role;
	if (rc)
		return rc;
	atomic_store_explicit(&x->in->ready, ++*x->received, memory_order_release);
	return P2P_OK;
}

static int await_credit(struct run *x, enum p2p_role role, uint32_t i) {
	struct p2p_wait w = {0};
	uint64_t want = ++*x->sent, have;
	int rc;
	(void)role;
	while (ipc_before(have = atomic_load_explicit(&x->out->ready, memory_order_acquire), want))
		if ((rc = ipc_wait_step(x, &w, P2P_WAIT_READY, want, have)))
			return rc;
	ipc_waited(x, &w);
	return x->path->arm ? x->path->arm(x, i) : P2P_OK;
}

/* bidir, for paths without an exchange step. */
static int send_and_receive(struct run *x, uint64_t out, uint64_t in, uint32_t i) {
	int rc = x->path->send(x, out, i);
	return rc ? rc : x->path->receive(x, in, i);
}

static inline int transfer(struct run *x, enum p2p_role role, uint32_t i) {
	int rc;
	switch (role) {
	case P2P_SEND:
		return x->path->send(x, *x->sent, i);
	case P2P_RECEIVE:
		return x->path->receive(x, *x->received, i);
	case P2P_EXCHANGE:
		return x->exchange(x, *x->sent, *x->received, i);
	case P2P_PING:
		return (rc = x->path->send(x, *x->sent, i)) ? rc : x->path->receive(x, *x->received, i);
	case P2P_PONG:
		return (rc = x->path->receive(x, *x->received, i)) ? rc : x->path->send(x, *x->sent, i);
	}
	return P2P_OK;
}

static inline int acknowledge(struct run *x) { return ipc_acknowledge(x, *x->received); }

static inline int await_ack(struct run *x) { return ipc_await_ack(x, *x->sent); }

static int cleanup(struct run *x) { return x->path->cleanup ? x->path->cleanup(x) : P2P_OK; }

static const struct p2p_steps steps = {
	.bind = bind,
	.poison = poison,
	.record = record,
	.begin = begin,
	.fill = fill,
	.leave = leave,
	.credit = credit,
	.await_credit = await_credit,
	.transfer = transfer,
	.acknowledge = acknowledge,
	.await_ack = await_ack,
	.cleanup = cleanup,
	.verify = verify,
};

/* ---- batches -------------------------------------------------------------------------------------------------- */

static struct run run_of(struct ipc_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
			 struct p2p_error *e) {
	static const struct ipc_path *const paths[] = {
		[IPC_DIRECT] = &ipc_direct_path,
		[IPC_HANDSHAKE] = &ipc_handshake_path,
		[IPC_RELAY_POOLED] = &ipc_pooled_path,
		[IPC_RELAY_FRESH] = &ipc_fresh_path,
		[IPC_GET] = &ipc_get_path,
	};
	const struct ipc_path *path = paths[end->cfg.path];
	uint32_t me = end->cfg.rank, peer = 1 - me;
	return (struct run){
		.l = {.ctx = end->ctx, .b = b, .r = r, .e = e, .samples = samples},
		.end = end,
		.s = end->state,
		.out = &end->link->from[me],
		.in = &end->link->from[peer],
		.sent = &end->seq[me],
		.received = &end->seq[peer],
		.path = path,
		.exchange = path->exchange ? path->exchange : send_and_receive,
	};
}

int p2p_ipc_run(struct ipc_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		struct p2p_error *e) {
	struct run x = run_of(end, b, samples, r, e);
	int rc = p2p_loop_run(&x.l, &steps, &x, p2p_role_of(&x.l, end->cfg.rank == 0));
	if (rc == P2P_OK && sends(&x))
		end->count.path[end->cfg.path] += (uint64_t)p2p_loop_length(&x.l) * b->window;
	return rc;
}

/* ---- open and close -------------------------------------------------------------------------------------------- */

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
	end->seq[0] = end->seq[1] = s->message_done = s->message_ack = c->start;
	int rc = ipc_buffers_open(end, e);
	if (rc || (rc = ipc_handles_open(end, e)) || (c->path == IPC_GET && (rc = ipc_get_open(end, e)))) {
		p2p_ipc_close(end, &ignored);
		return rc;
	}
	s->answer = calloc(MAX_WINDOW, sizeof *s->answer);
	if (!s->answer) {
		p2p_ipc_close(end, &ignored);
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	}
	*out = end;
	return P2P_OK;
}

/* Sets the words that the peer waits for to the first sequence number. */
static void start_words(struct ipc_end *end) {
	struct ipc_direction *d = &end->link->from[end->cfg.rank];
	atomic_store(&d->ready, end->cfg.start);
	atomic_store(&d->done, end->cfg.start);
	atomic_store(&d->ack, end->cfg.start);
}

/* Waits until the peer has initialized its ring and its words, which may be read from then on. */
static int rendezvous(struct run *x) {
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

/* Whether the ranks map each other's memory. */
static int maps_memory(const struct ipc_end *end) {
	return end->cfg.path != IPC_RELAY_POOLED && end->cfg.path != IPC_RELAY_FRESH && !end->cfg.threads;
}

static int maps_beforehand(const struct ipc_end *end) {
	return end->cfg.path == IPC_DIRECT && end->cfg.open == IPC_OPEN_EAGER;
}

int p2p_ipc_connect(struct ipc_end *end, int introduce, struct p2p_error *e) {
	static const struct p2p_batch none = {.window = 1};
	struct p2p_result r = {0};
	struct run x = run_of(end, &none, NULL, &r, e);
	int rc = end->engine->bind(end->engine->self, e);
	if (rc || (rc = ipc_pin_pool(&x)) || (rc = rendezvous(&x)) || !maps_memory(end))
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

/* Paths that map later begin their first batch with nothing mapped, exported or counted. */
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
	struct run x = run_of(end, &none, NULL, &r, e);
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

/* Keeps the first failure. */
static void keep_first(int *rc, struct p2p_error *first, int last, const struct p2p_error *e) {
	if (*rc == P2P_OK && last != P2P_OK) {
		*rc = last;
		*first = *e;
	}
}

int p2p_ipc_close(struct ipc_end *end, struct p2p_error *e) {
	struct ipc_state *s = end->state;
	struct p2p_error one;
	int rc = end->engine ? end->engine->bind(end->engine->self, e) : P2P_OK; /* NULL: autotune failed */
	keep_first(&rc, e, ipc_unpin_pool(end, &one), &one);
	keep_first(&rc, e, ipc_handles_close(end, &one), &one);
	keep_first(&rc, e, ipc_buffers_close(end, &one), &one);
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
