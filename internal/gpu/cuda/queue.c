#include "queue.h"

#include <stdlib.h>

enum {
	/*
	 * Priority of the stream; the driver uses the nearest supported priority. Streams of the same priority may
	 * share a hardware queue: a stream that waits for a word or runs a resident kernel would block the streams of
	 * the engines or of the proxy.
	 */
	PRIORITY = -2,
	FAST_POLLS = 2000, /* polls of a wait before it checks the clock and the abort flag */
};

/* Longest wait in close, and in the test of a new queue. */
#define CLOSE_TIMEOUT_NS 2000000000u
#define TRIAL_TIMEOUT_NS 3000000000u

struct queue {
	struct p2p_queue table; /* first: the table's address is the queue's */
	struct cuda_device *device;
	void *stream;
	void *events[P2P_EVENTS];
	unsigned recorded_events; /* bit i: event i was recorded */
	int recording;
	struct p2p_error first_error; /* the first failure within the current recording */
	void *recorded;               /* the executable graph, NULL if nothing was recorded */
};

static int queue_bind(void *self, struct p2p_error *e) { return cuda_device_bind(((struct queue *)self)->device, e); }

static int invalid(struct p2p_error *e, const char *text) { return p2p_fail(e, P2P_ERR_INVALID, 0, text); }

/* ---- work ----------------------------------------------------------------------------------------------------- */

/*
 * Checks the result of a call that enqueued work. Within a recording it keeps the first failure, because the driver
 * reports at the end only that the recording is invalid.
 */
static int put(struct queue *q, const char *call, int native, struct p2p_error *e) {
	if (native == CUDA_OK)
		return P2P_OK;
	char what[160];
	snprintf(what, sizeof what, "%s%s", call, q->recording ? " while recording" : "");
	int rc = cuda_fail(e, what, native);
	if (q->recording && q->first_error.code == P2P_OK)
		q->first_error = *e;
	return rc;
}

static int find(void *self, const char *name, uint32_t shared, void **kernel, struct p2p_error *e) {
	struct queue *q = self;
	if (q->recording)
		return invalid(e, "find: not within a recording");
	int rc = cuda_device_find(q->device, name, kernel, e);
	if (rc || shared == 0)
		return rc;
	char what[96];
	snprintf(what, sizeof what, "cuFuncSetAttribute %s, %u bytes of shared memory", name, shared);
	return cuda_ok(e, what, cuFuncSetAttribute(*kernel, CUDA_FUNC_MAX_SHARED, (int)shared));
}

static int launch(struct queue *q, const struct p2p_launch *l) {
	void *params[] = {(void *)(uintptr_t)l->args};
	if (!l->overlap || !q->device->overlap)
		return cuLaunchKernel(l->kernel, l->ctas, 1, 1, l->threads, 1, 1, l->shared, q->stream, params, NULL);
	struct cuda_launch_attribute overlap = {.id = CUDA_LAUNCH_OVERLAP, .value = {1}};
	const struct cuda_launch config = {.grid = {l->ctas, 1, 1},
					   .block = {l->threads, 1, 1},
					   .shared = l->shared,
					   .stream = q->stream,
					   .attributes = &overlap,
					   .count = 1};
	return cuLaunchKernelEx(&config, l->kernel, params, NULL);
}

static int start(void *self, const struct p2p_launch *l, struct p2p_error *e) {
	struct queue *q = self;
	if (l->ctas > q->table.ctas)
		return invalid(e, "start: more thread blocks than can run concurrently");
	int native = launch(q, l);
	if (native == CUDA_OK)
		return P2P_OK;
	char what[96];
	snprintf(what, sizeof what, "cuLaunchKernel of %u x %u threads, %u bytes of shared memory", l->ctas, l->threads,
		 l->shared);
	return put(q, what, native, e);
}

