#define _GNU_SOURCE /* pthread_setname_np, pthread_setaffinity_np */
#include "pool.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define STACK_BYTES (256u << 10)

int host_cpus_keep(struct host_cpus *c, const void *set, size_t bytes, struct p2p_error *e) {
	c->bytes = bytes;
	c->set = malloc(bytes);
	if (!c->set)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "host: queue: no memory for the CPUs of its threads");
	memcpy(c->set, set, bytes);
	return P2P_OK;
}

int host_thread_start(pthread_t *where, void *(*run)(void *), void *arg, const char *name, const struct host_cpus *cpus,
		      struct p2p_error *e) {
	pthread_attr_t attr;
	sigset_t all, before;
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited: signals are for the threads of the Go runtime */
	int code = pthread_create(where, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (code) {
		p2p_fail(e, P2P_ERR_DEVICE, code, "");
		snprintf(e->text, sizeof e->text,
			 "host: start a thread: %s (%d): use fewer blocks or warps, or raise `ulimit -u` and "
			 "pids.max of the control group",
			 strerror(code), code);
		return P2P_ERR_DEVICE;
	}
	pthread_setname_np(*where, name);
	pthread_setaffinity_np(*where, cpus->bytes, cpus->set); /* on failure the thread keeps its CPUs */
	return P2P_OK;
}

static void *stand_by(void *arg) {
	struct host_worker *w = arg;
	struct host_pool *p = w->pool;
	prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul); /* for short sleeps */
	for (uint32_t starts = 0;; starts++) {
		host_event_await(&w->start, starts);
		if (atomic_load(&p->quit))
			return NULL;
		p->work(p->arg, w->number);
		if (atomic_fetch_sub(&p->running, 1) == 1)
			host_event_raise(&p->finished);
	}
}

int host_pool_open(struct host_pool *p, uint32_t room, const struct host_cpus *cpus, struct p2p_error *e) {
	memset(p, 0, sizeof *p);
	p->cpus = cpus;
	p->worker = aligned_alloc(_Alignof(struct host_worker), room * sizeof *p->worker);
	if (!p->worker)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "host: queue: no memory for its threads");
	memset(p->worker, 0, room * sizeof *p->worker);
	p->room = room;
	p->count = 1;
	return P2P_OK;
}

int host_pool_grow(struct host_pool *p, uint32_t n, struct p2p_error *e) {
	if (n > p->room)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "host: more threads than a queue may have");
	for (; p->count < n; p->count++) {
		struct host_worker *w = &p->worker[p->count];
		w->pool = p;
		w->number = p->count;
		int rc = host_thread_start(&w->thread, stand_by, w, "p2p-warp", p->cpus, e);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

void host_pool_run(struct host_pool *p, uint32_t n, void (*work)(void *, uint32_t), void *arg) {
	uint32_t finished = host_event_count(&p->finished);
	p->work = work;
	p->arg = arg;
	atomic_store(&p->running, n - 1);
	for (uint32_t i = 1; i < n; i++)
		host_event_raise(&p->worker[i].start);
	work(arg, 0);
	if (n > 1)
		host_event_await(&p->finished, finished);
}

void host_pool_close(struct host_pool *p) {
	atomic_store(&p->quit, 1);
	for (uint32_t i = 1; i < p->count; i++)
		host_event_raise(&p->worker[i].start);
	for (uint32_t i = 1; i < p->count; i++)
		pthread_join(p->worker[i].thread, NULL);
	free(p->worker);
}
