/* fault.h: an engine that corrupts one message, to prove that the payload check catches it. */
#ifndef P2P_FAULT_H
#define P2P_FAULT_H

#include "zz_p2p.h"

/*
 * Wraps inner: before message number `at` (from 0), copied by it or leaving by other means, the byte at `offset` of the
 * source changes. NULL: no memory.
 */
struct p2p_engine *p2p_fault_flip(struct p2p_engine *inner, uint64_t at, uint64_t offset);
void p2p_fault_free(struct p2p_engine *g);

#endif
