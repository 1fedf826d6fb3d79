/* turn.h: an engine's turn in a contest: copies of one size, waited for together. */
#ifndef P2P_AUTOTUNE_TURN_H
#define P2P_AUTOTUNE_TURN_H

#include "gpu/abi/p2p.h"

/* A clock in ns; now is NULL for the clock of ctx. */
struct autotune_clock {
	uint64_t (*now)(void *self);
	void *self;
};

struct autotune_copies {
	struct autotune_clock clock;
	const struct p2p_ctx *ctx;
	uint64_t dst, src; /* addresses */
	uint64_t n;        /* bytes per copy */
	uint64_t window;   /* number of copies, at consecutive addresses, that are waited for together */
	uint64_t idle_ns;  /* idle time of the device before a turn */
};

/* Binds the engine to this thread and runs one untimed window: the first copy of a size may take longer. */
int p2p_autotune_warm_up(const struct autotune_copies *t, struct p2p_engine *g, struct p2p_error *e);

/* Runs one window and returns its time. The engine must be bound. */
int p2p_autotune_turn(const struct autotune_copies *t, struct p2p_engine *g, uint64_t *ns, struct p2p_error *e);

#endif
