/* pool.h: threads that stand by to do one piece of work together, again and again. */
#ifndef P2P_HOST_POOL_H
#define P2P_HOST_POOL_H

#include "waiting.h"

#include <pthread.h>

struct host_pool;

/* A thread that waits for work. */
struct host_worker {
	_Alignas(64) struct host_event start;
	struct host_pool *pool;
	pthread_t thread;
	uint32_t number;
};

/* Where threads run: a bit for each CPU, as the kernel takes it. */
struct host_cpus {
	cpu_set_t *set;
	size_t bytes; /* any number: a machine may have more CPUs than a cpu_set_t */
};

/* Keeps a copy, which is the caller's to free. */
int host_cpus_keep(struct host_cpus *c, const void *set, size_t bytes, struct p2p_error *e);

struct host_pool {
	const struct host_cpus *cpus;
	struct host_worker *worker; /* worker 0 is the thread that calls host_pool_run */
	uint32_t room, count;       /* workers at most, workers that there are, number 0 included */
	void (*work)(void *arg, uint32_t number);
	void *arg;
	_Atomic uint32_t quit;
	_Atomic uint32_t running;
	struct host_event finished;
};

/*
 * Starts a thread with a small stack that takes no signals. where is pthread_create's. It runs on cpus: the thread that
 * starts it may be a rank's timing thread, pinned to one CPU, where what it starts would stand in its way and in each
 * other's.
 */
int host_thread_start(pthread_t *where, void *(*run)(void *), void *arg, const char *name, const struct host_cpus *cpus,
		      struct p2p_error *e);

/* A pool of one worker that can grow to `room`, on cpus, which must stay. */
int host_pool_open(struct host_pool *p, uint32_t room, const struct host_cpus *cpus, struct p2p_error *e);

/* Makes sure that there are n workers; others may run meanwhile. What was started before a failure stays. */
int host_pool_grow(struct host_pool *p, uint32_t n, struct p2p_error *e);

/* Calls work(arg, 0…n-1) on as many threads at once, this one among them, and returns when all have returned. */
void host_pool_run(struct host_pool *p, uint32_t n, void (*work)(void *, uint32_t), void *arg);

/* Ends all threads, which must be idle. */
void host_pool_close(struct host_pool *p);

#endif
