#include "rdma.h"

#include <arpa/inet.h>

/* A batch under way. */
struct run {
	struct p2p_loop l;
	struct rdma_end *end;
	const struct rdma_ways *w;
	uint64_t begun;    /* ticks, when the sample was */
	uint64_t tag;      /* number of the sample, counted from 1 over all batches */
	uint32_t sending;  /* messages of the sample that this rank has to send … */
	uint32_t sent;     /* … and that are complete */
	uint32_t awaited;  /* messages that it has to receive … */
	uint32_t received; /* … and has */
	uint32_t held;     /* 1: a connection could not post all that it may have under way */
};

/* ---- work requests ---------------------------------------------------------------------------------------------- */

/*
 * wr_id of a send: the sender's id of the connection (0: a control write), index of the queue pair, position in its
 * ring, request. Of a receive: id 0 as well, index, number.
 */
static uint64_t wr_id(uint32_t id, uint32_t qp, uint32_t position, uint32_t request) {
	return (uint64_t)id << 48 | (uint64_t)qp << 32 | (uint64_t)(position & 0xffffff) << 8 | request;
}

static uint32_t id_of(uint64_t wr) { return (uint32_t)(wr >> 48); }
static uint32_t qp_of(uint64_t wr) { return (uint32_t)(wr >> 32) & 0xffff; }
static uint32_t position_of(uint64_t wr) { return (uint32_t)(wr >> 8) & 0xffffff; }
static uint32_t request_of(uint64_t wr) { return (uint32_t)wr & 0xff; }

static int fail_post(struct p2p_error *e, const char *what, int errnum) {
	p2p_fail(e, P2P_ERR_DEVICE, errnum, "");
	snprintf(e->text, sizeof e->text, "%s: %s", what, strerror(errnum));
	return P2P_ERR_DEVICE;
}

/* Posts n receives, at most RDMA_CHAIN of them. */
static int post_receives(struct ibv_qp *qp, uint32_t index, uint32_t n, struct p2p_error *e) {
	struct ibv_recv_wr wr[RDMA_CHAIN], *bad;
	for (uint32_t i = 0; i < n; i++)
		wr[i] = (struct ibv_recv_wr){.wr_id = wr_id(0, index, 0, 0), .next = i + 1 < n ? &wr[i + 1] : NULL};
	int errnum = ibv_post_recv(qp, wr, &bad);
	return errnum ? fail_post(e, "ibv_post_recv", errnum) : P2P_OK;
}

int p2p_rdma_receives(struct ibv_qp *qp, uint32_t index, uint32_t n, struct p2p_error *e) {
	int rc = P2P_OK;
	for (uint32_t posted = 0; !rc && posted < n; posted += RDMA_CHAIN)
		rc = post_receives(qp, index, n - posted < RDMA_CHAIN ? n - posted : RDMA_CHAIN, e);
	return rc;
}

static uint32_t room(const struct rdma_qp *q) { return q->room - (q->head - q->tail); }

static int flush_sends(struct run *x, struct rdma_qp *q) {
	struct ibv_send_wr *bad;
	if (q->chained == 0)
		return P2P_OK;
	q->chain->wr[q->chained - 1].next = NULL;
	q->chained = 0;
	int errnum = ibv_post_send(q->qp, q->chain->wr, &bad);
	return errnum ? fail_post(x->l.e, "ibv_post_send", errnum) : P2P_OK;
}

static int flush_receives(struct run *x, struct rdma_qp *q) {
	int rc = p2p_rdma_receives(q->qp, (uint32_t)(q - x->end->qp), q->owed, x->l.e);
	q->owed = 0;
	return rc;
}

static void list(struct run *x, struct rdma_qp *q) {
	if (!q->listed)
		x->end->busy[x->end->busies++] = (uint32_t)(q - x->end->qp);
	q->listed = 1;
}

/* Posts all that was put off: sends, and the receives that cannot wait; all of them if there is time. */
static int flush(struct run *x, int leisure) {
	struct rdma_end *end = x->end;
	uint32_t left = 0;
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && i < end->busies; i++) {
		struct rdma_qp *q = &end->qp[end->busy[i]];
		if (q->owed > q->slack) /* before the grants that count on them */
			rc = flush_receives(x, q);
		if (!rc)
			rc = flush_sends(x, q);
		if (!rc && q->owed && leisure)
			rc = flush_receives(x, q);
		q->listed = q->owed != 0;
		if (q->listed)
			end->busy[left++] = end->busy[i];
	}
	end->busies = left;
	return rc;
}

