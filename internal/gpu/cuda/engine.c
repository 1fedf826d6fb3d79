#include "engine.h"

#include "proxy.h"
#include "streams.h"
#include <stdlib.h>

/* Launch configurations. A copy's grid grows with its size, because every block adds to the time of a small copy. */
enum {
	SM_THREADS = 512,
	SM_BYTES = 8 << 10, /* per block, up to one block per SM: a 16-byte access per thread */
	BULK_THREADS = 32,
	BULK_BYTES = 16 << 10, /* per block: a stage */
	BULK_CTAS = 32,        /* 8 saturate the link to a peer; copies within the GPU need more */
	PAYLOAD_BYTES = 32 << 10,
	PAYLOAD_CTAS_PER_SM = 4,
};

/* Number of polls of a wait before it checks the clock and the abort flag. */
#define FAST_POLLS 2000

/* Longest wait if there is no rank whose deadline applies. */
#define OWN_TIMEOUT_NS 60000000000u

/* The result of p2p_check, see internal/gpu/kernel/src/check.cu. */
struct found {
	uint64_t count, first;
};

/* Pinned host memory: the initial result of a check, its final result, and the first wrong byte. */
struct host_page {
	struct found start, found;
	uint8_t got;
};

/* Layout of the engine's device memory. */
enum { SCRATCH_FOUND = 0, SCRATCH_SRC = 256, SCRATCH_DST = 4096, SCRATCH_BYTES = 8192 };

struct engine {
	struct p2p_engine table; /* first: the table's address is the engine's */
	struct cuda_device *device;
	int kind;
	unsigned limit; /* maximum number of thread blocks, 0: none; ce: the number of streams */
	struct cuda_streams streams;
	void *recorded;            /* the executable graph, NULL if nothing was recorded */
	struct cuda_proxy *proxy;  /* NULL for other kinds */
	int filling;               /* proxy: 1: the stream may have incomplete work */
	uint64_t marks[P2P_MARKS]; /* proxy: number of the last copy before the mark */
	uint64_t scratch;
	struct host_page *host;
	struct p2p_ctx own; /* context of waits whose caller has none */
	struct p2p_progress own_progress;
};

static int engine_bind(void *self, struct p2p_error *e) { return cuda_device_bind(((struct engine *)self)->device, e); }

/* The stream of all work except copies of engines with several streams or a proxy. */
static void *main_stream(const struct engine *g) { return g->streams.stream[0]; }

static unsigned grid(size_t n, size_t per_cta, unsigned most) {
	size_t ctas = n / per_cta + (n % per_cta != 0);
	return ctas < 1 ? 1 : ctas > most ? most : (unsigned)ctas;
}

static int launch(struct engine *g, const char *what, void *kernel, unsigned ctas, unsigned threads, unsigned shared,
		  void **params, struct p2p_error *e) {
	return cuda_ok(e, what,
		       cuLaunchKernel(kernel, ctas, 1, 1, threads, 1, 1, shared, main_stream(g), params, NULL));
}

/* ---- copy ----------------------------------------------------------------------------------------------------- */

static int copy_ce(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct engine *g = self;
	if (n == 0)
		return P2P_OK;
	return cuda_streams_copy(&g->streams, dst, src, n, e);
}

static int copy_sm(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct engine *g = self;
	unsigned most = g->limit ? g->limit : (unsigned)g->device->sms;
	uint64_t to = (uintptr_t)dst, from = (uintptr_t)src, bytes = n;
	void *params[] = {&to, &from, &bytes};
	if (n == 0)
		return P2P_OK;
	return launch(g, "cuLaunchKernel p2p_copy", g->device->copy, grid(n, SM_BYTES, most), SM_THREADS, 0, params, e);
}

/* Bulk copies need 16-byte alignment: if the addresses differ modulo 16, p2p_copy copies. */
static int copy_bulk(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct engine *g = self;
	unsigned most = g->limit ? g->limit : BULK_CTAS;
	uint64_t to = (uintptr_t)dst, from = (uintptr_t)src, bytes = n;
	void *params[] = {&to, &from, &bytes};
	if (n == 0)
		return P2P_OK;
	if ((to ^ from) % 16)
		return copy_sm(self, dst, src, n, e);
	return launch(g, "cuLaunchKernel p2p_copy_bulk", g->device->bulk, grid(n, BULK_BYTES, most), BULK_THREADS,
		      CUDA_BULK_SHARED, params, e);
}

