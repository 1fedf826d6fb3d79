/*
 * loop.h: the timed loop of all transports. p2p_loop_run runs a batch of any operation; a transport supplies the steps
 * that move its messages, a struct p2p_steps. The comment of package loop defines a sample.
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

struct p2p_stream_wait;

/* A batch in progress on one rank. Members after `samples` are zero unless the transport sets them. */
struct p2p_loop {
	const struct p2p_ctx *ctx;
	const struct p2p_batch *b;
	struct p2p_result *r;
	struct p2p_error *e;
	int64_t *samples;
	struct p2p_stream_wait *stream_wait; /* the device times, by these queues; NULL: the host times */
	const struct p2p_ctx *device;        /* of waits for the queues; NULL: ctx */
	uint32_t barrier_each;               /* 1: a barrier before each iteration that the host times, too */
	uint32_t trial;                      /* 1: a trial of autotune: payloads are neither written nor compared */
	uint32_t largest_burst;              /* windows that lie side by side at each end; 0: one */
	uint32_t barriers;                   /* before iterations, since the batch's own */
	int64_t entered;      /* when an earlier run of the batch left its barrier; 0: this is the first run */
	uint32_t in_progress; /* 1: the operation has begun and has not ended */
};

static inline uint32_t p2p_loop_length(const struct p2p_loop *l) { return l->b->warmup + l->b->iters; }

/* The payload of message `slot` of iteration i, as sent by `rank`. */
static inline uint64_t p2p_loop_key(const struct p2p_loop *l, uint32_t i, uint32_t slot, uint32_t rank) {
	uint64_t message = (l->b->first + i) * l->b->window + slot;
	return p2p_payload_key(l->b->seed, l->b->size, message, rank);
}

/* The stride at which iteration i is filled and checked; 0: every byte. */
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

/* The hook of fault injection, for messages that the engine's copy does not move. */
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

