#include "core.h"

/* Writes the number of the sample into a word of every rank that sends here. */
static int tell(struct run *x, size_t word) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && i < end->peers; i++) {
		struct rdma_peer *p = &end->peer[i];
		struct p2p_wait w = {0};
		if (p->in == 0)
			continue;
		struct rdma_qp *q = &end->qp[end->in[rdma_turn_of(x, p->first_in, p->in)].qp[0]];
		_Atomic uint64_t *own = (_Atomic uint64_t *)((uint8_t *)p->says + word);
		while (!rc && rdma_room(q) == 0)
			rc = rdma_progress(x, &w, P2P_WAIT_COPY, 1, 0);
		atomic_store_explicit(own, x->tag, memory_order_relaxed);
		if (!rc)
			rc = rdma_post_control(x, q, own, sizeof *own, p->remote_words + word, p->remote_words_rkey);
	}
	return rc ? rc : rdma_flush(x, 0);
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
	struct p2p_wait w = {0};
	uint64_t have;
	int rc = P2P_OK;
	while (!rc && !told(x, word, &have))
		rc = rdma_progress(x, &w, what, x->tag, have);
	return rc;
}

#define GO offsetof(struct rdma_words, go)
#define DONE offsetof(struct rdma_words, done)

/* ---- samples ---------------------------------------------------------------------------------------------------- */

/* How many messages of a sample, or of a train, are a connection's. */
static uint32_t share(const struct run *x, const struct rdma_conn *c, uint32_t conns) {
	const uint32_t all = x->l.b->window == 1 ? x->train : x->l.b->window;
	return all / conns + (rdma_first_of(x, c, conns) < all % conns);
}

static void begin_conn(struct rdma_conn *c, uint32_t count) {
	c->count = count;
	c->started = c->finished = 0;
}

/*
 * Begins a sample, or a train: deals the messages to the connections, and lets those come that this rank shall receive.
 * Those of a train are sent one by one: step says when.
 */
static int begin(struct run *x, int sends, int receives) {
	struct rdma_end *end = x->end;
	const int one_by_one = x->l.b->window == 1;
	int rc = P2P_OK;
	x->tag = x->first = end->samples + 1;
	end->samples += x->train;
	x->wide = !one_by_one;
	x->sending = x->sent = x->awaited = x->received = 0;
	for (uint32_t i = 0; i < end->outs; i++) {
		struct rdma_conn *c = &end->out[i];
		begin_conn(c, sends && !one_by_one ? share(x, c, end->peer[c->peer].out) : 0);
		x->sending += c->count;
	}
	for (uint32_t i = 0; i < end->ins; i++) {
		struct rdma_conn *c = &end->in[i];
		begin_conn(c, receives ? share(x, c, end->peer[c->peer].in) : 0);
		x->awaited += one_by_one ? 0 : c->count;
	}
	if (receives && x->w->in_memory)
		rdma_arm(x);
	for (uint32_t i = 0; !rc && receives && !x->w->pre_granted && i < end->ins; i++)
		rc = rdma_grant_window(x, &end->in[i]);
	if (!rc && receives)
		rc = tell(x, GO);
	return rc;
}

/* Sample number k of a train is next: each rank that sends has one message more to send. */
static void step(struct run *x, uint32_t k, int sends, int receives) {
	struct rdma_end *end = x->end;
	x->tag = x->first + k;
	for (uint32_t i = 0; x->l.b->window == 1 && i < end->peers; i++) {
		const struct rdma_peer *p = &end->peer[i];
		if (sends && p->out) {
			end->out[rdma_turn_of(x, p->first_out, p->out)].count++;
			x->sending++;
		}
		x->awaited += receives && p->in;
	}
}

static int post_all(struct run *x) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && x->l.b->window > 1 && i < end->outs; i++)
		rc = rdma_post_window(x, &end->out[i]);
	for (uint32_t i = 0; !rc && x->l.b->window == 1 && i < end->peers; i++)
		if (end->peer[i].out)
			rc = rdma_post_window(x, &end->out[rdma_turn_of(x, end->peer[i].first_out, end->peer[i].out)]);
	return rc ? rc : rdma_flush(x, 0);
}

static int receive_all(struct run *x) {
	struct p2p_wait w = {0};
	int rc = P2P_OK;
	while (!rc && x->received < x->awaited)
		rc = rdma_progress(x, &w, P2P_WAIT_DONE, x->awaited, x->received);
	return rc;
}

/* All messages of the sample, both ways, until this rank has what it awaits and its peers say that they have theirs. */
static int exchange(struct run *x) {
	struct p2p_wait w = {0};
	uint64_t have = 0;
	int rc = post_all(x), answered = x->awaited == 0;
	while (!rc && (x->sent < x->sending || x->received < x->awaited || !answered ||
		       (x->sending && !told(x, DONE, &have)))) {
		if (x->received < x->awaited) {
			rc = rdma_progress(x, &w, P2P_WAIT_DONE, x->awaited, x->received);
		} else if (!answered) {
			answered = 1;
			rc = tell(x, DONE);
		} else if (x->sent < x->sending) {
			rc = rdma_progress(x, &w, P2P_WAIT_ACK, x->sending, x->sent);
		} else {
			rc = rdma_progress(x, &w, P2P_WAIT_ACK, x->tag, have);
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
	struct p2p_wait w = {0};
	int rc = P2P_OK;
	x->wide = 1;
	while (!rc && x->sent < x->sending)
		rc = rdma_progress(x, &w, P2P_WAIT_COPY, x->sending, x->sent);
	return rc;
}

/* Writes the messages of a train. */
static int fill(struct run *x) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t k = 0; !rc && k < x->train; k++)
		rc = p2p_loop_fill(&x->l, end->engine, end->source + rdma_place(x, k), end->rank, x->iter + k);
	for (uint32_t k = 0; !rc && k < x->train; k++)
		rc = p2p_loop_leave(&x->l, end->engine, end->source + rdma_place(x, k));
	return rc;
}

