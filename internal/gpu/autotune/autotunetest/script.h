/* script.h: engines that move no bytes and take scripted time, on a simulated clock. */
#ifndef P2P_AUTOTUNE_SCRIPT_H
#define P2P_AUTOTUNE_SCRIPT_H

#include "gpu/abi/p2p.h"

enum { SCRIPT_COSTS = 8 };

/* What copies of `from` bytes and more cost. */
struct script_cost {
	uint64_t from;
	uint64_t copy_ns; /* of starting one */
	uint64_t wait_ns; /* of a wait; the largest value among the copies started since the last wait */
	uint32_t fail;    /* 1: such a copy fails */
	uint32_t pad;
};

/* State shared by the engines of one machine. */
struct script_machine {
	double drift;          /* every copy makes all later ones slower by this fraction of their cost */
	double jitter;         /* up to this fraction of its cost is added to each copy, uniformly distributed */
	uint64_t random;       /* state of the random numbers */
	uint64_t hiccup_every; /* one copy in hiccup_every takes hiccup_ns longer; 0: none */
	uint64_t hiccup_ns;
	uint64_t copies;
	uint64_t ns; /* the simulated time */
};

/* Reads the machine's clock, which advances it by a few nanoseconds. */
uint64_t script_now(void *machine);

/* NULL: no memory. */
struct p2p_engine *script_new(struct script_machine *m, const struct script_cost *costs, unsigned count);
void script_free(struct p2p_engine *g);

/* The largest copy that was started. */
uint64_t script_largest(const struct p2p_engine *g);
/* Completes all started copies, like a device that works in the background. */
void script_complete(struct p2p_engine *g);

int script_start(struct p2p_engine *g, void *dst, const void *src, size_t n, struct p2p_error *e);
int script_wait(struct p2p_engine *g, const struct p2p_ctx *c, struct p2p_error *e);
int script_mark(struct p2p_engine *g, uint32_t i, struct p2p_error *e);
int script_reached(struct p2p_engine *g, uint32_t i, int *yes, struct p2p_error *e);

#endif
