#define _GNU_SOURCE /* sched_yield, syscall */
#include "queue.h"

#include "kernels.h"

#include <stdlib.h>
#include <sys/prctl.h>

/*
 * Longest wait for space in a full queue while no command completes: the queue may wait for a word that this caller
 * writes.
 */
#define FULL_NS 1000000000u

enum { DO_KERNEL, DO_COPY, DO_WRITE, DO_AWAIT, DO_EVENT, DO_REPLAY };

struct command {
	uint32_t what; /* one of DO_* */
	uint32_t ctas, warps;
	union {
		struct {
			const struct host_kernel *kernel;
			struct sr_args args;
		} start;
		struct {
			void *dst;
			const void *src;
			size_t n;
		} copy;
		struct {
			uint64_t *at, value;
		} word;
		uint32_t event;
	};
};

struct queue {
	struct p2p_queue table;
	/*
	 * Used by the caller. Command n is at ring[(n - base) % HOST_QUEUE_ROOM]. base advances when the queue is idle,
	 * so that the commands of a queue that is often idle stay in the cache.
	 */
	struct command *ring, *record;
	uint64_t base;
	uint64_t replayed; /* commands up to the last replay */
	uint32_t recorded; /* commands in the recording */
	int recording, has_recording;
	pthread_t thread;
	int started;
	/* Shared. */
	_Alignas(64) _Atomic uint64_t posted;
	struct host_event work;
	_Atomic uint32_t stop;
	/* Used by the thread. */
	_Alignas(64) _Atomic uint64_t done;
	uint64_t event_ns[P2P_EVENTS];
	uint32_t recorded_events; /* bit i: event i was recorded */
	struct host_grid grid;
	struct host_pool pool;
	struct host_cpus cpus; /* of all its threads */
};

/* ---- the queue's thread ----------------------------------------------------------------------------------------- */

static void run_kernel(struct queue *q, const struct command *c) {
	q->grid.kernel = c->start.kernel;
	q->grid.ctas = c->ctas;
	q->grid.warps = c->warps;
	q->grid.args = c->start.args;
	host_kernel_run(&q->grid, &q->pool);
}

/*
 * Ends when the word has the value or the queue stops. It has no deadline: the thread that waits for the queue has one.
 */
static void run_await(struct queue *q, const struct command *c) {
	for (uint32_t polls = 0; __atomic_load_n(c->word.at, __ATOMIC_ACQUIRE) != c->word.value; polls++) {
		if (atomic_load(&q->stop))
			return;
		host_pause(polls);
	}
}

static void run_event(struct queue *q, uint32_t i) {
	q->event_ns[i] = p2p_raw_ns();
	q->recorded_events |= 1u << i;
}

static void run(struct queue *q, const struct command *c) {
	switch (c->what) {
	case DO_KERNEL:
		run_kernel(q, c);
		break;
	case DO_COPY:
		memcpy(c->copy.dst, c->copy.src, c->copy.n);
		break;
	case DO_WRITE:
		__atomic_store_n(c->word.at, c->word.value, __ATOMIC_RELEASE);
		break;
	case DO_AWAIT:
		run_await(q, c);
		break;
	case DO_EVENT:
		run_event(q, c->event);
		break;
	case DO_REPLAY:
		for (uint32_t i = 0; i < q->recorded && !atomic_load(&q->stop); i++)
			run(q, &q->record[i]);
		break;
	}
}

static void *serve(void *arg) {
	struct queue *q = arg;
	prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul); /* for short sleeps */
	for (uint64_t n = 0;; n++) {
		for (;;) {
			uint32_t seen = host_event_count(&q->work);
			if (atomic_load(&q->stop))
				return NULL;
			if (atomic_load_explicit(&q->posted, memory_order_acquire) > n)
				break;
			host_event_await(&q->work, seen);
		}
		run(q, &q->ring[(n - q->base) % HOST_QUEUE_ROOM]);
		atomic_store_explicit(&q->done, n + 1, memory_order_release);
	}
}

/* ---- posting commands ------------------------------------------------------------------------------------------- */

static uint64_t posted(const struct queue *q) { return atomic_load_explicit(&q->posted, memory_order_relaxed); }