/* Polls instead of blocking, so that the wait observes its deadline and the parent's abort flag. */
static int engine_wait(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	struct engine *g = self;
	struct p2p_wait w = {0};
	int fast = c->yield ? 0 : FAST_POLLS, native;
	while ((native = cuda_streams_query(&g->streams)) == CUDA_NOT_READY) {
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

/* ---- payload -------------------------------------------------------------------------------------------------- */

static unsigned payload_grid(const struct engine *g, size_t n) {
	return grid(n, PAYLOAD_BYTES, (unsigned)g->device->sms * PAYLOAD_CTAS_PER_SM);
}

static int engine_fill(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
		       struct p2p_error *e) {
	struct engine *g = self;
	(void)c;
	uint64_t at = (uintptr_t)p, bytes = n;
	void *params[] = {&at, &bytes, &key, &step};
	if (n == 0)
		return P2P_OK;
	int rc = cuda_streams_barrier(&g->streams, e);
	if (rc)
		return rc;
	return launch(g, "cuLaunchKernel p2p_fill", g->device->fill, payload_grid(g, n), SM_THREADS, 0, params, e);
}

static int read_back(struct engine *g, const struct p2p_ctx *c, void *to, uint64_t from, size_t n,
		     struct p2p_error *e) {
	int rc = cuda_ok(e, "cuMemcpyAsync", cuMemcpyAsync((uintptr_t)to, from, n, main_stream(g)));
	return rc ? rc : engine_wait(g, c, e);
}

static int engine_check(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
			struct p2p_mismatch *m, struct p2p_error *e) {
	struct engine *g = self;
	uint64_t at = (uintptr_t)p, bytes = n, found = g->scratch + SCRATCH_FOUND;
	void *params[] = {&at, &bytes, &key, &step, &found};
	int rc;
	memset(m, 0, sizeof *m);
	if (n == 0)
		return P2P_OK;
	if ((rc = cuda_streams_barrier(&g->streams, e)))
		return rc;
	rc = cuda_ok(e, "cuMemcpyAsync",
		     cuMemcpyAsync(found, (uintptr_t)&g->host->start, sizeof(struct found), main_stream(g)));
	if (rc ||
	    (rc = launch(g, "cuLaunchKernel p2p_check", g->device->check, payload_grid(g, n), SM_THREADS, 0, params,
			 e)) ||
	    (rc = read_back(g, c, &g->host->found, found, sizeof(struct found), e)))
		return rc;
	m->count = g->host->found.count;
	if (m->count == 0)
		return P2P_OK;
	m->offset = g->host->found.first;
	if ((rc = read_back(g, c, &g->host->got, at + m->offset, 1, e)))
		return rc;
	m->expected = p2p_payload_byte(key, m->offset);
	m->got = g->host->got;
	return P2P_OK;
}

/* ---- proxy ---------------------------------------------------------------------------------------------------- */

/*
 * Copies run in the resident kernel, fills and checks on the main stream. Each waits for the other before it starts;
 * the wait costs nothing if the other is already complete.
 */

/* Waits for fills. */
static int filled(struct engine *g, struct p2p_error *e) {
	if (!g->filling)
		return P2P_OK;
	int rc = engine_wait(g, &g->own, e);
	g->filling = rc != P2P_OK;
	return rc;
}

static int copy_proxy(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct engine *g = self;
	int rc = filled(g, e);
	return rc ? rc : cuda_proxy_copy(g->proxy, dst, src, n, e);
}

static int wait_proxy(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	struct engine *g = self;
	int rc = cuda_proxy_wait(g->proxy, c, e);
	if (rc || !g->filling)
		return rc;
	rc = engine_wait(g, c, e);
	g->filling = rc != P2P_OK;
	return rc;
}

static int fill_proxy(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
		      struct p2p_error *e) {
	struct engine *g = self;
	int rc = cuda_proxy_wait(g->proxy, c, e);
	if (rc)
		return rc;
	g->filling = 1;
	return engine_fill(g, c, p, n, key, step, e);
}

static int check_proxy(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
		       struct p2p_mismatch *m, struct p2p_error *e) {
	struct engine *g = self;
	int rc = cuda_proxy_wait(g->proxy, c, e);
	return rc ? rc : engine_check(g, c, p, n, key, step, m, e);
}

/* ---- recording ------------------------------------------------------------------------------------------------ */

static int record_begin(void *self, struct p2p_error *e) {
	struct engine *g = self;
	int rc = cuda_streams_barrier(&g->streams, e);
	if (rc)
		return rc;
	return cuda_ok(e, "cuStreamBeginCapture_v2",
		       cuStreamBeginCapture_v2(main_stream(g), CUDA_CAPTURE_THREAD_LOCAL));
}

static int forget(struct engine *g, struct p2p_error *e) {
	void *old = g->recorded;
	g->recorded = NULL;
	return old ? cuda_ok(e, "cuGraphExecDestroy", cuGraphExecDestroy(old)) : P2P_OK;
}

/* Ends the recording, also after a failure. */
static int end_capture(struct engine *g, void **graph, struct p2p_error *e) {
	struct p2p_error later;
	int rc = cuda_streams_barrier(&g->streams, e);
	int last = cuda_ok(rc ? &later : e, "cuStreamEndCapture", cuStreamEndCapture(main_stream(g), graph));
	return rc ? rc : last;
}

static int record_end(void *self, struct p2p_error *e) {
	struct engine *g = self;
	void *graph = NULL, *exec = NULL;
	struct p2p_error later;
	int rc = end_capture(g, &graph, e);
	if (rc == P2P_OK)
		rc = cuda_ok(e, "cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags(&exec, graph, 0));
	int last = graph ? cuda_ok(rc ? &later : e, "cuGraphDestroy", cuGraphDestroy(graph)) : P2P_OK;
	if (rc)
		return rc;
	rc = forget(g, e);
	g->recorded = exec;
	return rc ? rc : last;
}

static int launch_recorded(void *self, struct p2p_error *e) {
	struct engine *g = self;
	if (!g->recorded)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "launch: nothing was recorded");
	int rc = cuda_streams_barrier(&g->streams, e);
	return rc ? rc : cuda_ok(e, "cuGraphLaunch", cuGraphLaunch(g->recorded, main_stream(g)));
}

/* ---- marks ---------------------------------------------------------------------------------------------------- */

static int mark(void *self, uint32_t i, struct p2p_error *e) {
	return cuda_streams_mark(&((struct engine *)self)->streams, i, e);
}

static int reached(void *self, uint32_t i, int *yes, struct p2p_error *e) {
	return cuda_streams_reached(&((struct engine *)self)->streams, i, yes, e);
}

/* A mark is the number of copies started so far. Fills are not counted; the mark waits for them. */
static int mark_proxy(void *self, uint32_t i, struct p2p_error *e) {
	struct engine *g = self;
	if (i >= P2P_MARKS)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "mark: no such number");
	g->marks[i] = cuda_proxy_started(g->proxy);
	return filled(g, e);
}

static int reached_proxy(void *self, uint32_t i, int *yes, struct p2p_error *e) {
	struct engine *g = self;
	*yes = 0;
	if (i >= P2P_MARKS)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "reached: no such number");
	return cuda_proxy_reached(g->proxy, g->marks[i], yes, e);
}

