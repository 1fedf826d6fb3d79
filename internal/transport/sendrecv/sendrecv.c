#include "core.h"

int p2p_sendrecv_bind(struct sendrecv_end *end, struct p2p_error *e) {
	int rc = end->engine->bind(end->engine->self, e);
	return rc ? rc : end->queue->bind(end->queue->self, e);
}

/* ---- payload ---------------------------------------------------------------------------------------------------- */

/* Offset of window t of a burst. The windows of a burst are contiguous. */
static uint64_t place(const struct run *x, uint32_t t) { return t * x->l.b->stride * x->l.b->window; }

static uint8_t *source(const struct run *x, uint32_t t) { return (uint8_t *)(uintptr_t)x->end->at.src + place(x, t); }

static int fill(struct run *x, uint32_t i, uint32_t t, uint64_t step) {
	return p2p_loop_fill_window(&x->l, x->end->engine, source(x, t), x->end->rank, i, step);
}

static int leave(struct run *x, uint32_t i, uint32_t t) {
	(void)i;
	return p2p_loop_leave(&x->l, x->end->engine, source(x, t));
}

static int poison(struct run *x, uint32_t t) {
	return p2p_loop_poison(&x->l, x->end->engine, x->end->at.dst + place(x, t));
}

static int verify(struct run *x, uint32_t i, uint32_t t) {
	return p2p_loop_verify(&x->l, x->end->engine, x->end->at.dst + place(x, t), x->end->previous, i);
}

/* ---- launched windows ------------------------------------------------------------------------------------------- */

static int bind(struct run *x) { return p2p_sendrecv_bind(x->end, x->l.e); }

static int wait_queue(struct run *x) {
	struct p2p_queue *q = x->end->queue;
	return q->wait(q->self, x->l.device, x->l.e);
}

static int record(struct run *x) {
	struct p2p_queue *q = x->end->queue;
	struct p2p_error later;
	if (!x->l.b->graph)
		return P2P_OK;
	int rc = q->record_begin(q->self, x->l.e);
	if (rc)
		return rc;
	rc = sendrecv_post(x);
	int last = q->record_end(q->self, rc ? &later : x->l.e);
	return rc ? rc : last;
}

static inline int start(struct run *x) {
	struct p2p_queue *q = x->end->queue;
	return x->l.b->graph ? q->replay(q->self, x->l.e) : sendrecv_post(x);
}

static inline int start_and_wait(struct run *x, enum p2p_role role, uint32_t i) {
	int rc = start(x);
	(void)role, (void)i;
	return rc ? rc : wait_queue(x);
}

static int enqueue(struct run *x, enum p2p_role role, uint32_t q) {
	(void)role, (void)q;
	return start(x);
}

static int gave_up(struct run *x) { return sendrecv_gave_up(x); }

static const struct p2p_steps launched = {
	.bind = bind,
	.poison = poison,
	.record = record,
	.fill = fill,
	.leave = leave,
	.transfer = start_and_wait,
	.enqueue = enqueue,
	.cleanup = gave_up,
	.verify = verify,
	.each_rank_times = 1,
};

/* ---- resident kernels ------------------------------------------------------------------------------------------- */

