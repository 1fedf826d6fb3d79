#include "trial.h"

/* What an engine's turns took, in ns, in ascending order. */
struct times {
	uint64_t ns[TRIAL_ROUNDS + TRIAL_MORE];
	unsigned count;
};

static void insert(struct times *x, uint64_t ns) {
	unsigned i = x->count++;
	for (; i > 0 && x->ns[i - 1] > ns; i--)
		x->ns[i] = x->ns[i - 1];
	x->ns[i] = ns;
}

static int copy_window(const struct best_trial *t, struct p2p_engine *g, struct p2p_error *e) {
	uint8_t *dst = (uint8_t *)(uintptr_t)t->dst;
	const uint8_t *src = (const uint8_t *)(uintptr_t)t->src;
	for (uint64_t at = 0; at < t->window * t->n; at += t->n) {
		int rc = g->copy(g->self, dst + at, src + at, t->n, e);
		if (rc)
			return rc;
	}
	return g->wait(g->self, t->ctx, e);
}

static uint64_t now(const struct best_trial *t) {
	const struct p2p_clock *c = t->ctx->clock;
	return t->clock.now ? t->clock.now(t->clock.self) : p2p_ticks_to_ns(c, p2p_ticks(c) - c->tick0);
}

static uint64_t idle_ns(const struct best_trial *t) { return t->window > 1 ? TRIAL_WINDOW_IDLE_NS : TRIAL_IDLE_NS; }

static void idle(const struct best_trial *t) {
	uint64_t until = now(t) + idle_ns(t);
	while (now(t) < until)
		p2p_relax();
}

/* Engine i's turn. */
static int turn(struct best_trial *t, unsigned i, struct times *x, struct p2p_error *e) {
	idle(t);
	uint64_t t0 = now(t);
	int rc = copy_window(t, t->engines[i], e);
	if (rc) {
		t->failed = i;
		return rc;
	}
	insert(x, now(t) - t0);
	return P2P_OK;
}

/*
 * Rounds of turns of the engines whose bit in `among` is set: from round `first` up to `most`, and while budget_ns
 * last, which is looked at every TRIAL_GROUP rounds. A turn costs the budget as much as the shortest of its engine:
 * where the CPU was away in many, they are needed most.
 */
static int rounds(struct best_trial *t, unsigned among, unsigned first, unsigned most, uint64_t budget_ns,
		  struct times *x, struct p2p_error *e) {
	uint64_t round_ns = 0;
	for (unsigned r = first; r < most && (r % TRIAL_GROUP || r * round_ns < budget_ns); r++) {
		round_ns = 0;
		for (unsigned k = 0; k < t->count; k++) {
			unsigned i = r % 2 ? t->count - 1 - k : k;
			if (!(among >> i & 1))
				continue;
			int rc = turn(t, i, &x[i], e);
			if (rc)
				return rc;
			round_ns += x[i].ns[0] + idle_ns(t);
		}
	}
	return P2P_OK;
}

/* Round 0, which does not count: what an engine does at its first copy of a kind, it does not do again. */
static int warm_up(struct best_trial *t, struct p2p_error *e) {
	for (unsigned i = 0; i < t->count; i++) {
		struct p2p_engine *g = t->engines[i];
		int rc = g->bind(g->self, e);
		if (rc || (rc = copy_window(t, g, e))) {
			t->failed = i;
			return rc;
		}
	}
	return P2P_OK;
}

/* Sets the medians and returns the engines that come close to the fastest, itself among them, as bits. */
static unsigned compare(struct best_trial *t, const struct times *x) {
	uint64_t fastest = UINT64_MAX;
	unsigned near = 0;
	for (unsigned i = 0; i < t->count; i++) {
		t->median[i] = x[i].ns[x[i].count / 2];
		fastest = t->median[i] < fastest ? t->median[i] : fastest;
	}
	for (unsigned i = 0; i < t->count; i++)
		near |= (unsigned)((double)t->median[i] <= (double)fastest * TRIAL_CLOSE) << i;
	return near;
}

/* Whether more turns of those that are near are needed, and can be had for what they may cost. */
static int undecided(const struct best_trial *t, unsigned near) {
	uint64_t ns = 0;
	for (unsigned i = 0; i < t->count; i++)
		ns += near >> i & 1 ? t->median[i] + idle_ns(t) : 0;
	return (near & (near - 1)) != 0 && TRIAL_GROUP * ns <= TRIAL_MORE_NS;
}

int p2p_best_try(struct best_trial *t, struct p2p_error *e) {
	struct times x[BEST_ENGINES];
	for (unsigned i = 0; i < t->count; i++)
		x[i].count = 0;
	int rc = warm_up(t, e);
	if (rc || (rc = rounds(t, ~0u, 1, TRIAL_ROUNDS, (uint64_t)t->count * TRIAL_NS, x, e)))
		return rc;
	unsigned near = compare(t, x);
	if (!undecided(t, near))
		return P2P_OK;
	if ((rc = rounds(t, near, 0, TRIAL_MORE, TRIAL_MORE_NS, x, e)))
		return rc;
	compare(t, x);
	return P2P_OK;
}
