/* pool.h: a pool of threads that repeatedly run one function together. */
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

/* The CPUs on which threads run, as a bit set for sched_setaffinity. */
struct host_cpus {
	cpu_set_t *set;
	size_t bytes; /* may exceed sizeof(cpu_set_t) on machines with many CPUs */
};

/* Copies a set. The caller frees c->set. */
int host_cpus_keep(struct host_cpus *c, const void *set, size_t bytes, struct p2p_error *e);

struct host_pool {
	const struct host_cpus *cpus;
	struct host_worker *worker; /* worker 0 is the thread that calls host_pool_run */
	uint32_t room, count;       /* maximum and current number of workers, worker 0 included */
	void (*work)(void *arg, uint32_t number);
	void *arg;
	_Atomic uint32_t quit;
	_Atomic uint32_t running;
	struct host_event finished;
};

/*
 * Starts a thread with a small stack and all signals blocked. `where` is the thread argument of pthread_create. The
 * thread runs on cpus, because the calling thread may be a rank's timing thread, pinned to a CPU that the new thread
 * must not use.
 */
int host_thread_start(pthread_t *where, void *(*run)(void *), void *arg, const char *name, const struct host_cpus *cpus,
		      struct p2p_error *e);

/* Opens a pool of one worker that can grow to `room` workers, on cpus, which must outlive the pool. */
int host_pool_open(struct host_pool *p, uint32_t room, const struct host_cpus *cpus, struct p2p_error *e);

/* Grows the pool to n workers; existing workers may be running. After a failure the threads already started remain. */
int host_pool_grow(struct host_pool *p, uint32_t n, struct p2p_error *e);

/*
 * Calls work(arg, i) for i below n on n threads concurrently, including this one, and returns when all have returned.
 */
void host_pool_run(struct host_pool *p, uint32_t n, void (*work)(void *, uint32_t), void *arg);

/* Ends all threads, which must be idle. */
void host_pool_close(struct host_pool *p);

#endif