/* ---- open and close ------------------------------------------------------------------------------------------- */

static void set_table(struct engine *g) {
	static int (*const copies[])(void *, void *, const void *, size_t, struct p2p_error *) = {
		[CUDA_ENGINE_CE] = copy_ce,
		[CUDA_ENGINE_SM] = copy_sm,
		[CUDA_ENGINE_BULK] = copy_bulk,
		[CUDA_ENGINE_PROXY] = copy_proxy,
	};
	g->table = (struct p2p_engine){
		.abi = P2P_ABI,
		.async = 1,
		.self = g,
		.bind = engine_bind,
		.copy = copies[g->kind],
		.wait = engine_wait,
		.fill = engine_fill,
		.check = engine_check,
		.record_begin = record_begin,
		.record_end = record_end,
		.launch = launch_recorded,
		.mark = mark,
		.reached = reached,
	};
	if (g->kind == CUDA_ENGINE_PROXY) {
		g->table.wait = wait_proxy;
		g->table.fill = fill_proxy;
		g->table.check = check_proxy;
		g->table.record_begin = NULL;
		g->table.record_end = NULL;
		g->table.launch = NULL;
		g->table.mark = mark_proxy;
		g->table.reached = reached_proxy;
	}
	if (g->device->wait) {
		g->own = *g->device->wait;
		return;
	}
	g->own.progress = &g->own_progress;
	g->own.timeout_ns = OWN_TIMEOUT_NS;
}