/* Puts a write on the chain of a queue pair that has room, and notes it. Its data must stay until flush. */
static int post_write(struct run *x, struct rdma_qp *q, const struct ibv_send_wr *write, uint32_t id,
		      struct rdma_sent note) {
	if (q->chained == RDMA_CHAIN) {
		int rc = flush_sends(x, q);
		if (rc)
			return rc;
	}
	const uint32_t index = (uint32_t)(q - x->end->qp), n = q->chained++;
	struct ibv_send_wr *wr = &q->chain->wr[n];
	*wr = *write;
	if (wr->num_sge) {
		q->chain->sge[n] = *write->sg_list;
		wr->sg_list = &q->chain->sge[n];
	}
	wr->next = wr + 1;
	wr->wr_id = wr_id(id, index, q->head, note.request);
	q->silent++;
	if (q->silent >= (q->room + 3) / 4)
		wr->send_flags |= IBV_SEND_SIGNALED;
	if (wr->send_flags & IBV_SEND_SIGNALED)
		q->silent = 0;
	else
		note.posted = 0;
	q->ring[q->head++ & q->mask] = note;
	list(x, q);
	return P2P_OK;
}

/* Writes n bytes of the control memory to the other end, without a word when it is done. */
static int post_control(struct run *x, struct rdma_qp *q, const void *from, uint32_t n, uint64_t to, uint32_t rkey) {
	struct ibv_sge sge = {(uint64_t)(uintptr_t)from, n, x->end->control_lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = rkey;
	wr.send_flags = n <= q->inlined ? IBV_SEND_INLINE : 0;
	return post_write(x, q, &wr, 0, (struct rdma_sent){.conn = RDMA_CONTROL});
}

/* ---- sender ----------------------------------------------------------------------------------------------------- */

/* Which message of a sample is a connection's n-th. */
static uint32_t message_of(const struct run *x, const struct rdma_conn *c, uint32_t conns, uint32_t n) {
	return x->l.b->window == 1 ? 0 : n * conns + c->number;
}

/*
 * Whether the work request that a connection posts next shall report its completion: one of so many, and the last ones
 * before the connection can do nothing but wait, of which every queue pair that it uses has one.
 */
static int reports(const struct run *x, const struct rdma_conn *c, const struct rdma_qp *q) {
	const uint32_t left = c->count - c->started;
	return q->silent + x->w->apart + 1 >= x->w->signal_every || c->inflight + c->qps >= x->w->window ||
	       left <= c->qps;
}

/* Where the next message of a connection may go; 0: it may not yet. */
static int granted(const struct run *x, const struct rdma_conn *c, struct rdma_grant *g) {
	const struct p2p_batch *b = x->l.b;
	if (x->w->pre_granted) {
		const uint32_t conns = x->end->peer[c->peer].out;
		g->addr = c->inbox + b->offset + message_of(x, c, conns, c->started) * b->stride;
		g->rkey = c->inbox_rkey;
		g->request = c->request[c->unused - 1];
		return 1;
	}
	struct rdma_grant *entry = &c->fifo[c->serial % RDMA_REQUESTS];
	if (__atomic_load_n(&entry->serial, __ATOMIC_ACQUIRE) != c->serial + 1)
		return 0;
	*g = *entry;
	return 1;
}

static int check_grant(struct run *x, const struct rdma_conn *c, const struct rdma_grant *g) {
	if (g->size >= x->l.b->size && g->tag == (uint32_t)x->tag && g->request < RDMA_REQUESTS)
		return P2P_OK;
	p2p_fail(x->l.e, P2P_ERR_DEVICE, 0, "");
	snprintf(x->l.e->text, sizeof x->l.e->text,
		 "connection %u: a grant for sample %u, %u bytes, request %u, where sample %u needs %llu bytes", c->id,
		 g->tag, g->size, g->request, (uint32_t)x->tag, (unsigned long long)x->l.b->size);
	return P2P_ERR_DEVICE;
}

/* Posts the next message of a connection, if it may; *posted says whether. */
static int post_message(struct run *x, struct rdma_conn *c, int *posted) {
	struct rdma_end *end = x->end;
	const struct p2p_batch *b = x->l.b;
	struct rdma_qp *q = &end->qp[c->qp[c->serial % c->qps]];
	struct rdma_grant g = {0};
	int rc;
	*posted = 0;
	if (room(q) < 1 + x->w->apart || !granted(x, c, &g))
		return P2P_OK;
	if (!x->w->pre_granted && (rc = check_grant(x, c, &g)))
		return rc;
	const uint32_t m = message_of(x, c, end->peer[c->peer].out, c->started);
	const uint32_t conn = (uint32_t)(c - end->out), inlined = b->size <= x->w->inlined && b->size <= q->inlined;
	const int report = reports(x, c, q);
	struct ibv_sge sge = {(uint64_t)(uintptr_t)(end->source + b->offset + m * b->stride), (uint32_t)b->size,
			      end->source_lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = b->size != 0, .opcode = IBV_WR_RDMA_WRITE};
	const int timed = report && b->op != P2P_OP_PINGPONG;
	struct rdma_sent note = {timed ? p2p_loop_now(&x->l) : 0, conn, (uint8_t)g.request, 1};
	wr.wr.rdma.remote_addr = g.addr;
	wr.wr.rdma.rkey = g.rkey;
	wr.send_flags = inlined ? IBV_SEND_INLINE : 0;
	if (x->w->apart) {
		if ((rc = post_write(x, q, &wr, c->id, (struct rdma_sent){0, conn, (uint8_t)g.request, 0})))
			return rc;
		wr = (struct ibv_send_wr){.wr.rdma = {g.addr, g.rkey}};
	}
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = htonl(g.request << 16 | c->remote_id);
	wr.send_flags |= report ? IBV_SEND_SIGNALED : 0;
	if ((rc = post_write(x, q, &wr, c->id, note)))
		return rc;
	c->unused -= x->w->pre_granted;
	c->serial++;
	c->started++;
	c->inflight++;
	*posted = 1;
	return P2P_OK;
}

/* Posts what a connection may have under way. */
static int post_window(struct run *x, struct rdma_conn *c) {
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
	return p2p_ticks_to_ns(x->l.ctx->clock, p2p_loop_now(&x->l) - ticks);
}

/* A message is complete: the device of the other end has it. */
static void finish_message(struct run *x, struct rdma_conn *c, const struct rdma_sent *s) {
	if (s->posted)
		c->bins[bin_of(since(x, s->posted))]++;
	if (x->w->pre_granted)
		c->request[c->unused++] = s->request;
	c->inflight--;
	x->sent++;
	if (++c->finished < c->count)
		return;
	c->messages += c->count;
	c->busy_ns += since(x, x->begun);
}

static int misrouted(struct run *x, const char *what, uint32_t id, uint32_t request) {
	x->end->misroutes++;
	p2p_fail(x->l.e, P2P_ERR_DEVICE, 0, "");
	snprintf(x->l.e->text, sizeof x->l.e->text,
		 "misrouted: a completion of a %s for connection %u, request %u, which waits for none", what, id,
		 request);
	return P2P_ERR_DEVICE;
}

/* A work request of a queue pair is complete, and with it all that were posted there before. */
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
		if ((rc = post_window(x, c)))
			return rc;
	}
	return P2P_OK;
}

