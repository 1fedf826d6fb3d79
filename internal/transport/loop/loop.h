/*
 * loop.h: the timed loop of all transports. p2p_loop_run, at the end, runs a batch of any operation; a transport
 * supplies the steps in which its messages move, a struct p2p_steps. What a sample is says the comment of package loop.
 */
#ifndef P2P_LOOP_H
#define P2P_LOOP_H

#include "gpu/abi/p2p.h"

enum { P2P_OP_LATENCY = 0, P2P_OP_STREAM = 1, P2P_OP_BIDIR = 2, P2P_OP_PINGPONG = 3 };
enum { P2P_CHECK_OFF = 0, P2P_CHECK_SAMPLE = 1, P2P_CHECK_FULL = 2 };

/* One call's worth of work; the fields are those of transport.Batch. */
struct p2p_batch {
	uint64_t size, offset, stride;
	uint64_t first, seed;
	uint64_t barrier; /* number of the barrier from which the ranks start together, 0: none */
	uint32_t op, check, window, warmup, iters, graph;
};

struct p2p_result {
	int64_t entered;    /* CLOCK_MONOTONIC_RAW ns at which this rank left the barrier */
	int64_t first_ns;   /* duration of the first iteration */
	uint64_t checked;   /* bytes compared */
	uint32_t samples;   /* filled */
	uint32_t backwards; /* 1: the clock showed an earlier time after a message than before it */
	/* Where a check failed (P2P_ERR_CORRUPT). */
	uint32_t slot;
	uint64_t iter;
	struct p2p_mismatch mismatch;
};

struct p2p_gate;

/* A batch under way on one rank. What is zero, or NULL, by default stands behind the samples. */
struct p2p_loop {
	const struct p2p_ctx *ctx;
	const struct p2p_batch *b;
	struct p2p_result *r;
	struct p2p_error *e;
	int64_t *samples;
	struct p2p_gate *gate;        /* the device times, and its queues wait there; NULL: the host times */
	const struct p2p_ctx *device; /* of waits for the queues; NULL: ctx */
	uint32_t together;            /* 1: the ranks begin each iteration at a barrier */
	uint32_t trial;               /* 1: nothing is written, compared or spoilt */
	uint32_t places;              /* for windows of messages that are kept apart at each end; 0: one */
	uint32_t meetings;            /* barriers of iterations since the batch's own */
	int64_t entered;              /* when an earlier run of the batch left that one; 0: there was none */
	uint32_t under_way;           /* 1: the operation has begun and has not ended */
};

static inline uint32_t p2p_loop_length(const struct p2p_loop *l) { return l->b->warmup + l->b->iters; }

/* The payload of message `slot` of iteration i, as sent by `rank`. */
static inline uint64_t p2p_loop_key(const struct p2p_loop *l, uint32_t i, uint32_t slot, uint32_t rank) {
	uint64_t message = (l->b->first + i) * l->b->window + slot;
	return p2p_payload_key(l->b->seed, l->b->size, message, rank);
}

/* How densely iteration i is filled and checked: 0 is every byte. */
static inline uint64_t p2p_loop_step(const struct p2p_loop *l, uint32_t i) {
	if (l->b->check == P2P_CHECK_FULL || i + 1 == p2p_loop_length(l))
		return 0;
	uint64_t step = l->b->size / 64 / P2P_SAMPLE_BYTES * P2P_SAMPLE_BYTES;
	return step < 4096 ? 4096 : step;
}

/* Writes message `slot` of iteration i, as sent by `rank`, at p. */
static inline int p2p_loop_fill_message(const struct p2p_loop *l, struct p2p_engine *g, uint8_t *p, uint32_t rank,
					uint32_t i, uint32_t slot, uint64_t step) {
	return g->fill(g->self, l->ctx, p, l->b->size, p2p_loop_key(l, i, slot, rank), step, l->e);
}

/* Writes the window of iteration i, as sent by `rank`. */
static inline int p2p_loop_fill_window(const struct p2p_loop *l, struct p2p_engine *g, uint8_t *source, uint32_t rank,
				       uint32_t i, uint64_t step) {
	uint8_t *p = source + l->b->offset;
	for (uint32_t w = 0; w < l->b->window; w++, p += l->b->stride) {
		int rc = p2p_loop_fill_message(l, g, p, rank, i, w, step);
		if (rc)
			return rc;
	}
	return g->wait(g->self, l->ctx, l->e);
}

