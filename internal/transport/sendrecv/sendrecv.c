#include "core.h"

int p2p_sendrecv_bind(struct sendrecv_end *end, struct p2p_error *e) {
	int rc = end->engine->bind(end->engine->self, e);
	return rc ? rc : end->queue->bind(end->queue->self, e);
}

/* ---- payload ---------------------------------------------------------------------------------------------------- */

/* The windows of a train lie one behind the other, the first one where that of any other iteration does. */
static uint64_t place(const struct run *x, uint32_t t) { return t * x->l.b->stride * x->l.b->window; }

/* Before iteration i, which is number t of its train. Not timed. */
static int fill(struct run *x, uint32_t i, uint32_t t) {
	const uint8_t *source = x->end->at.src + place(x, t);
	if (!x->sends || x->p->trial)
		return P2P_OK;
	int rc = p2p_loop_fill(&x->l, x->end->engine, (uint8_t *)(uintptr_t)source, x->end->rank, i);
	return rc ? rc : p2p_loop_leave(&x->l, x->end->engine, source);
}

/* After it. Not timed. */
static int verify(struct run *x, uint32_t i, uint32_t t) {
	if (!x->receives || x->p->trial)
		return P2P_OK;
	return p2p_loop_verify(&x->l, x->end->engine, x->end->at.dst + place(x, t), x->end->previous, i);
}

static int prepare(struct run *x) {
	struct sendrecv_end *end = x->end;
	int rc = P2P_OK;
	for (uint32_t t = 0; !rc && !x->p->trial && t < x->p->train; t++) {
		if (x->receives)
			rc = p2p_loop_poison(&x->l, end->engine, end->at.dst + place(x, t));
		if (!rc && x->sends)
			rc = p2p_loop_fill_first(&x->l, end->engine, (uint8_t *)(uintptr_t)end->at.src + place(x, t),
						 end->rank);
	}
	return rc;
}

/* ---- iterations ------------------------------------------------------------------------------------------------- */

/* All ranks have finished what they did before. */
static int meet(struct run *x) { return p2p_loop_meet(&x->l, x->end->meetings++); }

/* A round trip is rank 0's to time; everything else lasts until the last rank has it. */
static int times(const struct run *x) { return x->l.b->op != P2P_OP_PINGPONG || x->end->rank == 0; }