/* ---- receiver --------------------------------------------------------------------------------------------------- */

/* Lets the next message of a connection come, as request number `request`, on a queue pair that has room. */
static int grant(struct run *x, struct rdma_conn *c, struct rdma_qp *q, uint32_t request) {
	struct rdma_end *end = x->end;
	const struct rdma_peer *peer = &end->peer[c->peer];
	const struct p2p_batch *b = x->l.b;
	const uint32_t slot = c->serial % RDMA_REQUESTS, m = message_of(x, c, peer->in, c->started);
	struct rdma_grant *g = &c->entry[slot];
	*g = (struct rdma_grant){(uint64_t)(uintptr_t)(peer->inbox + b->offset + m * b->stride),
				 end->inbox_rkey,
				 (uint32_t)b->size,
				 request,
				 (uint32_t)x->tag,
				 c->serial + 1};
	c->expected[request / 64] |= (uint64_t)1 << request % 64;
	c->request_of[slot] = (uint8_t)request;
	c->serial++;
	c->started++;
	end->grants++;
	return post_control(x, q, g, sizeof *g, c->remote_fifo + slot * sizeof *g, c->remote_fifo_rkey);
}

/* Lets as many messages come as a connection may have under way. */
static int grant_window(struct run *x, struct rdma_conn *c) {
	struct rdma_qp *q = &x->end->qp[c->qp[0]];
	int rc = P2P_OK;
	while (!rc && c->unused && c->started < c->count) {
		if (room(q) == 0) {
			x->held = 1;
			break;
		}
		rc = grant(x, c, q, c->request[--c->unused]);
	}
	return rc;
}

