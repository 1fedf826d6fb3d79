#define _GNU_SOURCE
#include "memcpy.h"

#include <pthread.h>

/* A batch, and the thread that copies backwards in bidir when the engine's copies are the CPU's own work. */
struct run {
	struct p2p_loop l;
	struct memcpy_end *end;
	pthread_t thread;
	int threaded;
	_Atomic uint64_t go, done; /* operations handed to the thread, finished by it */
	_Atomic uint32_t stop;
	struct p2p_error back; /* the thread's, of the last operation it finished */
	uint64_t longest;      /* the device times: ns of the slower queue */
};

static int uses_way(const struct run *x, int way) {
	return way == 0 || x->l.b->op == P2P_OP_BIDIR || x->l.b->op == P2P_OP_PINGPONG;
}

/* Whether the device times. */
static int timed(const struct run *x) { return x->end->gate[0].queue != NULL; }

/* Makes the engine usable on this thread and starts a window. */
static inline int post(struct run *x, int way) {
	struct memcpy_way *w = &x->end->way[way];
	struct p2p_engine *g = w->engine;
	int rc = g->bind(g->self, x->l.e);
	return rc ? rc : p2p_loop_post(&x->l, g, w->inbox, w->source);
}

static inline int finish(struct run *x, int way) {
	struct p2p_engine *g = x->end->way[way].engine;
	int rc = g->bind(g->self, x->l.e);
	return rc ? rc : g->wait(g->self, x->l.ctx, x->l.e);
}

static void *copy_back(void *arg) {
	struct run *x = arg;
	struct memcpy_way *w = &x->end->way[1];
	struct p2p_loop l = x->l;
	l.e = &x->back;
	for (uint64_t n = 1;; n++) {
		while (atomic_load_explicit(&x->go, memory_order_acquire) < n) {
			if (atomic_load_explicit(&x->stop, memory_order_relaxed))
				return NULL;
			if (x->l.ctx->yield)
				p2p_yield();
		}
		l.e->code = p2p_loop_post(&l, w->engine, w->inbox, w->source);
		atomic_store_explicit(&x->done, n, memory_order_release);
	}
}

static int start_thread(struct run *x) {
	if (pthread_create(&x->thread, NULL, copy_back, x))
		return p2p_fail(x->l.e, P2P_ERR_DEVICE, 0, "memcpy: cannot start a second copying thread");
	x->threaded = 1;
	pthread_setname_np(x->thread, "p2p-copy-back");
	pthread_setaffinity_np(x->thread, x->end->cpu_bytes, x->end->cpus); /* where it cannot go it stays */
	return P2P_OK;
}

static void stop_thread(struct run *x) {
	if (!x->threaded)
		return;
	atomic_store(&x->stop, 1);
	pthread_join(x->thread, NULL);
}

static int copy_both(struct run *x) {
	int rc;
	if (!x->threaded) {
		if ((rc = post(x, 0)) || (rc = post(x, 1)) || (rc = finish(x, 0)))
			return rc;
		return finish(x, 1);
	}
	uint64_t n = atomic_load_explicit(&x->go, memory_order_relaxed) + 1;
	atomic_store_explicit(&x->go, n, memory_order_release);
	if ((rc = post(x, 0)) || (rc = finish(x, 0)))
		return rc;
	if ((rc = p2p_wait_ge(x->l.ctx, &x->done, n, P2P_WAIT_COPY, x->l.e)))
		return rc;
	if (x->back.code)
		*x->l.e = x->back;
	return x->back.code;
}

static int copy_one_way(struct run *x, int way) {
	int rc = post(x, way);
	return rc ? rc : finish(x, way);
}

static int transfer(struct run *x) {
	int rc;
	switch (x->l.b->op) {
	case P2P_OP_BIDIR:
		return copy_both(x);
	case P2P_OP_PINGPONG:
		return (rc = copy_one_way(x, 0)) ? rc : copy_one_way(x, 1);
	default:
		return copy_one_way(x, 0);
	}
}

/* Calls f on the engine of each direction in use. */
static int each_way(struct run *x, uint32_t i, int (*f)(struct run *, struct memcpy_way *, uint32_t rank, uint32_t i)) {
	for (uint32_t way = 0; way < 2; way++) {
		int rc = uses_way(x, (int)way) ? f(x, &x->end->way[way], way, i) : P2P_OK;
		if (rc)
			return rc;
	}
	return P2P_OK;
}

static int fill_way(struct run *x, struct memcpy_way *w, uint32_t rank, uint32_t i) {
	int rc = w->engine->bind(w->engine->self, x->l.e);
	if (rc || (rc = p2p_loop_fill(&x->l, w->engine, w->source, rank, i)))
		return rc;
	return timed(x) ? p2p_loop_leave(&x->l, w->engine, w->source) : P2P_OK;
}

static int verify_way(struct run *x, struct memcpy_way *w, uint32_t rank, uint32_t i) {
	int rc = w->far->bind(w->far->self, x->l.e);
	return rc ? rc : p2p_loop_verify(&x->l, w->far, w->inbox, rank, i);
}

static int set_up_way(struct run *x, struct memcpy_way *w, uint32_t rank, uint32_t i) {
	(void)i;
	int rc = w->far->bind(w->far->self, x->l.e);
	if (rc || (rc = p2p_loop_poison(&x->l, w->far, w->inbox)) || (rc = w->engine->bind(w->engine->self, x->l.e)) ||
	    (rc = p2p_loop_fill_first(&x->l, w->engine, w->source, rank)))
		return rc;
	return timed(x) ? P2P_OK : p2p_loop_record(&x->l, w->engine, w->inbox, w->source);
}

