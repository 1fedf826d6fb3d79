#include "proxy.h"

#include "proxy_page.h"
#include <stdlib.h>

enum {
	THREADS = 512,
	CTAS = 32,        /* 8 fill the link to a peer */
	PRIORITY = -5,    /* of the stream; the driver uses the nearest supported priority */
	FAST_POLLS = 8192 /* about 10 us: enough for every small message */
};

/* Number of slow-path steps of a wait between two queries of the driver for errors. */
#define STEPS_PER_QUERY 4096

/* Longest wait for the kernel to end; it first completes the current copies. */
#define STOP_TIMEOUT_NS 10000000000u

struct cuda_proxy {
	struct cuda_device *device;
	const struct p2p_ctx *own;
	unsigned ctas;
	void *stream;
	struct proxy_page *page;
	uint64_t work;      /* device memory */
	uint64_t submitted; /* number of the last message in the ring, from 1 */
	uint64_t waited;    /* `submitted` at the last wait */
	uint64_t seen;      /* last value read from page->done */
	uint64_t launches;
	uint32_t polls; /* calls of cuda_proxy_reached that found an incomplete copy */
};

static uint64_t done(struct cuda_proxy *p) {
	return p->seen = atomic_load_explicit(&p->page->done, memory_order_acquire);
}

/* Whether a kernel is running, according to the page. */
static int resident(const struct cuda_proxy *p) {
	return p->launches != atomic_load_explicit(&p->page->exited, memory_order_acquire);
}

/* Launches the kernel, which must have ended, to continue with the first incomplete message. */
static int launch(struct cuda_proxy *p, struct p2p_error *e) {
	uint64_t ring = (uintptr_t)p->page->ring, slots = PROXY_SLOTS, answer = (uintptr_t)&p->page->done;
	uint64_t work = p->work, seq = done(p) + 1, number = p->launches + 1;
	uint64_t idle = PROXY_IDLE_NS, life = PROXY_LIFE_NS;
	void *params[] = {&ring, &slots, &answer, &work, &seq, &number, &idle, &life};
	int rc = cuda_ok(e, "cuLaunchKernel p2p_proxy",
			 cuLaunchKernel(p->device->proxy, p->ctas, 1, 1, THREADS, 1, 1, 0, p->stream, params, NULL));
	if (rc == P2P_OK)
		p->launches = number;
	return rc;
}

/* Queries the driver: an error if the kernel failed. */
static int examine(struct cuda_proxy *p, struct p2p_error *e) {
	int native = cuStreamQuery(p->stream);
	if (native == CUDA_NOT_READY)
		return P2P_OK;
	if (native != CUDA_OK)
		return cuda_fail(e, "p2p_proxy died (cuStreamQuery)", native);
	if (!resident(p))
		return P2P_OK;
	return p2p_fail(e, P2P_ERR_DEVICE, 0, "p2p_proxy ended unexpectedly");
}

/* Appends the state of the kernel to the text of a timeout. */
static void explain(struct cuda_proxy *p, struct p2p_error *e) {
	size_t at = strlen(e->text);
	snprintf(e->text + at, sizeof e->text - at, ": p2p_proxy %s, launch %llu, %u blocks",
		 !resident(p)                                 ? "has exited"
		 : cuStreamQuery(p->stream) == CUDA_NOT_READY ? "is running or waiting for free SMs"
							      : "ended unexpectedly",
		 (unsigned long long)p->launches, p->ctas);
}

/* One step of a wait for the message `want`. */
static int step(struct cuda_proxy *p, const struct p2p_ctx *c, struct p2p_wait *w, uint64_t want, struct p2p_error *e) {
	int rc = p2p_wait_step(c, w, P2P_WAIT_COPY, want, p->seen, e);
	if (rc == P2P_ERR_TIMEOUT)
		explain(p, e);
	if (rc)
		return rc;
	if (!resident(p) && done(p) < want)
		return launch(p, e);
	return w->steps % STEPS_PER_QUERY ? P2P_OK : examine(p, e);
}