static int allocate(struct engine *g, struct p2p_error *e) {
	unsigned streams = g->kind == CUDA_ENGINE_CE && g->limit ? g->limit : 1;
	int rc = engine_bind(g, e);
	if (rc || (rc = cuda_streams_open(&g->streams, streams, e)) ||
	    (rc = cuda_ok(e, "cuMemAlloc_v2", cuMemAlloc_v2(&g->scratch, SCRATCH_BYTES))))
		return rc;
	void *host;
	if ((rc = cuda_ok(e, "cuMemHostAlloc", cuMemHostAlloc(&host, sizeof *g->host, 0))))
		return rc;
	g->host = host;
	g->host->start = (struct found){0, UINT64_MAX};
	if (g->kind == CUDA_ENGINE_PROXY) /* table.stream stays NULL: copies do not run on a stream */
		return cuda_proxy_open(g->device, g->limit, &g->own, &g->proxy, e);
	if (streams == 1)
		g->table.stream = main_stream(g);
	return P2P_OK;
}

/* Fills, copies and checks a few bytes; the destination is `skew` bytes behind an aligned address. */
static int try_out(struct engine *g, size_t skew, struct p2p_error *e) {
	void *src = (void *)(uintptr_t)(g->scratch + SCRATCH_SRC);
	void *dst = (void *)(uintptr_t)(g->scratch + SCRATCH_DST + skew);
	const size_t n = 2003;
	const uint64_t key = p2p_payload_key(1, n, skew, 0);
	struct p2p_mismatch m;
	int rc = g->table.fill(g, &g->own, src, n, key, 0, e);
	if (rc || (rc = g->table.copy(g, dst, src, n, e)) || (rc = g->table.check(g, &g->own, dst, n, key, 0, &m, e)))
		return rc;
	if (m.count == 0)
		return P2P_OK;
	p2p_fail(e, P2P_ERR_CORRUPT, 0, "");
	snprintf(e->text, sizeof e->text,
		 "test copy of %zu bytes is wrong: offset %llu expected 0x%02x, got 0x%02x (%llu bytes wrong)", n,
		 (unsigned long long)m.offset, m.expected, m.got, (unsigned long long)m.count);
	return P2P_ERR_CORRUPT;
}

int cuda_engine_open(struct cuda_device *d, int kind, unsigned limit, struct p2p_engine **out, struct p2p_error *e) {
	struct engine *g = calloc(1, sizeof *g);
	struct p2p_error ignored;
	if (!g)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	g->device = d;
	g->kind = kind;
	g->limit = limit;
	set_table(g);
	int rc = allocate(g, e);
	if (!rc)
		rc = try_out(g, 0, e);
	if (!rc)
		rc = try_out(g, 1, e);
	if (!rc && g->proxy)
		rc = cuda_proxy_stop(g->proxy, e);
	if (rc) {
		cuda_engine_close(&g->table, &ignored);
		return rc;
	}
	*out = &g->table;
	return P2P_OK;
}

uint64_t cuda_engine_launches(const struct p2p_engine *table) {
	const struct engine *g = (const struct engine *)table;
	return g->proxy ? cuda_proxy_launches(g->proxy) : 0;
}

/* Keeps the first failure. */
static void closing(int *rc, struct p2p_error *e, const char *what, int native) {
	if (*rc == P2P_OK)
		*rc = cuda_ok(e, what, native);
}

int cuda_engine_close(struct p2p_engine *table, struct p2p_error *e) {
	struct engine *g = (struct engine *)table;
	struct p2p_error later;
	int rc = engine_bind(g, e), last;
	if (g->proxy) {
		last = cuda_proxy_close(g->proxy, rc ? &later : e);
		rc = rc ? rc : last;
		/* If the kernel does not end, freeing the rest would wait for it. */
		if (last == P2P_ERR_TIMEOUT)
			return rc;
	}
	if (g->recorded)
		closing(&rc, e, "cuGraphExecDestroy", cuGraphExecDestroy(g->recorded));
	last = cuda_streams_close(&g->streams, rc ? &later : e);
	rc = rc ? rc : last;
	if (g->scratch && !g->device->lost)
		closing(&rc, e, "cuMemFree_v2", cuMemFree_v2(g->scratch));
	if (g->host && !g->device->lost)
		closing(&rc, e, "cuMemFreeHost", cuMemFreeHost(g->host));
	free(g);
	return rc;
}
