#include "ipc.h"

/* A batch on one rank. */
struct run {
	struct p2p_loop l;
	struct ipc_end *end;
	struct ipc_direction *out, *in;
	uint64_t *sent, *received; /* sequence numbers of the two directions */
};

static int fill(struct run *x, uint32_t i) {
	return p2p_loop_fill(&x->l, x->end->engine, x->end->source, x->end->rank, i);
}

static int verify(struct run *x, uint32_t i) {
	return p2p_loop_verify(&x->l, x->end->engine, x->end->inbox, 1 - x->end->rank, i);
}

/* Moves one window into the peer's inbox and publishes it. */
static inline int send_window(struct run *x, uint64_t seq) {
	struct p2p_engine *g = x->end->engine;
	int rc = p2p_loop_post(&x->l, g, x->end->peer, x->end->source);
	if (rc || (rc = g->wait(g->self, x->l.ctx, x->l.e)))
		return rc;
	atomic_store_explicit(&x->out->done, seq, memory_order_release);
	return P2P_OK;
}

/* Lets the peer send the next operation. */
static inline void grant(struct run *x) {
	atomic_store_explicit(&x->in->ready, *x->received + 1, memory_order_release);
}

static inline int await_grant(struct run *x) {
	return p2p_wait_ge(x->l.ctx, &x->out->ready, *x->sent + 1, P2P_WAIT_READY, x->l.e);
}

static inline int await_message(struct run *x, uint64_t seq) {
	return p2p_wait_ge(x->l.ctx, &x->in->done, seq, P2P_WAIT_DONE, x->l.e);
}

static inline void acknowledge(struct run *x, uint64_t seq) {
	atomic_store_explicit(&x->in->ack, seq, memory_order_release);
}

static inline int await_ack(struct run *x, uint64_t seq) {
	return p2p_wait_ge(x->l.ctx, &x->out->ack, seq, P2P_WAIT_ACK, x->l.e);
}

/* latency and stream, rank 0. */
static int send_one(struct run *x, uint32_t i) {
	int rc;
	if ((rc = fill(x, i)) || (rc = await_grant(x)))
		return rc;
	uint64_t seq = ++*x->sent, t0 = p2p_loop_now(&x->l);
	if ((rc = send_window(x, seq)) || (rc = await_ack(x, seq)))
		return rc;
	p2p_loop_take(&x->l, i, t0, p2p_loop_now(&x->l));
	return P2P_OK;
}

/* latency and stream, rank 1. */
static int receive_one(struct run *x, uint32_t i) {
	int rc;
	grant(x);
	uint64_t seq = ++*x->received;
	if ((rc = await_message(x, seq)))
		return rc;
	acknowledge(x, seq);
	return verify(x, i);
}

/* bidir, both ranks. */
static int exchange_one(struct run *x, uint32_t i) {
	int rc;
	if ((rc = fill(x, i)))
		return rc;
	grant(x);
	if ((rc = await_grant(x)))
		return rc;
	uint64_t out = ++*x->sent, in = ++*x->received, t0 = p2p_loop_now(&x->l);
	if ((rc = send_window(x, out)) || (rc = await_message(x, in)))
		return rc;
	acknowledge(x, in);
	if ((rc = await_ack(x, out)))
		return rc;
	p2p_loop_take(&x->l, i, t0, p2p_loop_now(&x->l));
	return verify(x, i);
}

/* pingpong, rank 0: there and back. */
static int ping_one(struct run *x, uint32_t i) {
	int rc;
	if ((rc = fill(x, i)) || (rc = await_grant(x)))
		return rc;
	uint64_t out = ++*x->sent, in = ++*x->received, t0 = p2p_loop_now(&x->l);
	if ((rc = send_window(x, out)) || (rc = await_message(x, in)))
		return rc;
	p2p_loop_take(&x->l, i, t0, p2p_loop_now(&x->l));
	return verify(x, i);
}

/* pingpong, rank 1. */
static int pong_one(struct run *x, uint32_t i) {
	int rc;
	if ((rc = fill(x, i)))
		return rc;
	grant(x);
	uint64_t in = ++*x->received, out = ++*x->sent;
	if ((rc = await_message(x, in)) || (rc = send_window(x, out)))
		return rc;
	return verify(x, i);
}

static int (*iteration(const struct run *x))(struct run *, uint32_t) {
	int first = x->end->rank == 0;
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
	return x->end->rank == 0 || x->l.b->op == P2P_OP_BIDIR || x->l.b->op == P2P_OP_PINGPONG;
}

static int set_up(struct run *x) {
	struct ipc_end *end = x->end;
	struct p2p_engine *g = end->engine;
	int rc = g->bind(g->self, x->l.e);
	if (rc || (rc = p2p_loop_poison(&x->l, g, end->inbox)))
		return rc;
	if (sends(x) && ((rc = p2p_loop_fill_first(&x->l, g, end->source, end->rank)) ||
			 (rc = p2p_loop_record(&x->l, g, end->peer, end->source))))
		return rc;
	return p2p_loop_barrier(&x->l);
}

int p2p_ipc_run(struct ipc_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		struct p2p_error *e) {
	uint32_t me = end->rank, peer = 1 - me;
	struct run x = {
		.l = {.ctx = end->ctx, .b = b, .r = r, .e = e, .samples = samples},
		.end = end,
		.out = &end->link->from[me],
		.in = &end->link->from[peer],
		.sent = &end->seq[me],
		.received = &end->seq[peer],
	};
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
		end->messages += (uint64_t)n * b->window;
	p2p_at(end->ctx, P2P_PHASE_IDLE, b->size, n);
	return P2P_OK;
}