static int await_done(struct run *x, uint64_t want) {
	struct sr_state *s = x->end->at.state;
	struct p2p_wait w = {0};
	uint64_t have;
	int rc;
	while ((have = __atomic_load_n(&s->done, __ATOMIC_ACQUIRE)) < want)
		if ((rc = sendrecv_gave_up(x)) ||
		    (rc = p2p_wait_step(x->l.device, &w, P2P_WAIT_COPY, want, have, x->l.e)))
			return rc;
	atomic_store_explicit(&x->l.ctx->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
	return P2P_OK;
}

/* Iterations in whole bursts: one kernel serves those, and another the shorter burst that remains. */
static uint32_t in_bursts(const struct run *x) {
	const uint32_t n = p2p_loop_length(&x->l);
	return n - n % x->p->burst;
}

static int begin(struct run *x, uint32_t i, uint32_t *n) {
	const uint32_t whole = in_bursts(x);
	*n = x->burst = i < whole ? x->p->burst : p2p_loop_length(&x->l) - whole;
	if (i != 0 && i != whole)
		return P2P_OK;
	return sendrecv_start_resident(x, i < whole ? whole / x->burst : 1, x->burst);
}

/* A burst: the kernel is resident and takes the time. */
static int serve(struct run *x, enum p2p_role role, uint32_t i) {
	struct sendrecv_end *end = x->end;
	(void)role, (void)i;
	__atomic_store_n(&end->at.state->doorbell, ++end->iterations, __ATOMIC_RELEASE);
	return await_done(x, end->iterations);
}

static int64_t duration(struct run *x, uint32_t i, uint32_t t) {
	return (int64_t)__atomic_load_n(&x->end->at.samples[i + t], __ATOMIC_RELAXED);
}

/* After the last burst of a kernel, waits for the kernel's end. */
static int cleanup(struct run *x) {
	x->served += x->burst;
	if (x->served != in_bursts(x) && x->served != p2p_loop_length(&x->l))
		return P2P_OK;
	int rc = wait_queue(x);
	return rc ? rc : sendrecv_gave_up(x);
}

static const struct p2p_steps resident = {
	.bind = bind,
	.poison = poison,
	.begin = begin,
	.fill = fill,
	.leave = leave,
	.transfer = serve,
	.duration = duration,
	.cleanup = cleanup,
	.verify = verify,
	.each_rank_times = 1,
};

/* ---- batches ---------------------------------------------------------------------------------------------------- */

/*
 * The value of sr_args.drain. A window begins when all ranks have finished the previous one, so the staging area is
 * empty when it is divided anew. A kernel that is launched for one message checks that; recorded and resident kernels
 * would repeat the check in each iteration.
 */
static uint32_t to_drain(struct run *x) {
	const struct sendrecv_plan *p = x->p;
	const struct sendrecv_staged now = {p->ctas, p->stages, p->stride}, before = x->end->staged;
	if (p->in_lines || (p->variant != SENDRECV_WS && p->variant != SENDRECV_STABLE))
		return 0;
	x->end->staged = now;
	if (p->resident || x->l.b->graph)
		return 0;
	return memcmp(&now, &before, sizeof now) ? before.ctas : 0;
}

/* All runs of a batch share its barrier. */
static void enter(struct run *x) {
	struct sendrecv_end *end = x->end;
	if (!x->l.b->barrier || x->l.b->barrier != end->barrier) {
		end->barrier = x->l.b->barrier;
		end->barriers = 0;
	} else {
		x->l.entered = end->entered;
	}
	x->l.barriers = end->barriers;
}

static int run(struct run *x, enum p2p_role role) {
	struct sendrecv_end *end = x->end;
	int rc = x->p->resident ? p2p_loop_run(&x->l, &resident, x, role) : p2p_loop_run(&x->l, &launched, x, role);
	end->barriers = x->l.barriers;
	end->entered = x->l.r->entered;
	return rc;
}

int p2p_sendrecv_run(struct sendrecv_end *end, const struct p2p_batch *b, const struct sendrecv_plan *p,
		     int64_t *samples, struct p2p_result *r, struct p2p_error *e) {
	struct run x = {
		.l = {.ctx = end->ctx, .b = b, .r = r, .e = e, .samples = samples, .barrier_each = 1},
		.end = end,
		.p = p,
		.device_ctx = *end->ctx,
	};
	const enum p2p_role role = p2p_role_of(&x.l, end->rank == 0);
	x.sends = (uint32_t)p2p_sends(role);
	x.receives = (uint32_t)p2p_receives(role);
	x.device_ctx.timeout_ns = end->ctx->timeout_ns / 8 * 7;
	x.device_ctx.yield |= end->cpu;
	x.l.device = &x.device_ctx;
	x.l.trial = p->trial;
	x.l.largest_burst = p->burst;
	x.l.stream_wait = p->host_timed ? NULL : &end->stream_wait;
	x.drain = to_drain(&x);
	enter(&x);
	return sendrecv_leave(&x, run(&x, role));
}
