#include "nccl.h"

/* Directions of a post. */
enum { SEND = 1, RECEIVE = 2 };

/* ---- communicator --------------------------------------------------------------------------------------------- */

int p2p_nccl_id(struct p2p_engine *engine, struct nccl_id *id, struct p2p_error *e) {
	int rc = engine->bind(engine->self, e);
	return rc ? rc : nccl_ok(e, NULL, "ncclGetUniqueId", ncclGetUniqueId(id));
}

int p2p_nccl_alloc(struct p2p_engine *engine, struct p2p_memory *m, size_t n, struct p2p_range *r,
		   struct p2p_error *e) {
	void *base;
	int rc = engine->bind(engine->self, e);
	if (rc || (rc = m->alloc(m->self, n, NULL, &base, e)))
		return rc;
	return m->range(m->self, base, r, e);
}

/* Binds engine and queue to the calling thread. */
static int bind_all(struct nccl_end *end, struct p2p_error *e) {
	struct p2p_queue *q = end->queue;
	int rc = end->engine->bind(end->engine->self, e);
	return rc || !q ? rc : q->bind(q->self, e);
}

/* The stream of NCCL's calls. */
static inline void *stream(const struct nccl_end *end) { return end->queue ? end->queue->stream : end->engine->stream; }

static int send_n(struct nccl_end *end, void *comm, const void *p, size_t n, struct p2p_error *e) {
	return nccl_ok(e, comm, "ncclSend", ncclSend(p, n, NCCL_UINT8, (int)end->next, comm, stream(end)));
}

static int receive_n(struct nccl_end *end, void *comm, void *p, size_t n, struct p2p_error *e) {
	return nccl_ok(e, comm, "ncclRecv", ncclRecv(p, n, NCCL_UINT8, (int)end->previous, comm, stream(end)));
}

/* Closes a group even after a failure; rc is the result of the calls inside. */
static int close_group(void *comm, int rc, struct p2p_error *e) {
	struct p2p_error later;
	int last = nccl_ok(rc ? &later : e, comm, "ncclGroupEnd", ncclGroupEnd());
	return rc ? rc : last;
}

/* Adds NCCL's asynchronous error, if any, to the error text. */
static int explain(void *comm, int rc, struct p2p_error *e) {
	int code = NCCL_OK;
	if ((rc != P2P_ERR_TIMEOUT && rc != P2P_ERR_DEVICE) || !comm)
		return rc;
	if (ncclCommGetAsyncError(comm, &code) != NCCL_OK || code == NCCL_OK || code == NCCL_IN_PROGRESS)
		return rc;
	size_t at = strlen(e->text);
	snprintf(e->text + at, sizeof e->text - at, "; NCCL: %s (%d)", ncclGetErrorString(code), code);
	return rc;
}

static int wait_stream(struct nccl_end *end, struct p2p_error *e) {
	struct p2p_engine *g = end->engine;
	struct p2p_queue *q = end->queue;
	return q ? q->wait(q->self, end->ctx, e) : g->wait(g->self, end->ctx, e);
}

static int first_exchange(struct nccl_end *end, void *comm, struct p2p_error *e) {
	int rc = nccl_ok(e, comm, "ncclGroupStart", ncclGroupStart());
	if (rc)
		return rc;
	rc = send_n(end, comm, end->source, 1, e);
	if (!rc)
		rc = receive_n(end, comm, end->inbox, 1, e);
	rc = close_group(comm, rc, e);
	return rc ? rc : wait_stream(end, e);
}

static int register_buffers(struct nccl_end *end, struct nccl_comm *comm, struct p2p_error *e) {
	uint8_t *const buffers[2] = {end->source, end->inbox};
	for (int i = 0; i < 2; i++) {
		int rc = nccl_ok(e, comm->handle, "ncclCommRegister",
				 ncclCommRegister(comm->handle, buffers[i], end->bytes, &comm->registered[i]));
		if (rc)
			return rc;
	}
	return P2P_OK;
}

