/* fault.h: an engine that injects a fault into one message, to prove that a run detects it. */
#ifndef P2P_FAULT_H
#define P2P_FAULT_H

#include "gpu/abi/p2p.h"

/*
 * Messages are those that the engine copies and those announced by the hook for sends that bypass copy, counted from 0.
 */
enum {
	FAULT_FLIP = 0,  /* the byte at `offset` of the source changes before message `at` is sent */
	FAULT_KILL = 1,  /* the process dies by SIGKILL after half of message `at` has been copied */
	FAULT_DROP = 2,  /* message `at` is not copied */
	FAULT_STALE = 3, /* fill `at` and later ones write nothing: buffers keep their old contents */
	FAULT_LATE = 4,  /* not a fault: bytes move as late as permitted, when a copy is waited for */
	FAULT_SLOW = 5,  /* not a fault: copies take `at` per cent longer */
};

/* Wraps inner. NULL: no memory. */
struct p2p_engine *p2p_fault_new(struct p2p_engine *inner, int what, uint64_t at, uint64_t offset);
/* The number of injected faults. */
uint64_t p2p_fault_struck(const struct p2p_engine *g);

void p2p_fault_free(struct p2p_engine *g);

#endif
