/*
 * p2p.h: the C that p2pbench's packages agree on: errors, the clock, the progress page, waiting with a deadline,
 * the payload, and the tables through which a timed loop uses a device it knows nothing about: an engine that moves
 * bytes, memory that other processes can map, and a queue that runs kernels.
 *
 * Headers of other packages are included by their path below internal/, for example "gpu/abi/p2p.h". Go does not look
 * into headers outside a package's folder: scripts/stamp-headers writes what they hold into the package's flags.
 *
 * Nothing here prints, exits or allocates.
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

/* Outcome of every C call that can fail; details are in struct p2p_error. */
enum {
	P2P_OK = 0,
	P2P_ERR_TIMEOUT = 1, /* a wait passed its deadline */
	P2P_ERR_ABORTED = 2, /* the parent asked this rank to stop */
	P2P_ERR_DEVICE = 3,  /* the device's library reported an error; native holds its code */
	P2P_ERR_CORRUPT = 4, /* a payload check failed */
	P2P_ERR_INVALID = 5, /* the caller asked for something impossible */
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

/* What a rank is doing, for the watchdog that names it when it hangs. */
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

/* One rank's page, shared with the parent. The rank writes all of it but `abort`, which the parent writes. */
struct p2p_progress {
	_Atomic uint32_t phase;
	_Atomic uint32_t waiting;
	_Atomic uint64_t size; /* bytes of the message under way */
	_Atomic uint64_t iter; /* iteration within the cell, warm-up included */
	_Atomic uint64_t beat; /* grows whenever something was achieved */
	_Atomic uint64_t want; /* value the wait needs */
	_Atomic uint64_t have; /* value last seen */
	char pad0[128 - 48];
	_Atomic uint64_t arrived;    /* the barrier this rank has reached, counted from 1 */
	_Atomic uint64_t arrived_ns; /* CLOCK_MONOTONIC_RAW when it did */
	char pad1[128 - 16];
	_Atomic uint32_t abort;
	char pad2[128 - 4];
};

/* ---- clock ---------------------------------------------------------------------------------------------------- */

/*
 * Ticks of the invariant TSC (x86) or the generic timer (arm64) when they are good enough, else nanoseconds of
 * CLOCK_MONOTONIC_RAW. Calibrated once per process against CLOCK_MONOTONIC_RAW by p2p_clock_init.
 */
struct p2p_clock {
	double ns_per_tick;
	uint64_t tick0;   /* a tick … */
	uint64_t raw_ns0; /* … and the CLOCK_MONOTONIC_RAW time in ns when it was read */
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

/* What every wait of a rank needs. Lives outside Go memory. */
struct p2p_ctx {
	const struct p2p_clock *clock;
	struct p2p_progress *progress; /* this rank's entry */
	struct p2p_progress *team;     /* the entries of all ranks, by rank */
	uint64_t timeout_ns;           /* longest wait without progress */
	uint32_t ranks;                /* entries in team */
	uint32_t yield;                /* 1: give the CPU away while waiting (fewer CPUs than ranks) */
	uint32_t wake;                 /* one of P2P_WAKE_*: how a wait for another rank looks again */
	uint32_t pad;
	uint64_t nap_ns; /* P2P_WAKE_SLEEP, P2P_WAKE_ADAPTIVE: how long it sleeps before it does */
};

/* How a rank that waits for another one passes the time. Waits for its own device always poll. */
enum {
	P2P_WAKE_SPIN = 0,
	P2P_WAKE_YIELD = 1,    /* sched_yield between two looks */
	P2P_WAKE_SLEEP = 2,    /* nanosleep of nap_ns between two looks */
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
 * How long a wait has lasted; all zero at first. A waiter that does not run, since its process is stopped, its machine
 * is paused or its CPU is taken, does not wait either, and when it goes on, so do those it waits for: of the time
 * between two looks at the clock no more than an eighth of the limit counts.
 */
struct p2p_lapse {
	uint64_t ns;
	uint64_t looked_ns; /* 0: not yet */
};

/* Looks at the clock. Returns how long the wait has lasted. */
static inline uint64_t p2p_lapse(struct p2p_lapse *l, uint64_t limit_ns) {
	const uint64_t now = p2p_raw_ns(), most = limit_ns / 8, passed = l->looked_ns ? now - l->looked_ns : 0;
	l->looked_ns = now;
	l->ns += passed < most ? passed : most;
	return l->ns;
}

/* State of one wait's slow path; zero it before the first p2p_wait_step. */
struct p2p_wait {
	struct p2p_lapse lapse; /* since something has moved */
	uint64_t beats;         /* of all ranks, when last looked at */
	uint32_t steps;
};

static inline uint64_t p2p_beats(const struct p2p_ctx *c) {
	uint64_t sum = 0;
	for (uint32_t r = 0; r < c->ranks; r++)
		sum += atomic_load_explicit(&c->team[r].beat, memory_order_relaxed);
	return sum;
}

/*
 * Gives the CPU away. Linux (EEVDF) moves a thread that yields a whole slice back, each time: one that yields again and
 * again while others want the CPU does not get it back for seconds. Where others do, this sleeps after the yield, which
 * makes the thread a fresh one; where none does, a yield is over in a microsecond.
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

/* Tells the watchdog, and ranks that wait for this one, that something was achieved. */
static inline void p2p_beat(const struct p2p_ctx *c) {
	struct p2p_progress *p = c->progress;
	atomic_store_explicit(&p->beat, atomic_load_explicit(&p->beat, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* Whether a wait for another rank sleeps after so many looks. */
static inline int p2p_naps(const struct p2p_ctx *c, uint32_t looks) {
	return c->wake == P2P_WAKE_SLEEP || (c->wake == P2P_WAKE_ADAPTIVE && looks >= P2P_ADAPTIVE_YIELDS);
}

/* What a wait for another rank does between two looks. */
static inline void p2p_pause(const struct p2p_ctx *c, uint32_t looks) {
	struct timespec nap = {(time_t)(c->nap_ns / 1000000000u), (long)(c->nap_ns % 1000000000u)};
	p2p_relax();
	if (p2p_naps(c, looks))
		nanosleep(&nap, NULL);
	else if (c->yield)
		p2p_yield();
	else if (c->wake != P2P_WAKE_SPIN)
		sched_yield(); /* as asked for: --wake yield measures a yield */
}

/*
 * One step of a slow wait. The deadline runs while no rank achieves anything. Every 256 steps, and after a sleep, looks
 * at the clock and the parent's abort flag, and yields once the wait has lasted a millisecond. what/want/have go to the
 * progress page for the watchdog. Returns 0 to go on.
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
	if (beats != w->beats) { /* a peer that fills gigabytes is slow, not gone */
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
 * Barrier number n (from 1) of all ranks of a host. They leave together, at the same CLOCK_MONOTONIC_RAW time, a few
 * microseconds after the last one came; *left_ns is when this one really did, so that the skew is known.
 */
static inline int p2p_barrier(const struct p2p_ctx *c, uint64_t n, int64_t *left_ns, struct p2p_error *e) {
	const uint64_t lead_ns = 5000; /* time to hear of the last arrival */
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
 * (little endian) of p2p_payload_word(key, o/4). The key mixes seed, size, iteration and sending rank, and the seed of
 * a batch has its operation and cell in it, so that two messages of a run never look alike. The device code computes
 * the same function.
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

/* How many bytes of a message of n bytes such a fill or check covers. */
static inline uint64_t p2p_sampled_bytes(uint64_t n, uint64_t step) {
	if (step == 0 || n <= P2P_SAMPLE_BYTES)
		return n;
	uint64_t pieces = (n - P2P_SAMPLE_BYTES) / step + 1;
	uint64_t rest = n - ((pieces - 1) * step + P2P_SAMPLE_BYTES);
	return pieces * P2P_SAMPLE_BYTES + (rest < P2P_SAMPLE_BYTES ? rest : P2P_SAMPLE_BYTES);
}

struct p2p_mismatch {
	uint64_t count;  /* bytes that differ among those checked, 0: the payload is right */
	uint64_t offset; /* of the first of them */
	uint8_t expected, got;
	uint8_t pad[6];
};

/* ---- engine --------------------------------------------------------------------------------------------------- */

/*
 * How a timed loop moves bytes on one device. A package under internal/gpu fills the table; a package under
 * internal/transport calls it. Every function returns P2P_OK or a code with *e set. One thread uses an engine at a
 * time, and calls bind on itself first. Addresses are those of this process (device addresses for a GPU).
 */
struct p2p_engine {
	uint32_t abi;   /* P2P_ABI */
	uint32_t async; /* 1: copy returns before the bytes have moved; 0: copy is done when it returns */
	void *self;
	/* Prepares the calling thread (a GPU makes its context current). */
	int (*bind)(void *self, struct p2p_error *e);
	/* Starts moving n bytes; copies of one engine complete in order. */
	int (*copy)(void *self, void *dst, const void *src, size_t n, struct p2p_error *e);
	/* Returns when all that was started is complete and, once followed by a release store, visible to the peer. */
	int (*wait)(void *self, const struct p2p_ctx *c, struct p2p_error *e);
	/* Starts writing the payload of `key` into n bytes at p. Not timed. */
	int (*fill)(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
		    struct p2p_error *e);
	/* Compares n bytes at p with the payload of `key`; complete on return. Not timed. */
	int (*check)(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
		     struct p2p_mismatch *m, struct p2p_error *e);
	/*
	 * Records what is started between begin and end as one unit that launch starts at once (a CUDA graph).
	 * NULL where the device has no such thing.
	 */
	int (*record_begin)(void *self, struct p2p_error *e);
	int (*record_end)(void *self, struct p2p_error *e);
	int (*launch)(void *self, struct p2p_error *e);
	/* The stream on which all of the above runs, for libraries that take one (a CUstream). NULL: there is none. */
	void *stream;
	/*
	 * A transport that moves bytes by other means than copy calls this before a message leaves src, untimed. NULL
	 * on a sound device; one that commits faults on request spoils the message here.
	 */
	int (*leave)(void *self, const void *src, size_t n, struct p2p_error *e);
	/*
	 * mark notes, as number i below P2P_MARKS, the point behind all that was started so far; reached says without
	 * waiting whether all before that point is complete (an event on the stream). NULL where copies are complete
	 * when copy returns.
	 */
	int (*mark)(void *self, uint32_t i, struct p2p_error *e);
	int (*reached)(void *self, uint32_t i, int *yes, struct p2p_error *e);
};

#define P2P_MARKS 16

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* Names an allocation of one process so that another can map it. */
struct p2p_handle {
	uint32_t kind;   /* the device's number for the kind of handle; both ends must agree */
	int32_t fd;      /* a descriptor that must travel beside the handle; -1: none */
	uint64_t length; /* bytes of the allocation */
	uint64_t id;     /* the allocation's; the exporting process never gives it to another one */
	uint8_t opaque[64];
};

/* The allocation that an address lies in. */
struct p2p_range {
	uint8_t *base;
	uint64_t length;
	uint64_t id; /* as in the handle */
};

/*
 * How a timed loop allocates, exports and maps memory of one device and one kind of handle. A package under
 * internal/gpu fills the table. Every function returns P2P_OK or a code with *e set; the calling thread has bound an
 * engine of the device. One thread uses the table at a time. Addresses are those of this process.
 */
struct p2p_memory {
	uint32_t abi; /* P2P_ABI */
	uint32_t fds; /* 1: handles come with a descriptor */
	void *self;
	uint64_t granule; /* allocations are a multiple of so many bytes */
	/* Allocates at least n bytes, at `at` if that is possible (NULL: anywhere): the caller looks where it came. */
	int (*alloc)(void *self, size_t n, void *at, void **base, struct p2p_error *e);
	int (*release)(void *self, void *base, struct p2p_error *e);
	/* Finds the allocation around p, as the device's library knows it now. */
	int (*range)(void *self, const void *p, struct p2p_range *r, struct p2p_error *e);
	/* Makes a handle of the allocation that begins at base. h->fd becomes the caller's to close. */
	int (*export)(void *self, void *base, struct p2p_handle *h, struct p2p_error *e);
	/* Maps what another process exported. h->fd stays the caller's. */
	int (*open)(void *self, const struct p2p_handle *h, void **base, struct p2p_error *e);
	int (*close)(void *self, void *base, struct p2p_error *e);
	/* Lets the device's engines reach n bytes of CPU memory at p, whole pages, at full speed. */
	int (*pin)(void *self, void *p, size_t n, struct p2p_error *e);
	int (*unpin)(void *self, void *p, struct p2p_error *e);
	/* Bytes of the device that nobody uses. */
	int (*unused)(void *self, uint64_t *bytes, struct p2p_error *e);
};

/* ---- queue ---------------------------------------------------------------------------------------------------- */

/* One start of a kernel. */
struct p2p_launch {
	void *kernel;     /* from find */
	uint32_t ctas;    /* thread blocks; no more than the table's `ctas`, so that all of them run at once */
	uint32_t threads; /* of a block */
	uint32_t shared;  /* bytes of shared memory of a block, beside what the kernel declares */
	uint32_t bytes;   /* of args */
	const void *args; /* the kernel's one parameter, a struct by value; copied by start */
	/*
	 * 1: the kernel waits by itself for the one before it on the queue, which waits as well: its launch may overlap
	 * that one's end (programmatic dependent launch), where the device can.
	 */
	uint32_t overlap;
	uint32_t pad;
};

/*
 * Work of a device that is done in order while the host goes on: a stream. A package under internal/gpu fills the
 * table. Every function returns P2P_OK or a code with *e set. One thread uses a queue at a time and calls bind on
 * itself first. Addresses are those of this process.
 */
struct p2p_queue {
	uint32_t abi;  /* P2P_ABI */
	uint32_t ctas; /* thread blocks that are sure to run at once */
	void *self;
	void *stream; /* for libraries that take one (a CUstream); NULL: there is none */
	int (*bind)(void *self, struct p2p_error *e);
	/* Finds a kernel by its name; `shared` is the most dynamic shared memory that it will be started with. */
	int (*find)(void *self, const char *name, uint32_t shared, void **kernel, struct p2p_error *e);
	int (*start)(void *self, const struct p2p_launch *l, struct p2p_error *e);
	/* A copy by the device's copy engine, no kernel. */
	int (*copy)(void *self, void *dst, const void *src, size_t n, struct p2p_error *e);
	/*
	 * Stores value to a word of this device, of a peer that is mapped here, or of pinned CPU memory, once all
	 * before it is complete; whoever sees the value sees what was written before it.
	 */
	int (*write)(void *self, uint64_t *word, uint64_t value, struct p2p_error *e);
	/* Holds the queue until the word, of this device or of pinned CPU memory, is equal to value. */
	int (*await)(void *self, uint64_t *word, uint64_t value, struct p2p_error *e);
	/* Notes the device's time, as number i below P2P_STAMPS, when all before it is complete. */
	int (*stamp)(void *self, uint32_t i, struct p2p_error *e);
	/* ns from stamp i to stamp j, once the queue was waited for. */
	int (*between)(void *self, uint32_t i, uint32_t j, uint64_t *ns, struct p2p_error *e);
	/* Waits until all is done; afterwards what a kernel reports in memory can be read. */
	int (*wait)(void *self, const struct p2p_ctx *c, struct p2p_error *e);
	/*
	 * What is put on the queue between begin and end is recorded as one unit instead (a CUDA graph), which replay
	 * then starts as often as it is called. A recording stays until the next begin, or the end of the queue. Stamps
	 * are not recorded.
	 */
	int (*record_begin)(void *self, struct p2p_error *e);
	int (*record_end)(void *self, struct p2p_error *e);
	int (*replay)(void *self, struct p2p_error *e);
};

#define P2P_STAMPS 4

#endif
