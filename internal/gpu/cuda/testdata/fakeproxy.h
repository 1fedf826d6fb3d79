/*
 * fakeproxy.h: p2p_proxy for the fake driver, as a thread: it serves the real page, so that tests run the real host
 * side. Like the kernel it reads messages in order, exits when idle, and uses nothing but the page.
 *
 *   FAKE_PROXY_SERVES=N     exits after N messages, as the kernel does at its time limit
 *   FAKE_PROXY_SLOW_US=N    takes that long per message
 *   FAKE_PROXY_QUIT_BYTES=N ends unexpectedly on a message of N bytes
 *   FAKE_FAIL_BYTES=N       fails on a message of N bytes
 *   FAKE_HANG_BYTES=N       completes neither a message of N bytes nor later ones, until it reads a stop
 *   FAKE_SPOIL_BYTES=N      writes a wrong last byte
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "../proxy_page.h"

/* One launch. */
struct proxy_run {
	pthread_t thread;
	int started;       /* not joined yet */
	_Atomic int alive; /* on the GPU */
	_Atomic int failed;
	struct proxy_page *page;
	uint64_t seq, launch, idle_ns, life_ns;
	uint64_t serves, slow_us, quit, fail, hang, spoil;
};

/* Running kernels, and calls that wait until there are none; launches wait for these calls. */
static _Atomic int proxies, waiters;

static uint64_t proxy_option(const char *name) {
	const char *v = getenv(name);
	return v ? strtoull(v, NULL, 10) : 0;
}

/* Whether message seq has arrived, and its words. */
static int proxy_read(struct proxy_page *p, uint64_t seq, uint64_t m[3]) {
	struct proxy_slot *s = &p->ring[seq % PROXY_SLOTS];
	uint64_t seal = atomic_load_explicit(&s->seal, memory_order_acquire);
	m[0] = atomic_load_explicit(&s->dst, memory_order_relaxed);
	m[1] = atomic_load_explicit(&s->src, memory_order_relaxed);
	m[2] = atomic_load_explicit(&s->n, memory_order_relaxed);
	return seal == proxy_seal(m[0], m[1], m[2], seq);
}

/* Serves one message. Returns 0 to continue, 1 to exit, 2 to end unexpectedly. */
static int proxy_serve(struct proxy_run *r, const uint64_t m[3]) {
	uint64_t later[3], n = m[2];
	if (n && n == r->quit)
		return 2;
	if (n && n == r->fail) {
		atomic_store(&r->failed, 700);
		return 2;
	}
	if (n && n == r->hang) {
		for (uint64_t seq = r->seq;;) {
			if (!proxy_read(r->page, seq, later)) {
				sched_yield();
			} else if (later[2] == PROXY_STOP) {
				atomic_store_explicit(&r->page->done, seq, memory_order_release);
				return 1;
			} else {
				seq++;
			}
		}
	}
	if (n != PROXY_STOP) {
		memmove((void *)(uintptr_t)m[0], (const void *)(uintptr_t)m[1], n);
		if (n && n == r->spoil)
			((uint8_t *)(uintptr_t)m[0])[n - 1] ^= 1;
		if (r->slow_us)
			usleep((useconds_t)r->slow_us);
	}
	atomic_store_explicit(&r->page->done, r->seq++, memory_order_release);
	return n == PROXY_STOP || --r->serves == 0;
}

static void *proxy_main(void *arg) {
	struct proxy_run *r = arg;
	uint64_t m[3], began = p2p_raw_ns(), busy = began;
	int end = 0;
	while (!end) {
		uint64_t now = p2p_raw_ns();
		if (proxy_read(r->page, r->seq, m)) {
			end = proxy_serve(r, m);
			busy = now;
		} else if (now - busy > r->idle_ns || now - began > r->life_ns) {
			end = 1;
		} else {
			sched_yield();
		}
	}
	if (end == 1)
		atomic_store_explicit(&r->page->exited, r->launch, memory_order_release);
	usleep(100); /* the page shows the exit before the driver does */
	atomic_fetch_sub(&proxies, 1);
	atomic_store(&r->alive, 0);
	return NULL;
}

/* Waits for the end of the launch, like the next launch on its stream. Returns 1 if there was one. */
static int proxy_join(struct proxy_run *r) {
	if (!r->started)
		return 0;
	pthread_join(r->thread, NULL);
	r->started = 0;
	return 1;
}

static int proxy_launch(struct proxy_run *r, unsigned blocks, uint64_t **params) {
	uint64_t a[8];
	for (int i = 0; i < 8; i++)
		a[i] = *params[i];
	if (blocks < 1 || a[0] % 128 || a[1] != PROXY_SLOTS || a[2] != a[0] + offsetof(struct proxy_page, done))
		return 1;
	for (int i = 0; i < PROXY_WORK_BYTES && a[5] == 1; i++)
		if (((const uint8_t *)(uintptr_t)a[3])[i])
			return 1;
	while (atomic_load(&waiters))
		usleep(100);
	r->page = (struct proxy_page *)(uintptr_t)a[0];
	r->seq = a[4], r->launch = a[5], r->idle_ns = a[6], r->life_ns = a[7];
	r->serves = proxy_option("FAKE_PROXY_SERVES");
	r->slow_us = proxy_option("FAKE_PROXY_SLOW_US");
	r->quit = proxy_option("FAKE_PROXY_QUIT_BYTES");
	r->fail = proxy_option("FAKE_FAIL_BYTES");
	r->hang = proxy_option("FAKE_HANG_BYTES");
	r->spoil = proxy_option("FAKE_SPOIL_BYTES");
	r->alive = 1;
	r->started = 1;
	atomic_fetch_add(&proxies, 1);
	return pthread_create(&r->thread, NULL, proxy_main, r) ? 2 : 0;
}

/* A driver call that needs an idle GPU: it waits for all kernels. A kernel that never exits would hang it. */
static void proxies_gone(const char *who) {
	atomic_fetch_add(&waiters, 1);
	for (int ms = 0; atomic_load(&proxies) > 0; ms++) {
		if (ms > 20000) {
			fprintf(stderr, "fake driver: %s waits for a kernel that does not leave\n", who);
			abort();
		}
		usleep(1000);
	}
	atomic_fetch_sub(&waiters, 1);
}
