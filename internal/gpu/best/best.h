/* best.h: an engine that hands each copy to the one of several engines that is fastest at its size. */
#ifndef P2P_BEST_H
#define P2P_BEST_H

#include "zz_p2p.h"

enum { BEST_ENGINES = 8, BEST_CLASSES = 65 };

/* Class of a size: its number of binary digits. Sizes of one class go the same way. */
static inline unsigned p2p_best_class(uint64_t n) { return n ? 64 - (unsigned)__builtin_clzll(n) : 0; }

/* An engine over `count` engines, all choosing the first until told otherwise. NULL: no memory. */
struct p2p_engine *p2p_best_new(struct p2p_engine **engines, unsigned count);
void p2p_best_set(struct p2p_engine *g, unsigned class, unsigned engine);
void p2p_best_free(struct p2p_engine *g);

/* Fastest of `reps` copies of n bytes with their waits, in ns, after one that does not count. */
int p2p_best_time(struct p2p_engine *g, const struct p2p_ctx *c, void *dst, const void *src, size_t n, unsigned reps,
		  uint64_t *ns, struct p2p_error *e);

#endif
