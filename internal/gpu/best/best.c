#include "best.h"

#include <stdlib.h>

struct best {
	struct p2p_engine engine;
	struct p2p_engine *of[BEST_ENGINES];
	unsigned count;
	unsigned mode;
	uint8_t by_class[BEST_MODES][BEST_CLASSES];
	uint8_t busy[BEST_ENGINES]; /* copies were started and not yet waited for */
};

static int best_bind(void *self, struct p2p_error *e) {
	struct best *b = self;
	return b->of[0]->bind(b->of[0]->self, e);
}

static int best_copy(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct best *b = self;
	unsigned i = b->by_class[b->mode][p2p_best_class(n)];
	b->busy[i] = 1;
	return b->of[i]->copy(b->of[i]->self, dst, src, n, e);
}

static int best_wait(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	struct best *b = self;
	for (unsigned i = 0; i < b->count; i++) {
		if (!b->busy[i])
			continue;
		int rc = b->of[i]->wait(b->of[i]->self, c, e);
		if (rc)
			return rc;
		b->busy[i] = 0;
	}
	return P2P_OK;
}

/* Payloads are the first engine's business. */
static int best_fill(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
		     struct p2p_error *e) {
	struct best *b = self;
	b->busy[0] = 1;
	return b->of[0]->fill(b->of[0]->self, c, p, n, key, step, e);
}

static int best_check(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
		      struct p2p_mismatch *m, struct p2p_error *e) {
	struct best *b = self;
	return b->of[0]->check(b->of[0]->self, c, p, n, key, step, m, e);
}

struct p2p_engine *p2p_best_new(struct p2p_engine **engines, unsigned count) {
	struct best *b = calloc(1, sizeof *b);
	if (!b || count > BEST_ENGINES) {
		free(b);
		return NULL;
	}
	b->count = count;
	for (unsigned i = 0; i < count; i++) {
		b->of[i] = engines[i];
		b->engine.async |= engines[i]->async;
	}
	b->engine.abi = P2P_ABI;
	b->engine.self = b;
	b->engine.bind = best_bind;
	b->engine.copy = best_copy;
	b->engine.wait = best_wait;
	b->engine.fill = best_fill;
	b->engine.check = best_check;
	return &b->engine;
}

void p2p_best_set(struct p2p_engine *g, unsigned mode, unsigned class, unsigned engine) {
	((struct best *)g->self)->by_class[mode][class] = (uint8_t)engine;
}

void p2p_best_mode(struct p2p_engine *g, unsigned mode) { ((struct best *)g->self)->mode = mode; }

void p2p_best_free(struct p2p_engine *g) { free(g->self); }

static int copy_window(struct p2p_engine *g, const struct p2p_ctx *c, uint8_t *dst, const uint8_t *src, size_t n,
		       unsigned window, struct p2p_error *e) {
	for (unsigned w = 0; w < window; w++) {
		int rc = g->copy(g->self, dst + w * n, src + w * n, n, e);
		if (rc)
			return rc;
	}
	return g->wait(g->self, c, e);
}

/* Puts v into the sorted list of n. */
static void insert(uint64_t *sorted, unsigned n, uint64_t v) {
	for (; n > 0 && sorted[n - 1] > v; n--)
		sorted[n] = sorted[n - 1];
	sorted[n] = v;
}

int p2p_best_time(struct p2p_engine *g, const struct p2p_ctx *c, uint8_t *dst, const uint8_t *src, size_t n,
		  unsigned window, unsigned reps, uint64_t *ns, struct p2p_error *e) {
	uint64_t sorted[BEST_REPS];
	int rc = g->bind(g->self, e);
	if (rc || (rc = copy_window(g, c, dst, src, n, window, e)))
		return rc;
	for (unsigned i = 0; i < reps; i++) {
		uint64_t t0 = p2p_ticks(c->clock);
		if ((rc = copy_window(g, c, dst, src, n, window, e)))
			return rc;
		insert(sorted, i, p2p_ticks_to_ns(c->clock, p2p_ticks(c->clock) - t0));
	}
	*ns = sorted[reps / 2];
	return P2P_OK;
}
