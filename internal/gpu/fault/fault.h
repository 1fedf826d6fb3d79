/* fault.h: an engine that goes wrong at one message, to prove that a run notices. */
#ifndef P2P_FAULT_H
#define P2P_FAULT_H

#include "gpu/abi/p2p.h"

/* A message is one that the engine copies, or one that leaves by other means; they are counted from 0. */
enum {
	FAULT_FLIP = 0,  /* the byte at `offset` of the source changes before message number `at` */
	FAULT_KILL = 1,  /* the process dies by SIGKILL when half of message number `at` has been copied */
	FAULT_DROP = 2,  /* message number `at` is not copied */
	FAULT_STALE = 3, /* from fill number `at` on nothing is filled: what was there before stays */
	FAULT_LATE = 4,  /* no fault: bytes move when a copy is waited for, and not before */
};

/* Wraps inner. NULL: no memory. */
struct p2p_engine *p2p_fault_new(struct p2p_engine *inner, int what, uint64_t at, uint64_t offset);
/* How often it struck. */
uint64_t p2p_fault_struck(const struct p2p_engine *g);

void p2p_fault_free(struct p2p_engine *g);

#endif
