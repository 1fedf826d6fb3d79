/* turn.h: an engine's turn in a contest: copies of one size, waited for together. */
#ifndef P2P_AUTOTUNE_TURN_H
#define P2P_AUTOTUNE_TURN_H

#include "gpu/abi/p2p.h"

/* Where the time comes from, in ns; now is NULL for the clock of ctx. */
struct autotune_clock {
	uint64_t (*now)(void *self);
	void *self;
};

struct autotune_copies {
	struct autotune_clock clock;
	const struct p2p_ctx *ctx;
	uint64_t dst, src; /* addresses */
	uint64_t n;        /* bytes of a copy … */
	uint64_t window;   /* … of so many, one behind the other, that are waited for together */
	uint64_t idle_ns;  /* before a turn the device is idle, as it is between the operations of a run */
};

/* Binds the engine to this thread and copies once, untimed: the first copy of a kind may cost an engine more. */
int p2p_autotune_warm_up(const struct autotune_copies *t, struct p2p_engine *g, struct p2p_error *e);

/* Copies, and gives the time that it took. The engine is bound. */
int p2p_autotune_turn(const struct autotune_copies *t, struct p2p_engine *g, uint64_t *ns, struct p2p_error *e);

#endif
