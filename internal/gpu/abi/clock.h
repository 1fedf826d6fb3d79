/* clock.h: calibration of struct p2p_clock, and its overhead. */
#ifndef P2P_CLOCK_H
#define P2P_CLOCK_H

#include "p2p.h"

/*
 * Chooses the clock and calibrates it against CLOCK_MONOTONIC_RAW. Takes about 10 ms. trusted: 1 if the operating
 * system uses the processor's counter as its clock source; if it does not, the counter may be unstable and is not used.
 */
void p2p_clock_init(struct p2p_clock *c, int trusted);

/* "TSC", "CNTVCT" or "CLOCK_MONOTONIC_RAW". */
const char *p2p_clock_name(const struct p2p_clock *c);

/* ns per iteration of an empty timed loop. */
double p2p_clock_overhead(const struct p2p_ctx *ctx);

#endif