static int one(struct run *x, uint32_t i) {
	int rc = each_way(x, i, fill_way);
	if (rc)
		return rc;
	uint64_t t0 = p2p_loop_now(&x->l);
	if ((rc = transfer(x)))
		return rc;
	p2p_loop_take(&x->l, i, t0, p2p_loop_now(&x->l));
	return each_way(x, i, verify_way);
}

/* ---- timing by the device ------------------------------------------------------------------------------------- */

/* In bidir each device's queue copies what leaves that device. Otherwise the first does all, there and back. */
static int queues(const struct run *x) { return x->l.b->op == P2P_OP_BIDIR ? 2 : 1; }

/* Calls f on each queue in use, made usable on this thread. */
static int each_queue(struct run *x, int (*f)(struct run *, int)) {
	for (int i = 0; i < queues(x); i++) {
		struct p2p_queue *q = x->end->gate[i].queue;
		int rc = q->bind(q->self, x->l.e);
		if (rc || (rc = f(x, i)))
			return rc;
	}
	return P2P_OK;
}

static int queue_window(struct run *x, struct p2p_queue *q, const struct memcpy_way *w) {
	uint64_t off = x->l.b->offset;
	for (uint32_t m = 0; x->l.b->size && m < x->l.b->window; m++, off += x->l.b->stride) {
		int rc = q->copy(q->self, w->inbox + off, w->source + off, x->l.b->size, x->l.e);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

static int queue_copies(struct run *x, int i) {
	struct p2p_queue *q = x->end->gate[i].queue;
	int rc = queue_window(x, q, &x->end->way[i]);
	return rc || x->l.b->op != P2P_OP_PINGPONG ? rc : queue_window(x, q, &x->end->way[1]);
}

static int queue_record(struct run *x, int i) {
	struct p2p_queue *q = x->end->gate[i].queue;
	int rc = q->record_begin(q->self, x->l.e);
	if (rc)
		return rc;
	int copied = queue_copies(x, i);
	struct p2p_error first = *x->l.e;
	rc = q->record_end(q->self, x->l.e);
	if (copied)
		*x->l.e = first;
	return copied ? copied : rc;
}

static int queue_operation(struct run *x, int i) {
	struct p2p_queue *q = x->end->gate[i].queue;
	int rc = p2p_loop_hold(&x->l, &x->end->gate[i]);
	if (rc)
		return rc;
	return x->l.b->graph ? q->replay(q->self, x->l.e) : queue_copies(x, i);
}

static int queue_stamp(struct run *x, int i) {
	struct p2p_queue *q = x->end->gate[i].queue;
	return q->stamp(q->self, 1, x->l.e);
}

/* Waits for a queue; what it took is the sample if it is the longest. */
static int queue_wait(struct run *x, int i) {
	struct p2p_queue *q = x->end->gate[i].queue;
	uint64_t ns;
	int rc = q->wait(q->self, x->l.ctx, x->l.e);
	if (rc || (rc = q->between(q->self, 0, 1, &ns, x->l.e)))
		return rc;
	x->longest = ns > x->longest ? ns : x->longest;
	return P2P_OK;
}

static int run_held(struct run *x) {
	struct p2p_gate *gate = x->end->gate;
	gate[1].value = gate[0].value;
	int rc = each_queue(x, queue_operation);
	if (!rc)
		rc = each_queue(x, queue_stamp);
	p2p_loop_open_gate(&gate[0]);
	x->longest = 0;
	return rc ? rc : each_queue(x, queue_wait);
}

static int timed_one(struct run *x, uint32_t i) {
	int rc = each_way(x, i, fill_way);
	if (rc || (rc = run_held(x)))
		return rc;
	p2p_loop_take_ns(&x->l, i, (int64_t)x->longest);
	return each_way(x, i, verify_way);
}

int p2p_memcpy_pin(struct p2p_engine *engine, struct p2p_memory *m, void *p, size_t n, struct p2p_error *e) {
	int rc = engine->bind(engine->self, e);
	return rc ? rc : m->pin(m->self, p, n, e);
}

/* ---- batch ---------------------------------------------------------------------------------------------------- */

int p2p_memcpy_run(struct memcpy_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		   struct p2p_error *e) {
	struct run x = {.l = {.ctx = end->ctx, .b = b, .r = r, .e = e, .samples = samples}, .end = end};
	int rc = each_way(&x, 0, set_up_way);
	if (rc == P2P_OK && timed(&x) && b->graph)
		rc = each_queue(&x, queue_record);
	if (rc == P2P_OK && b->op == P2P_OP_BIDIR && !timed(&x) && !end->way[1].engine->async)
		rc = start_thread(&x);
	if (rc == P2P_OK)
		rc = p2p_loop_barrier(&x.l);
	uint32_t n = p2p_loop_length(&x.l);
	for (uint32_t i = 0; rc == P2P_OK && i < n; i++) {
		p2p_loop_at(&x.l, i);
		rc = timed(&x) ? timed_one(&x, i) : one(&x, i);
	}
	stop_thread(&x);
	if (rc == P2P_OK)
		p2p_at(end->ctx, P2P_PHASE_IDLE, b->size, n);
	return rc;
}
