#include "turn.h"

static int copy_window(const struct autotune_copies *t, struct p2p_engine *g, struct p2p_error *e) {
	uint8_t *dst = (uint8_t *)(uintptr_t)t->dst;
	const uint8_t *src = (const uint8_t *)(uintptr_t)t->src;
	for (uint64_t at = 0; at < t->window * t->n; at += t->n) {
		int rc = g->copy(g->self, dst + at, src + at, t->n, e);
		if (rc)
			return rc;
	}
	return g->wait(g->self, t->ctx, e);
}

static uint64_t now(const struct autotune_copies *t) {
	const struct p2p_clock *c = t->ctx->clock;
	return t->clock.now ? t->clock.now(t->clock.self) : p2p_ticks_to_ns(c, p2p_ticks(c) - c->tick0);
}

static void idle(const struct autotune_copies *t) {
	uint64_t until = now(t) + t->idle_ns;
	while (now(t) < until)
		p2p_relax();
}

int p2p_autotune_warm_up(const struct autotune_copies *t, struct p2p_engine *g, struct p2p_error *e) {
	int rc = g->bind(g->self, e);
	return rc ? rc : copy_window(t, g, e);
}

int p2p_autotune_turn(const struct autotune_copies *t, struct p2p_engine *g, uint64_t *ns, struct p2p_error *e) {
	idle(t);
	uint64_t t0 = now(t);
	int rc = copy_window(t, g, e);
	*ns = now(t) - t0;
	return rc;
}