/* Before messages leave by other means than the engine's copy. */
static inline int p2p_loop_leave(const struct p2p_loop *l, struct p2p_engine *g, const uint8_t *source) {
	if (!g->leave)
		return P2P_OK;
	const uint8_t *p = source + l->b->offset;
	for (uint32_t w = 0; w < l->b->window; w++, p += l->b->stride) {
		int rc = g->leave(g->self, p, l->b->size, l->e);
		if (rc)
			return rc;
	}
	return g->wait(g->self, l->ctx, l->e);
}

/* Makes sure that nothing in the inbox can pass for a message. */
static inline int p2p_loop_poison(const struct p2p_loop *l, struct p2p_engine *g, uint8_t *inbox) {
	p2p_at(l->ctx, P2P_PHASE_PREPARE, l->b->size, 0);
	uint64_t no_message = p2p_payload_key(l->b->seed, 0, UINT64_MAX, 0);
	int rc = g->fill(g->self, l->ctx, inbox + l->b->offset, l->b->stride * l->b->window, no_message, 0, l->e);
	return rc ? rc : g->wait(g->self, l->ctx, l->e);
}

/* Compares what `rank` sent as message `slot` of iteration i with what is at p. */
static inline int p2p_loop_verify_message(const struct p2p_loop *l, struct p2p_engine *g, const uint8_t *p,
					  uint32_t rank, uint32_t i, uint32_t slot) {
	uint64_t step = p2p_loop_step(l, i), key = p2p_loop_key(l, i, slot, rank);
	int rc = g->check(g->self, l->ctx, p, l->b->size, key, step, &l->r->mismatch, l->e);
	if (rc)
		return rc;
	if (l->r->mismatch.count) {
		l->r->iter = l->b->first + i;
		l->r->slot = slot;
		return p2p_fail(l->e, P2P_ERR_CORRUPT, 0, "the payload differs");
	}
	l->r->checked += p2p_sampled_bytes(l->b->size, step);
	return P2P_OK;
}