static int copy(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct queue *q = self;
	if (n == 0)
		return P2P_OK;
	return put(q, "cuMemcpyAsync", cuMemcpyAsync((uintptr_t)dst, (uintptr_t)src, n, q->stream), e);
}

/* Without flags the driver orders all earlier work before the write. */
static int write_word(void *self, uint64_t *word, uint64_t value, struct p2p_error *e) {
	struct queue *q = self;
	return put(q, "cuStreamWriteValue64_v2", cuStreamWriteValue64_v2(q->stream, (uintptr_t)word, value, 0), e);
}

static int await(void *self, uint64_t *word, uint64_t value, struct p2p_error *e) {
	struct queue *q = self;
	return put(q, "cuStreamWaitValue64_v2",
		   cuStreamWaitValue64_v2(q->stream, (uintptr_t)word, value, CUDA_STREAM_WAIT_EQUAL), e);
}

/* ---- time ----------------------------------------------------------------------------------------------------- */

static int record_event(void *self, uint32_t i, struct p2p_error *e) {
	struct queue *q = self;
	if (i >= P2P_EVENTS)
		return invalid(e, "event: no such number");
	if (q->recording)
		return invalid(e, "event: not within a recording");
	q->recorded_events |= 1u << i;
	return cuda_ok(e, "cuEventRecord", cuEventRecord(q->events[i], q->stream));
}

/*
 * The driver returns ms as a float: exact to 1 ns up to 16 ms, to 60 ns at 1 s. Its documented resolution is about 0.5
 * us.
 */
static int elapsed(void *self, uint32_t i, uint32_t j, uint64_t *ns, struct p2p_error *e) {
	struct queue *q = self;
	float ms = 0;
	if (i >= P2P_EVENTS || j >= P2P_EVENTS)
		return invalid(e, "elapsed: no such number");
	if (!(q->recorded_events >> i & 1) || !(q->recorded_events >> j & 1))
		return invalid(e, "elapsed: an event was not recorded");
	/* The second version does not return errors of other work. */
	int native = cuda_functions.cuEventElapsedTime_v2 ? cuEventElapsedTime_v2(&ms, q->events[i], q->events[j])
							  : cuEventElapsedTime(&ms, q->events[i], q->events[j]);
	if (native != CUDA_OK)
		return cuda_fail(e, "cuEventElapsedTime", native);
	if (ms < 0)
		return invalid(e, "elapsed: the second event is before the first");
	*ns = (uint64_t)((double)ms * 1e6 + 0.5);
	return P2P_OK;
}

