#include "core.h"

#include <arpa/inet.h>

/* The parts of a wr_id. */
static uint32_t id_of(uint64_t wr) { return (uint32_t)(wr >> 48); }
static uint32_t qp_of(uint64_t wr) { return (uint32_t)(wr >> 32) & 0xffff; }
static uint32_t position_of(uint64_t wr) { return (uint32_t)(wr >> 8) & 0xffffff; }
static uint32_t request_of(uint64_t wr) { return (uint32_t)wr & 0xff; }

/* ---- sender ----------------------------------------------------------------------------------------------------- */

/*
 * Whether the next work request of a connection is signalled: every signal_every-th, at least two per window on each
 * queue pair so that a full window opens again, and the last one of a sample.
 */
static int reports(const struct run *x, const struct rdma_conn *c, const struct rdma_qp *q) {
	const uint32_t half = x->w->window / (2 * c->qps),
		       every = half < x->w->signal_every ? half : x->w->signal_every;
	return q->unsignaled + x->w->separate_imm + 1 >= every || c->count - c->started <= c->qps;
}

/* Whether a connection has a credit for its next message, and that credit. */
static int may_send(const struct run *x, const struct rdma_conn *c, struct rdma_cts *g) {
	const struct p2p_batch *b = x->l.b;
	if (x->w->pre_granted) {
		const uint32_t conns = x->end->peer[c->peer].out;
		g->addr = c->inbox + b->offset + rdma_place(x, rdma_message_of(x, c, conns, c->started));
		g->rkey = c->inbox_rkey;
		g->request = c->request[c->unused - 1];
		return 1;
	}
	struct rdma_cts *entry = &c->fifo[c->serial % RDMA_REQUESTS];
	if (__atomic_load_n(&entry->serial, __ATOMIC_ACQUIRE) != c->serial + 1)
		return 0;
	*g = *entry;
	return 1;
}

static int check_cts(struct run *x, const struct rdma_conn *c, const struct rdma_cts *g) {
	if (g->size >= x->l.b->size && g->tag == (uint32_t)x->first && g->request < RDMA_REQUESTS)
		return P2P_OK;
	p2p_fail(x->l.e, P2P_ERR_DEVICE, 0, "");
	snprintf(x->l.e->text, sizeof x->l.e->text,
		 "connection %u: a credit for sample %u, %u bytes, request %u, where sample %u needs %llu bytes", c->id,
		 g->tag, g->size, g->request, (uint32_t)x->first, (unsigned long long)x->l.b->size);
	return P2P_ERR_DEVICE;
}

/* Posts the next message of a connection if it has a credit and room; *posted: it did. */
static int post_message(struct run *x, struct rdma_conn *c, int *posted) {
	struct rdma_end *end = x->end;
	const struct p2p_batch *b = x->l.b;
	struct rdma_qp *q = &end->qp[c->qp[c->serial % c->qps]];
	struct rdma_cts g = {0};
	int rc;
	*posted = 0;
	if (rdma_room(q) < 1 + x->w->separate_imm || !may_send(x, c, &g))
		return P2P_OK;
	if (!x->w->pre_granted && (rc = check_cts(x, c, &g)))
		return rc;
	const uint32_t m = rdma_message_of(x, c, end->peer[c->peer].out, c->started);
	const uint32_t conn = (uint32_t)(c - end->out);
	const int report = reports(x, c, q);
	struct ibv_sge sge = {(uint64_t)(uintptr_t)(end->source + b->offset + rdma_place(x, m)), (uint32_t)b->size,
			      end->source_lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = b->size != 0, .opcode = IBV_WR_RDMA_WRITE};
	const int timed = report && b->op != P2P_OP_PINGPONG;
	struct rdma_sent note = {timed ? p2p_loop_now(&x->l) : 0, conn, (uint8_t)g.request, 1};
	wr.wr.rdma.remote_addr = g.addr;
	wr.wr.rdma.rkey = g.rkey;
	wr.send_flags = rdma_inlines(x, q) ? IBV_SEND_INLINE : 0;
	if (x->w->separate_imm) {
		if ((rc = rdma_post_write(x, q, &wr, c->id, (struct rdma_sent){0, conn, (uint8_t)g.request, 0})))
			return rc;
		wr = (struct ibv_send_wr){.wr.rdma = {g.addr, g.rkey}};
	}
	if (!x->w->in_memory) {
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.imm_data = htonl(g.request << 16 | c->remote_id);
	}
	wr.send_flags |= report ? IBV_SEND_SIGNALED : 0;
	if ((rc = rdma_post_write(x, q, &wr, c->id, note)))
		return rc;
	c->unused -= x->w->pre_granted;
	c->serial++;
	c->started++;
	c->inflight++;
	*posted = 1;
	return P2P_OK;
}