/* What the ranks that send here have sent. */
static int verify(struct run *x) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t i = 0; i < end->peers; i++) {
		const struct rdma_peer *p = &end->peer[i];
		for (uint32_t k = 0; !rc && p->in && k < x->train; k++)
			rc = p2p_loop_verify(&x->l, end->engine, p->inbox + rdma_place(x, k), p->rank, x->iter + k);
	}
	return rc;
}

/* What connections did in warm-up does not count. */
static void forget(struct rdma_end *end) {
	for (uint32_t i = 0; i < end->outs; i++) {
		end->out[i].messages = end->out[i].busy_ns = 0;
		memset(end->out[i].bins, 0, RDMA_BINS * sizeof *end->out[i].bins);
	}
}

/* The samples of a train. That number k lasted from ticks[k] to ticks[k + 1] is rank 0's to know in ping-pong. */
static int time_train(struct run *x, int sends, int receives, uint64_t *ticks) {
	const int pingpong = x->l.b->op == P2P_OP_PINGPONG;
	int rc = P2P_OK;
	ticks[0] = x->begun = p2p_loop_now(&x->l);
	if (pingpong && x->w->in_memory)
		return rdma_volley(x, ticks);
	for (uint32_t k = 0; !rc && k < x->train; k++) {
		step(x, k, sends, receives);
		if (pingpong)
			rc = x->end->rank == 0 ? ping(x) : pong(x);
		else
			rc = exchange(x);
		ticks[k + 1] = x->begun = p2p_loop_now(&x->l);
	}
	return rc ? rc : drain(x);
}

static int train(struct run *x) {
	const struct p2p_batch *b = x->l.b;
	struct rdma_end *end = x->end;
	const int both = b->op == P2P_OP_BIDIR || b->op == P2P_OP_PINGPONG;
	/* One way, from rank 0 to 1 where there are connections both ways. */
	const int sends = end->outs && (both || !end->ins || end->rank == 0);
	const int receives = end->ins && (both || !end->outs || end->rank != 0);
	const int first = b->op != P2P_OP_PINGPONG || end->rank == 0;
	uint64_t ticks[RDMA_TRAIN + 1];
	int rc = P2P_OK;
	p2p_loop_at(&x->l, x->iter);
	if (x->iter == b->warmup)
		forget(end);
	if ((sends && (rc = fill(x))) || (rc = begin(x, sends, receives)))
		return rc;
	if (sends && first && (rc = await_word(x, GO, P2P_WAIT_READY)))
		return rc;
	if (x->w->together && (rc = p2p_loop_meet(&x->l, x->iter)))
		return rc;
	if ((rc = time_train(x, sends, receives, ticks)) || (receives && (rc = verify(x))))
		return rc;
	end->messages += x->sending;
	for (uint32_t k = 0; sends && first && k < x->train; k++)
		p2p_loop_take(&x->l, x->iter + k, ticks[k], ticks[k + 1]);
	return P2P_OK;
}

/* How many samples from number i on are one train: as many as are wanted and have room, of warm-up or after it. */
static uint32_t coupled(const struct run *x, uint32_t i) {
	const struct p2p_batch *b = x->l.b;
	const uint32_t left = i < b->warmup ? b->warmup - i : p2p_loop_length(&x->l) - i;
	const uint64_t spare = x->end->bytes - b->offset - b->stride,
		       room = b->size ? 1 + spare / rdma_place(x, 1) : RDMA_TRAIN;
	uint64_t n = x->w->train < room ? x->w->train : room;
	if (b->op == P2P_OP_STREAM || b->op == P2P_OP_BIDIR)
		return 1;
	return n < left ? (uint32_t)n : left;
}

/* Before the first sample: payload that no later fill writes, and what cannot pass for any. */
static int prepare(struct run *x) {
	struct rdma_end *end = x->end;
	uint32_t places = coupled(x, 0), later = coupled(x, x->l.b->warmup);
	int rc = P2P_OK;
	places = later > places ? later : places;
	for (uint32_t k = 0; !rc && end->outs && k < places; k++)
		rc = p2p_loop_fill_first(&x->l, end->engine, end->source + rdma_place(x, k), end->rank);
	for (uint32_t i = 0; i < end->peers; i++)
		for (uint32_t k = 0; !rc && end->peer[i].in && k < places; k++)
			rc = p2p_loop_poison(&x->l, end->engine, end->peer[i].inbox + rdma_place(x, k));
	return rc;
}

static int run(struct run *x) {
	struct rdma_end *end = x->end;
	int rc = end->engine->bind(end->engine->self, x->l.e);
	if (!rc)
		rc = prepare(x);
	if (!rc)
		rc = p2p_loop_barrier(&x->l);
	for (; !rc && x->iter < p2p_loop_length(&x->l); x->iter += x->train) {
		x->train = coupled(x, x->iter);
		rc = train(x);
	}
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
