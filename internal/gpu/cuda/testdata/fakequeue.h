/*
 * fakequeue.h: the parts of the fake driver for queues: stream waits for words, timing, and the kernels that send and
 * receive, which only record their launch. Like the driver it loads kernels lazily; but a launch of a kernel that was
 * not loaded fails, since on a GPU it might wait for a resident kernel.
 *
 *   FAKE_NO_MEMOPS=1         the device says that its streams cannot wait for words
 *   FAKE_NO_MEMOP_CAPTURE=1  recordings cannot contain waits for words
 *   FAKE_MEMOPS_HANG=1       a stream that waits for a word never continues
 *   FAKE_ELAPSED_MS=X        the time between any two events
 *   FAKE_LOCAL=N             bytes of local memory of every kernel
 *   FAKE_LAUNCHES=FILE       each run adds a line: name, blocks, threads, dynamic shared memory, whether it may overlap
 *                            the one before it, argument in hex
 */
#include "gpu/abi/sendrecv.h"
#include "fakestreams.h"

enum { MAX_LAUNCHES = 4096, SHARED_OF_ALL = 48 << 10, SHARED_MOST = 227 << 10 };

static const char *const sendrecv_kernels[] = {SR_KERNEL_WS,  SR_KERNEL_WS_BULK,  SR_KERNEL_STABLE,
					       SR_KERNEL_PUT, SR_KERNEL_PUT_BULK, SR_KERNEL_LL,
					       SR_KERNEL_LL128};
#define SENDRECV_KERNELS (sizeof sendrecv_kernels / sizeof *sendrecv_kernels)

/* By handle: other kernels come first. */
static int loaded[SENDRECV + SENDRECV_KERNELS + 1];
static unsigned most_shared[SENDRECV + SENDRECV_KERNELS + 1];

struct sendrecv_launch {
	const char *name;
	unsigned shape[4]; /* blocks, threads, dynamic shared memory, overlap */
	struct sr_args args;
};

static struct sendrecv_launch sendrecv_launches[MAX_LAUNCHES];
static _Atomic unsigned launched;

/* ---- kernels -------------------------------------------------------------------------------------------------- */

static int sendrecv_find(uintptr_t *f, const char *name) {
	for (uintptr_t i = 0; i < SENDRECV_KERNELS; i++)
		if (strcmp(name, sendrecv_kernels[i]) == 0) {
			*f = SENDRECV + 1 + i;
			loaded[*f] = 0;
			most_shared[*f] = SHARED_OF_ALL;
			return 0;
		}
	return 500;
}

static int sendrecv_set(uintptr_t f, int attr, int value) {
	if (attr != 8 || value <= 0 || value > SHARED_MOST)
		return 1;
	most_shared[f] = value < SHARED_OF_ALL ? SHARED_OF_ALL : (unsigned)value;
	return 0;
}

static int sendrecv_launch(struct stream *s, uintptr_t f, const unsigned shape[4], const void *args) {
	struct sendrecv_launch *l = &sendrecv_launches[atomic_fetch_add(&launched, 1) % MAX_LAUNCHES];
	struct op op = {.kind = SENDRECV, .args = {(uintptr_t)l}};
	if (!loaded[f])
		return 999;
	if (!args || (uintptr_t)args % 8 || shape[0] > SR_CTAS || shape[1] % FAKE_WARP || shape[2] > most_shared[f])
		return 1;
	if (shape[1] > 1024)
		return 701;
	l->name = sendrecv_kernels[f - SENDRECV - 1];
	memcpy(l->shape, shape, sizeof l->shape);
	memcpy(&l->args, args, sizeof l->args);
	return submit(s, &op);
}

static int sendrecv_run(const struct op *op) {
	const struct sendrecv_launch *l = (const struct sendrecv_launch *)(uintptr_t)op->args[0];
	const char *path = getenv("FAKE_LAUNCHES");
	FILE *f = path ? fopen(path, "ae") : NULL;
	if (!f)
		return path ? 999 : 0;
	fprintf(f, "%s %u %u %u %u ", l->name, l->shape[0], l->shape[1], l->shape[2], l->shape[3]);
	for (size_t i = 0; i < sizeof l->args; i++)
		fprintf(f, "%02x", ((const unsigned char *)&l->args)[i]);
	fprintf(f, "\n");
	return fclose(f) ? 999 : 0;
}

int cuFuncGetAttribute(int *value, int attr, uintptr_t f) {
	FAIL_IF_ASKED;
#ifdef OMIT_RECENT
	loaded[f] = 1;
#endif
	if (!loaded[f])
		return 913;
	*value = attr == 0 ? 512 : attr == 3 ? number("FAKE_LOCAL", 0) : attr == 4 ? 40 : 0;
	return attr > 4 || attr == 2 ? 1 : 0;
}