int rdma_post_window(struct run *x, struct rdma_conn *c) {
	int posted = 1, rc;
	while (c->started < c->count && c->inflight < x->w->window) {
		if ((rc = post_message(x, c, &posted)))
			return rc;
		if (!posted) {
			x->held = 1;
			break;
		}
	}
	return P2P_OK;
}

static uint32_t bin_of(uint64_t ns) {
	if (ns < 32)
		return (uint32_t)ns;
	const uint32_t power = 63 - (uint32_t)__builtin_clzll(ns);
	const uint32_t bin = (power - 4) * 32 + (uint32_t)(ns >> (power - 5)) - 32;
	return bin < RDMA_BINS ? bin : RDMA_BINS - 1;
}

uint64_t p2p_rdma_bin(uint32_t bin) {
	if (bin < 32)
		return bin;
	return (uint64_t)(32 + bin % 32) << (bin / 32 - 1);
}

static uint64_t since(const struct run *x, uint64_t ticks) {
	return (uint64_t)p2p_loop_duration(&x->l, ticks, p2p_loop_now(&x->l));
}

/* A message is complete: the remote device has it. */
static void finish_message(struct run *x, struct rdma_conn *c, const struct rdma_sent *s) {
	if (s->posted)
		c->bins[bin_of(since(x, s->posted))]++;
	if (x->w->pre_granted)
		c->request[c->unused++] = s->request;
	c->inflight--;
	x->sent++;
	c->messages++;
	if (++c->finished == c->count)
		c->busy_ns += since(x, x->begun);
}

static int misrouted(struct run *x, const char *what, uint32_t id, uint32_t request) {
	x->end->misroutes++;
	p2p_fail(x->l.e, P2P_ERR_DEVICE, 0, "");
	snprintf(x->l.e->text, sizeof x->l.e->text,
		 "misrouted: a completion of a %s for connection %u, request %u, which awaits none", what, id, request);
	return P2P_ERR_DEVICE;
}

/* Handles the completion of a work request, and with it of all earlier ones of its queue pair. */
static int retire(struct run *x, const struct ibv_wc *wc) {
	struct rdma_end *end = x->end;
	const uint32_t index = qp_of(wc->wr_id), id = id_of(wc->wr_id), request = request_of(wc->wr_id);
	if (index >= end->qps || id >= RDMA_IDS)
		return misrouted(x, "send", id, request);
	struct rdma_qp *q = &end->qp[index];
	const struct rdma_sent *last = &q->ring[position_of(wc->wr_id) & q->mask];
	const uint32_t conn = id ? end->out_by_id[id] - 1 : RDMA_CONTROL;
	if (last->conn != conn || last->request != request ||
	    ((q->head - 1 - position_of(wc->wr_id)) & 0xffffff) >= q->head - q->tail)
		return misrouted(x, "send", id, request);
	int rc;
	for (int more = 1; more;) {
		const struct rdma_sent *s = &q->ring[q->tail++ & q->mask];
		more = s != last;
		if (s->conn == RDMA_CONTROL || !s->whole)
			continue;
		struct rdma_conn *c = &end->out[s->conn];
		finish_message(x, c, s);
		if ((rc = rdma_post_window(x, c)))
			return rc;
	}
	return P2P_OK;
}

