#define _GNU_SOURCE
#include "memcpy.h"

#include <pthread.h>

/* A batch, and for engines that copy on the calling thread, the thread that copies from rank 1 to rank 0 in bidir. */
struct run {
	struct p2p_loop l;
	struct memcpy_end *end;
	pthread_t thread;
	int threaded;
	_Atomic uint64_t go, done; /* operations handed to the thread, finished by it */
	_Atomic uint32_t stop;
	struct p2p_error back; /* result of the thread's latest operation */
};

static int uses_dir(const struct run *x, int dir) {
	return dir == 0 || x->l.b->op == P2P_OP_BIDIR || x->l.b->op == P2P_OP_PINGPONG;
}

/* Binds the engine to the calling thread and starts a window. */
static inline int post(struct run *x, int dir) {
	struct memcpy_direction *w = &x->end->dir[dir];
	struct p2p_engine *g = w->engine;
	int rc = g->bind(g->self, x->l.e);
	return rc ? rc : p2p_loop_post(&x->l, g, w->inbox, w->source);
}

static inline int finish(struct run *x, int dir) {
	struct p2p_engine *g = x->end->dir[dir].engine;
	int rc = g->bind(g->self, x->l.e);
	return rc ? rc : g->wait(g->self, x->l.ctx, x->l.e);
}

static void *copy_back(void *arg) {
	struct run *x = arg;
	struct memcpy_direction *w = &x->end->dir[1];
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
	pthread_setaffinity_np(x->thread, x->end->cpu_bytes, x->end->cpus); /* if that fails, it runs anywhere */
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

static int copy_one_dir(struct run *x, int dir) {
	int rc = post(x, dir);
	return rc ? rc : finish(x, dir);
}

static inline int transfer(struct run *x, enum p2p_role role, uint32_t i) {
	int rc;
	(void)role, (void)i;
	switch (x->l.b->op) {
	case P2P_OP_BIDIR:
		return copy_both(x);
	case P2P_OP_PINGPONG:
		return (rc = copy_one_dir(x, 0)) ? rc : copy_one_dir(x, 1);
	default:
		return copy_one_dir(x, 0);
	}
}

/* ---- timing by the device ------------------------------------------------------------------------------------- */

static int queue_window(struct run *x, struct p2p_queue *q, const struct memcpy_direction *w) {
	uint64_t off = x->l.b->offset;
	for (uint32_t m = 0; x->l.b->size && m < x->l.b->window; m++, off += x->l.b->stride) {
		int rc = q->copy(q->self, w->inbox + off, w->source + off, x->l.b->size, x->l.e);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

/* In bidir each device's queue copies the messages that leave that device. Otherwise the first queue copies all. */
static int queue_copies(struct run *x, uint32_t i) {
	struct p2p_queue *q = x->l.stream_wait->queue[i];
	int rc = queue_window(x, q, &x->end->dir[i]);
	return rc || x->l.b->op != P2P_OP_PINGPONG ? rc : queue_window(x, q, &x->end->dir[1]);
}

static int queue_record(struct run *x, uint32_t i) {
	struct p2p_queue *q = x->l.stream_wait->queue[i];
	int rc = q->bind(q->self, x->l.e);
	if (rc || (rc = q->record_begin(q->self, x->l.e)))
		return rc;
	int copied = queue_copies(x, i);
	struct p2p_error first = *x->l.e;
	rc = q->record_end(q->self, x->l.e);
	if (copied)
		*x->l.e = first;
	return copied ? copied : rc;
}

static int enqueue(struct run *x, enum p2p_role role, uint32_t i) {
	struct p2p_queue *q = x->l.stream_wait->queue[i];
	(void)role;
	return x->l.b->graph ? q->replay(q->self, x->l.e) : queue_copies(x, i);
}

/* ---- payload -------------------------------------------------------------------------------------------------- */

static int bind(struct run *x) {
	(void)x; /* each step binds its engine: the directions' engines differ */
	return P2P_OK;
}

static int poison(struct run *x, uint32_t k) {
	int rc = P2P_OK;
	(void)k;
	for (int dir = 0; !rc && dir < 2 && uses_dir(x, dir); dir++) {
		struct memcpy_direction *w = &x->end->dir[dir];
		if (!(rc = w->far->bind(w->far->self, x->l.e)))
			rc = p2p_loop_poison(&x->l, w->far, w->inbox);
	}
	return rc;
}

static int fill(struct run *x, uint32_t i, uint32_t k, uint64_t step) {
	int rc = P2P_OK;
	(void)k;
	for (int dir = 0; !rc && dir < 2 && uses_dir(x, dir); dir++) {
		struct memcpy_direction *w = &x->end->dir[dir];
		if (!(rc = w->engine->bind(w->engine->self, x->l.e)))
			rc = p2p_loop_fill_window(&x->l, w->engine, w->source, (uint32_t)dir, i, step);
	}
	return rc;
}

static int leave(struct run *x, uint32_t i, uint32_t k) {
	int rc = P2P_OK;
	(void)i, (void)k;
	for (int dir = 0; !rc && x->l.stream_wait && dir < 2 && uses_dir(x, dir); dir++) {
		struct memcpy_direction *w = &x->end->dir[dir];
		if (!(rc = w->engine->bind(w->engine->self, x->l.e)))
			rc = p2p_loop_leave(&x->l, w->engine, w->source);
	}
	return rc;
}

static int verify(struct run *x, uint32_t i, uint32_t k) {
	int rc = P2P_OK;
	(void)k;
	for (int dir = 0; !rc && dir < 2 && uses_dir(x, dir); dir++) {
		struct memcpy_direction *w = &x->end->dir[dir];
		if (!(rc = w->far->bind(w->far->self, x->l.e)))
			rc = p2p_loop_verify(&x->l, w->far, w->inbox, (uint32_t)dir, i);
	}
	return rc;
}

/* ---- batch ---------------------------------------------------------------------------------------------------- */

/* Records the windows of a batch with graphs, and starts the second thread if it is needed. */
static int record(struct run *x) {
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && x->l.b->graph && x->l.stream_wait && i < x->l.stream_wait->queues; i++)
		rc = queue_record(x, i);
	for (int dir = 0; !rc && !x->l.stream_wait && dir < 2 && uses_dir(x, dir); dir++) {
		struct memcpy_direction *w = &x->end->dir[dir];
		if (!(rc = w->engine->bind(w->engine->self, x->l.e)))
			rc = p2p_loop_record(&x->l, w->engine, w->inbox, w->source);
	}
	const int threaded = x->l.b->op == P2P_OP_BIDIR && !x->l.stream_wait && !x->end->dir[1].engine->async;
	return rc || !threaded ? rc : start_thread(x);
}

/* Rank 0 sends and receives in all operations. */
static const struct p2p_steps steps = {
	.bind = bind,
	.poison = poison,
	.record = record,
	.fill = fill,
	.leave = leave,
	.transfer = transfer,
	.enqueue = enqueue,
	.verify = verify,
};

int p2p_memcpy_run(struct memcpy_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		   struct p2p_error *e) {
	struct run x = {.l = {.ctx = end->ctx, .b = b, .r = r, .e = e, .samples = samples}, .end = end};
	if (end->stream_wait.word) {
		x.l.stream_wait = &end->stream_wait;
		end->stream_wait.queues = b->op == P2P_OP_BIDIR ? 2 : 1;
	}
	int rc = p2p_loop_run(&x.l, &steps, &x, P2P_EXCHANGE);
	stop_thread(&x);
	return rc;
}