int p2p_nccl_connect(struct nccl_end *end, struct nccl_comm *comm, struct nccl_id id, int ctas, int with_buffers,
		     struct p2p_error *e) {
	struct nccl_config config = {
		.size = sizeof config,
		.magic = NCCL_CONFIG_MAGIC,
		.version = NCCL_CONFIG_VERSION,
		.blocking = 1, /* a non-blocking group costs a thread at each call */
		.cga_cluster = NCCL_UNDEFINED,
		.min_ctas = ctas ? ctas : NCCL_UNDEFINED,
		.max_ctas = ctas ? ctas : NCCL_UNDEFINED,
		.split_share = NCCL_UNDEFINED,
	};
	int rc = bind_all(end, e);
	if (rc || (rc = nccl_ok(e, NULL, "ncclCommInitRankConfig",
				ncclCommInitRankConfig(&comm->handle, (int)end->ranks, id, (int)end->rank, &config))))
		return rc;
	if (with_buffers && (rc = register_buffers(end, comm, e)))
		return rc;
	return explain(comm->handle, first_exchange(end, comm->handle, e), e);
}

int p2p_nccl_forget(struct nccl_end *end, struct p2p_error *e) {
	void *old = end->recorded;
	end->recorded = NULL;
	if (!old)
		return P2P_OK;
	int rc = end->engine->bind(end->engine->self, e);
	return rc ? rc : end->recorder->release(old, e);
}

static int deregister(struct nccl_comm *comm, struct p2p_error *e) {
	int rc = P2P_OK;
	for (int i = 0; i < 2; i++) {
		if (comm->registered[i] && !rc)
			rc = nccl_ok(e, comm->handle, "ncclCommDeregister",
				     ncclCommDeregister(comm->handle, comm->registered[i]));
		comm->registered[i] = NULL;
	}
	return rc;
}

int p2p_nccl_destroy(struct nccl_end *end, struct nccl_comm *comm, struct p2p_error *e) {
	struct p2p_error later;
	void *handle = comm->handle;
	if (!handle)
		return P2P_OK;
	int rc = end->engine->bind(end->engine->self, e);
	if (!rc)
		rc = deregister(comm, e);
	comm->handle = NULL;
	int last = nccl_ok(rc ? &later : e, NULL, "ncclCommDestroy", ncclCommDestroy(handle));
	return rc ? rc : last;
}

void p2p_nccl_abort(struct nccl_comm *comm) {
	void *handle = comm->handle;
	comm->handle = NULL;
	if (handle)
		ncclCommAbort(handle); /* a failure of the abort is ignored */
}

/* ---- windows -------------------------------------------------------------------------------------------------- */

/* A batch on one rank. */
struct run {
	struct p2p_loop l;
	struct nccl_end *end;
	void *comm; /* communicator that carries the messages */
	/* With a link. */
	struct nccl_direction *out, *in;
	uint64_t *sent, *received; /* sequence numbers of the two directions */
};

/* Starts `count` messages from `first` on, in one group if they are more than one call. */
static int post_group(struct run *x, int what, uint32_t first, uint32_t count) {
	const struct p2p_batch *b = x->l.b;
	struct nccl_end *end = x->end;
	int grouped = count > 1 || what == (SEND | RECEIVE), rc = P2P_OK;
	if (grouped && (rc = nccl_ok(x->l.e, x->comm, "ncclGroupStart", ncclGroupStart())))
		return rc;
	uint64_t at = b->offset + first * b->stride;
	for (uint32_t w = 0; w < count && rc == P2P_OK; w++, at += b->stride) {
		if (what & SEND)
			rc = send_n(end, x->comm, end->source + at, b->size, x->l.e);
		if ((what & RECEIVE) && rc == P2P_OK)
			rc = receive_n(end, x->comm, end->inbox + at, b->size, x->l.e);
	}
	return grouped ? close_group(x->comm, rc, x->l.e) : rc;
}