/* Overwrites the inbox, so that nothing in it can pass for a message. */
static inline int p2p_loop_poison(const struct p2p_loop *l, struct p2p_engine *g, uint8_t *inbox) {
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

/* The barrier at which all ranks begin the batch. */
static inline int p2p_loop_batch_barrier(const struct p2p_loop *l) {
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

/* The barrier at which all ranks begin an iteration. */
static inline int p2p_loop_iteration_barrier(struct p2p_loop *l) {
	int64_t left;
	const uint32_t n = ++l->barriers;
	return l->b->barrier ? p2p_barrier(l->ctx, (l->b->barrier << 32) + n, &left, l->e) : P2P_OK;
}

/* Reports that iteration i begins. */
static inline void p2p_loop_at(const struct p2p_loop *l, uint32_t i) {
	p2p_at(l->ctx, i < l->b->warmup ? P2P_PHASE_WARMUP : P2P_PHASE_TIMED, l->b->size, i);
}

static inline uint64_t p2p_loop_now(const struct p2p_loop *l) { return p2p_ticks(l->ctx->clock); }

/* Records the sample of iteration i, which took ns. */
static inline void p2p_loop_sample_ns(const struct p2p_loop *l, uint32_t i, int64_t ns) {
	if (l->b->op == P2P_OP_PINGPONG)
		ns = (ns + 1) / 2;
	if (i == 0)
		l->r->first_ns = ns;
	if (i >= l->b->warmup)
		l->samples[l->r->samples++] = ns;
}

/* ns from t0 to t1 ticks. A clock that goes backwards makes the batch fail. */
static inline int64_t p2p_loop_duration(const struct p2p_loop *l, uint64_t t0, uint64_t t1) {
	if (t1 < t0) {
		l->r->backwards = 1;
		return 0;
	}
	return (int64_t)p2p_ticks_to_ns(l->ctx->clock, t1 - t0);
}

/* Records the sample of iteration i, which lasted from t0 to t1 ticks. */
static inline void p2p_loop_sample(const struct p2p_loop *l, uint32_t i, uint64_t t0, uint64_t t1) {
	p2p_loop_sample_ns(l, i, p2p_loop_duration(l, t0, t1));
}

/* ---- operations ----------------------------------------------------------------------------------------------- */

/* What a rank does in an operation. */
enum p2p_role {
	P2P_SEND,     /* latency and stream: rank 0 */
	P2P_RECEIVE,  /* latency and stream: rank 1 */
	P2P_EXCHANGE, /* bidir: all ranks */
	P2P_PING,     /* pingpong: rank 0 */
	P2P_PONG,     /* pingpong: rank 1 */
};

/* The role of one of two ranks. first: of rank 0. */
static inline enum p2p_role p2p_role_of(const struct p2p_loop *l, int first) {
	switch (l->b->op) {
	case P2P_OP_BIDIR:
		return P2P_EXCHANGE;
	case P2P_OP_PINGPONG:
		return first ? P2P_PING : P2P_PONG;
	default:
		return first ? P2P_SEND : P2P_RECEIVE;
	}
}

static inline int p2p_sends(enum p2p_role role) { return role != P2P_RECEIVE; }
static inline int p2p_receives(enum p2p_role role) { return role != P2P_SEND; }

/* A transport's batch on one rank. Each transport defines its own; the loop passes it to the steps. */
struct run;

/*
 * The steps of a transport, in the order in which the loop calls them. bind, fill, verify and poison are required, and
 * transfer or enqueue; any other that is NULL does nothing. The table must be a constant, so that the compiler inlines
 * the steps: between two readings of the clock there is no call that the transport has not made itself.
 */
struct p2p_steps {
	/* Once, before the batch's barrier. k is below l->largest_burst. */
	int (*bind)(struct run *x);               /* prepares the calling thread */
	int (*poison)(struct run *x, uint32_t k); /* overwrites inbox k */
	int (*record)(struct run *x);             /* after the first fill: records what batches with graphs launch */

	/*
	 * Before an iteration. begin may set *n: iterations i to i + *n - 1 are then a burst, for which every other
	 * step is called once, but fill, leave, duration and verify for each iteration, k of the burst. fill writes the
	 * messages of iteration i, `step` as in the engine's fill. leave is the hook of fault injection, for messages
	 * that the engine's copy does not move. credit allows the peer to send, await_credit waits until the peer does.
	 */
	int (*begin)(struct run *x, uint32_t i, uint32_t *n);
	int (*fill)(struct run *x, uint32_t i, uint32_t k, uint64_t step);
	int (*leave)(struct run *x, uint32_t i, uint32_t k);
	int (*credit)(struct run *x, enum p2p_role role, uint32_t i);
	int (*await_credit)(struct run *x, enum p2p_role role, uint32_t i);

	/*
	 * Timed by the host. transfer returns when what this rank receives is complete and it has done its part for
	 * what it sends. acknowledge tells the peer that its messages are complete here, await_ack waits until the peer
	 * says so. In pingpong the reply acknowledges the first message; the acknowledgement of the reply follows the
	 * sample.
	 */
	int (*transfer)(struct run *x, enum p2p_role role, uint32_t i);
	int (*acknowledge)(struct run *x);
	int (*await_ack)(struct run *x);
	int64_t (*duration)(struct run *x, uint32_t i, uint32_t k); /* ns; NULL: the loop reads the clock */

	/* Timed by the device: puts the share of queue q in the operation on it. */
	int (*enqueue)(struct run *x, enum p2p_role role, uint32_t q);

	/* After the sample. */
	int (*cleanup)(struct run *x);
	int (*verify)(struct run *x, uint32_t i, uint32_t k);

	/*
	 * 1: ranks do not acknowledge to each other. The receiver of latency and stream takes samples as well, and the
	 * longest of all ranks counts.
	 */
	uint32_t each_rank_times;
};

#define P2P_ALWAYS_INLINE inline __attribute__((always_inline))

/* Whether a rank takes samples. */
static P2P_ALWAYS_INLINE int p2p_takes_samples(const struct p2p_steps *s, enum p2p_role role) {
	return role == P2P_RECEIVE ? s->each_rank_times != 0 : role != P2P_PONG;
}

/* ---- timing by the host --------------------------------------------------------------------------------------- */

static P2P_ALWAYS_INLINE int p2p_loop_operation(const struct p2p_steps *s, struct run *x, enum p2p_role role,
						uint32_t i) {
	int rc = s->transfer(x, role, i);
	if (!rc && s->acknowledge && (role == P2P_RECEIVE || role == P2P_EXCHANGE))
		rc = s->acknowledge(x);
	if (!rc && s->await_ack && (role == P2P_SEND || role == P2P_EXCHANGE))
		rc = s->await_ack(x);
	return rc;
}

static P2P_ALWAYS_INLINE int p2p_loop_timed_by_host(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
						    enum p2p_role role, uint32_t i, uint32_t n) {
	const int times = p2p_takes_samples(s, role);
	int rc = l->barrier_each ? p2p_loop_iteration_barrier(l) : P2P_OK;
	if (rc)
		return rc;
	l->in_progress = 1;
	const uint64_t t0 = times && !s->duration ? p2p_loop_now(l) : 0;
	if ((rc = p2p_loop_operation(s, x, role, i)))
		return rc;
	if (times && !s->duration)
		p2p_loop_sample(l, i, t0, p2p_loop_now(l));
	for (uint32_t k = 0; times && s->duration && k < n; k++)
		p2p_loop_sample_ns(l, i + k, s->duration(x, i, k));
	return P2P_OK;
}

/* ---- timing by the device ------------------------------------------------------------------------------------- */

/*
 * Queues of this rank that wait for a word before each operation, so that all of it is on them before any of it begins:
 * the time that the host takes to enqueue it is not in the sample. All ranks store the word when they leave the
 * iteration's barrier.
 */
struct p2p_stream_wait {
	struct p2p_queue *queue[2];
	uint32_t queues;        /* that the batch uses */
	_Atomic uint64_t *word; /* pinned CPU memory; the queues wait until it is `value` */
	uint64_t value;
};

static inline void p2p_stream_wait_release(const struct p2p_stream_wait *w) {
	atomic_store_explicit(w->word, w->value, memory_order_release);
}

/* Enqueues the wait, and behind it the share of queue q in the operation, between two events. */
static P2P_ALWAYS_INLINE int p2p_loop_enqueue(const struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					      enum p2p_role role, uint32_t q) {
	const struct p2p_stream_wait *w = l->stream_wait;
	struct p2p_queue *t = w->queue[q];
	int rc;
	if ((rc = t->bind(t->self, l->e)) || (rc = t->await(t->self, (uint64_t *)w->word, w->value, l->e)) ||
	    (rc = t->event(t->self, 0, l->e)) || (rc = s->enqueue(x, role, q)))
		return rc;
	return t->event(t->self, 1, l->e);
}

/* Waits for queue q. *longest becomes the time between its events, in ns, if that is more. */
static inline int p2p_loop_wait_queue(const struct p2p_loop *l, uint32_t q, uint64_t *longest) {
	struct p2p_queue *t = l->stream_wait->queue[q];
	uint64_t ns;
	int rc;
	if ((rc = t->bind(t->self, l->e)) || (rc = t->wait(t->self, l->device ? l->device : l->ctx, l->e)) ||
	    (rc = t->elapsed(t->self, 0, 1, &ns, l->e)))
		return rc;
	*longest = ns > *longest ? ns : *longest;
	return P2P_OK;
}

static P2P_ALWAYS_INLINE int p2p_loop_timed_by_device(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
						      enum p2p_role role, uint32_t i) {
	struct p2p_stream_wait *w = l->stream_wait;
	uint64_t longest = 0;
	int rc = P2P_OK;
	w->value++;
	for (uint32_t q = 0; !rc && q < w->queues; q++)
		rc = p2p_loop_enqueue(l, s, x, role, q);
	if (!rc)
		rc = p2p_loop_iteration_barrier(l);
	l->in_progress = !rc;
	p2p_stream_wait_release(w); /* in any case: a queue that waits cannot be closed */
	for (uint32_t q = 0; !rc && q < w->queues; q++)
		rc = p2p_loop_wait_queue(l, q, &longest);
	if (!rc && p2p_takes_samples(s, role))
		p2p_loop_sample_ns(l, i, (int64_t)longest);
	return rc;
}

/* ---- batches -------------------------------------------------------------------------------------------------- */

static P2P_ALWAYS_INLINE int p2p_loop_prepare(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					      enum p2p_role role) {
	const uint32_t check = l->b->check, burst = l->trial ? 0 : l->largest_burst ? l->largest_burst : 1;
	p2p_at(l->ctx, P2P_PHASE_PREPARE, l->b->size, 0);
	int rc = s->bind(x);
	for (uint32_t k = 0; !rc && p2p_receives(role) && check != P2P_CHECK_OFF && k < burst; k++)
		rc = s->poison(x, k);
	/* The bytes that no later fill writes. */
	for (uint32_t k = 0; !rc && p2p_sends(role) && check != P2P_CHECK_FULL && k < burst; k++)
		rc = s->fill(x, 0, k, 0);
	if (!rc && s->record)
		rc = s->record(x);
	return rc ? rc : p2p_loop_batch_barrier(l);
}

/* Writes the messages of the n iterations from i on. */
static P2P_ALWAYS_INLINE int p2p_loop_write_payload(const struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
						    uint32_t i, uint32_t n) {
	int rc = P2P_OK;
	for (uint32_t k = 0; !rc && l->b->check != P2P_CHECK_OFF && k < n; k++)
		rc = s->fill(x, i + k, k, p2p_loop_step(l, i + k));
	for (uint32_t k = 0; !rc && s->leave && k < n; k++)
		rc = s->leave(x, i + k, k);
	return rc;
}

/* The steps before the samples of a burst; *n is its number of iterations. */
static P2P_ALWAYS_INLINE int p2p_loop_before(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					     enum p2p_role role, uint32_t i, uint32_t *n) {
	int rc = s->begin ? s->begin(x, i, n) : P2P_OK;
	if (!rc && p2p_sends(role) && !l->trial)
		rc = p2p_loop_write_payload(l, s, x, i, *n);
	if (!rc && p2p_receives(role) && s->credit)
		rc = s->credit(x, role, i);
	if (!rc && p2p_sends(role) && s->await_credit)
		rc = s->await_credit(x, role, i);
	return rc;
}

/* The steps after the samples of a burst. */
static P2P_ALWAYS_INLINE int p2p_loop_after(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					    enum p2p_role role, uint32_t i, uint32_t n) {
	int rc = role == P2P_PING && s->acknowledge ? s->acknowledge(x) : P2P_OK;
	if (!rc && role == P2P_PONG && s->await_ack)
		rc = s->await_ack(x);
	if (!rc && s->cleanup)
		rc = s->cleanup(x);
	l->in_progress = rc != P2P_OK;
	for (uint32_t k = 0; !rc && p2p_receives(role) && !l->trial && l->b->check != P2P_CHECK_OFF && k < n; k++)
		rc = s->verify(x, i + k, k);
	return rc;
}

/* A burst from iteration i on; *n is its number of iterations. */
static P2P_ALWAYS_INLINE int p2p_loop_burst(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					    enum p2p_role role, uint32_t i, uint32_t *n) {
	int rc = p2p_loop_before(l, s, x, role, i, n);
	if (!rc)
		rc = s->enqueue && l->stream_wait ? p2p_loop_timed_by_device(l, s, x, role, i)
						  : p2p_loop_timed_by_host(l, s, x, role, i, *n);
	return rc ? rc : p2p_loop_after(l, s, x, role, i, *n);
}

/* Runs the batch. s must be the address of a constant table. */
static P2P_ALWAYS_INLINE int p2p_loop_run(struct p2p_loop *l, const struct p2p_steps *s, struct run *x,
					  enum p2p_role role) {
	const uint32_t length = p2p_loop_length(l);
	int rc = p2p_loop_prepare(l, s, x, role);
	for (uint32_t i = 0, n = 1; !rc && i < length; i += n) {
		p2p_loop_at(l, i);
		switch (role) { /* the role is a constant in each call, so that its code is inlined without the others'
				 */
		case P2P_SEND:
			rc = p2p_loop_burst(l, s, x, P2P_SEND, i, &n);
			break;
		case P2P_RECEIVE:
			rc = p2p_loop_burst(l, s, x, P2P_RECEIVE, i, &n);
			break;
		case P2P_EXCHANGE:
			rc = p2p_loop_burst(l, s, x, P2P_EXCHANGE, i, &n);
			break;
		case P2P_PING:
			rc = p2p_loop_burst(l, s, x, P2P_PING, i, &n);
			break;
		case P2P_PONG:
			rc = p2p_loop_burst(l, s, x, P2P_PONG, i, &n);
			break;
		}
	}
	if (!rc)
		p2p_at(l->ctx, P2P_PHASE_IDLE, l->b->size, length);
	return rc;
}

#endif
