#include "clock.h"

#include <stdlib.h>

/* Whether the counter ticks at a constant rate in every power state, with nanosecond resolution. */
static int counter_usable(void) {
#if defined(__x86_64__)
	unsigned a, b, c, d;
	if (!__get_cpuid(0x80000000u, &a, &b, &c, &d) || a < 0x80000007u)
		return 0;
	__get_cpuid(0x80000007u, &a, &b, &c, &d);
	return (d >> 8) & 1; /* invariant TSC */
#elif defined(__aarch64__)
	uint64_t hz;
	__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
	return hz >= 1000000000u; /* Armv8.6 and later; older ones tick at 25-100 MHz */
#else
	return 0;
#endif
}

/* Reads both clocks: of 16 tries, the one with the shortest time between the two reads of the counter. */
static void read_pair(uint64_t *ticks, uint64_t *ns) {
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < 16; i++) {
		uint64_t a = p2p_counter(), n = p2p_raw_ns(), b = p2p_counter();
		if (b - a < best) {
			best = b - a;
			*ticks = a + (b - a) / 2;
			*ns = n;
		}
	}
}

void p2p_clock_init(struct p2p_clock *c, int trusted) {
	memset(c, 0, sizeof *c);
	c->ns_per_tick = 1;
	c->raw_ns0 = c->tick0 = p2p_raw_ns();
	if (!trusted || !counter_usable())
		return;
	uint64_t t0 = 0, n0 = 0, t1 = 0, n1 = 0;
	read_pair(&t0, &n0);
	struct timespec pause = {0, 10000000};
	nanosleep(&pause, NULL);
	read_pair(&t1, &n1);
	if (t1 <= t0 || n1 <= n0)
		return; /* an emulator without a usable counter */
	c->tsc = 1;
	c->tick0 = t0;
	c->raw_ns0 = n0;
	c->ns_per_tick = (double)(n1 - n0) / (double)(t1 - t0);
}

const char *p2p_clock_name(const struct p2p_clock *c) {
#if defined(__x86_64__)
	return c->tsc ? "TSC" : "CLOCK_MONOTONIC_RAW";
#else
	return c->tsc ? "CNTVCT" : "CLOCK_MONOTONIC_RAW";
#endif
}

static int by_value(const void *a, const void *b) {
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

double p2p_clock_overhead(const struct p2p_ctx *ctx) {
	enum { N = 4096 };
	static uint64_t start[N + 1];
	volatile int64_t sample = 0;
	for (int i = 0; i <= N; i++) {
		uint64_t t0 = p2p_ticks(ctx->clock);
		uint64_t t1 = p2p_ticks(ctx->clock);
		sample = (int64_t)p2p_ticks_to_ns(ctx->clock, t1 - t0);
		start[i] = t0;
	}
	(void)sample;
	for (int i = 0; i < N; i++)
		start[i] = start[i + 1] - start[i];
	qsort(start, N, sizeof start[0], by_value);
	return (double)start[N / 2] * ctx->clock->ns_per_tick;
}
