/*
 * trial.h: tries engines against each other on copies of one size.
 *
 * They take turns, in the reverse order every other time, so that whatever else changes meets all of them alike. Before
 * each turn the device is idle, as it is between the operations of a run. Those that come close to the fastest are
 * tried on.
 */
#ifndef P2P_BEST_TRIAL_H
#define P2P_BEST_TRIAL_H

#include "best.h"

enum {
	/*
	 * Rounds come in groups, the one that does not count included: an engine that takes messages in groups, as a
	 * resident kernel does, then stands at each size where it stood at the one before.
	 */
	TRIAL_GROUP = 4,
	TRIAL_ROUNDS = 32,            /* at most, in which all engines have a turn */
	TRIAL_MORE = 5 * TRIAL_ROUNDS /* further ones at most, of those that are close */
};
#define TRIAL_NS 1000000u      /* spent on the former, for each engine; at least one group of rounds */
#define TRIAL_MORE_NS 3000000u /* spent on the latter */
#define TRIAL_CLOSE 1.10       /* of the fastest one's time */
/*
 * Between two messages of a ping-pong there is the peer's, between two windows the check of every message. On two H200
 * a window of copies by the copy engine takes 2 us longer after the latter, a tenth of the time of small ones; by the
 * resident kernel it does not.
 */
#define TRIAL_IDLE_NS 3000u          /* before a copy */
#define TRIAL_WINDOW_IDLE_NS 150000u /* before several */

/* Where the time comes from, in ns; now is NULL for the clock of ctx. */
struct best_clock {
	uint64_t (*now)(void *self);
	void *self;
};

struct best_trial {
	struct best_clock clock;
	struct p2p_engine *engines[BEST_ENGINES];
	const struct p2p_ctx *ctx;
	uint64_t dst, src; /* addresses */
	uint64_t n;        /* bytes of a copy … */
	uint64_t window;   /* … of so many, one behind the other, that are waited for together */
	uint32_t count;
	uint32_t failed;               /* out: the engine that did, if one did */
	uint64_t median[BEST_ENGINES]; /* out: ns of a window */
};

/* Tries all engines. */
int p2p_best_try(struct best_trial *t, struct p2p_error *e);

#endif
