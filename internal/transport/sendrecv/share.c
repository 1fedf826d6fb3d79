#include "core.h"

/* ---- allreduce -------------------------------------------------------------------------------------------------- */

static int post_values(struct sendrecv_end *end, const uint64_t *value, uint32_t n, struct p2p_error *e) {
	struct sendrecv_channel *c = end->to_next;
	int rc = p2p_wait_ge(end->ctx, &c->taken, end->tx_seq, P2P_WAIT_RANKS, e);
	if (rc)
		return rc;
	memcpy(c->value, value, n * sizeof *value);
	atomic_store_explicit(&c->sent, ++end->tx_seq, memory_order_release);
	return P2P_OK;
}

static int max_values(struct sendrecv_end *end, uint64_t *value, uint32_t n, struct p2p_error *e) {
	struct sendrecv_channel *c = end->from_previous;
	int rc = p2p_wait_ge(end->ctx, &c->sent, ++end->rx_seq, P2P_WAIT_RANKS, e);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n; i++)
		if (c->value[i] > value[i])
			value[i] = c->value[i];
	atomic_store_explicit(&c->taken, end->rx_seq, memory_order_release);
	return P2P_OK;
}

/* Each rank passes the maxima so far to the next rank, ranks - 1 times. */
int p2p_sendrecv_allreduce_max(struct sendrecv_end *end, uint64_t *value, uint32_t n, struct p2p_error *e) {
	int rc = P2P_OK;
	for (uint32_t step = 1; !rc && step < end->ranks; step++)
		if (!(rc = post_values(end, value, n, e)))
			rc = max_values(end, value, n, e);
	return rc;
}

/* ---- failure ---------------------------------------------------------------------------------------------------- */

static const char *role_name(uint32_t role) { return role == SR_SEND ? "sender" : "receiver"; }

static const char *unit(const struct sendrecv_plan *p) {
	const int staged = (p->variant == SENDRECV_WS && !p->in_lines) || p->variant == SENDRECV_STABLE;
	if (p->resident)
		return staged ? "step or iteration" : "message or iteration";
	return staged ? "step" : "message";
}

int sendrecv_gave_up(const struct run *x) {
	struct sr_state *s = x->end->at.state;
	struct p2p_error *e = x->l.e;
	if (!__atomic_load_n(&s->failed, __ATOMIC_ACQUIRE))
		return P2P_OK;
	p2p_fail(e, P2P_ERR_TIMEOUT, 0, "");
	snprintf(e->text, sizeof e->text, "%s: rank %u: block %llu of the %s waits for %s %llu, has %llu",
		 sendrecv_name(x->p), x->end->rank, s->block, role_name(s->role), unit(x->p), s->want, s->have);
	return P2P_ERR_TIMEOUT;
}

/* The time that the commands on the queue have to end, and the interval of polls. */
#define LEAVE_NS 2000000000u
#define POLL_NS 20000000u

/* Sets every word that ce's queue may wait for to the awaited value. */
static void release_words(struct sendrecv_end *end, struct p2p_ctx *c) {
	static const uint64_t one = 1;
	struct p2p_engine *g = end->engine;
	struct p2p_error ignored;
	g->copy(g->self, &end->at.out->credit.value, &one, sizeof one, &ignored);
	g->copy(g->self, &end->at.in->full.value, &one, sizeof one, &ignored);
	g->wait(g->self, c, &ignored);
}

/* Waits for the queue, with a deadline of its own, and ignoring the rank's abort flag, which may be set. */
static int drain(struct run *x) {
	struct sendrecv_end *end = x->end;
	struct p2p_progress none;
	struct p2p_ctx c = *end->ctx;
	struct p2p_error ignored;
	memset(&none, 0, sizeof none);
	c.progress = c.team = &none;
	c.ranks = 1;
	c.timeout_ns = POLL_NS;
	int rc = P2P_ERR_TIMEOUT;
	for (uint64_t since = p2p_raw_ns(); rc == P2P_ERR_TIMEOUT && p2p_raw_ns() - since < LEAVE_NS;) {
		if (x->p->variant == SENDRECV_CE)
			release_words(end, &c);
		rc = end->queue->wait(end->queue->self, &c, &ignored);
	}
	return rc;
}

static const char *roles_name(const struct run *x) {
	return x->sends && x->receives ? "sender and receiver" : role_name(x->sends ? SR_SEND : SR_RECEIVE);
}

static void add_text(struct p2p_error *e, const char *text) {
	size_t at = strlen(e->text);
	snprintf(e->text + at, sizeof e->text - at, "%s", text);
}

int sendrecv_leave(struct run *x, int rc) {
	struct sendrecv_end *end = x->end;
	struct p2p_error *e = x->l.e;
	const struct p2p_error first = *e;
	const int waited = rc == P2P_ERR_TIMEOUT && x->l.in_progress;
	if (rc == P2P_OK)
		return P2P_OK;
	end->broken = 1;
	__atomic_store_n(&end->at.state->abort, 1, __ATOMIC_RELEASE);
	p2p_stream_wait_release(&end->stream_wait);
	end->stuck = drain(x) == P2P_ERR_TIMEOUT;
	if (!waited || !sendrecv_gave_up(x)) /* a kernel that ended at the abort flag reports what it waited for */
		*e = first;
	if (waited && !end->at.state->failed)
		snprintf(e->text, sizeof e->text, "%s: rank %u, %s: %.160s", sendrecv_name(x->p), end->rank,
			 roles_name(x), first.text);
	if (end->stuck)
		add_text(e, "; the device has not stopped");
	return rc;
}