/* Starts a window. */
static int post(struct run *x, int what) {
	const uint32_t window = x->l.b->window, each = x->end->per_message ? 1 : window;
	int rc = P2P_OK;
	for (uint32_t w = 0; w < window && rc == P2P_OK; w += each)
		rc = post_group(x, what, w, each);
	return rc;
}

/* This rank's part of one operation, in the order of the stream. */
static inline int post_all(struct run *x) {
	int first = x->end->rank == 0, rc;
	switch (x->l.b->op) {
	case P2P_OP_BIDIR:
		return post(x, SEND | RECEIVE);
	case P2P_OP_PINGPONG:
		rc = post(x, first ? SEND : RECEIVE);
		return rc ? rc : post(x, first ? RECEIVE : SEND);
	default:
		return post(x, first ? SEND : RECEIVE);
	}
}

/* Captures the calls of one operation. The caller drops *recording, which is NULL after a failure. */
static int capture(struct run *x, void **recording) {
	const struct p2p_recorder *r = x->end->recorder;
	struct p2p_error later;
	*recording = NULL;
	int rc = r->begin(stream(x->end), x->l.e);
	if (rc)
		return rc;
	rc = post_all(x);
	int last = r->end(stream(x->end), recording, rc ? &later : x->l.e);
	if (rc && *recording) {
		r->drop(*recording, &later); /* the earlier failure is the one to report */
		*recording = NULL;
	}
	return rc ? rc : last;
}

/* Records one operation as the graph that the batch launches, and inspects it. */
static int record(struct run *x) {
	struct nccl_end *end = x->end;
	struct p2p_error later;
	void *recording = NULL;
	int rc = p2p_nccl_forget(end, x->l.e);
	if (rc || (rc = capture(x, &recording)))
		return rc;
	end->recorder->inspect(recording, &end->launch);
	memset(&end->inspected, 0, sizeof end->inspected);
	rc = end->recorder->make(recording, &end->recorded, x->l.e);
	int last = end->recorder->drop(recording, rc ? &later : x->l.e);
	return rc ? rc : last;
}

/* Finds out what one operation launches, from a capture on the twin that never runs. Its failure is not the batch's. */
static void inspect_twin(struct run *x) {
	struct nccl_end *end = x->end;
	const struct p2p_batch *b = x->l.b;
	struct nccl_shape shape = {b->size, b->offset, b->op, b->window};
	struct p2p_error e;
	struct run other = *x;
	void *recording = NULL;
	if (!end->twin.handle || memcmp(&shape, &end->inspected, sizeof shape) == 0)
		return;
	end->inspected = shape;
	other.comm = end->twin.handle;
	other.l.e = &e;
	if (capture(&other, &recording)) {
		p2p_launches_unknown(&end->launch, e.text);
		return;
	}
	end->recorder->inspect(recording, &end->launch);
	if (end->recorder->drop(recording, &e))
		p2p_launches_unknown(&end->launch, e.text);
}

static inline int start(struct run *x) {
	if (!x->l.b->graph)
		return post_all(x);
	return x->end->recorder->start(x->end->recorded, stream(x->end), x->l.e);
}

/* ---- steps of an operation ------------------------------------------------------------------------------------ */

static int bind(struct run *x) { return bind_all(x->end, x->l.e); }

static int poison(struct run *x, uint32_t k) {
	(void)k;
	return p2p_loop_poison(&x->l, x->end->engine, x->end->inbox);
}

static int prepare_launch(struct run *x) {
	if (x->l.b->graph)
		return record(x);
	inspect_twin(x);
	return P2P_OK;
}

static int fill(struct run *x, uint32_t i, uint32_t k, uint64_t step) {
	(void)k;
	return p2p_loop_fill_window(&x->l, x->end->engine, x->end->source, x->end->rank, i, step);
}

static int leave(struct run *x, uint32_t i, uint32_t k) {
	(void)i, (void)k;
	return p2p_loop_leave(&x->l, x->end->engine, x->end->source);
}