/* Waits until `want` commands are done. Fails if no command completes within FULL_NS. */
static int make_way(struct queue *q, uint64_t want, const char *why, struct p2p_error *e) {
	struct p2p_lapse lapse = {0};
	uint64_t done, before = UINT64_MAX;
	for (uint32_t polls = 0; (done = atomic_load_explicit(&q->done, memory_order_acquire)) < want; polls++) {
		p2p_lapse(&lapse, FULL_NS);
		if (done != before) {
			before = done;
			lapse.ns = 0;
			polls = 0;
		}
		if (lapse.ns > FULL_NS) {
			p2p_fail(e, P2P_ERR_TIMEOUT, 0, "");
			snprintf(
				e->text, sizeof e->text,
				"host: queue: %s, and none of its %llu commands has completed for %.1f s: complete the "
				"queue's waits, or wait for the queue, before posting so many",
				why, (unsigned long long)(posted(q) - done), (double)lapse.ns / 1e9);
			return P2P_ERR_TIMEOUT;
		}
		host_pause(polls);
	}
	return P2P_OK;
}

/* A free slot in the queue, or in the current recording; NULL: *e has the reason. */
static struct command *room(struct queue *q, uint32_t what, struct p2p_error *e) {
	struct command *c;
	if (q->recording) {
		if (q->recorded == HOST_QUEUE_ROOM) {
			p2p_fail(e, P2P_ERR_INVALID, 0, "host: queue: the recording is full");
			return NULL;
		}
		c = &q->record[q->recorded];
	} else {
		uint64_t n = posted(q), want = n < HOST_QUEUE_ROOM ? 0 : n + 1 - HOST_QUEUE_ROOM;
		if (make_way(q, want, "it is full", e))
			return NULL;
		c = &q->ring[(n - q->base) % HOST_QUEUE_ROOM];
	}
	c->what = what;
	return c;
}

static int put(struct queue *q) {
	if (q->recording) {
		q->recorded++;
		return P2P_OK;
	}
	atomic_store_explicit(&q->posted, posted(q) + 1, memory_order_release);
	host_event_raise(&q->work);
	return P2P_OK;
}

static int queue_bind(void *self, struct p2p_error *e) {
	(void)self;
	e->code = P2P_OK;
	return P2P_OK;
}

static int queue_find(void *self, const char *name, uint32_t shared, void **kernel, struct p2p_error *e) {
	(void)self, (void)shared;
	*kernel = (void *)host_kernel_find(name);
	if (*kernel)
		return P2P_OK;
	p2p_fail(e, P2P_ERR_INVALID, 0, "");
	snprintf(e->text, sizeof e->text, "host: no kernel %s", name);
	return P2P_ERR_INVALID;
}

static int queue_start(void *self, const struct p2p_launch *l, struct p2p_error *e) {
	struct queue *q = self;
	struct command *c;
	int rc = host_kernel_accepts(l, e);
	if (rc || (rc = host_pool_grow(&q->pool, l->ctas * l->threads, e)))
		return rc;
	if (!(c = room(q, DO_KERNEL, e)))
		return e->code;
	c->ctas = l->ctas;
	c->warps = l->threads;
	c->start.kernel = l->kernel;
	memcpy(&c->start.args, l->args, sizeof c->start.args);
	return put(q);
}

static int queue_copy(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct queue *q = self;
	struct command *c = room(q, DO_COPY, e);
	if (!c)
		return e->code;
	c->copy.dst = dst;
	c->copy.src = src;
	c->copy.n = n;
	return put(q);
}

static int put_word(struct queue *q, uint32_t what, uint64_t *word, uint64_t value, struct p2p_error *e) {
	struct command *c = room(q, what, e);
	if (!c)
		return e->code;
	c->word.at = word;
	c->word.value = value;
	return put(q);
}

static int queue_write(void *self, uint64_t *word, uint64_t value, struct p2p_error *e) {
	return put_word(self, DO_WRITE, word, value, e);
}

static int queue_await(void *self, uint64_t *word, uint64_t value, struct p2p_error *e) {
	return put_word(self, DO_AWAIT, word, value, e);
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static int queue_event(void *self, uint32_t i, struct p2p_error *e) {
	struct queue *q = self;
	if (i >= P2P_EVENTS || q->recording)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "host: queue: no such event, or a recording is in progress");
	struct command *c = room(q, DO_EVENT, e);
	if (!c)
		return e->code;
	c->event = i;
	return put(q);
}

static int idle(const struct queue *q) { return atomic_load_explicit(&q->done, memory_order_acquire) == posted(q); }

static int queue_elapsed(void *self, uint32_t i, uint32_t j, uint64_t *ns, struct p2p_error *e) {
	const struct queue *q = self;
	if (i >= P2P_EVENTS || j >= P2P_EVENTS)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "host: queue: no such event");
	if (!idle(q))
		return p2p_fail(e, P2P_ERR_INVALID, 0,
				"host: queue: events can only be read after a wait for the queue");
	if (!(q->recorded_events >> i & 1) || !(q->recorded_events >> j & 1) || q->event_ns[j] < q->event_ns[i])
		return p2p_fail(e, P2P_ERR_INVALID, 0,
				"host: queue: an event was not recorded, or the second is before the first");
	*ns = q->event_ns[j] - q->event_ns[i];
	return P2P_OK;
}

