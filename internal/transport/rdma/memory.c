#include "core.h"

/*
 * Number of polls of a message before a rank also handles completions, deadline and device errors: more than a short
 * message takes to arrive.
 */
enum { POLLS = 4096 };

/* The expected last byte is overwritten with its value XOR this. */
enum { OTHER = 0x55 };

/*
 * The number of messages of a connection that are polled: in a burst, all; in a window, the last one of each queue
 * pair, because writes of one queue pair arrive in order.
 */
static uint32_t polled(const struct run *x, const struct rdma_conn *c) {
	return x->l.b->window == 1 || c->count < c->qps ? c->count : c->qps;
}

/* The number, in the sample or burst, of the n-th message that is polled. */
static uint32_t polled_message(const struct run *x, const struct rdma_conn *c, uint32_t n) {
	const uint32_t conns = x->end->peer[c->peer].in;
	return rdma_message_of(x, c, conns, x->l.b->window == 1 ? n : c->count - 1 - n);
}

/* Sets the byte to poll for message m of a connection, and its value before the message arrives. */
static void watch(const struct run *x, struct rdma_conn *c, uint32_t m) {
	const struct rdma_peer *p = &x->end->peer[c->peer];
	const struct p2p_batch *b = x->l.b;
	const uint32_t slot = b->window == 1 ? 0 : m, later = b->window == 1 ? m : 0;
	const uint32_t i = b->check == P2P_CHECK_OFF ? 0 : x->iter + later;
	c->tail = p->inbox + b->offset + rdma_place(x, m) + b->size - 1;
	c->armed = p2p_payload_byte(p2p_loop_key(&x->l, i, slot, p->rank), b->size - 1) ^ OTHER;
}

/* Does so for the next message that is polled, if there is one. */
static void watch_next(const struct run *x, struct rdma_conn *c) {
	if (c->seen < polled(x, c))
		watch(x, c, polled_message(x, c, c->seen));
}

void rdma_arm(struct run *x) {
	for (uint32_t k = 0; k < x->end->ins; k++) {
		struct rdma_conn *c = &x->end->in[k];
		c->seen = 0;
		for (uint32_t n = polled(x, c); n-- > 0;) { /* the last call leaves tail and armed set for message 0 */
			watch(x, c, polled_message(x, c, n));
			*(uint8_t *)c->tail = c->armed;
		}
	}
}

static int has_arrived(const struct rdma_conn *c) { return __atomic_load_n(c->tail, __ATOMIC_ACQUIRE) != c->armed; }

/* Counts the message that was polled. */
static void count(struct run *x, struct rdma_conn *c) {
	const uint32_t before = c->finished;
	c->seen++;
	if (x->l.b->window == 1)
		c->finished++;
	else if (c->seen == polled(x, c))
		c->finished = c->count;
	x->received += c->finished - before;
}

static void poll_messages(struct run *x, struct rdma_conn *c, uint32_t *moved) {
	while (c->seen < polled(x, c) && has_arrived(c)) {
		count(x, c);
		watch_next(x, c);
		++*moved;
	}
}

void rdma_poll_memory(struct run *x, uint32_t *moved) {
	struct rdma_end *end = x->end;
	if (x->received == x->awaited)
		return;
	for (uint32_t k = 0; x->l.b->window > 1 && k < end->ins; k++)
		poll_messages(x, &end->in[k], moved);
	for (uint32_t i = 0; x->l.b->window == 1 && i < end->peers; i++) {
		const struct rdma_peer *p = &end->peer[i];
		if (p->in)
			poll_messages(x, &end->in[rdma_turn_of(x, p->first_in, p->in)], moved);
	}
}

/* ---- ping-pong -------------------------------------------------------------------------------------------------- */

/* A prepared work request. */
struct prepared {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_qp *qp;
};

/* Waits until a queue pair has room for another message. */
static int await_room(struct run *x, const struct rdma_qp *q) {
	struct p2p_wait w = {0};
	int rc = P2P_OK;
	x->wide = 1;
	while (!rc && rdma_room(q) == 0)
		rc = rdma_progress(x, &w, P2P_WAIT_COPY, 1, 0);
	x->wide = 0;
	return rc;
}