/* ---- words ---------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t *word_of(const struct op *op) { return (_Atomic uint64_t *)(uintptr_t)op->args[0]; }

static int memop_met(const struct op *op) {
	return !getenv("FAKE_MEMOPS_HANG") && atomic_load_explicit(word_of(op), memory_order_acquire) == op->args[1];
}

/* Does not wait: a stream reaches this operation only when the word has the value. */
static int memop(const struct op *op) {
	if (op->kind == WRITE)
		atomic_store_explicit(word_of(op), op->args[1], memory_order_release);
	return 0;
}

#ifndef OMIT_MEMOPS
static int submit_memop(struct stream *s, int kind, uint64_t word, uint64_t value) {
	struct op op = {.kind = kind, .args = {word, value}};
	if (word == 0 || word % 8)
		return 1;
	if (s->capture && getenv("FAKE_NO_MEMOP_CAPTURE")) {
		s->capture->spoilt = 1;
		return 900;
	}
	return submit(s, &op);
}

int cuStreamWaitValue64_v2(struct stream *s, uint64_t word, uint64_t value, unsigned flags) {
	NEED_CONTEXT;
	return flags == 1 ? submit_memop(s, AWAIT, word, value) : 1;
}

int cuStreamWriteValue64_v2(struct stream *s, uint64_t word, uint64_t value, unsigned flags) {
	NEED_CONTEXT;
	return flags == 0 ? submit_memop(s, WRITE, word, value) : 1;
}
#endif

static int held(void) {
	int found = 0;
	pthread_mutex_lock(&gpu);
	advance_all();
	for (struct stream *s = streams; s && !found; s = s->next)
		found = s->first != s->last && s->queue[s->first].kind == AWAIT && !memop_met(&s->queue[s->first]);
	pthread_mutex_unlock(&gpu);
	return found;
}

/* A driver call that waits for all streams. A stream that waits for ever would hang it. */
static void held_gone(const char *who) {
	for (int ms = 0; held(); ms++) {
		if (ms > 5000) {
			fprintf(stderr, "fake driver: %s waits for a stream that is held\n", who);
			abort();
		}
		usleep(1000);
	}
}

/* ---- time ----------------------------------------------------------------------------------------------------- */

static int elapsed(float *ms, const struct event *a, const struct event *b) {
	const char *text = getenv("FAKE_ELAPSED_MS");
	if (!a->timing || !b->timing || !a->recorded || !b->recorded)
		return 400;
	if (a->done < a->recorded || b->done < b->recorded)
		return 600;
	*ms = text ? strtof(text, NULL) : (float)((double)(int64_t)(b->ns - a->ns) / 1e6);
	return 0;
}

int cuEventElapsedTime(float *ms, const struct event *a, const struct event *b) {
	NEED_CONTEXT;
	return elapsed(ms, a, b);
}

/* ---- what drivers have had for a few years only ------------------------------------------------------------------ */

#ifndef OMIT_RECENT
/* As declared in internal/gpu/cuda/libcuda.h. */
struct launch_config {
	unsigned grid[3], block[3], shared;
	struct stream *stream;
	const struct {
		int id, pad, value[16];
	} *attributes;
	unsigned count;
};

int cuLaunchKernelEx(const struct launch_config *c, uintptr_t f, uint64_t **params, void **extra) {
	NEED_CONTEXT;
	if (c->count != 1 || c->attributes->id != 6 || c->attributes->value[0] != 1 || f <= SENDRECV || extra ||
	    !c->grid[0] || c->grid[1] != 1 || c->grid[2] != 1 || c->block[1] != 1 || c->block[2] != 1)
		return 1;
	return sendrecv_launch(c->stream, f, (unsigned[]){c->grid[0], c->block[0], c->shared, 1}, params[0]);
}

/* A dma-buf of whole pages of an allocation: a file of the same length. */
int cuMemGetHandleForAddressRange(void *handle, uint64_t p, size_t n, int type, unsigned long long flags) {
	NEED_CONTEXT;
	if (type != 1 || flags || p % 4096 || n == 0 || n % 4096)
		return 1;
	*(int *)handle = memfd_create("fake-dmabuf", MFD_CLOEXEC);
	return ftruncate(*(int *)handle, (off_t)n) ? 1 : 0;
}

int cuFuncLoad(uintptr_t f) {
	NEED_CONTEXT;
	loaded[f] = 1;
	return 0;
}

int cuEventElapsedTime_v2(float *ms, const struct event *a, const struct event *b) {
	NEED_CONTEXT;
	return elapsed(ms, a, b);
}

int cuGraphUpload(const struct graph *exec, const struct stream *s) {
	NEED_CONTEXT;
	return exec && s && !s->capture ? 0 : 1;
}
#endif
