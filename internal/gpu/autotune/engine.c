#include "engine.h"

#include <stdlib.h>

struct tuned {
	struct p2p_engine engine;
	const struct p2p_ctx *ctx;
	struct p2p_engine *of[AUTOTUNE_ENGINES];
	unsigned count;
	unsigned mode;
	uint8_t by_class[AUTOTUNE_MODES][AUTOTUNE_CLASSES];
	/* Engines as bits. */
	uint32_t busy;              /* engines with work that was not waited for */
	uint32_t marked[P2P_MARKS]; /* by mark: engines that were busy */
};

static int tuned_bind(void *self, struct p2p_error *e) {
	struct tuned *b = self;
	return b->of[0]->bind(b->of[0]->self, e);
}

/* Waits for the busy engines of a set. */
static int settle(struct tuned *b, uint32_t set, const struct p2p_ctx *c, struct p2p_error *e) {
	for (unsigned i = 0; i < b->count; i++) {
		if (!((b->busy & set) >> i & 1))
			continue;
		int rc = b->of[i]->wait(b->of[i]->self, c, e);
		if (rc)
			return rc;
		b->busy &= ~(1u << i);
	}
	return P2P_OK;
}

/*
 * Copies must complete in order: before a copy uses another engine than the previous one, the previous one is waited
 * for.
 */
static int tuned_copy(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct tuned *b = self;
	unsigned i = b->by_class[b->mode][p2p_autotune_class(n)];
	if (b->busy & ~(1u << i)) {
		int rc = settle(b, ~(1u << i), b->ctx, e);
		if (rc)
			return rc;
	}
	b->busy |= 1u << i;
	return b->of[i]->copy(b->of[i]->self, dst, src, n, e);
}

static int tuned_wait(void *self, const struct p2p_ctx *c, struct p2p_error *e) { return settle(self, ~0u, c, e); }

/* The first engine fills and checks payloads. */
static int tuned_fill(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
		      struct p2p_error *e) {
	struct tuned *b = self;
	b->busy |= 1;
	return b->of[0]->fill(b->of[0]->self, c, p, n, key, step, e);
}

static int tuned_check(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
		       struct p2p_mismatch *m, struct p2p_error *e) {
	struct tuned *b = self;
	return b->of[0]->check(b->of[0]->self, c, p, n, key, step, m, e);
}

/* Sets a mark on each busy engine. The copies of an engine without marks were complete when they returned. */
static int tuned_mark(void *self, uint32_t i, struct p2p_error *e) {
	struct tuned *b = self;
	b->marked[i] = 0;
	for (unsigned k = 0; k < b->count; k++) {
		struct p2p_engine *g = b->of[k];
		if (!(b->busy >> k & 1) || !g->mark)
			continue;
		int rc = g->mark(g->self, i, e);
		if (rc)
			return rc;
		b->marked[i] |= 1u << k;
	}
	return P2P_OK;
}

static int tuned_reached(void *self, uint32_t i, int *yes, struct p2p_error *e) {
	struct tuned *b = self;
	*yes = 1;
	for (unsigned k = 0; k < b->count && *yes; k++) {
		struct p2p_engine *g = b->of[k];
		int rc = b->marked[i] >> k & 1 ? g->reached(g->self, i, yes, e) : P2P_OK;
		if (rc)
			return rc;
	}
	return P2P_OK;
}

struct p2p_engine *p2p_autotune_new(struct p2p_engine **engines, unsigned count, const struct p2p_ctx *ctx) {
	struct tuned *b = calloc(1, sizeof *b);
	if (!b || count < 1 || count > AUTOTUNE_ENGINES) {
		free(b);
		return NULL;
	}
	b->count = count;
	b->ctx = ctx;
	for (unsigned i = 0; i < count; i++) {
		b->of[i] = engines[i];
		b->engine.async |= engines[i]->async;
		if (engines[i]->mark) {
			b->engine.mark = tuned_mark;
			b->engine.reached = tuned_reached;
		}
	}
	b->engine.abi = P2P_ABI;
	b->engine.self = b;
	b->engine.bind = tuned_bind;
	b->engine.copy = tuned_copy;
	b->engine.wait = tuned_wait;
	b->engine.fill = tuned_fill;
	b->engine.check = tuned_check;
	return &b->engine;
}

void p2p_autotune_set(struct p2p_engine *g, unsigned mode, unsigned class, unsigned engine) {
	((struct tuned *)g->self)->by_class[mode][class] = (uint8_t)engine;
}

void p2p_autotune_mode(struct p2p_engine *g, unsigned mode) { ((struct tuned *)g->self)->mode = mode; }

void p2p_autotune_free(struct p2p_engine *g) { free(g->self); }