/* ---- receiver --------------------------------------------------------------------------------------------------- */

/* Gives the credit for the next message of a connection, with a request number, on a queue pair that has room. */
static int send_cts(struct run *x, struct rdma_conn *c, struct rdma_qp *q, uint32_t request) {
	struct rdma_end *end = x->end;
	const struct rdma_peer *peer = &end->peer[c->peer];
	const struct p2p_batch *b = x->l.b;
	const uint32_t slot = c->serial % RDMA_REQUESTS, m = rdma_message_of(x, c, peer->in, c->started);
	struct rdma_cts *g = &c->entry[slot];
	*g = (struct rdma_cts){(uint64_t)(uintptr_t)(peer->inbox + b->offset + rdma_place(x, m)),
			       end->inbox_rkey,
			       (uint32_t)b->size,
			       request,
			       (uint32_t)x->first,
			       c->serial + 1};
	c->expected[request / 64] |= (uint64_t)1 << request % 64;
	c->request_of[slot] = (uint8_t)request;
	c->serial++;
	c->started++;
	end->grants++;
	return rdma_post_control(x, q, g, sizeof *g, c->remote_fifo + slot * sizeof *g, c->remote_fifo_rkey);
}

int rdma_cts_window(struct run *x, struct rdma_conn *c) {
	struct rdma_qp *q = &x->end->qp[c->qp[0]];
	int rc = P2P_OK;
	while (!rc && c->unused && c->started < c->count) {
		if (rdma_room(q) == 0) {
			x->held = 1;
			break;
		}
		rc = send_cts(x, c, q, c->request[--c->unused]);
	}
	return rc;
}

/* The connection and the request of a message that arrived on a queue pair. NULL: unknown connection. */
static struct rdma_conn *receiver_of(struct run *x, struct rdma_qp *q, const struct ibv_wc *wc, uint32_t *request) {
	struct rdma_end *end = x->end;
	const uint32_t imm = ntohl(wc->imm_data), id = imm & 0xffff;
	struct rdma_conn *c = NULL;
	if (x->w->by_order) {
		/* The messages of a connection use its queue pairs in turn. */
		c = &end->in[q->owner];
		uint32_t turn = 0;
		while (&end->qp[c->qp[turn]] != q)
			turn++;
		const uint64_t serial = q->taken * c->qps + turn;
		*request = x->w->pre_granted ? serial % x->w->window : c->request_of[serial % RDMA_REQUESTS];
		return c;
	}
	*request = imm >> 16 & 0xff;
	if (id < RDMA_IDS && end->in_by_id[id])
		c = &end->in[end->in_by_id[id] - 1];
	return c;
}

/* Handles a completed receive, which is posted again later. */
static int arrive(struct run *x, const struct ibv_wc *wc) {
	struct rdma_end *end = x->end;
	const uint32_t index = qp_of(wc->wr_id), id = ntohl(wc->imm_data) & 0xffff;
	uint32_t request = 0;
	if (index >= end->qps || !(wc->wc_flags & IBV_WC_WITH_IMM))
		return misrouted(x, "receive", id, request);
	struct rdma_qp *q = &end->qp[index];
	struct rdma_conn *c = receiver_of(x, q, wc, &request);
	const uint64_t bit = (uint64_t)1 << request % 64;
	if (!c || c->finished == c->count || request >= x->w->window ||
	    (!x->w->pre_granted && !(c->expected[request / 64] & bit)))
		return misrouted(x, "receive", id, request);
	c->expected[request / 64] &= ~bit;
	c->finished++;
	x->received++;
	q->taken++;
	q->reposts++;
	rdma_list(end, q);
	if (x->w->pre_granted)
		return P2P_OK;
	c->request[c->unused++] = (uint8_t)request;
	return rdma_cts_window(x, c);
}

/* ---- progress --------------------------------------------------------------------------------------------------- */

