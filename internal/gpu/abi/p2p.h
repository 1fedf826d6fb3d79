/*
 * p2p.h: the C interface between p2pbench's packages: errors, the clock, the progress page, waits with a deadline, the
 * payload, and the function tables through which a timed loop uses a device without knowing its kind: an engine that
 * moves bytes, memory that other processes can map, and a queue that runs kernels.
 *
 * Headers of other packages are included by their path below internal/, for example "gpu/abi/p2p.h". Go does not
 * rebuild a package when a header outside its folder changes: scripts/stamp-headers writes a hash of these headers into
 * the package's cgo flags.
 *
 * The functions here do not print, exit or allocate.
 */
#ifndef P2P_H
#define P2P_H

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#define P2P_ABI 4

/* Result of every C call that can fail; struct p2p_error has the details. */
enum {
	P2P_OK = 0,
	P2P_ERR_TIMEOUT = 1, /* a wait passed its deadline */
	P2P_ERR_ABORTED = 2, /* the parent asked this rank to stop */
	P2P_ERR_DEVICE = 3,  /* the device's library reported an error; native holds its code */
	P2P_ERR_CORRUPT = 4, /* a payload check failed */
	P2P_ERR_INVALID = 5, /* the caller's request is invalid */
};

struct p2p_error {
	int32_t code;   /* one of P2P_ERR_* */
	int32_t native; /* the vendor library's code, 0 if none */
	char text[248]; /* "cuMemcpyAsync: invalid argument (1)" */
};

static inline int p2p_fail(struct p2p_error *e, int code, int native, const char *text) {
	e->code = code;
	e->native = native;
	snprintf(e->text, sizeof e->text, "%s", text);
	return code;
}

/* ---- progress page -------------------------------------------------------------------------------------------- */

/* The phase of a rank, which the watchdog reports if the rank hangs. */
enum {
	P2P_PHASE_START = 0,
	P2P_PHASE_OPEN = 1,
	P2P_PHASE_CONNECT = 2,
	P2P_PHASE_IDLE = 3,
	P2P_PHASE_BARRIER = 4,
	P2P_PHASE_WARMUP = 5,
	P2P_PHASE_TIMED = 6,
	P2P_PHASE_CLOSE = 7,
	P2P_PHASE_PREPARE = 8, /* writing payloads before the first iteration */
};

/* What a rank is waiting for. */
enum {
	P2P_WAIT_NONE = 0,
	P2P_WAIT_READY = 1, /* the receiver's credit */
	P2P_WAIT_DONE = 2,  /* the sender's completion sequence */
	P2P_WAIT_ACK = 3,   /* the receiver's acknowledgement */
	P2P_WAIT_COPY = 4,  /* its own copy engine */
	P2P_WAIT_RANKS = 5, /* the other ranks, at the barrier */
};

/*
 * One rank's entry of the progress page, shared with the parent. The parent writes `abort`, the rank everything else.
 */
struct p2p_progress {
	_Atomic uint32_t phase;
	_Atomic uint32_t waiting;
	_Atomic uint64_t size; /* bytes of the current message */
	_Atomic uint64_t iter; /* iteration within the cell, warm-up included */
	_Atomic uint64_t beat; /* grows whenever the rank makes progress */
	_Atomic uint64_t want; /* value that the wait needs */
	_Atomic uint64_t have; /* value last read */
	char pad0[128 - 48];
	_Atomic uint64_t arrived;    /* number of the last barrier that this rank entered, from 1 */
	_Atomic uint64_t arrived_ns; /* CLOCK_MONOTONIC_RAW when it entered that barrier */
	char pad1[128 - 16];
	_Atomic uint32_t abort;
	char pad2[128 - 4];
};

/* ---- clock ---------------------------------------------------------------------------------------------------- */

/*
 * Counts ticks of the invariant TSC (x86) or the generic timer (arm64) if p2p_clock_init finds the counter usable,
 * otherwise nanoseconds of CLOCK_MONOTONIC_RAW. p2p_clock_init calibrates it against CLOCK_MONOTONIC_RAW once per
 * process.
 */
