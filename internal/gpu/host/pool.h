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

struct host_pool {
	struct host_worker *worker; /* worker 0 is the thread that calls host_pool_run */
	uint32_t room, count;       /* workers at most, workers that there are, number 0 included */
	void (*work)(void *arg, uint32_t number);
	void *arg;
	_Atomic uint32_t quit;
	_Atomic uint32_t running;
	struct host_event finished;
};

/* Starts a thread with a small stack that takes no signals. where is pthread_create's. */
int host_thread_start(pthread_t *where, void *(*run)(void *), void *arg, const char *name, struct p2p_error *e);

/* A pool of one worker that can grow to `room`. */
int host_pool_open(struct host_pool *p, uint32_t room, struct p2p_error *e);

/* Makes sure that there are n workers; others may run meanwhile. What was started before a failure stays. */
int host_pool_grow(struct host_pool *p, uint32_t n, struct p2p_error *e);

/* Calls work(arg, 0…n-1) on as many threads at once, this one among them, and returns when all have returned. */
void host_pool_run(struct host_pool *p, uint32_t n, void (*work)(void *, uint32_t), void *arg);

/* Ends all threads, which must be idle. */
void host_pool_close(struct host_pool *p);

#endif
