/* script.h: engines that move nothing, on a clock that they alone advance. */
#ifndef P2P_AUTOTUNE_SCRIPT_H
#define P2P_AUTOTUNE_SCRIPT_H

#include "gpu/abi/p2p.h"

enum { SCRIPT_COSTS = 8 };

/* What copies of `from` bytes and more cost. */
struct script_cost {
	uint64_t from;
	uint64_t copy_ns; /* of starting one */
	uint64_t wait_ns; /* of waiting for what was started; the largest size counts */
	uint32_t fail;    /* 1: such a copy is refused */
	uint32_t pad;
};

/* What the engines of one machine share. */
struct script_machine {
	double drift;          /* every copy makes all that follow slower by this part of their cost */
	double jitter;         /* up to this part of its cost is added to each copy, evenly */
	uint64_t random;       /* the state from which it comes */
	uint64_t hiccup_every; /* one copy in so many … */
	uint64_t hiccup_ns;    /* … takes so much longer; 0: none does */
	uint64_t copies;
	uint64_t ns; /* the time */
};

/* Reads the machine's clock, which takes a few of its nanoseconds. */
uint64_t script_now(void *machine);

/* NULL: no memory. */
struct p2p_engine *script_new(struct script_machine *m, const struct script_cost *costs, unsigned count);
void script_free(struct p2p_engine *g);

/* The largest copy that was started. */
uint64_t script_largest(const struct p2p_engine *g);
/* Completes what was started, as a device does while nobody looks. */
void script_complete(struct p2p_engine *g);

int script_start(struct p2p_engine *g, void *dst, const void *src, size_t n, struct p2p_error *e);
int script_wait(struct p2p_engine *g, const struct p2p_ctx *c, struct p2p_error *e);
int script_mark(struct p2p_engine *g, uint32_t i, struct p2p_error *e);
int script_reached(struct p2p_engine *g, uint32_t i, int *yes, struct p2p_error *e);

#endif