/* Compares the window that `rank` sent in iteration i with what is in the inbox. */
static inline int p2p_loop_verify(const struct p2p_loop *l, struct p2p_engine *g, const uint8_t *inbox, uint32_t rank,
				  uint32_t i) {
	const uint8_t *p = inbox + l->b->offset;
	for (uint32_t w = 0; w < l->b->window; w++, p += l->b->stride) {
		int rc = p2p_loop_verify_message(l, g, p, rank, i, w);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

/* Starts the copies of one window. */
static inline int p2p_loop_copy(const struct p2p_loop *l, struct p2p_engine *g, uint8_t *dst, const uint8_t *src) {
	uint64_t off = l->b->offset;
	for (uint32_t w = 0; w < l->b->window; w++, off += l->b->stride) {
		int rc = g->copy(g->self, dst + off, src + off, l->b->size, l->e);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

/* Records one window's copies as a unit, for batches that ask for it. */
static inline int p2p_loop_record(const struct p2p_loop *l, struct p2p_engine *g, uint8_t *dst, const uint8_t *src) {
	if (!l->b->graph)
		return P2P_OK;
	int rc = g->record_begin(g->self, l->e);
	if (rc)
		return rc;
	int copied = p2p_loop_copy(l, g, dst, src);
	struct p2p_error first = *l->e;
	rc = g->record_end(g->self, l->e);
	if (copied)
		*l->e = first;
	return copied ? copied : rc;
}

/* Starts one window, recorded or copy by copy. */
static inline int p2p_loop_post(const struct p2p_loop *l, struct p2p_engine *g, uint8_t *dst, const uint8_t *src) {
	return l->b->graph ? g->launch(g->self, l->e) : p2p_loop_copy(l, g, dst, src);
}

/* Where all ranks of the batch start together. */
static inline int p2p_loop_barrier(const struct p2p_loop *l) {
	if (l->entered) {
		l->r->entered = l->entered;
		return P2P_OK;
	}
	p2p_at(l->ctx, P2P_PHASE_BARRIER, l->b->size, 0);
	if (l->b->barrier)
		return p2p_barrier(l->ctx, l->b->barrier << 32, &l->r->entered, l->e);
	l->r->entered = (int64_t)p2p_raw_ns();
	return P2P_OK;
}

/* Where they start an iteration together. */
static inline int p2p_loop_meet(struct p2p_loop *l) {
	int64_t left;
	const uint32_t n = ++l->meetings;
	return l->b->barrier ? p2p_barrier(l->ctx, (l->b->barrier << 32) + n, &left, l->e) : P2P_OK;
}

/* Notes that iteration i begins. */
static inline void p2p_loop_at(const struct p2p_loop *l, uint32_t i) {
	p2p_at(l->ctx, i < l->b->warmup ? P2P_PHASE_WARMUP : P2P_PHASE_TIMED, l->b->size, i);
}

static inline uint64_t p2p_loop_now(const struct p2p_loop *l) { return p2p_ticks(l->ctx->clock); }

/* Takes the sample of iteration i, which lasted so long. */
static inline void p2p_loop_take_ns(const struct p2p_loop *l, uint32_t i, int64_t ns) {
	if (l->b->op == P2P_OP_PINGPONG)
		ns = (ns + 1) / 2;
	if (i == 0)
		l->r->first_ns = ns;
	if (i >= l->b->warmup)
		l->samples[l->r->samples++] = ns;
}

/* ns from t0 to t1 ticks. A clock that goes backwards spoils the batch. */
static inline int64_t p2p_loop_lasted(const struct p2p_loop *l, uint64_t t0, uint64_t t1) {
	if (t1 < t0) {
		l->r->backwards = 1;
		return 0;
	}
	return (int64_t)p2p_ticks_to_ns(l->ctx->clock, t1 - t0);
}

/* The same, from t0 to t1 ticks. */
static inline void p2p_loop_take(const struct p2p_loop *l, uint32_t i, uint64_t t0, uint64_t t1) {
	p2p_loop_take_ns(l, i, p2p_loop_lasted(l, t0, t1));
}

/* ---- operations ----------------------------------------------------------------------------------------------- */

/* What a rank does in an operation. */
enum p2p_part {
	P2P_SEND,     /* latency and stream, on the rank that sends */
	P2P_RECEIVE,  /* … and on the rank that receives */
	P2P_EXCHANGE, /* bidir */
	P2P_PING,     /* pingpong, on the rank that begins */
	P2P_PONG,     /* … and on the rank that replies */
};

/* The part of one of two ranks; first: rank 0. */
static inline enum p2p_part p2p_part_of(const struct p2p_loop *l, int first) {
	switch (l->b->op) {
	case P2P_OP_BIDIR:
		return P2P_EXCHANGE;
	case P2P_OP_PINGPONG:
		return first ? P2P_PING : P2P_PONG;
	default:
		return first ? P2P_SEND : P2P_RECEIVE;
	}
}

static inline int p2p_sends(enum p2p_part part) { return part != P2P_RECEIVE; }
static inline int p2p_receives(enum p2p_part part) { return part != P2P_SEND; }

/* A transport's batch on one rank: each defines its own, which the loop hands to the steps. */
struct run;

/*
 * The steps of a transport; the loop calls them in this order. Those that are NULL do nothing. A table is a constant,
 * so that the compiler resolves and inlines its steps: the loop costs no call between two readings of the clock.
 */
struct p2p_steps {
	/* Once, before the barrier. k below l->places. */
	int (*bind)(struct run *x);               /* prepares the calling thread */
	int (*poison)(struct run *x, uint32_t k); /* where messages arrive: what cannot pass for one */
	int (*record)(struct run *x);             /* after the first fill: what later is launched as one */

	/*
	 * Before an iteration. begin, if there, sets *n where a burst of n iterations from i on is posted back to back:
	 * every other step is then called once for all of them, but fill, leave, lasted and verify for each, number k
	 * of the burst. fill writes messages of iteration i as densely as `step` says, leave announces them where they
	 * do not leave by the engine's copy. credit lets the peer send, await_credit waits until the peer lets this
	 * rank.
	 */
	int (*begin)(struct run *x, uint32_t i, uint32_t *n);
	int (*fill)(struct run *x, uint32_t i, uint32_t k, uint64_t step);
	int (*leave)(struct run *x, uint32_t i, uint32_t k);
	int (*credit)(struct run *x, enum p2p_part part, uint32_t i);
	int (*await_credit)(struct run *x, enum p2p_part part, uint32_t i);

	/*
	 * Timed by the host: the operation, until what this rank receives is there and nothing is left for it to do for
	 * what it sends; then both ranks tell each other that they have it. In pingpong the reply says so: the reply's
	 * own acknowledgement comes after the sample.
	 */
	int (*transfer)(struct run *x, enum p2p_part part, uint32_t i);
	int (*acknowledge)(struct run *x);
	int (*await_ack)(struct run *x);
	int64_t (*lasted)(struct run *x, uint32_t i, uint32_t k); /* ns; NULL: the loop reads the clock */

	/* Timed by the device: puts queue q's share of the operation on it. */
	int (*enqueue)(struct run *x, enum p2p_part part, uint32_t q);

	/* After the sample. */
	int (*settle)(struct run *x);
	int (*verify)(struct run *x, uint32_t i, uint32_t k);

	/*
	 * 1: no rank hears that another one has ended. Then each that takes part in latency and stream takes the time
	 * of its own part, and the longest is the sample.
	 */
	uint32_t each_times;
};

#define P2P_ALWAYS_INLINE inline __attribute__((always_inline))

/* Whether a rank takes samples. */
static P2P_ALWAYS_INLINE int p2p_times(const struct p2p_steps *s, enum p2p_part part) {
	return part == P2P_RECEIVE ? s->each_times != 0 : part != P2P_PONG;
}

/* ---- timing by the host --------------------------------------------------------------------------------------- */

static P2P_ALWAYS_INLINE int p2p_loop_operate(const struct p2p_steps *s, struct run *x, enum p2p_part part,
					      uint32_t i) {
	int rc = s->transfer(x, part, i);
	if (!rc && s->acknowledge && (part == P2P_RECEIVE || part == P2P_EXCHANGE))
		rc = s->acknowledge(x);
	if (!rc && s->await_ack && (part == P2P_SEND || part == P2P_EXCHANGE))
		rc = s->await_ack(x);
	return rc;
}

static P2P_ALWAYS_INLINE int p2p_loop_by_host(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					      enum p2p_part part, uint32_t i, uint32_t n) {
	const int times = p2p_times(s, part);
	int rc = l->together ? p2p_loop_meet(l) : P2P_OK;
	if (rc)
		return rc;
	l->under_way = 1;
	const uint64_t t0 = times && !s->lasted ? p2p_loop_now(l) : 0;
	if ((rc = p2p_loop_operate(s, x, part, i)))
		return rc;
	if (times && !s->lasted)
		p2p_loop_take(l, i, t0, p2p_loop_now(l));
	for (uint32_t k = 0; times && s->lasted && k < n; k++)
		p2p_loop_take_ns(l, i + k, s->lasted(x, i, k));
	return P2P_OK;
}

/* ---- timing by the device ------------------------------------------------------------------------------------- */

/*
 * Where queues of this rank wait, so that all of an iteration is on them before any of it begins: what it costs the
 * host to put it there is not in its time. The ranks open their gates at the same moment.
 */
struct p2p_gate {
	struct p2p_queue *queue[2];
	uint32_t queues;        /* of those: that the batch uses */
	_Atomic uint64_t *word; /* pinned memory of the host; the queues wait until it is `value` */
	uint64_t value;
};

static inline void p2p_gate_open(const struct p2p_gate *g) {
	atomic_store_explicit(g->word, g->value, memory_order_release);
}

/* Lets a queue wait at the gate, and puts its share of the operation there, between two stamps. */
static P2P_ALWAYS_INLINE int p2p_loop_hold(const struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					   enum p2p_part part, uint32_t k) {
	const struct p2p_gate *g = l->gate;
	struct p2p_queue *q = g->queue[k];
	int rc;
	if ((rc = q->bind(q->self, l->e)) || (rc = q->await(q->self, (uint64_t *)g->word, g->value, l->e)) ||
	    (rc = q->stamp(q->self, 0, l->e)) || (rc = s->enqueue(x, part, k)))
		return rc;
	return q->stamp(q->self, 1, l->e);
}

/* Waits for a queue; *longest is what it took, if that is more. */
static inline int p2p_loop_wait_queue(const struct p2p_loop *l, uint32_t k, uint64_t *longest) {
	struct p2p_queue *q = l->gate->queue[k];
	uint64_t ns;
	int rc;
	if ((rc = q->bind(q->self, l->e)) || (rc = q->wait(q->self, l->device ? l->device : l->ctx, l->e)) ||
	    (rc = q->between(q->self, 0, 1, &ns, l->e)))
		return rc;
	*longest = ns > *longest ? ns : *longest;
	return P2P_OK;
}

static P2P_ALWAYS_INLINE int p2p_loop_by_device(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
						enum p2p_part part, uint32_t i) {
	struct p2p_gate *g = l->gate;
	uint64_t longest = 0;
	int rc = P2P_OK;
	g->value++;
	for (uint32_t k = 0; !rc && k < g->queues; k++)
		rc = p2p_loop_hold(l, s, x, part, k);
	if (!rc)
		rc = p2p_loop_meet(l);
	l->under_way = !rc;
	p2p_gate_open(g); /* in any case: whoever closes the queue waits for what is on it */
	for (uint32_t k = 0; !rc && k < g->queues; k++)
		rc = p2p_loop_wait_queue(l, k, &longest);
	if (!rc && p2p_times(s, part))
		p2p_loop_take_ns(l, i, (int64_t)longest);
	return rc;
}

/* ---- batches -------------------------------------------------------------------------------------------------- */

static P2P_ALWAYS_INLINE int p2p_loop_set_up(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					     enum p2p_part part) {
	const uint32_t check = l->b->check, places = l->trial ? 0 : l->places ? l->places : 1;
	int rc = s->bind(x);
	for (uint32_t k = 0; !rc && p2p_receives(part) && check != P2P_CHECK_OFF && k < places; k++)
		rc = s->poison(x, k);
	/* The bytes that no later fill writes. */
	for (uint32_t k = 0; !rc && p2p_sends(part) && check != P2P_CHECK_FULL && k < places; k++)
		rc = s->fill(x, 0, k, 0);
	if (!rc && s->record)
		rc = s->record(x);
	return rc ? rc : p2p_loop_barrier(l);
}

static P2P_ALWAYS_INLINE int p2p_loop_supply(const struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					     uint32_t i, uint32_t n) {
	int rc = P2P_OK;
	for (uint32_t k = 0; !rc && l->b->check != P2P_CHECK_OFF && k < n; k++)
		rc = s->fill(x, i + k, k, p2p_loop_step(l, i + k));
	for (uint32_t k = 0; !rc && s->leave && k < n; k++)
		rc = s->leave(x, i + k, k);
	return rc;
}

/* A burst of *n iterations from i on. */
static P2P_ALWAYS_INLINE int p2p_loop_iterate(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					      enum p2p_part part, uint32_t i, uint32_t *n) {
	int rc = s->begin ? s->begin(x, i, n) : P2P_OK;
	if (!rc && p2p_sends(part) && !l->trial)
		rc = p2p_loop_supply(l, s, x, i, *n);
	if (!rc && p2p_receives(part) && s->credit)
		rc = s->credit(x, part, i);
	if (!rc && p2p_sends(part) && s->await_credit)
		rc = s->await_credit(x, part, i);
	if (rc)
		return rc;
	if ((rc = s->enqueue && l->gate ? p2p_loop_by_device(l, s, x, part, i)
					: p2p_loop_by_host(l, s, x, part, i, *n)))
		return rc;
	if (part == P2P_PING && s->acknowledge)
		rc = s->acknowledge(x);
	if (!rc && part == P2P_PONG && s->await_ack)
		rc = s->await_ack(x);
	if (!rc && s->settle)
		rc = s->settle(x);
	l->under_way = rc != P2P_OK;
	for (uint32_t k = 0; !rc && p2p_receives(part) && !l->trial && l->b->check != P2P_CHECK_OFF && k < *n; k++)
		rc = s->verify(x, i + k, k);
	return rc;
}

/* Runs the batch. The part is the same in all iterations; the steps are those of one constant table. */
static P2P_ALWAYS_INLINE int p2p_loop_run(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					  enum p2p_part part) {
	const uint32_t length = p2p_loop_length(l);
	int rc = p2p_loop_set_up(l, s, x, part);
	for (uint32_t i = 0, n = 1; !rc && i < length; i += n) {
		p2p_loop_at(l, i);
		switch (part) { /* so that each part is compiled by itself */
		case P2P_SEND:
			rc = p2p_loop_iterate(l, s, x, P2P_SEND, i, &n);
			break;
		case P2P_RECEIVE:
			rc = p2p_loop_iterate(l, s, x, P2P_RECEIVE, i, &n);
			break;
		case P2P_EXCHANGE:
			rc = p2p_loop_iterate(l, s, x, P2P_EXCHANGE, i, &n);
			break;
		case P2P_PING:
			rc = p2p_loop_iterate(l, s, x, P2P_PING, i, &n);
			break;
		case P2P_PONG:
			rc = p2p_loop_iterate(l, s, x, P2P_PONG, i, &n);
			break;
		}
	}
	if (!rc)
		p2p_at(l->ctx, P2P_PHASE_IDLE, l->b->size, length);
	return rc;
}

#endif