/* The connection and the request of a message that came on a queue pair. NULL: nobody's. */
static struct rdma_conn *addressee(struct run *x, struct rdma_qp *q, const struct ibv_wc *wc, uint32_t *request) {
	struct rdma_end *end = x->end;
	const uint32_t imm = ntohl(wc->imm_data), id = imm & 0xffff;
	struct rdma_conn *c = NULL;
	if (x->w->by_order) {
		/* The connection's message that this queue pair's next one is: they take its queue pairs in turns. */
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

/* Takes a completed receive, and posts another one in its place. */
static int arrive(struct run *x, const struct ibv_wc *wc) {
	struct rdma_end *end = x->end;
	const uint32_t index = qp_of(wc->wr_id), id = ntohl(wc->imm_data) & 0xffff;
	uint32_t request = 0;
	if (index >= end->qps || !(wc->wc_flags & IBV_WC_WITH_IMM))
		return misrouted(x, "receive", id, request);
	struct rdma_qp *q = &end->qp[index];
	struct rdma_conn *c = addressee(x, q, wc, &request);
	const uint64_t bit = (uint64_t)1 << request % 64;
	if (!c || c->finished == c->count || request >= x->w->window ||
	    (!x->w->pre_granted && !(c->expected[request / 64] & bit)))
		return misrouted(x, "receive", id, request);
	c->expected[request / 64] &= ~bit;
	c->finished++;
	x->received++;
	q->taken++;
	q->owed++;
	list(x, q);
	if (x->w->pre_granted)
		return P2P_OK;
	c->request[c->unused++] = (uint8_t)request;
	return grant_window(x, c);
}

/* ---- progress --------------------------------------------------------------------------------------------------- */

static int complain(struct run *x, const struct ibv_wc *wc) {
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
		return fail_post(x->l.e, "ibv_poll_cq", -n);
	for (int i = 0; i < n && !rc; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			return complain(x, &wc[i]);
		rc = wc[i].opcode & IBV_WC_RECV ? arrive(x, &wc[i]) : retire(x, &wc[i]);
	}
	*moved += (uint32_t)n;
	return rc;
}

/* Passes the time until something moves. */
static int idle(struct run *x, struct p2p_wait *w, int what, uint64_t want, uint64_t have) {
	if (atomic_load_explicit(&x->end->trouble, memory_order_relaxed))
		return p2p_fail(x->l.e, P2P_ERR_DEVICE, 0, "the device is in trouble");
	if (x->w->yields && w->steps % x->w->yields == x->w->yields - 1)
		sched_yield();
	return p2p_wait_step(x->l.ctx, w, what, want, have, x->l.e);
}

/*
 * Of n connections from `first` on the one that carries a sample of one message: they take turns. Of several messages
 * each carries some, and what is said once goes by the first.
 */
static uint32_t turn_of(const struct run *x, uint32_t first, uint32_t n) {
	return x->l.b->window == 1 ? first + (uint32_t)((x->tag - 1) % n) : first;
}

/* Takes what has completed: of a single message only where that can be. */
static int poll_queues(struct run *x, uint32_t *moved) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && x->l.b->window > 1 && i < end->cqs; i++)
		rc = poll_queue(x, end->cq[i], moved);
	for (uint32_t i = 0; !rc && x->l.b->window == 1 && i < end->peers; i++) {
		const struct rdma_peer *p = &end->peer[i];
		if (p->out)
			rc = poll_queue(x, end->qp[end->out[turn_of(x, p->first_out, p->out)].qp[0]].qp->send_cq,
					moved);
		if (!rc && p->in)
			rc = poll_queue(x, end->qp[end->in[turn_of(x, p->first_in, p->in)].qp[0]].qp->send_cq, moved);
	}
	return rc;
}

/* Posts what can be posted, and takes what has completed. */
static int progress(struct run *x, struct p2p_wait *w, int what, uint64_t want, uint64_t have) {
	struct rdma_end *end = x->end;
	uint32_t moved = 0, held = x->held;
	int rc = P2P_OK;
	x->held = 0;
	for (uint32_t i = 0; held && !rc && i < end->outs; i++)
		rc = post_window(x, &end->out[i]);
	for (uint32_t i = 0; held && !rc && !x->w->pre_granted && i < end->ins; i++)
		rc = grant_window(x, &end->in[i]);
	if (!rc)
		rc = poll_queues(x, &moved);
	if (!rc)
		rc = flush(x, moved == 0);
	if (rc)
		return rc;
	if (moved == 0)
		return idle(x, w, what, want, have);
	p2p_beat(x->l.ctx);
	*w = (struct p2p_wait){0, 0, 0};
	return P2P_OK;
}