/* Polls instead of blocking, so that the wait observes its deadline and the parent's abort flag. */
static int queue_wait(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	struct queue *q = self;
	struct p2p_wait w = {0};
	int fast = c->yield ? 0 : FAST_POLLS, native;
	if (q->recording)
		return invalid(e, "wait: not within a recording");
	while ((native = cuStreamQuery(q->stream)) == CUDA_NOT_READY) {
		if (fast-- > 0)
			continue;
		fast = 0;
		int rc = p2p_wait_step(c, &w, P2P_WAIT_COPY, 1, 0, e);
		if (rc)
			return rc;
	}
	if (w.steps)
		atomic_store_explicit(&c->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
	return cuda_ok(e, "cuStreamQuery", native);
}

/* ---- recording ------------------------------------------------------------------------------------------------ */

static int forget(struct queue *q, struct p2p_error *e) {
	void *old = q->recorded;
	q->recorded = NULL;
	return old ? cuda_ok(e, "cuGraphExecDestroy", cuGraphExecDestroy(old)) : P2P_OK;
}

static int record_begin(void *self, struct p2p_error *e) {
	struct queue *q = self;
	if (q->recording)
		return invalid(e, "record_begin: a recording is in progress");
	int rc = forget(q, e);
	if (rc)
		return rc;
	rc = cuda_ok(e, "cuStreamBeginCapture_v2", cuStreamBeginCapture_v2(q->stream, CUDA_CAPTURE_THREAD_LOCAL));
	q->recording = rc == P2P_OK;
	q->first_error.code = P2P_OK;
	return rc;
}

/* Instantiates and uploads the graph, so that its first launch takes no longer than later ones. */
static int instantiate(struct queue *q, void *graph, struct p2p_error *e) {
	struct p2p_error later;
	int rc = cuda_ok(e, "cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags(&q->recorded, graph, 0));
	if (rc || !cuda_functions.cuGraphUpload)
		return rc;
	rc = cuda_ok(e, "cuGraphUpload", cuGraphUpload(q->recorded, q->stream));
	if (rc)
		forget(q, &later);
	return rc;
}

/* Ends the recording. Returns the first failure within it, if there was one. */
static int end_capture(struct queue *q, void **graph, struct p2p_error *e) {
	int rc = cuda_ok(e, "cuStreamEndCapture", cuStreamEndCapture(q->stream, graph));
	q->recording = 0;
	if (q->first_error.code == P2P_OK)
		return rc;
	*e = q->first_error;
	return e->code;
}

static int record_end(void *self, struct p2p_error *e) {
	struct queue *q = self;
	struct p2p_error later;
	void *graph = NULL;
	if (!q->recording)
		return invalid(e, "record_end: no recording is in progress");
	int rc = end_capture(q, &graph, e);
	if (rc == P2P_OK)
		rc = instantiate(q, graph, e);
	int last = graph ? cuda_ok(rc ? &later : e, "cuGraphDestroy", cuGraphDestroy(graph)) : P2P_OK;
	return rc ? rc : last;
}

static int replay(void *self, struct p2p_error *e) {
	struct queue *q = self;
	if (q->recording)
		return invalid(e, "replay: not within a recording");
	if (!q->recorded)
		return invalid(e, "replay: nothing was recorded");
	return cuda_ok(e, "cuGraphLaunch", cuGraphLaunch(q->recorded, q->stream));
}

/* ---- open and close ------------------------------------------------------------------------------------------- */

static void set_table(struct queue *q) {
	q->table = (struct p2p_queue){
		.abi = P2P_ABI,
		.ctas = (uint32_t)q->device->sms,
		.self = q,
		.stream = q->stream,
		.bind = queue_bind,
		.find = find,
		.start = start,
		.copy = copy,
		.write = write_word,
		.await = await,
		.event = record_event,
		.elapsed = elapsed,
		.wait = queue_wait,
		.record_begin = record_begin,
		.record_end = record_end,
		.replay = replay,
	};
}

static int create(struct queue *q, struct p2p_error *e) {
	int rc = queue_bind(q, e);
	if (rc || (rc = cuda_ok(e, "cuStreamCreateWithPriority",
				cuStreamCreateWithPriority(&q->stream, CUDA_STREAM_NON_BLOCKING, PRIORITY))))
		return rc;
	for (unsigned i = 0; i < P2P_EVENTS && !rc; i++)
		rc = cuda_ok(e, "cuEventCreate", cuEventCreate(&q->events[i], CUDA_EVENT_TIMING));
	return rc;
}

/* Tests a write, a wait and a copy of a word, and two events. The word arrives in *answer. */
static int go_through(struct queue *q, uint64_t *word, uint64_t *answer, struct p2p_error *e) {
	const uint64_t value = 0x706f7274616c3031u;
	struct p2p_progress progress = {0};
	const struct p2p_ctx own = {.progress = &progress, .timeout_ns = TRIAL_TIMEOUT_NS};
	uint64_t ns;
	int rc = record_event(q, 0, e);
	if (rc || (rc = write_word(q, word, value, e)) || (rc = await(q, word, value, e)) ||
	    (rc = copy(q, answer, word, sizeof *word, e)) || (rc = record_event(q, 1, e)) ||
	    (rc = queue_wait(q, &own, e)) || (rc = elapsed(q, 0, 1, &ns, e)))
		return rc;
	q->recorded_events = 0;
	return *answer == value ? P2P_OK
				: p2p_fail(e, P2P_ERR_CORRUPT, 0, "a test word that was written to the GPU is wrong");
}

/*
 * Uses every operation except kernels once, which completes the driver's lazy initialisation and detects missing
 * features.
 */
static int try_out(struct queue *q, struct p2p_error *e) {
	struct p2p_error later;
	uint64_t word;
	void *answer;
	int rc = cuda_ok(e, "cuMemAlloc_v2", cuMemAlloc_v2(&word, sizeof word)), last;
	if (rc)
		return rc;
	rc = cuda_ok(e, "cuMemHostAlloc", cuMemHostAlloc(&answer, sizeof word, 0));
	if (!rc) {
		rc = go_through(q, (uint64_t *)(uintptr_t)word, answer, e);
		if (rc == P2P_ERR_TIMEOUT) /* freeing would wait for the stream */
			return rc;
		last = cuda_ok(rc ? &later : e, "cuMemFreeHost", cuMemFreeHost(answer));
		rc = rc ? rc : last;
	}
	last = cuda_ok(rc ? &later : e, "cuMemFree_v2", cuMemFree_v2(word));
	return rc ? rc : last;
}

int cuda_queue_open(struct cuda_device *d, struct p2p_queue **out, struct p2p_error *e) {
	struct p2p_error ignored;
	if (d->lost)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "the work of an earlier queue of this device did not complete");
	struct queue *q = calloc(1, sizeof *q);
	if (!q)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	q->device = d;
	int rc = create(q, e);
	if (!rc)
		rc = try_out(q, e);
	if (rc) {
		cuda_queue_close(&q->table, &ignored);
		return rc;
	}
	set_table(q);
	*out = &q->table;
	return P2P_OK;
}

/* Waits until the stream is empty, or fails. */
static int drain(struct queue *q, struct p2p_error *e) {
	uint64_t begun = p2p_raw_ns();
	int native;
	while ((native = cuStreamQuery(q->stream)) == CUDA_NOT_READY) {
		p2p_yield();
		if (p2p_raw_ns() - begun > CLOSE_TIMEOUT_NS)
			return p2p_fail(e, P2P_ERR_TIMEOUT, 0,
					"the queue's work does not complete: queue and device are not released before "
					"the process ends");
	}
	return cuda_ok(e, "cuStreamQuery", native);
}

/* Ends a recording in progress, and waits until the stream is empty. */
static int settle(struct queue *q, struct p2p_error *e) {
	void *graph = NULL;
	int rc = queue_bind(q, e);
	if (rc || !q->stream)
		return rc;
	if (q->recording) {
		cuStreamEndCapture(q->stream, &graph);
		q->recording = 0;
	}
	if (graph)
		cuGraphDestroy(graph);
	return drain(q, e);
}

/* Keeps the first failure. */
static void closing(int *rc, struct p2p_error *e, const char *what, int native) {
	if (*rc == P2P_OK)
		*rc = cuda_ok(e, what, native);
}

int cuda_queue_close(struct p2p_queue *table, struct p2p_error *e) {
	struct queue *q = (struct queue *)table;
	int rc = settle(q, e);
	if (rc == P2P_ERR_TIMEOUT) {
		q->device->lost = 1;
		free(q);
		return rc;
	}
	if (q->recorded)
		closing(&rc, e, "cuGraphExecDestroy", cuGraphExecDestroy(q->recorded));
	for (unsigned i = 0; i < P2P_EVENTS; i++)
		if (q->events[i])
			closing(&rc, e, "cuEventDestroy_v2", cuEventDestroy_v2(q->events[i]));
	if (q->stream)
		closing(&rc, e, "cuStreamDestroy_v2", cuStreamDestroy_v2(q->stream));
	free(q);
	return rc;
}
