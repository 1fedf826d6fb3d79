#include "core.h"

/*
 * How often a rank looks for a message in its memory before it sees to completions, deadline and device as well: longer
 * than a short message is on its way.
 */
enum { LOOKS = 4096 };

/* What a byte is made to differ by from the one that will come. */
enum { OTHER = 0x55 };

/*
 * The messages of a connection that are looked for: of several samples' that follow each other each, of a window the
 * last one of each queue pair, since what is written by one queue pair comes in order.
 */
static uint32_t looked_for(const struct run *x, const struct rdma_conn *c) {
	return x->l.b->window == 1 || c->count < c->qps ? c->count : c->qps;
}

/* Which message of the sample, or of the train, the n-th of these is. */
static uint32_t message_looked_for(const struct run *x, const struct rdma_conn *c, uint32_t n) {
	const uint32_t conns = x->end->peer[c->peer].in;
	return rdma_message_of(x, c, conns, x->l.b->window == 1 ? n : c->count - 1 - n);
}

/* Finds the last byte of message m that a connection receives, and what it is to be until the message comes. */
static void aim_at(const struct run *x, struct rdma_conn *c, uint32_t m) {
	const struct rdma_peer *p = &x->end->peer[c->peer];
	const struct p2p_batch *b = x->l.b;
	const uint32_t slot = b->window == 1 ? 0 : m, later = b->window == 1 ? m : 0;
	const uint32_t i = b->check == P2P_CHECK_OFF ? 0 : x->iter + later;
	c->tail = p->inbox + b->offset + rdma_place(x, m) + b->size - 1;
	c->armed = p2p_payload_byte(p2p_loop_key(&x->l, i, slot, p->rank), b->size - 1) ^ OTHER;
}

/* At the next message that is looked for, if there is one. */
static void aim(const struct run *x, struct rdma_conn *c) {
	if (c->seen < looked_for(x, c))
		aim_at(x, c, message_looked_for(x, c, c->seen));
}

void rdma_arm(struct run *x) {
	for (uint32_t k = 0; k < x->end->ins; k++) {
		struct rdma_conn *c = &x->end->in[k];
		c->seen = 0;
		for (uint32_t n = looked_for(x, c); n-- > 0;) { /* it ends with what aim would find */
			aim_at(x, c, message_looked_for(x, c, n));
			*(uint8_t *)c->tail = c->armed;
		}
	}
}

static int came(const struct rdma_conn *c) { return __atomic_load_n(c->tail, __ATOMIC_ACQUIRE) != c->armed; }

/* Counts the message that a connection was aimed at. */
static void count(struct run *x, struct rdma_conn *c) {
	const uint32_t before = c->finished;
	c->seen++;
	if (x->l.b->window == 1)
		c->finished++;
	else if (c->seen == looked_for(x, c))
		c->finished = c->count;
	x->received += c->finished - before;
}

static void look_for(struct run *x, struct rdma_conn *c, uint32_t *moved) {
	while (c->seen < looked_for(x, c) && came(c)) {
		count(x, c);
		aim(x, c);
		++*moved;
	}
}

void rdma_look(struct run *x, uint32_t *moved) {
	struct rdma_end *end = x->end;
	if (x->received == x->awaited)
		return;
	for (uint32_t k = 0; x->l.b->window > 1 && k < end->ins; k++)
		look_for(x, &end->in[k], moved);
	for (uint32_t i = 0; x->l.b->window == 1 && i < end->peers; i++) {
		const struct rdma_peer *p = &end->peer[i];
		if (p->in)
			look_for(x, &end->in[rdma_turn_of(x, p->first_in, p->in)], moved);
	}
}

/* ---- ping-pong -------------------------------------------------------------------------------------------------- */

/* A message that is ready to be posted. */
struct shot {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_qp *qp;
};

/* Until a queue pair has room for another message. */
static int await_room(struct run *x, const struct rdma_qp *q) {
	struct p2p_wait w = {0};
	int rc = P2P_OK;
	x->wide = 1;
	while (!rc && rdma_room(q) == 0)
		rc = rdma_progress(x, &w, P2P_WAIT_COPY, 1, 0);
	x->wide = 0;
	return rc;
}

/* Makes message k of a train ready. The last one of each queue pair reports its completion. */
static int load(struct run *x, uint32_t k, struct shot *s) {
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
	q->silent++;
	if (q->silent >= rdma_most_silent(q) || k + end->outs * c->qps >= x->train) {
		s->wr.send_flags |= IBV_SEND_SIGNALED;
		q->silent = 0;
	}
	q->ring[q->head++ & q->mask] = (struct rdma_sent){.conn = conn};
	c->serial++;
	c->messages++;
	x->sending++;
	return P2P_OK;
}

/* Posts message k of a train, and makes the one after it ready: while the answer is on its way. */
static int shoot(struct run *x, uint32_t k, struct shot *s) {
	struct ibv_send_wr *bad;
	int errnum = ibv_post_send(s->qp, &s->wr, &bad);
	if (errnum)
		return rdma_fail_verbs(x->l.e, "ibv_post_send", errnum);
	return k + 1 < x->train ? load(x, k + 1, s) : P2P_OK;
}

/* Waits for the message of the sample under way. */
static int await(struct run *x, struct rdma_conn *c) {
	struct p2p_wait w = {0};
	int rc = P2P_OK;
	x->awaited++;
	aim(x, c);
	for (uint32_t n = 0; n < LOOKS; n++)
		if (came(c)) {
			count(x, c);
			return P2P_OK;
		}
	while (!rc && x->received < x->awaited)
		rc = rdma_progress(x, &w, P2P_WAIT_DONE, x->awaited, x->received);
	return rc;
}

/* Until the device has reported everything that was sent. */
static int settle(struct run *x) {
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

int rdma_volley(struct run *x, uint64_t *ticks) {
	struct rdma_end *end = x->end;
	const int first = end->rank == 0;
	uint32_t turn = (uint32_t)((x->first - 1) % end->ins);
	struct shot s;
	int rc = load(x, 0, &s);
	for (uint32_t k = 0; !rc && k < x->train; k++) {
		x->tag = x->first + k;
		if (first)
			rc = shoot(x, k, &s);
		if (!rc)
			rc = await(x, &end->in[turn]);
		if (first)
			ticks[k + 1] = p2p_loop_now(&x->l);
		else if (!rc)
			rc = shoot(x, k, &s);
		turn = turn + 1 == end->ins ? 0 : turn + 1;
	}
	if (rc || (rc = settle(x)))
		return rc;
	const uint64_t ns = (uint64_t)p2p_loop_duration(&x->l, x->begun, p2p_loop_now(&x->l)) / x->train;
	for (uint32_t k = 0; k < x->train; k++)
		end->out[(x->first - 1 + k) % end->outs].busy_ns += ns;
	return P2P_OK;
}
