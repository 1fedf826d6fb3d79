/* engine.h: an engine that passes each copy to the fastest of several engines for its size. */
#ifndef P2P_AUTOTUNE_ENGINE_H
#define P2P_AUTOTUNE_ENGINE_H

#include "gpu/abi/p2p.h"

enum { AUTOTUNE_ENGINES = 8, AUTOTUNE_CLASSES = 65 };

/* Class of a size: its number of binary digits. Sizes of one class use the same engine. */
static inline unsigned p2p_autotune_class(uint64_t n) { return n ? 64 - (unsigned)__builtin_clzll(n) : 0; }

/* Single copies and windows of several copies have separate choices. */
enum { AUTOTUNE_SINGLE = 0, AUTOTUNE_WINDOW = 1, AUTOTUNE_MODES = 2 };

/*
 * An engine that combines `count` engines. All sizes use the first engine until p2p_autotune_set. ctx is the context of
 * waits whose caller has none, and must outlive the engine. NULL: no memory, or not 1 to AUTOTUNE_ENGINES engines.
 */
struct p2p_engine *p2p_autotune_new(struct p2p_engine **engines, unsigned count, const struct p2p_ctx *ctx);
void p2p_autotune_set(struct p2p_engine *g, unsigned mode, unsigned class, unsigned engine);
/* Selects the mode of later copies. No copy may be in flight. */
void p2p_autotune_mode(struct p2p_engine *g, unsigned mode);
void p2p_autotune_free(struct p2p_engine *g);

#endif