static int wait_queue(struct run *x) {
	struct p2p_queue *q = x->end->queue;
	return q->wait(q->self, x->device.ctx, x->l.e);
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

static int start(struct run *x) {
	struct p2p_queue *q = x->end->queue;
	return x->l.b->graph ? q->replay(q->self, x->l.e) : sendrecv_post(x);
}

static int by_device(struct run *x, uint32_t i) {
	struct p2p_gate *gate = &x->end->gate;
	int rc;
	if ((rc = p2p_loop_hold(&x->l, gate)) || (rc = start(x)))
		return rc;
	if ((rc = p2p_loop_let_go(&x->l, gate, x->end->meetings++)))
		return rc;
	x->under_way = 1;
	return times(x) ? p2p_loop_take_device(&x->device, gate, i) : wait_queue(x);
}

static int by_host(struct run *x, uint32_t i) {
	int rc = meet(x);
	x->under_way = !rc;
	uint64_t t0 = p2p_loop_now(&x->l);
	if (rc || (rc = start(x)) || (rc = wait_queue(x)))
		return rc;
	if (times(x))
		p2p_loop_take(&x->l, i, t0, p2p_loop_now(&x->l));
	return P2P_OK;
}

static int launched(struct run *x) {
	int rc = record(x);
	for (uint32_t i = 0, n = p2p_loop_length(&x->l); !rc && i < n; i++) {
		p2p_loop_at(&x->l, i);
		if ((rc = fill(x, i, 0)))
			return rc;
		rc = x->p->host_timed ? by_host(x, i) : by_device(x, i);
		if (rc || (rc = sendrecv_gave_up(x)))
			return rc;
		x->under_way = 0;
		rc = verify(x, i, 0);
	}
	return rc;
}

/* ---- resident kernels ------------------------------------------------------------------------------------------- */

static int await_done(struct run *x, uint64_t want) {
	struct sr_state *s = x->end->at.state;
	struct p2p_wait w = {0};
	uint64_t have;
	int rc;
	x->under_way = 1;
	while ((have = __atomic_load_n(&s->done, __ATOMIC_ACQUIRE)) < want)
		if ((rc = sendrecv_gave_up(x)) ||
		    (rc = p2p_wait_step(x->device.ctx, &w, P2P_WAIT_COPY, want, have, x->l.e)))
			return rc;
	x->under_way = 0;
	atomic_store_explicit(&x->l.ctx->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
	return P2P_OK;
}

/* A train of `train` windows, by a kernel that is there already and takes the time itself. */
static int serve(struct run *x, uint32_t train) {
	struct sendrecv_end *end = x->end;
	const uint32_t first = x->served;
	int rc = P2P_OK;
	p2p_loop_at(&x->l, first);
	for (uint32_t t = 0; !rc && t < train; t++)
		rc = fill(x, first + t, t);
	if (rc || (rc = meet(x)))
		return rc;
	__atomic_store_n(&end->at.state->doorbell, ++end->iterations, __ATOMIC_RELEASE);
	if ((rc = await_done(x, end->iterations)))
		return rc;
	x->served += train;
	for (uint32_t t = 0; times(x) && t < train; t++) {
		const uint32_t i = first + t;
		p2p_loop_take_ns(&x->l, i, (int64_t)__atomic_load_n(&end->at.samples[i], __ATOMIC_RELAXED));
	}
	for (uint32_t t = 0; !rc && t < train; t++)
		rc = verify(x, first + t, t);
	return rc;
}

/* So many trains, by one kernel. */
static int reside(struct run *x, uint32_t trains, uint32_t train) {
	int rc = trains ? sendrecv_start_resident(x, trains, train) : P2P_OK;
	for (uint32_t i = 0; !rc && i < trains; i++)
		rc = serve(x, train);
	if (rc || !trains || (rc = wait_queue(x)))
		return rc;
	return sendrecv_gave_up(x);
}

static int resident(struct run *x) {
	const uint32_t n = p2p_loop_length(&x->l), train = x->p->train, rest = n % train;
	int rc = reside(x, n / train, train);
	return rc ? rc : reside(x, rest ? 1 : 0, rest);
}

/* ---- batches ---------------------------------------------------------------------------------------------------- */

/* All runs of a batch begin at its one barrier. */
static int enter(struct run *x) {
	struct sendrecv_end *end = x->end;
	int rc = P2P_OK;
	if (!x->l.b->barrier || x->l.b->barrier != end->barrier) {
		end->barrier = x->l.b->barrier;
		end->meetings = 0;
		rc = p2p_loop_barrier(&x->l);
		end->entered = x->l.r->entered;
	}
	x->l.r->entered = end->entered;
	return rc;
}

/*
 * Every window begins when all ranks have finished the one before, so that nothing lies in a staging area when it is
 * divided anew. The kernel looks itself, where it is launched for one message; recorded and resident ones would look
 * again and again.
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

int p2p_sendrecv_run(struct sendrecv_end *end, const struct p2p_batch *b, const struct sendrecv_plan *p,
		     int64_t *samples, struct p2p_result *r, struct p2p_error *e) {
	const int both = b->op == P2P_OP_BIDIR || b->op == P2P_OP_PINGPONG;
	struct run x = {
		.l = {.ctx = end->ctx, .b = b, .r = r, .e = e, .samples = samples},
		.end = end,
		.p = p,
		.device_ctx = *end->ctx,
		.sends = both || end->rank == 0,
		.receives = both || end->rank != 0,
	};
	x.device_ctx.timeout_ns = end->ctx->timeout_ns / 8 * 7;
	x.device_ctx.yield |= end->cpu;
	x.device = x.l;
	x.device.ctx = &x.device_ctx;
	int rc = p2p_sendrecv_bind(end, e);
	if (rc || (rc = enter(&x)) || (rc = prepare(&x)))
		return sendrecv_leave(&x, rc);
	x.drain = to_drain(&x);
	if ((rc = p->resident ? resident(&x) : launched(&x)))
		return sendrecv_leave(&x, rc);
	p2p_at(end->ctx, P2P_PHASE_IDLE, b->size, p2p_loop_length(&x.l));
	return P2P_OK;
}