struct p2p_clock {
	double ns_per_tick;
	uint64_t tick0;   /* the counter at the reference time */
	uint64_t raw_ns0; /* CLOCK_MONOTONIC_RAW at the reference time, ns */
	uint32_t tsc;     /* 1: hardware counter, 0: clock_gettime */
	uint32_t pad;
};

static inline uint64_t p2p_raw_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Reads the hardware counter after every earlier instruction has finished and before any later one starts. */
static inline uint64_t p2p_counter(void) {
#if defined(__x86_64__)
	unsigned aux;
	uint64_t t = __rdtscp(&aux);
	_mm_lfence();
	return t;
#elif defined(__aarch64__)
	uint64_t t;
	__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(t)::"memory");
	return t;
#else
	return 0;
#endif
}

static inline uint64_t p2p_ticks(const struct p2p_clock *c) { return c->tsc ? p2p_counter() : p2p_raw_ns(); }

static inline uint64_t p2p_ticks_to_ns(const struct p2p_clock *c, uint64_t ticks) {
	return c->tsc ? (uint64_t)((double)ticks * c->ns_per_tick + 0.5) : ticks;
}

/* ---- waiting -------------------------------------------------------------------------------------------------- */

/* The context of a rank's waits. It is not in Go memory. */
struct p2p_ctx {
	const struct p2p_clock *clock;
	struct p2p_progress *progress; /* this rank's entry */
	struct p2p_progress *team;     /* the entries of all ranks, by rank */
	uint64_t timeout_ns;           /* longest wait without progress */
	uint32_t ranks;                /* entries in team */
	uint32_t yield;                /* 1: yield the CPU while waiting (fewer CPUs than ranks) */
	uint32_t wake;                 /* one of P2P_WAKE_*: what a wait for another rank does between polls */
	uint32_t pad;
	uint64_t nap_ns; /* P2P_WAKE_SLEEP, P2P_WAKE_ADAPTIVE: length of a sleep */
};

/* What a wait for another rank does between polls. Waits for the rank's own device always spin. */
enum {
	P2P_WAKE_SPIN = 0,
	P2P_WAKE_YIELD = 1,    /* sched_yield between polls */
	P2P_WAKE_SLEEP = 2,    /* nanosleep of nap_ns between polls */
	P2P_WAKE_ADAPTIVE = 3, /* P2P_ADAPTIVE_YIELDS yields, then sleeps of nap_ns */
};
#define P2P_ADAPTIVE_YIELDS 256

