/*
 * waiting.h: how the threads of a queue wait: for words that another process writes, and for each other. There may be
 * hundreds of them on two cores, so that whoever waits for long must not take the CPU from whom it waits for.
 */
#ifndef P2P_HOST_WAITING_H
#define P2P_HOST_WAITING_H

#include "gpu/abi/p2p.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Looks at a word: so many at once, then so many with the CPU given away in between, then with naps. */
#define HOST_SPINS 64
#define HOST_YIELDS 256
#define HOST_NAP_NS 20000

/* Between look number `looks`, from 0, and the next one at a word that whoever writes it cannot announce. */
static inline void host_pause(uint32_t looks) {
	static const struct timespec nap = {0, HOST_NAP_NS};
	if (looks < HOST_SPINS)
		p2p_relax();
	else if (looks < HOST_SPINS + HOST_YIELDS)
		p2p_yield();
	else
		nanosleep(&nap, NULL);
}

/* Something that happens again and again: threads of this process sleep until it does. All zero at first. */
struct host_event {
	_Atomic uint32_t count;
	_Atomic uint32_t sleepers;
};

static inline uint32_t host_event_count(struct host_event *e) { return atomic_load(&e->count); }

static inline void host_event_raise(struct host_event *e) {
	atomic_fetch_add(&e->count, 1);
	if (atomic_load(&e->sleepers))
		syscall(SYS_futex, &e->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Returns once the event has happened after host_event_count said `seen`. */
static inline void host_event_await(struct host_event *e, uint32_t seen) {
	for (uint32_t looks = 0; looks < HOST_SPINS + 4; looks++) {
		if (atomic_load(&e->count) != seen)
			return;
		host_pause(looks);
	}
	atomic_fetch_add(&e->sleepers, 1);
	while (atomic_load(&e->count) == seen)
		syscall(SYS_futex, &e->count, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	atomic_fetch_sub(&e->sleepers, 1);
}

/* A barrier of threads of this process, however many they are this time, at which they vote. All zero at first. */
struct host_barrier {
	_Alignas(64) struct host_event passed;
	_Atomic uint32_t arrived;
	_Atomic uint32_t refused; /* 1: one that has arrived said no */
	int agreed[2];            /* by barriers passed: the next may be passed before all have looked */
};

/* Whether all `size` threads said yes. */
static inline int host_barrier_meet(struct host_barrier *b, uint32_t size, int say) {
	if (size == 1)
		return say;
	uint32_t round = host_event_count(&b->passed);
	if (!say)
		atomic_store(&b->refused, 1);
	if (atomic_fetch_add(&b->arrived, 1) + 1 == size) {
		b->agreed[round & 1] = !atomic_exchange(&b->refused, 0);
		atomic_store(&b->arrived, 0);
		host_event_raise(&b->passed);
	} else {
		host_event_await(&b->passed, round);
	}
	return b->agreed[round & 1];
}

#endif