static int await(struct cuda_proxy *p, const struct p2p_ctx *c, uint64_t want, struct p2p_error *e) {
	struct p2p_wait w = {0};
	for (int i = c->yield ? FAST_POLLS : 0; i < FAST_POLLS; i++)
		if (done(p) >= want)
			return P2P_OK;
	while (done(p) < want) {
		int rc = step(p, c, &w, want, e);
		if (rc)
			return rc;
	}
	if (w.steps)
		atomic_store_explicit(&c->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
	return P2P_OK;
}

/* Writes a message into the ring, which must have a free slot. */
static void post(struct cuda_proxy *p, uint64_t dst, uint64_t src, uint64_t n) {
	uint64_t seq = ++p->submitted;
	struct proxy_slot *s = &p->page->ring[seq % PROXY_SLOTS];
	atomic_store_explicit(&s->dst, dst, memory_order_relaxed);
	atomic_store_explicit(&s->src, src, memory_order_relaxed);
	atomic_store_explicit(&s->n, n, memory_order_relaxed);
	atomic_store_explicit(&s->seal, proxy_seal(dst, src, n, seq), memory_order_release);
}

static int make_room(struct cuda_proxy *p, struct p2p_error *e) {
	if (p->submitted - p->seen < PROXY_SLOTS)
		return P2P_OK;
	return await(p, p->own, p->submitted + 1 - PROXY_SLOTS, e);
}

int cuda_proxy_copy(struct cuda_proxy *p, void *dst, const void *src, size_t n, struct p2p_error *e) {
	int rc;
	if (n == 0)
		return P2P_OK;
	if ((rc = make_room(p, e)))
		return rc;
	post(p, (uintptr_t)dst, (uintptr_t)src, n);
	/* If the kernel is exiting at this moment, the next wait notices it. */
	return resident(p) ? P2P_OK : launch(p, e);
}

/*
 * After a window of several messages, fills the rest of the kernel's group with empty messages, so that the next window
 * begins with a new group. Otherwise the number of reads, and so the time, of a window of small messages would depend
 * on the messages before it.
 */
static void align_window(struct cuda_proxy *p) {
	if (p->submitted - p->waited > 1)
		while ((p->submitted + 1) % PROXY_GROUP != 0)
			post(p, 0, 0, 0);
	p->waited = p->submitted;
}

int cuda_proxy_wait(struct cuda_proxy *p, const struct p2p_ctx *c, struct p2p_error *e) {
	int rc = await(p, c, p->submitted, e);
	if (!rc)
		align_window(p);
	return rc;
}

uint64_t cuda_proxy_started(const struct cuda_proxy *p) { return p->submitted; }

int cuda_proxy_reached(struct cuda_proxy *p, uint64_t copies, int *yes, struct p2p_error *e) {
	*yes = done(p) >= copies;
	if (*yes)
		return P2P_OK;
	if (!resident(p) && done(p) < copies)
		return launch(p, e);
	return ++p->polls % STEPS_PER_QUERY ? P2P_OK : examine(p, e);
}

/* Waits until the stream is empty; *native is the driver's result code. */
static int drain(struct cuda_proxy *p, int *native, struct p2p_error *e) {
	uint64_t start = p2p_raw_ns();
	while ((*native = cuStreamQuery(p->stream)) == CUDA_NOT_READY) {
		p2p_relax();
		if (p2p_raw_ns() - start < STOP_TIMEOUT_NS)
			continue;
		p2p_fail(e, P2P_ERR_TIMEOUT, 0, "");
		snprintf(e->text, sizeof e->text, "waited %.0f s for p2p_proxy to exit (message %llu of %llu complete)",
			 STOP_TIMEOUT_NS / 1e9, (unsigned long long)done(p), (unsigned long long)p->submitted);
		return P2P_ERR_TIMEOUT;
	}
	return P2P_OK;
}

int cuda_proxy_stop(struct cuda_proxy *p, struct p2p_error *e) {
	int native, rc;
	if (p->launches == 0)
		return P2P_OK;
	/* If the ring is full, earlier copies hang, and the kernel would not reach the stop message. */
	if (resident(p) && p->submitted - done(p) < PROXY_SLOTS)
		post(p, 0, 0, PROXY_STOP);
	if ((rc = drain(p, &native, e)))
		return rc;
	if (native != CUDA_OK)
		return cuda_fail(e, "p2p_proxy died (cuStreamQuery)", native);
	/*
	 * The kernel no longer writes to the page. The next launch must skip the stop message and all messages before
	 * it.
	 */
	atomic_store_explicit(&p->page->done, p->submitted, memory_order_relaxed);
	atomic_store_explicit(&p->page->exited, p->launches, memory_order_relaxed);
	p->seen = p->submitted;
	return P2P_OK;
}

uint64_t cuda_proxy_launches(const struct cuda_proxy *p) { return p->launches; }

/* ---- open and close ------------------------------------------------------------------------------------------- */

static int allocate(struct cuda_proxy *p, struct p2p_error *e) {
	/* A stream of a different priority does not share a hardware queue with other streams. */
	int rc = cuda_ok(e, "cuStreamCreateWithPriority",
			 cuStreamCreateWithPriority(&p->stream, CUDA_STREAM_NON_BLOCKING, PRIORITY));
	if (rc || (rc = cuda_ok(e, "cuMemAlloc_v2", cuMemAlloc_v2(&p->work, PROXY_WORK_BYTES))))
		return rc;
	void *page;
	if ((rc = cuda_ok(e, "cuMemHostAlloc", cuMemHostAlloc(&page, sizeof *p->page, CUDA_HOST_MAPPED))))
		return rc;
	p->page = memset(page, 0, sizeof *p->page);
	return P2P_OK;
}

/* Zeroes the memory that the blocks share, which may contain messages of an earlier proxy. */
static int clear(struct cuda_proxy *p, struct p2p_error *e) {
	_Static_assert(sizeof(struct proxy_page) >= PROXY_WORK_BYTES, "the zeroed page is the source of the copy");
	int native, rc = cuda_ok(e, "cuMemcpyAsync",
				 cuMemcpyAsync(p->work, (uintptr_t)p->page, PROXY_WORK_BYTES, p->stream));
	if (rc || (rc = drain(p, &native, e)))
		return rc;
	return cuda_ok(e, "cuStreamQuery", native);
}

int cuda_proxy_open(struct cuda_device *d, unsigned ctas, const struct p2p_ctx *own, struct cuda_proxy **out,
		    struct p2p_error *e) {
	struct cuda_proxy *p = calloc(1, sizeof *p);
	struct p2p_error ignored;
	unsigned most = d->sms > 2 ? (unsigned)d->sms / 2 : 1;
	if (!p)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	ctas = ctas ? ctas : CTAS;
	p->ctas = ctas < most ? ctas : most;
	p->device = d;
	p->own = own;
	int rc = allocate(p, e);
	if (!rc)
		rc = clear(p, e);
	if (rc) {
		cuda_proxy_close(p, &ignored);
		return rc;
	}
	*out = p;
	return P2P_OK;
}

/* Keeps the first failure. */
static void closing(int *rc, struct p2p_error *e, const char *what, int native) {
	if (*rc == P2P_OK)
		*rc = cuda_ok(e, what, native);
}

int cuda_proxy_close(struct cuda_proxy *p, struct p2p_error *e) {
	int rc = p->stream ? cuda_proxy_stop(p, e) : P2P_OK;
	/* Freeing memory that a kernel uses would wait for it: memory and stream are not freed in that case. */
	if (rc != P2P_ERR_TIMEOUT && !p->device->lost) {
		if (p->work)
			closing(&rc, e, "cuMemFree_v2", cuMemFree_v2(p->work));
		if (p->page)
			closing(&rc, e, "cuMemFreeHost", cuMemFreeHost(p->page));
		if (p->stream)
			closing(&rc, e, "cuStreamDestroy_v2", cuStreamDestroy_v2(p->stream));
	}
	free(p);
	return rc;
}
