#include "core.h"

/* Writes the number of the sample into a word of every rank that sends to this one. */
static int publish(struct run *x, size_t word) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && i < end->peers; i++) {
		struct rdma_peer *p = &end->peer[i];
		struct p2p_wait w = {0};
		if (p->in == 0)
			continue;
		struct rdma_qp *q = &end->qp[end->in[rdma_turn_of(x, p->first_in, p->in)].qp[0]];
		_Atomic uint64_t *own = (_Atomic uint64_t *)((uint8_t *)p->outgoing + word);
		while (!rc && rdma_room(q) == 0)
			rc = rdma_progress(x, &w, P2P_WAIT_COPY, 1, 0);
		atomic_store_explicit(own, x->tag, memory_order_relaxed);
		if (!rc)
			rc = rdma_post_control(x, q, own, sizeof *own, p->remote_words + word, p->remote_words_rkey);
	}
	return rc ? rc : rdma_flush(x, 0);
}

/* Whether every rank that this one sends to has written the number of the sample into a word. */
static int published(const struct run *x, size_t word, uint64_t *least) {
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
	while (!rc && !published(x, word, &have))
		rc = rdma_progress(x, &w, what, x->tag, have);
	return rc;
}

#define GO offsetof(struct rdma_words, go)
#define DONE offsetof(struct rdma_words, done)

/* ---- samples ---------------------------------------------------------------------------------------------------- */

/* The number of messages of a connection in a sample, or in a burst. */
static uint32_t share(const struct run *x, const struct rdma_conn *c, uint32_t conns) {
	const uint32_t all = x->l.b->window == 1 ? x->burst : x->l.b->window;
	return all / conns + (rdma_first_of(x, c, conns) < all % conns);
}

static void begin_conn(struct rdma_conn *c, uint32_t count) {
	c->count = count;
	c->started = c->finished = 0;
}

/* Distributes the messages of a sample, or of a burst, over the connections. Those of a burst are sent one by one, by
 * step. */
static void distribute(struct run *x) {
	struct rdma_end *end = x->end;
	const int one_by_one = x->l.b->window == 1;
	x->tag = x->first = end->samples + 1;
	end->samples += x->burst;
	x->wide = !one_by_one;
	x->sending = x->sent = x->awaited = x->received = 0;
	for (uint32_t i = 0; i < end->outs; i++) {
		struct rdma_conn *c = &end->out[i];
		begin_conn(c, p2p_sends(x->role) && !one_by_one ? share(x, c, end->peer[c->peer].out) : 0);
		x->sending += c->count;
	}
	for (uint32_t i = 0; i < end->ins; i++) {
		struct rdma_conn *c = &end->in[i];
		begin_conn(c, p2p_receives(x->role) ? share(x, c, end->peer[c->peer].in) : 0);
		x->awaited += one_by_one ? 0 : c->count;
	}
}

/* Starts sample k of a burst: each sending rank sends one more message. */
static void step(struct run *x, uint32_t k) {
	struct rdma_end *end = x->end;
	x->tag = x->first + k;
	for (uint32_t i = 0; x->l.b->window == 1 && i < end->peers; i++) {
		const struct rdma_peer *p = &end->peer[i];
		if (p2p_sends(x->role) && p->out) {
			end->out[rdma_turn_of(x, p->first_out, p->out)].count++;
			x->sending++;
		}
		x->awaited += p2p_receives(x->role) && p->in;
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

/* All messages of the sample in both directions, until this rank and its peers have received theirs. */
static int exchange(struct run *x) {
	struct p2p_wait w = {0};
	uint64_t have = 0;
	int rc = post_all(x), answered = x->awaited == 0;
	while (!rc && (x->sent < x->sending || x->received < x->awaited || !answered ||
		       (x->sending && !published(x, DONE, &have)))) {
		if (x->received < x->awaited) {
			rc = rdma_progress(x, &w, P2P_WAIT_DONE, x->awaited, x->received);
		} else if (!answered) {
			answered = 1;
			rc = publish(x, DONE);
		} else if (x->sent < x->sending) {
			rc = rdma_progress(x, &w, P2P_WAIT_ACK, x->sending, x->sent);
		} else {
			rc = rdma_progress(x, &w, P2P_WAIT_ACK, x->tag, have);
		}
	}
	return rc;
}

/* A message and its reply. */
static int ping(struct run *x) {
	int rc = post_all(x);
	return rc ? rc : receive_all(x);
}

static int pong(struct run *x) {
	int rc = receive_all(x);
	return rc ? rc : post_all(x);
}

/* Waits until all sends are completed, so that their memory may be overwritten. */
static int drain(struct run *x) {
	struct p2p_wait w = {0};
	int rc = P2P_OK;
	x->wide = 1;
	while (!rc && x->sent < x->sending)
		rc = rdma_progress(x, &w, P2P_WAIT_COPY, x->sending, x->sent);
	return rc;
}

/* Discards the statistics of warm-up. */
static void reset_counters(struct rdma_end *end) {
	for (uint32_t i = 0; i < end->outs; i++) {
		end->out[i].messages = end->out[i].busy_ns = 0;
		memset(end->out[i].bins, 0, RDMA_BINS * sizeof *end->out[i].bins);
	}
}

/* The number of samples of the burst from number i on, within the setting, the buffer, and warm-up or the rest. */
static uint32_t burst_length(const struct run *x, uint32_t i) {
	const struct p2p_batch *b = x->l.b;
	const uint32_t left = i < b->warmup ? b->warmup - i : p2p_loop_length(&x->l) - i;
	const uint64_t spare = x->end->bytes - b->offset - b->stride,
		       room = b->size ? 1 + spare / rdma_place(x, 1) : RDMA_BURST;
	uint64_t n = x->w->burst < room ? x->w->burst : room;
	if (b->op == P2P_OP_STREAM || b->op == P2P_OP_BIDIR)
		return 1;
	return n < left ? (uint32_t)n : left;
}

/* ---- steps of an operation -------------------------------------------------------------------------------------- */

static int use_engine(struct run *x) { return x->end->engine->bind(x->end->engine->self, x->l.e); }

static int begin(struct run *x, uint32_t i, uint32_t *n) {
	x->iter = i;
	*n = x->burst = burst_length(x, i);
	if (i == x->l.b->warmup)
		reset_counters(x->end);
	distribute(x);
	return P2P_OK;
}

static uint8_t *source(const struct run *x, uint32_t k) { return x->end->source + rdma_place(x, k); }

static int fill(struct run *x, uint32_t i, uint32_t k, uint64_t step) {
	return p2p_loop_fill_window(&x->l, x->end->engine, source(x, k), x->end->rank, i, step);
}

static int leave(struct run *x, uint32_t i, uint32_t k) {
	(void)i;
	return p2p_loop_leave(&x->l, x->end->engine, source(x, k));
}

static int poison(struct run *x, uint32_t k) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && i < end->peers; i++)
		if (end->peer[i].in)
			rc = p2p_loop_poison(&x->l, end->engine, end->peer[i].inbox + rdma_place(x, k));
	return rc;
}