/* Writes the number of the sample into a word of every rank that sends here. */
static int tell(struct run *x, size_t word) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && i < end->peers; i++) {
		struct rdma_peer *p = &end->peer[i];
		struct p2p_wait w = {0, 0, 0};
		if (p->in == 0)
			continue;
		struct rdma_qp *q = &end->qp[end->in[turn_of(x, p->first_in, p->in)].qp[0]];
		_Atomic uint64_t *own = (_Atomic uint64_t *)((uint8_t *)p->says + word);
		while (!rc && room(q) == 0)
			rc = progress(x, &w, P2P_WAIT_COPY, 1, 0);
		atomic_store_explicit(own, x->tag, memory_order_relaxed);
		if (!rc)
			rc = post_control(x, q, own, sizeof *own, p->remote_words + word, p->remote_words_rkey);
	}
	return rc ? rc : flush(x, 0);
}

/* Whether every rank that this one sends to has written the number of the sample into a word. */
static int told(const struct run *x, size_t word, uint64_t *least) {
	*least = x->tag;
	for (uint32_t i = 0; i < x->end->peers; i++) {
		const struct rdma_peer *p = &x->end->peer[i];
		if (p->out == 0)
			continue;
		_Atomic uint64_t *own = (_Atomic uint64_t *)((uint8_t *)p->words + word);
		uint64_t have = atomic_load_explicit(own, memory_order_acquire);
		*least = have < *least ? have : *least;
	}
	return *least == x->tag;
}

static int await_word(struct run *x, size_t word, int what) {
	struct p2p_wait w = {0, 0, 0};
	uint64_t have;
	int rc = P2P_OK;
	while (!rc && !told(x, word, &have))
		rc = progress(x, &w, what, x->tag, have);
	return rc;
}

#define GO offsetof(struct rdma_words, go)
#define DONE offsetof(struct rdma_words, done)

/* ---- samples ---------------------------------------------------------------------------------------------------- */

/* How many messages of a sample are a connection's: a single one goes by each connection in turn. */
static uint32_t share(const struct run *x, uint32_t number, uint32_t conns) {
	const uint32_t m = x->l.b->window;
	if (m == 1)
		return number == turn_of(x, 0, conns);
	return m / conns + (number < m % conns);
}

static void begin_conn(struct rdma_conn *c, uint32_t count) {
	c->count = count;
	c->started = c->finished = 0;
}

/* Begins a sample: deals its messages to the connections, and lets those come that this rank shall receive. */
static int begin(struct run *x, int sends, int receives) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	x->tag = ++end->samples;
	x->sending = x->sent = x->awaited = x->received = 0;
	for (uint32_t i = 0; i < end->outs; i++) {
		struct rdma_conn *c = &end->out[i];
		begin_conn(c, sends ? share(x, c->number, end->peer[c->peer].out) : 0);
		x->sending += c->count;
	}
	for (uint32_t i = 0; i < end->ins; i++) {
		struct rdma_conn *c = &end->in[i];
		begin_conn(c, receives ? share(x, c->number, end->peer[c->peer].in) : 0);
		x->awaited += c->count;
	}
	for (uint32_t i = 0; !rc && receives && !x->w->pre_granted && i < end->ins; i++)
		rc = grant_window(x, &end->in[i]);
	if (!rc && receives)
		rc = tell(x, GO);
	return rc;
}

static int post_all(struct run *x) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && x->l.b->window > 1 && i < end->outs; i++)
		rc = post_window(x, &end->out[i]);
	for (uint32_t i = 0; !rc && x->l.b->window == 1 && i < end->peers; i++)
		if (end->peer[i].out)
			rc = post_window(x, &end->out[turn_of(x, end->peer[i].first_out, end->peer[i].out)]);
	return rc ? rc : flush(x, 0);
}

static int receive_all(struct run *x) {
	struct p2p_wait w = {0, 0, 0};
	int rc = P2P_OK;
	while (!rc && x->received < x->awaited)
		rc = progress(x, &w, P2P_WAIT_DONE, x->awaited, x->received);
	return rc;
}

