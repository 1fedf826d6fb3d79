/* clock.h: calibration of struct p2p_clock and the cost of using it. */
#ifndef P2P_CLOCK_H
#define P2P_CLOCK_H

#include "p2p.h"

/*
 * Chooses the clock and calibrates it against CLOCK_MONOTONIC_RAW. Takes about 10 ms. trusted: the kernel keeps its own
 * time by the processor's counter; where it has found that to be unsteady, nobody else shall read it.
 */
void p2p_clock_init(struct p2p_clock *c, int trusted);

/* "TSC", "CNTVCT" or "CLOCK_MONOTONIC_RAW". */
const char *p2p_clock_name(const struct p2p_clock *c);

/* ns per iteration of a timed loop with nothing in it. */
double p2p_clock_overhead(const struct p2p_ctx *ctx);

#endif