/* Prepares message k of a burst. The last one of each queue pair is signalled. */
static int prepare(struct run *x, uint32_t k, struct prepared *s) {
	struct rdma_end *end = x->end;
	const struct p2p_batch *b = x->l.b;
	const uint32_t conn = (uint32_t)((x->first - 1 + k) % end->outs);
	struct rdma_conn *c = &end->out[conn];
	const uint32_t index = c->qp[c->serial % c->qps];
	struct rdma_qp *q = &end->qp[index];
	int rc = rdma_room(q) ? P2P_OK : await_room(x, q);
	if (rc)
		return rc;
	s->qp = q->qp;
	s->sge = (struct ibv_sge){(uint64_t)(uintptr_t)(end->source + b->offset + rdma_place(x, k)), (uint32_t)b->size,
				  end->source_lkey};
	s->wr = (struct ibv_send_wr){.wr_id = rdma_wr_id(c->id, index, q->head, 0),
				     .sg_list = &s->sge,
				     .num_sge = 1,
				     .opcode = IBV_WR_RDMA_WRITE,
				     .send_flags = rdma_inlines(x, q) ? IBV_SEND_INLINE : 0};
	s->wr.wr.rdma.remote_addr = c->inbox + b->offset + rdma_place(x, k);
	s->wr.wr.rdma.rkey = c->inbox_rkey;
	q->unsignaled++;
	if (q->unsignaled >= rdma_max_unsignaled(q) || k + end->outs * c->qps >= x->burst) {
		s->wr.send_flags |= IBV_SEND_SIGNALED;
		q->unsignaled = 0;
	}
	q->ring[q->head++ & q->mask] = (struct rdma_sent){.conn = conn};
	c->serial++;
	c->messages++;
	x->sending++;
	return P2P_OK;
}

/* Posts message k of a burst, and prepares the next one while the reply is in flight. */
static int post_prepared(struct run *x, uint32_t k, struct prepared *s) {
	struct ibv_send_wr *bad;
	int errnum = ibv_post_send(s->qp, &s->wr, &bad);
	if (errnum)
		return rdma_fail_verbs(x->l.e, "ibv_post_send", errnum);
	return k + 1 < x->burst ? prepare(x, k + 1, s) : P2P_OK;
}

/* Waits for the message of the current sample. */
static int await(struct run *x, struct rdma_conn *c) {
	struct p2p_wait w = {0};
	int rc = P2P_OK;
	x->awaited++;
	watch_next(x, c);
	for (uint32_t n = 0; n < POLLS; n++)
		if (has_arrived(c)) {
			count(x, c);
			return P2P_OK;
		}
	while (!rc && x->received < x->awaited)
		rc = rdma_progress(x, &w, P2P_WAIT_DONE, x->awaited, x->received);
	return rc;
}

/* Waits until all sends are completed. */
static int await_completions(struct run *x) {
	struct rdma_end *end = x->end;
	struct p2p_wait w = {0};
	int rc = P2P_OK;
	x->wide = 1;
	for (uint32_t i = 0; i < end->outs; i++)
		for (uint32_t k = 0; k < end->out[i].qps; k++) {
			const struct rdma_qp *q = &end->qp[end->out[i].qp[k]];
			while (!rc && q->tail != q->head)
				rc = rdma_progress(x, &w, P2P_WAIT_COPY, q->head, q->tail);
		}
	return rc;
}

int rdma_ping_pong(struct run *x, uint64_t *ticks) {
	struct rdma_end *end = x->end;
	const int first = end->rank == 0;
	uint32_t turn = (uint32_t)((x->first - 1) % end->ins);
	struct prepared s;
	int rc = prepare(x, 0, &s);
	for (uint32_t k = 0; !rc && k < x->burst; k++) {
		x->tag = x->first + k;
		if (first)
			rc = post_prepared(x, k, &s);
		if (!rc)
			rc = await(x, &end->in[turn]);
		if (first)
			ticks[k + 1] = p2p_loop_now(&x->l);
		else if (!rc)
			rc = post_prepared(x, k, &s);
		turn = turn + 1 == end->ins ? 0 : turn + 1;
	}
	if (rc || (rc = await_completions(x)))
		return rc;
	const uint64_t ns = (uint64_t)p2p_loop_duration(&x->l, x->begun, p2p_loop_now(&x->l)) / x->burst;
	for (uint32_t k = 0; k < x->burst; k++)
		end->out[(x->first - 1 + k) % end->outs].busy_ns += ns;
	return P2P_OK;
}
