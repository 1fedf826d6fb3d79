/* engine.h: an engine that hands each copy to the one of several engines that is fastest at its size. */
#ifndef P2P_AUTOTUNE_ENGINE_H
#define P2P_AUTOTUNE_ENGINE_H

#include "gpu/abi/p2p.h"

enum { AUTOTUNE_ENGINES = 8, AUTOTUNE_CLASSES = 65 };

/* Class of a size: its number of binary digits. Sizes of one class go the same way. */
static inline unsigned p2p_autotune_class(uint64_t n) { return n ? 64 - (unsigned)__builtin_clzll(n) : 0; }

/* What is fastest for one copy and its wait need not be for several and one wait: each has a choice of its own. */
enum { AUTOTUNE_SINGLE = 0, AUTOTUNE_WINDOW = 1, AUTOTUNE_MODES = 2 };

/*
 * An engine over `count` engines, all choosing the first until told otherwise. ctx is for waits whose caller has none,
 * and must outlive it. NULL: no memory, or not 1 to AUTOTUNE_ENGINES engines.
 */
struct p2p_engine *p2p_autotune_new(struct p2p_engine **engines, unsigned count, const struct p2p_ctx *ctx);
void p2p_autotune_set(struct p2p_engine *g, unsigned mode, unsigned class, unsigned engine);
/* The mode of the copies that follow. Nothing may be under way. */
void p2p_autotune_mode(struct p2p_engine *g, unsigned mode);
void p2p_autotune_free(struct p2p_engine *g);

#endif