/* Compares the messages of all ranks that send to this one. */
static int verify(struct run *x, uint32_t i, uint32_t k) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t n = 0; !rc && n < end->peers; n++) {
		const struct rdma_peer *p = &end->peer[n];
		if (p->in)
			rc = p2p_loop_verify(&x->l, end->engine, p->inbox + rdma_place(x, k), p->rank, i);
	}
	return rc;
}

static int credit(struct run *x, enum p2p_role role, uint32_t i) {
	struct rdma_end *end = x->end;
	int rc = P2P_OK;
	(void)role, (void)i;
	if (x->w->in_memory)
		rdma_arm(x);
	for (uint32_t k = 0; !rc && !x->w->pre_granted && k < end->ins; k++)
		rc = rdma_cts_window(x, &end->in[k]);
	return rc ? rc : publish(x, GO);
}

/* A rank that replies needs no credit: the message that it replies to implies it. */
static int await_credit(struct run *x, enum p2p_role role, uint32_t i) {
	(void)i;
	return role == P2P_PONG ? P2P_OK : await_word(x, GO, P2P_WAIT_READY);
}

/* The samples of a burst: number k lasts from ticks[k] to ticks[k + 1]. */
static int transfer(struct run *x, enum p2p_role role, uint32_t i) {
	const int pingpong = role == P2P_PING || role == P2P_PONG;
	int rc = P2P_OK;
	(void)i;
	x->ticks[0] = x->begun = p2p_loop_now(&x->l);
	if (pingpong && x->w->in_memory)
		return rdma_ping_pong(x, x->ticks);
	for (uint32_t k = 0; !rc && k < x->burst; k++) {
		step(x, k);
		if (pingpong)
			rc = role == P2P_PING ? ping(x) : pong(x);
		else
			rc = exchange(x);
		x->ticks[k + 1] = x->begun = p2p_loop_now(&x->l);
	}
	return rc ? rc : drain(x);
}

static int64_t duration(struct run *x, uint32_t i, uint32_t k) {
	(void)i;
	return p2p_loop_duration(&x->l, x->ticks[k], x->ticks[k + 1]);
}

static int add_messages(struct run *x) {
	x->end->messages += x->sending;
	return P2P_OK;
}

/* A transfer includes the receivers' acknowledgement. */
static const struct p2p_steps steps = {
	.bind = use_engine,
	.poison = poison,
	.begin = begin,
	.fill = fill,
	.leave = leave,
	.credit = credit,
	.await_credit = await_credit,
	.transfer = transfer,
	.duration = duration,
	.cleanup = add_messages,
	.verify = verify,
};

/* latency and stream: from rank 0 to rank 1 if there are connections in both directions. */
static enum p2p_role role_of(const struct run *x) {
	const struct rdma_end *end = x->end;
	if (x->l.b->op == P2P_OP_PINGPONG || (end->outs && end->ins))
		return p2p_role_of(&x->l, end->rank == 0);
	return end->outs ? P2P_SEND : P2P_RECEIVE;
}

int p2p_rdma_run(struct rdma_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		 struct p2p_error *e) {
	struct run x = {
		.l = {end->ctx, b, r, e, samples, .barrier_each = end->config.together}, .end = end, .w = &end->config};
	const uint32_t first = burst_length(&x, 0), later = burst_length(&x, b->warmup);
	x.role = role_of(&x);
	x.l.largest_burst = first > later ? first : later;
	int rc = p2p_loop_run(&x.l, &steps, &x, x.role);
	if (rc)
		end->broken = 1;
	return rc;
}
