#include "script.h"

#include <stdlib.h>

struct script {
	struct p2p_engine engine;
	struct script_machine *machine;
	struct script_cost costs[SCRIPT_COSTS];
	unsigned count;
	uint64_t wait_ns; /* for the copies started since the last wait */
	uint64_t largest, started, completed;
	uint64_t marks[P2P_MARKS]; /* copies started before the mark */
};

static const struct script_cost *cost_of(const struct script *s, uint64_t n) {
	unsigned i = s->count - 1;
	while (i > 0 && s->costs[i].from > n)
		i--;
	return &s->costs[i];
}

uint64_t script_now(void *machine) {
	struct script_machine *m = machine;
	return m->ns += 10;
}

/* A number from 0 to 1; the seed determines the sequence. */
static double next_random(struct script_machine *m) {
	m->random += 0x9e3779b97f4a7c15u;
	return (double)(p2p_mix64(m->random) >> 11) / (double)(UINT64_C(1) << 53);
}

static void spend(uint64_t ns, struct script_machine *m) {
	double factor = 1 + m->drift * (double)m->copies + m->jitter * next_random(m);
	m->ns += (uint64_t)((double)ns * factor);
}

static int on_bind(void *self, struct p2p_error *e) {
	(void)self, (void)e;
	return P2P_OK;
}

static int on_copy(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct script *s = self;
	struct script_machine *m = s->machine;
	const struct script_cost *cost = cost_of(s, n);
	(void)dst, (void)src;
	if (cost->fail)
		return p2p_fail(e, P2P_ERR_DEVICE, 700, "a scripted failure");
	s->started++;
	m->copies++;
	s->largest = n > s->largest ? n : s->largest;
	s->wait_ns = cost->wait_ns > s->wait_ns ? cost->wait_ns : s->wait_ns;
	spend(cost->copy_ns, m);
	m->ns += m->hiccup_every && m->copies % m->hiccup_every == 0 ? m->hiccup_ns : 0;
	return P2P_OK;
}

static int on_wait(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	struct script *s = self;
	(void)c, (void)e;
	spend(s->wait_ns, s->machine);
	s->wait_ns = 0;
	s->completed = s->started;
	return P2P_OK;
}

static int on_fill(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
		   struct p2p_error *e) {
	(void)self, (void)c, (void)p, (void)key, (void)step;
	return n ? p2p_fail(e, P2P_ERR_INVALID, 0, "a scripted engine has no payload") : P2P_OK;
}

static int on_check(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
		    struct p2p_mismatch *m, struct p2p_error *e) {
	(void)self, (void)c, (void)p, (void)n, (void)key, (void)step, (void)m;
	return p2p_fail(e, P2P_ERR_INVALID, 0, "a scripted engine has no payload");
}

static int on_mark(void *self, uint32_t i, struct p2p_error *e) {
	struct script *s = self;
	(void)e;
	s->marks[i] = s->started;
	return P2P_OK;
}

static int on_reached(void *self, uint32_t i, int *yes, struct p2p_error *e) {
	const struct script *s = self;
	(void)e;
	*yes = s->completed >= s->marks[i];
	return P2P_OK;
}

struct p2p_engine *script_new(struct script_machine *m, const struct script_cost *costs, unsigned count) {
	struct script *s = calloc(1, sizeof *s);
	if (!s || count < 1 || count > SCRIPT_COSTS) {
		free(s);
		return NULL;
	}
	memcpy(s->costs, costs, count * sizeof *costs);
	s->count = count;
	s->machine = m;
	s->engine = (struct p2p_engine){
		.abi = P2P_ABI,
		.async = 1,
		.self = s,
		.bind = on_bind,
		.copy = on_copy,
		.wait = on_wait,
		.fill = on_fill,
		.check = on_check,
		.mark = on_mark,
		.reached = on_reached,
	};
	return &s->engine;
}

void script_free(struct p2p_engine *g) { free(g->self); }

uint64_t script_largest(const struct p2p_engine *g) { return ((const struct script *)g->self)->largest; }

void script_complete(struct p2p_engine *g) {
	struct script *s = g->self;
	s->completed = s->started;
}

int script_start(struct p2p_engine *g, void *dst, const void *src, size_t n, struct p2p_error *e) {
	return g->copy(g->self, dst, src, n, e);
}

int script_wait(struct p2p_engine *g, const struct p2p_ctx *c, struct p2p_error *e) { return g->wait(g->self, c, e); }

int script_mark(struct p2p_engine *g, uint32_t i, struct p2p_error *e) { return g->mark(g->self, i, e); }

int script_reached(struct p2p_engine *g, uint32_t i, int *yes, struct p2p_error *e) {
	return g->reached(g->self, i, yes, e);
}
