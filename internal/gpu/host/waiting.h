/*
 * waiting.h: waits of the threads of a queue, for words that another process writes and for each other. There may be
 * hundreds of threads on two cores, so a long wait must not occupy the CPU that the other threads need.
 */
#ifndef P2P_HOST_WAITING_H
#define P2P_HOST_WAITING_H

#include "gpu/abi/p2p.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A wait polls HOST_SPINS times without pause, then HOST_YIELDS times with a yield, then with sleeps in between. */
#define HOST_SPINS 64
#define HOST_YIELDS 256
#define HOST_NAP_NS 20000

/* Pauses after poll number `polls`, from 0, of a word whose writer cannot wake this thread. */
static inline void host_pause(uint32_t polls) {
	static const struct timespec nap = {0, HOST_NAP_NS};
	if (polls < HOST_SPINS)
		p2p_relax();
	else if (polls < HOST_SPINS + HOST_YIELDS)
		p2p_yield();
	else
		nanosleep(&nap, NULL);
}

/* A repeatable event for which threads of this process can sleep. Zero-initialised. */
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

/* Waits until the event has been raised since host_event_count returned `seen`. */
static inline void host_event_await(struct host_event *e, uint32_t seen) {
	for (uint32_t polls = 0; polls < HOST_SPINS + 4; polls++) {
		if (atomic_load(&e->count) != seen)
			return;
		host_pause(polls);
	}
	atomic_fetch_add(&e->sleepers, 1);
	while (atomic_load(&e->count) == seen)
		syscall(SYS_futex, &e->count, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	atomic_fetch_sub(&e->sleepers, 1);
}

/* A barrier with a vote, for threads of this process. Their number may differ each time. Zero-initialised. */
struct host_barrier {
	_Alignas(64) struct host_event passed;
	_Atomic uint32_t arrived;
	_Atomic uint32_t refused; /* 1: a thread that has arrived voted no */
	int agreed[2];            /* result, by parity of the barrier: the next one may end before all have read it */
};

/* Waits for all `size` threads. Whether all of them voted yes. */
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