static int verify(struct run *x, uint32_t i, uint32_t k) {
	(void)k;
	return p2p_loop_verify(&x->l, x->end->engine, x->end->inbox, x->end->previous, i);
}

/* Whether this role posts its receive before the peer may start. */
static inline int receives_first(enum p2p_role role) { return role == P2P_RECEIVE || role == P2P_PONG; }

/* Allows the peer to send the next operation. */
static int credit(struct run *x, enum p2p_role role, uint32_t i) {
	int rc = receives_first(role) ? start(x) : P2P_OK;
	(void)i;
	if (rc)
		return rc;
	atomic_store_explicit(&x->in->ready, ++*x->received, memory_order_release);
	return P2P_OK;
}

static int await_credit(struct run *x, enum p2p_role role, uint32_t i) {
	(void)role, (void)i;
	return p2p_wait_ge(x->l.ctx, &x->out->ready, ++*x->sent, P2P_WAIT_READY, x->l.e);
}

static inline int transfer(struct run *x, enum p2p_role role, uint32_t i) {
	int rc = receives_first(role) ? P2P_OK : start(x);
	(void)i;
	return rc ? rc : wait_stream(x->end, x->l.e);
}

static inline int acknowledge(struct run *x) {
	atomic_store_explicit(&x->in->ack, *x->received, memory_order_release);
	return P2P_OK;
}

static inline int await_ack(struct run *x) {
	return p2p_wait_ge(x->l.ctx, &x->out->ack, *x->sent, P2P_WAIT_ACK, x->l.e);
}

/* Two ranks, timed by the host. */
static const struct p2p_steps linked = {
	.bind = bind,
	.poison = poison,
	.record = prepare_launch,
	.fill = fill,
	.leave = leave,
	.credit = credit,
	.await_credit = await_credit,
	.transfer = transfer,
	.acknowledge = acknowledge,
	.await_ack = await_ack,
	.verify = verify,
};

static inline int start_and_wait(struct run *x, enum p2p_role role, uint32_t i) {
	int rc = start(x);
	(void)role, (void)i;
	return rc ? rc : wait_stream(x->end, x->l.e);
}

static int enqueue(struct run *x, enum p2p_role role, uint32_t q) {
	(void)role, (void)q;
	return start(x);
}

/* A ring, or timed by the device: at the barrier before each iteration every rank has verified the previous one. */
static const struct p2p_steps apart = {
	.bind = bind,
	.poison = poison,
	.record = prepare_launch,
	.fill = fill,
	.leave = leave,
	.transfer = start_and_wait,
	.enqueue = enqueue,
	.verify = verify,
	.each_rank_times = 1,
};

/* ---- batch ---------------------------------------------------------------------------------------------------- */

static int run(struct run *x, enum p2p_role role) {
	struct nccl_end *end = x->end;
	x->comm = end->timed.handle;
	if (!end->link) {
		x->l.stream_wait = end->queue ? &end->stream_wait : NULL;
		x->l.barrier_each = 1;
		return p2p_loop_run(&x->l, &apart, x, role);
	}
	x->out = &end->link->from[end->rank];
	x->in = &end->link->from[end->previous];
	x->sent = &end->seq[end->rank];
	x->received = &end->seq[end->previous];
	return p2p_loop_run(&x->l, &linked, x, role);
}

int p2p_nccl_run(struct nccl_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		 struct p2p_error *e) {
	struct run x = {.l = {.ctx = end->ctx, .b = b, .r = r, .e = e, .samples = samples}, .end = end};
	const enum p2p_role role = p2p_role_of(&x.l, end->rank == 0);
	int rc = run(&x, role);
	if (rc)
		return explain(end->timed.handle, rc, e);
	if (p2p_sends(role))
		end->messages += (uint64_t)p2p_loop_length(&x.l) * b->window;
	return P2P_OK;
}