/* ---- waiting and recording -------------------------------------------------------------------------------------- */

static int queue_wait(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	struct queue *q = self;
	struct p2p_wait w = {0};
	uint64_t done, before = UINT64_MAX;
	if (q->recording)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "host: queue: wait: a recording is in progress");
	for (uint32_t polls = 0; (done = atomic_load_explicit(&q->done, memory_order_acquire)) < posted(q); polls++) {
		if (done != before)
			p2p_beat(c);
		before = done;
		host_pause(polls);
		int rc = p2p_wait_step(c, &w, P2P_WAIT_COPY, posted(q), done, e);
		if (rc)
			return rc;
	}
	atomic_store_explicit(&c->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
	q->base = posted(q);
	return P2P_OK;
}

static int queue_record_begin(void *self, struct p2p_error *e) {
	struct queue *q = self;
	if (q->recording)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "host: queue: record: a recording is in progress");
	int rc = make_way(q, q->replayed, "the previous recording is in use", e);
	if (rc)
		return rc;
	q->recorded = 0;
	q->recording = 1;
	q->has_recording = 0;
	return P2P_OK;
}

static int queue_record_end(void *self, struct p2p_error *e) {
	struct queue *q = self;
	if (!q->recording)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "host: queue: record: none is in progress");
	q->recording = 0;
	q->has_recording = 1;
	return P2P_OK;
}

static int queue_replay(void *self, struct p2p_error *e) {
	struct queue *q = self;
	if (!q->has_recording)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "host: queue: replay: nothing was recorded");
	if (!room(q, DO_REPLAY, e))
		return e->code;
	q->replayed = posted(q) + 1;
	return put(q);
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

static struct p2p_queue table(struct queue *q) {
	return (struct p2p_queue){
		.abi = P2P_ABI,
		.ctas = HOST_CTAS,
		.self = q,
		.bind = queue_bind,
		.find = queue_find,
		.start = queue_start,
		.copy = queue_copy,
		.write = queue_write,
		.await = queue_await,
		.event = queue_event,
		.elapsed = queue_elapsed,
		.wait = queue_wait,
		.record_begin = queue_record_begin,
		.record_end = queue_record_end,
		.replay = queue_replay,
	};
}

/* Zeroed memory, aligned to 64 bytes. */
static void *zeroed(size_t n) {
	void *p = aligned_alloc(64, (n + 63) / 64 * 64);
	return p ? memset(p, 0, n) : NULL;
}

static int fill_queue(struct queue *q, struct p2p_error *e) {
	/* calloc: pages that no command uses take no memory. */
	q->ring = calloc(HOST_QUEUE_ROOM, sizeof *q->ring);
	q->record = calloc(HOST_QUEUE_ROOM, sizeof *q->record);
	q->grid.cell = zeroed(HOST_CTAS * sizeof *q->grid.cell);
	q->grid.stop = &q->stop;
	if (!q->ring || !q->record || !q->grid.cell)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "host: queue: no memory for its commands");
	int rc = host_pool_open(&q->pool, HOST_CTAS * HOST_WARPS, &q->cpus, e);
	if (rc || (rc = host_thread_start(&q->thread, serve, q, "p2p-queue", &q->cpus, e)))
		return rc;
	q->started = 1;
	return P2P_OK;
}

struct p2p_queue *p2p_host_queue_new(const void *cpus, size_t cpu_bytes, struct p2p_error *e) {
	struct queue *q = zeroed(sizeof *q);
	if (!q) {
		p2p_fail(e, P2P_ERR_DEVICE, 0, "host: queue: out of memory");
		return NULL;
	}
	q->table = table(q);
	if (host_cpus_keep(&q->cpus, cpus, cpu_bytes, e) == P2P_OK && fill_queue(q, e) == P2P_OK)
		return &q->table;
	p2p_host_queue_free(&q->table);
	return NULL;
}

void p2p_host_queue_free(struct p2p_queue *t) {
	struct queue *q = t->self;
	atomic_store(&q->stop, 1);
	host_event_raise(&q->work);
	if (q->started)
		pthread_join(q->thread, NULL);
	host_pool_close(&q->pool);
	free(q->cpus.set);
	free(q->grid.cell);
	free(q->record);
	free(q->ring);
	free(q);
}