/* All messages of the sample, both ways, until this rank has what it awaits and its peers say that they have theirs. */
static int exchange(struct run *x) {
	struct p2p_wait w = {0, 0, 0};
	uint64_t have = 0;
	int rc = post_all(x), answered = x->awaited == 0;
	while (!rc && (x->sent < x->sending || x->received < x->awaited || !answered ||
		       (x->sending && !told(x, DONE, &have)))) {
		if (x->received < x->awaited) {
			rc = progress(x, &w, P2P_WAIT_DONE, x->awaited, x->received);
		} else if (!answered) {
			answered = 1;
			rc = tell(x, DONE);
		} else if (x->sent < x->sending) {
			rc = progress(x, &w, P2P_WAIT_ACK, x->sending, x->sent);
		} else {
			rc = progress(x, &w, P2P_WAIT_ACK, x->tag, have);
		}
	}
	return rc;
}

/* One message there, and one back. */
static int ping(struct run *x) {
	int rc = post_all(x);
	return rc ? rc : receive_all(x);
}

static int pong(struct run *x) {
	int rc = receive_all(x);
	return rc ? rc : post_all(x);
}

/* Until the device has reported everything that was sent: its memory may be filled anew. */
static int drain(struct run *x) {
	struct p2p_wait w = {0, 0, 0};
	int rc = P2P_OK;
	while (!rc && x->sent < x->sending)
		rc = progress(x, &w, P2P_WAIT_COPY, x->sending, x->sent);
	return rc;
}

/* What the ranks that send here have sent. */
static int verify(struct run *x, uint32_t i) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t k = 0; !rc && k < end->peers; k++)
		if (end->peer[k].in)
			rc = p2p_loop_verify(&x->l, end->engine, end->peer[k].inbox, end->peer[k].rank, i);
	return rc;
}

/* What connections did in warm-up does not count. */
static void forget(struct rdma_end *end) {
	for (uint32_t i = 0; i < end->outs; i++) {
		end->out[i].messages = end->out[i].busy_ns = 0;
		memset(end->out[i].bins, 0, RDMA_BINS * sizeof *end->out[i].bins);
	}
}

static int sample(struct run *x, uint32_t i) {
	const struct p2p_batch *b = x->l.b;
	struct rdma_end *end = x->end;
	const int both = b->op == P2P_OP_BIDIR || b->op == P2P_OP_PINGPONG;
	/* One way, from rank 0 to 1 where there are connections both ways. */
	const int sends = end->outs && (both || !end->ins || end->rank == 0);
	const int receives = end->ins && (both || !end->outs || end->rank != 0);
	const int first = b->op != P2P_OP_PINGPONG || end->rank == 0;
	int rc = P2P_OK;
	p2p_loop_at(&x->l, i);
	if (i == b->warmup)
		forget(end);
	if (sends && ((rc = p2p_loop_fill(&x->l, end->engine, end->source, end->rank, i)) ||
		      (rc = p2p_loop_leave(&x->l, end->engine, end->source))))
		return rc;
	if ((rc = begin(x, sends, receives)))
		return rc;
	if (sends && first && (rc = await_word(x, GO, P2P_WAIT_READY)))
		return rc;
	if (x->w->together && (rc = p2p_loop_meet(&x->l, i)))
		return rc;
	const uint64_t t0 = x->begun = p2p_loop_now(&x->l);
	if (b->op == P2P_OP_PINGPONG)
		rc = end->rank == 0 ? ping(x) : pong(x);
	else
		rc = exchange(x);
	const uint64_t t1 = p2p_loop_now(&x->l);
	if (rc || (rc = drain(x)) || (receives && (rc = verify(x, i))))
		return rc;
	end->messages += x->sending;
	if (sends && first)
		p2p_loop_take(&x->l, i, t0, t1);
	return P2P_OK;
}

static int run(struct run *x) {
	struct rdma_end *end = x->end;
	int rc = end->engine->bind(end->engine->self, x->l.e);
	if (!rc && end->outs)
		rc = p2p_loop_fill_first(&x->l, end->engine, end->source, end->rank);
	for (uint32_t k = 0; !rc && k < end->peers; k++)
		if (end->peer[k].in)
			rc = p2p_loop_poison(&x->l, end->engine, end->peer[k].inbox);
	if (!rc)
		rc = p2p_loop_barrier(&x->l);
	for (uint32_t i = 0; !rc && i < p2p_loop_length(&x->l); i++)
		rc = sample(x, i);
	return rc;
}

int p2p_rdma_run(struct rdma_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		 struct p2p_error *e) {
	struct run x = {.l = {end->ctx, b, r, e, samples}, .end = end, .w = &end->ways};
	int rc = run(&x);
	if (rc)
		end->broken = 1;
	return rc;
}