static int fail_completion(struct run *x, const struct ibv_wc *wc) {
	struct rdma_end *end = x->end;
	end->status = wc->status;
	const uint32_t id = id_of(wc->wr_id);
	p2p_fail(x->l.e, P2P_ERR_DEVICE, (int)wc->status, "");
	snprintf(x->l.e->text, sizeof x->l.e->text, "a work request of %s %u ended with status %u (vendor 0x%x)",
		 id ? "connection" : "queue pair", id ? id : wc->qp_num, (unsigned)wc->status, wc->vendor_err);
	return P2P_ERR_DEVICE;
}

static int poll_queue(struct run *x, struct ibv_cq *cq, uint32_t *moved) {
	struct ibv_wc wc[RDMA_POLL];
	int n = ibv_poll_cq(cq, RDMA_POLL, wc), rc = P2P_OK;
	if (n < 0)
		return rdma_fail_verbs(x->l.e, "ibv_poll_cq", -n);
	for (int i = 0; i < n && !rc; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			return fail_completion(x, &wc[i]);
		rc = wc[i].opcode & IBV_WC_RECV ? arrive(x, &wc[i]) : retire(x, &wc[i]);
	}
	*moved += (uint32_t)n;
	return rc;
}

/*
 * If the CPU emulates the NIC, a rank that only waits for the end of a window leaves the CPU to the NIC: it sleeps for
 * 1/256 of the time that the window has taken so far, if that is at least 50 µs.
 */
static void nap(const struct run *x) {
	if (!x->w->soft || !x->w->in_memory || x->l.b->window == 1 || x->sent < x->sending || x->received == x->awaited)
		return;
	const uint64_t ns = since(x, x->begun) / 256;
	const struct timespec t = {0, ns < 1000000 ? (long)ns : 1000000};
	if (ns >= 50000)
		nanosleep(&t, NULL);
}

/* Called when nothing has completed. */
static int idle(struct run *x, struct p2p_wait *w, int what, uint64_t want, uint64_t have) {
	if (atomic_load_explicit(&x->end->trouble, memory_order_relaxed))
		return p2p_fail(x->l.e, P2P_ERR_DEVICE, 0, "the device reported an asynchronous error");
	nap(x);
	if (x->w->yields && w->steps % x->w->yields == x->w->yields - 1)
		p2p_yield();
	return p2p_wait_step(x->l.ctx, w, what, want, have, x->l.e);
}

/* Handles completions; for samples of one message, only of the completion queues that can have any. */
static int poll_queues(struct run *x, uint32_t *moved) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && x->wide && i < end->cqs; i++)
		rc = poll_queue(x, end->cq[i], moved);
	for (uint32_t i = 0; !rc && !x->wide && i < end->peers; i++) {
		const struct rdma_peer *p = &end->peer[i];
		if (p->out)
			rc = poll_queue(x, end->qp[end->out[rdma_turn_of(x, p->first_out, p->out)].qp[0]].qp->send_cq,
					moved);
		if (!rc && p->in)
			rc = poll_queue(x, end->qp[end->in[rdma_turn_of(x, p->first_in, p->in)].qp[0]].qp->send_cq,
					moved);
	}
	return rc;
}

int rdma_progress(struct run *x, struct p2p_wait *w, int what, uint64_t want, uint64_t have) {
	struct rdma_end *end = x->end;
	uint32_t moved = 0, held = x->held;
	int rc = P2P_OK;
	x->held = 0;
	for (uint32_t i = 0; held && !rc && i < end->outs; i++)
		rc = rdma_post_window(x, &end->out[i]);
	for (uint32_t i = 0; held && !rc && !x->w->pre_granted && i < end->ins; i++)
		rc = rdma_cts_window(x, &end->in[i]);
	if (x->w->in_memory)
		rdma_poll_memory(x, &moved);
	if (!rc)
		rc = poll_queues(x, &moved);
	if (!rc)
		rc = rdma_flush(x, moved == 0);
	if (rc)
		return rc;
	if (moved == 0)
		return idle(x, w, what, want, have);
	p2p_beat(x->l.ctx);
	*w = (struct p2p_wait){0};
	return P2P_OK;
}