static inline void p2p_relax(void) {
#if defined(__x86_64__)
	_mm_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

/*
 * Duration of a wait; zero-initialised. Of the time between two readings of the clock, at most an eighth of the limit
 * counts: while the process is stopped, the machine is suspended or the CPU runs other threads, the ranks it waits for
 * may not run either.
 */
struct p2p_lapse {
	uint64_t ns;
	uint64_t read_ns; /* last reading of the clock; 0: none yet */
};

/* Reads the clock. Returns how long the wait has lasted. */
static inline uint64_t p2p_lapse(struct p2p_lapse *l, uint64_t limit_ns) {
	const uint64_t now = p2p_raw_ns(), most = limit_ns / 8, passed = l->read_ns ? now - l->read_ns : 0;
	l->read_ns = now;
	l->ns += passed < most ? passed : most;
	return l->ns;
}

/* State of one wait's slow path; zero it before the first p2p_wait_step. */
struct p2p_wait {
	struct p2p_lapse lapse; /* since a rank made progress */
	uint64_t beats;         /* sum over all ranks when last read */
	uint32_t steps;
};

static inline uint64_t p2p_beats(const struct p2p_ctx *c) {
	uint64_t sum = 0;
	for (uint32_t r = 0; r < c->ranks; r++)
		sum += atomic_load_explicit(&c->team[r].beat, memory_order_relaxed);
	return sum;
}

/*
 * Yields the CPU. Linux (EEVDF) defers a thread by a whole slice on each sched_yield: a thread that yields repeatedly
 * while others want the CPU may not run for seconds. If the yield took long, which means that others want the CPU, this
 * sleeps after it, which resets the thread's deferral. If no other thread wants the CPU, a yield takes a microsecond.
 */
#define P2P_YIELD_SHARED_NS 50000
#define P2P_YIELD_NAP_NS 20000
static inline void p2p_yield(void) {
	static const struct timespec nap = {0, P2P_YIELD_NAP_NS};
	const uint64_t before = p2p_raw_ns();
	sched_yield();
	if (p2p_raw_ns() - before > P2P_YIELD_SHARED_NS)
		nanosleep(&nap, NULL);
}

/* Reports progress to the watchdog and to ranks that wait for this rank. */
static inline void p2p_beat(const struct p2p_ctx *c) {
	struct p2p_progress *p = c->progress;
	atomic_store_explicit(&p->beat, atomic_load_explicit(&p->beat, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* Whether a wait for another rank sleeps after the given number of polls. */
static inline int p2p_naps(const struct p2p_ctx *c, uint32_t polls) {
	return c->wake == P2P_WAKE_SLEEP || (c->wake == P2P_WAKE_ADAPTIVE && polls >= P2P_ADAPTIVE_YIELDS);
}

/* Pauses between two polls of a wait for another rank. */
static inline void p2p_pause(const struct p2p_ctx *c, uint32_t polls) {
	struct timespec nap = {(time_t)(c->nap_ns / 1000000000u), (long)(c->nap_ns % 1000000000u)};
	p2p_relax();
	if (p2p_naps(c, polls))
		nanosleep(&nap, NULL);
	else if (c->yield)
		p2p_yield();
	else if (c->wake != P2P_WAKE_SPIN)
		sched_yield(); /* not p2p_yield: --wake yield measures sched_yield */
}

/*
 * One step of a wait's slow path. Every 256 steps, and after a sleep, it reads the clock and the parent's abort flag,
 * writes what, want and have to the progress page for the watchdog, and yields if the wait has lasted more than a
 * millisecond. The deadline restarts whenever a rank makes progress. Returns P2P_OK to continue.
 */
static inline int p2p_wait_step(const struct p2p_ctx *c, struct p2p_wait *w, int what, uint64_t want, uint64_t have,
				struct p2p_error *e) {
	static const char *const names[] = {
		"nothing",         "the receiver's credit", "the sender's completion", "the receiver's acknowledgement",
		"the copy engine", "the other ranks"};
	if (what != P2P_WAIT_COPY)
		p2p_pause(c, w->steps);
	else if (c->yield)
		p2p_yield();
	int slept = what != P2P_WAIT_COPY && p2p_naps(c, w->steps);
	if ((w->steps++ & 255) != 0 && !slept)
		return P2P_OK;
	p2p_lapse(&w->lapse, c->timeout_ns);
	uint64_t beats = p2p_beats(c);
	if (beats != w->beats) { /* a peer that fills gigabytes is slow, not dead */
		w->lapse.ns = 0;
		w->beats = beats;
	}
	atomic_store_explicit(&c->progress->want, want, memory_order_relaxed);
	atomic_store_explicit(&c->progress->have, have, memory_order_relaxed);
	atomic_store_explicit(&c->progress->waiting, (uint32_t)what, memory_order_relaxed);
	if (atomic_load_explicit(&c->progress->abort, memory_order_relaxed))
		return p2p_fail(e, P2P_ERR_ABORTED, 0, "stopped by the parent");
	if (w->lapse.ns > c->timeout_ns) {
		p2p_fail(e, P2P_ERR_TIMEOUT, 0, "");
		snprintf(e->text, sizeof e->text, "waited %.1f s for %s (want %llu, have %llu)",
			 (double)w->lapse.ns / 1e9, names[what], (unsigned long long)want, (unsigned long long)have);
		return P2P_ERR_TIMEOUT;
	}
	if (w->lapse.ns > 1000000)
		p2p_yield();
	return P2P_OK;
}

/* Waits until *word >= want, with acquire ordering. */
static inline int p2p_wait_ge(const struct p2p_ctx *c, _Atomic uint64_t *word, uint64_t want, int what,
			      struct p2p_error *e) {
	for (int i = c->wake == P2P_WAKE_SPIN ? 0 : 511; i < 512; i++)
		if (atomic_load_explicit(word, memory_order_acquire) >= want)
			return P2P_OK;
	struct p2p_wait w = {0};
	for (;;) {
		uint64_t have = atomic_load_explicit(word, memory_order_acquire);
		if (have >= want)
			break;
		int rc = p2p_wait_step(c, &w, what, want, have, e);
		if (rc)
			return rc;
	}
	atomic_store_explicit(&c->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
	return P2P_OK;
}

/*
 * Barrier number n (from 1) of all ranks of a host. All ranks leave at the same CLOCK_MONOTONIC_RAW time, a few
 * microseconds after the last one arrived. *left_ns is the time at which this rank left; the ranks' values give the
 * skew.
 */
static inline int p2p_barrier(const struct p2p_ctx *c, uint64_t n, int64_t *left_ns, struct p2p_error *e) {
	const uint64_t lead_ns = 5000; /* time for every rank to see the last arrival */
	struct p2p_wait w = {0};
	uint64_t start = 0, now;
	atomic_store_explicit(&c->progress->arrived_ns, p2p_raw_ns(), memory_order_relaxed);
	atomic_store_explicit(&c->progress->arrived, n, memory_order_release);
	for (uint32_t r = 0; r < c->ranks; r++) {
		int rc = p2p_wait_ge(c, &c->team[r].arrived, n, P2P_WAIT_RANKS, e);
		if (rc)
			return rc;
		now = atomic_load_explicit(&c->team[r].arrived_ns, memory_order_relaxed);
		start = now > start ? now : start;
	}
	while ((now = p2p_raw_ns()) < start + lead_ns) {
		int rc = p2p_wait_step(c, &w, P2P_WAIT_RANKS, n, n, e);
		if (rc)
			return rc;
	}
	*left_ns = (int64_t)now;
	return P2P_OK;
}

/* Sets the phase, message size and iteration of this rank's progress entry. */
static inline void p2p_at(const struct p2p_ctx *c, int phase, uint64_t size, uint64_t iter) {
	struct p2p_progress *p = c->progress;
	atomic_store_explicit(&p->phase, (uint32_t)phase, memory_order_relaxed);
	atomic_store_explicit(&p->size, size, memory_order_relaxed);
	atomic_store_explicit(&p->iter, iter, memory_order_relaxed);
	p2p_beat(c);
}

/* ---- payload -------------------------------------------------------------------------------------------------- */

/*
 * The payload of a message is a pure function of its key and the byte's offset in the message: byte o is byte o%4
 * (little endian) of p2p_payload_word(key, o/4). The key is a hash of seed, size, iteration and sending rank. The seed
 * of a batch depends on its operation and cell, so that no two messages of a run have the same payload. The device code
 * computes the same function.
 */
static inline uint64_t p2p_mix64(uint64_t x) { /* the finaliser of SplitMix64 (Steele, Lea, Flood 2014) */
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline uint64_t p2p_payload_key(uint64_t seed, uint64_t size, uint64_t iter, uint64_t rank) {
	return p2p_mix64(p2p_mix64(p2p_mix64(seed + 0x9e3779b97f4a7c15u) ^ size) + (iter << 8) + rank);
}

static inline uint32_t p2p_payload_word(uint64_t key, uint64_t index) {
	uint32_t x = (uint32_t)index * 0x9e3779b1u + (uint32_t)key;
	x ^= (uint32_t)(index >> 32) * 0x85ebca6bu + (uint32_t)(key >> 32);
	x ^= x >> 15;
	x *= 0x2c1b3c6du;
	return x ^ (x >> 13);
}

static inline uint8_t p2p_payload_byte(uint64_t key, uint64_t offset) {
	return (uint8_t)(p2p_payload_word(key, offset >> 2) >> (8 * (offset & 3)));
}

/*
 * A sampled fill or check covers P2P_SAMPLE_BYTES at every multiple of `step` and the last P2P_SAMPLE_BYTES of the
 * message; step 0 covers every byte. step is a multiple of P2P_SAMPLE_BYTES.
 */
#define P2P_SAMPLE_BYTES 64

/* The number of bytes of an n-byte message that such a fill or check covers. */
static inline uint64_t p2p_sampled_bytes(uint64_t n, uint64_t step) {
	if (step == 0 || n <= P2P_SAMPLE_BYTES)
		return n;
	uint64_t pieces = (n - P2P_SAMPLE_BYTES) / step + 1;
	uint64_t rest = n - ((pieces - 1) * step + P2P_SAMPLE_BYTES);
	return pieces * P2P_SAMPLE_BYTES + (rest < P2P_SAMPLE_BYTES ? rest : P2P_SAMPLE_BYTES);
}

struct p2p_mismatch {
	uint64_t count;  /* checked bytes that differ, 0: the payload is correct */
	uint64_t offset; /* of the first byte that differs */
	uint8_t expected, got;
	uint8_t pad[6];
};

/* ---- engine --------------------------------------------------------------------------------------------------- */

/*
 * Moves bytes on one device, for timed loops. A package under internal/gpu fills the table; a package under
 * internal/transport calls it. Every function returns P2P_OK or a code with *e set. One thread uses an engine at a time
 * and calls bind first. Addresses are valid in this process (device addresses for a GPU).
 */
struct p2p_engine {
	uint32_t abi;   /* P2P_ABI */
	uint32_t async; /* 1: copy returns before the bytes have moved; 0: copy is done when it returns */
	void *self;
	/* Prepares the calling thread (a GPU makes its context current). */
	int (*bind)(void *self, struct p2p_error *e);
	/* Starts moving n bytes; copies of one engine complete in order. */
	int (*copy)(void *self, void *dst, const void *src, size_t n, struct p2p_error *e);
	/* Waits until all started work is complete. A release store after it makes the bytes visible to the peer. */
	int (*wait)(void *self, const struct p2p_ctx *c, struct p2p_error *e);
	/* Starts writing the payload of `key` into n bytes at p. Not timed. */
	int (*fill)(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
		    struct p2p_error *e);
	/* Compares n bytes at p with the payload of `key`; complete on return. Not timed. */
	int (*check)(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
		     struct p2p_mismatch *m, struct p2p_error *e);
	/*
	 * Records the work started between begin and end as one unit, which launch starts as a whole (a CUDA graph).
	 * NULL if the engine cannot record.
	 */
	int (*record_begin)(void *self, struct p2p_error *e);
	int (*record_end)(void *self, struct p2p_error *e);
	int (*launch)(void *self, struct p2p_error *e);
	/* The stream on which all of this work runs, for libraries that take one (a CUstream). NULL: there is none. */
	void *stream;
	/*
	 * Fault-injection hook for sends that bypass copy: a transport that moves bytes without the engine calls it,
	 * untimed, before it sends the n bytes at src. A faulty device may change them. NULL on a device without fault
	 * injection.
	 */
	int (*leave)(void *self, const void *src, size_t n, struct p2p_error *e);
	/*
	 * mark sets mark i, below P2P_MARKS, behind all work started so far. reached reports, without waiting, whether
	 * all work before that mark is complete (an event on the stream). NULL if copies are complete when copy
	 * returns.
	 */
	int (*mark)(void *self, uint32_t i, struct p2p_error *e);
	int (*reached)(void *self, uint32_t i, int *yes, struct p2p_error *e);
};

#define P2P_MARKS 16

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* Names an allocation of one process so that another can map it. */
struct p2p_handle {
	uint32_t kind;   /* the device's number for the kind of handle; both processes must use the same kind */
	int32_t fd;      /* a file descriptor that must be passed along with the handle; -1: none */
	uint64_t length; /* bytes of the allocation */
	uint64_t id;     /* identifies the allocation; the exporting process never reuses it */
	uint8_t opaque[64];
};

/* The allocation that contains an address. */
struct p2p_range {
	uint8_t *base;
	uint64_t length;
	uint64_t id; /* as in the handle */
};

/*
 * Allocates, exports and maps memory of one device by one kind of handle, for timed loops. A package under internal/gpu
 * fills the table. Every function returns P2P_OK or a code with *e set. The calling thread must have bound an engine of
 * the device. One thread uses the table at a time. Addresses are valid in this process.
 */
struct p2p_memory {
	uint32_t abi; /* P2P_ABI */
	uint32_t fds; /* 1: handles come with a file descriptor */
	void *self;
	uint64_t granule; /* granularity of allocations in bytes */
	/* Allocates at least n bytes, at `at` if possible (NULL: anywhere). *base may differ from `at`. */
	int (*alloc)(void *self, size_t n, void *at, void **base, struct p2p_error *e);
	int (*release)(void *self, void *base, struct p2p_error *e);
	/* Asks the device's library for the allocation that contains p. */
	int (*range)(void *self, const void *p, struct p2p_range *r, struct p2p_error *e);
	/* Makes a handle of the allocation that begins at base. The caller closes h->fd. */
	int (*export)(void *self, void *base, struct p2p_handle *h, struct p2p_error *e);
	/* Maps an allocation that another process exported. The caller keeps ownership of h->fd. */
	int (*open)(void *self, const struct p2p_handle *h, void **base, struct p2p_error *e);
	int (*close)(void *self, void *base, struct p2p_error *e);
	/*
	 * Page-locks n bytes of CPU memory at p, whole pages, so that the device's engines access them at full speed.
	 */
	int (*pin)(void *self, void *p, size_t n, struct p2p_error *e);
	int (*unpin)(void *self, void *p, struct p2p_error *e);
	/* Free bytes of the device. */
	int (*unused)(void *self, uint64_t *bytes, struct p2p_error *e);
};

/* ---- queue ---------------------------------------------------------------------------------------------------- */

/* One launch of a kernel. */
struct p2p_launch {
	void *kernel;     /* from find */
	uint32_t ctas;    /* thread blocks; at most the table's `ctas`, so that all of them run concurrently */
	uint32_t threads; /* per block */
	uint32_t shared;  /* dynamic shared memory per block, bytes */
	uint32_t bytes;   /* size of args */
	const void *args; /* the kernel's only parameter, a struct by value; start copies it */
	/*
	 * 1: the launch may overlap the end of the previous kernel on the queue if the device supports programmatic
	 * dependent launch. Both kernels must wait for their predecessor themselves.
	 */
	uint32_t overlap;
	uint32_t pad;
};

/*
 * A device's ordered list of work, which runs asynchronously to the host: a stream. A package under internal/gpu fills
 * the table. Every function returns P2P_OK or a code with *e set. One thread uses a queue at a time and calls bind
 * first. Addresses are valid in this process.
 */
struct p2p_queue {
	uint32_t abi;  /* P2P_ABI */
	uint32_t ctas; /* thread blocks that always run concurrently */
	void *self;
	void *stream; /* for libraries that take one (a CUstream); NULL: there is none */
	int (*bind)(void *self, struct p2p_error *e);
	/* Finds a kernel by name; `shared` is the largest dynamic shared memory of its launches. */
	int (*find)(void *self, const char *name, uint32_t shared, void **kernel, struct p2p_error *e);
	int (*start)(void *self, const struct p2p_launch *l, struct p2p_error *e);
	/* Copies with the device's copy engine, without a kernel. */
	int (*copy)(void *self, void *dst, const void *src, size_t n, struct p2p_error *e);
	/*
	 * Stores value to a word after all work before it is complete. The word is in memory of this device, in mapped
	 * memory of a peer, or in pinned CPU memory. A reader that sees the value sees everything written before it.
	 */
	int (*write)(void *self, uint64_t *word, uint64_t value, struct p2p_error *e);
	/* Stream wait: holds the queue until a word, of this device or of pinned CPU memory, equals value. */
	int (*await)(void *self, uint64_t *word, uint64_t value, struct p2p_error *e);
	/* Records event i, below P2P_EVENTS: the device's time when all work before it is complete. */
	int (*event)(void *self, uint32_t i, struct p2p_error *e);
	/* ns from event i to event j. The caller must have waited for the queue. */
	int (*elapsed)(void *self, uint32_t i, uint32_t j, uint64_t *ns, struct p2p_error *e);
	/* Waits until all work is complete. Afterwards the host can read what kernels wrote to its memory. */
	int (*wait)(void *self, const struct p2p_ctx *c, struct p2p_error *e);
	/*
	 * Work that is enqueued between begin and end does not run but is recorded as one unit (a CUDA graph), which
	 * every call of replay starts. A recording is valid until the next begin or until the queue is closed. Events
	 * are not recorded.
	 */
	int (*record_begin)(void *self, struct p2p_error *e);
	int (*record_end)(void *self, struct p2p_error *e);
	int (*replay)(void *self, struct p2p_error *e);
};

#define P2P_EVENTS 4

#endif
