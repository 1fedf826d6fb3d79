/*
 * loop.h: what the timed loops of all transports have in common: a batch, its outcome, and everything that happens
 * outside the two readings of the clock — payload, check, barrier, sample.
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

/* A batch under way on one rank. */
struct p2p_loop {
	const struct p2p_ctx *ctx;
	const struct p2p_batch *b;
	struct p2p_result *r;
	struct p2p_error *e;
	int64_t *samples;
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

/* Before the first iteration: the bytes that no later fill of the batch writes. */
static inline int p2p_loop_fill_first(const struct p2p_loop *l, struct p2p_engine *g, uint8_t *source, uint32_t rank) {
	return l->b->check == P2P_CHECK_FULL ? P2P_OK : p2p_loop_fill_window(l, g, source, rank, 0, 0);
}

/* Before iteration i: its payload. Not timed. */
static inline int p2p_loop_fill(const struct p2p_loop *l, struct p2p_engine *g, uint8_t *source, uint32_t rank,
				uint32_t i) {
	if (l->b->check == P2P_CHECK_OFF)
		return P2P_OK;
	return p2p_loop_fill_window(l, g, source, rank, i, p2p_loop_step(l, i));
}

/* After the fill of an iteration whose messages leave by other means than the engine's copy. Not timed. */
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

/* Before the first iteration: makes sure that nothing in the inbox can pass for a message. */
static inline int p2p_loop_poison(const struct p2p_loop *l, struct p2p_engine *g, uint8_t *inbox) {
	p2p_at(l->ctx, P2P_PHASE_PREPARE, l->b->size, 0);
	if (l->b->check == P2P_CHECK_OFF)
		return P2P_OK;
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

/* After iteration i: compares what `rank` sent with what is in the inbox. Not timed. */
static inline int p2p_loop_verify(const struct p2p_loop *l, struct p2p_engine *g, const uint8_t *inbox, uint32_t rank,
				  uint32_t i) {
	const uint8_t *p = inbox + l->b->offset;
	for (uint32_t w = 0; l->b->check != P2P_CHECK_OFF && w < l->b->window; w++, p += l->b->stride) {
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
	p2p_at(l->ctx, P2P_PHASE_BARRIER, l->b->size, 0);
	if (l->b->barrier)
		return p2p_barrier(l->ctx, l->b->barrier << 32, &l->r->entered, l->e);
	l->r->entered = (int64_t)p2p_raw_ns();
	return P2P_OK;
}

/* Where they start iteration i together, for loops whose ranks do not wait for each other otherwise. */
static inline int p2p_loop_meet(const struct p2p_loop *l, uint32_t i) {
	int64_t left;
	return l->b->barrier ? p2p_barrier(l->ctx, (l->b->barrier << 32) + i + 1, &left, l->e) : P2P_OK;
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

/* ---- timing by the device ------------------------------------------------------------------------------------- */

/*
 * An iteration timed by the device: all of its work is on the queue before any of it may begin, so that what it costs
 * the host to start it is not in its time, and the queues of all ranks are let go at the same moment.
 *
 *	p2p_loop_hold        the queue shall wait at the gate; stamp 0
 *	…                    the transport puts one window on the queue
 *	p2p_loop_let_go      stamp 1; all ranks meet; the gate opens
 *	p2p_loop_take_device waits for the queue; the sample is the time between the stamps
 *
 * Whatever fails between the first and the last: p2p_loop_open_gate, or the queue stays held.
 */
struct p2p_gate {
	struct p2p_queue *queue;
	_Atomic uint64_t *word; /* pinned memory of the host; the queue waits until it is `value` */
	uint64_t value;
};

static inline int p2p_loop_hold(const struct p2p_loop *l, struct p2p_gate *g) {
	struct p2p_queue *q = g->queue;
	int rc = q->await(q->self, (uint64_t *)g->word, ++g->value, l->e);
	return rc ? rc : q->stamp(q->self, 0, l->e);
}

static inline void p2p_loop_open_gate(const struct p2p_gate *g) {
	atomic_store_explicit(g->word, g->value, memory_order_release);
}

static inline int p2p_loop_let_go(const struct p2p_loop *l, struct p2p_gate *g, uint32_t i) {
	int rc = g->queue->stamp(g->queue->self, 1, l->e);
	if (!rc)
		rc = p2p_loop_meet(l, i);
	p2p_loop_open_gate(g);
	return rc;
}

static inline int p2p_loop_take_device(const struct p2p_loop *l, struct p2p_gate *g, uint32_t i) {
	struct p2p_queue *q = g->queue;
	uint64_t ns;
	int rc = q->wait(q->self, l->ctx, l->e);
	if (rc || (rc = q->between(q->self, 0, 1, &ns, l->e)))
		return rc;
	p2p_loop_take_ns(l, i, (int64_t)ns);
	return P2P_OK;
}

#endif
