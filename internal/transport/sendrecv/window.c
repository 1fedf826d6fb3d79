#include "core.h"

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

static const char *const names[SENDRECV_KERNELS] = {
	[SENDRECV_WS] = SR_KERNEL_WS,
	[SENDRECV_STABLE] = SR_KERNEL_STABLE,
	[SENDRECV_PUT] = SR_KERNEL_PUT,
	[SENDRECV_LL] = SR_KERNEL_LL,
	[SENDRECV_LL128] = SR_KERNEL_LL128,
	[SENDRECV_WS_BULK] = SR_KERNEL_WS_BULK,
	[SENDRECV_PUT_BULK] = SR_KERNEL_PUT_BULK,
};

const char *sendrecv_name(const struct sendrecv_plan *p) {
	return p->variant == SENDRECV_CE ? "ce" : names[sendrecv_kernel_of(p)];
}

/* Dynamic shared memory of a block. */
static uint32_t shared_bytes(uint32_t kernel) {
	return kernel == SENDRECV_WS_BULK || kernel == SENDRECV_PUT_BULK ? SR_BULK_SHARED : 0;
}

int p2p_sendrecv_find(struct sendrecv_end *end, uint32_t kernel, struct p2p_error *e) {
	struct p2p_queue *q = end->queue;
	return q->find(q->self, names[kernel], shared_bytes(kernel), &end->kernel[kernel], e);
}

/* The arguments that all messages of a batch share. */
static struct sr_args common(const struct run *x) {
	struct sr_args a = x->end->at;
	a.timeout_ns = x->l.ctx->timeout_ns / 4 * 3; /* before its host, to report the cause */
	a.stride = x->p->stride;
	a.stages = x->p->stages;
	a.sender_warps = x->p->sender_warps;
	a.receiver_warps = x->p->receiver_warps;
	a.in_lines = x->p->in_lines;
	return a;
}

static void at_offset(struct sr_args *a, uint64_t offset) {
	a->src += offset;
	a->dst += offset;
	a->peer_dst += offset;
}

static int start(struct run *x, const struct sr_args *a) {
	const struct sendrecv_plan *p = x->p;
	struct p2p_queue *q = x->end->queue;
	const uint32_t kernel = sendrecv_kernel_of(p);
	const struct p2p_launch l = {
		.kernel = x->end->kernel[kernel],
		.ctas = p->variant == SENDRECV_STABLE ? 2 * p->ctas : p->ctas,
		.threads = (p->sender_warps + p->receiver_warps) * x->end->warp,
		.shared = shared_bytes(kernel),
		.bytes = sizeof *a,
		.args = a,
		.overlap = p->overlap && x->follows,
	};
	x->follows = 1;
	return q->start(q->self, &l, x->l.e);
}

/* Message w, in one or more launches. */
static int message(struct run *x, uint32_t roles, uint32_t w) {
	const struct p2p_batch *b = x->l.b;
	const uint64_t most = x->p->launch_bytes ? x->p->launch_bytes : b->size;
	uint64_t left = b->size;
	struct sr_args a = common(x);
	int rc;
	a.roles = roles;
	a.credits = w == 0 ? b->window : 0;
	at_offset(&a, b->offset + w * b->stride);
	do {
		a.bytes = left < most ? left : most;
		a.drain = x->drain;
		x->drain = 0;
		if ((rc = start(x, &a)))
			return rc;
		at_offset(&a, a.bytes);
		left -= a.bytes;
	} while (left);
	return P2P_OK;
}

static int ping_pong(struct run *x) {
	const int first = x->end->rank == 0;
	int rc = message(x, first ? SR_SEND : SR_RECEIVE, 0);
	return rc ? rc : message(x, first ? SR_RECEIVE : SR_SEND, 0);
}

static uint32_t roles_of(const struct run *x) { return (x->sends ? SR_SEND : 0) | (x->receives ? SR_RECEIVE : 0); }

static int post_kernels(struct run *x) {
	if (x->l.b->op == P2P_OP_PINGPONG)
		return ping_pong(x);
	for (uint32_t w = 0; w < x->l.b->window; w++) {
		int rc = message(x, roles_of(x), w);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

int sendrecv_start_resident(struct run *x, uint32_t iters, uint32_t burst) {
	const struct p2p_batch *b = x->l.b;
	struct sr_args a = common(x);
	at_offset(&a, b->offset);
	a.bytes = b->size;
	a.roles = roles_of(x);
	if (b->op == P2P_OP_PINGPONG)
		a.order = x->end->rank == 0 ? SR_SEND_FIRST : SR_RECEIVE_FIRST;
	a.credits = a.window = b->window * burst;
	a.spacing = b->stride;
	a.iters = iters;
	a.samples += x->served;
	a.first = x->end->iterations;
	a.begins = 1;
	return start(x, &a);
}

/* Sends a message of 0 bytes, for which kernels do not wait. */
int p2p_sendrecv_warm_up(struct sendrecv_end *end, struct p2p_error *e) {
	static const struct p2p_batch none = {.window = 1};
	int rc = P2P_OK;
	for (uint32_t k = 0; !rc && k < SENDRECV_KERNELS; k++) {
		const int bulk = k == SENDRECV_WS_BULK || k == SENDRECV_PUT_BULK;
		const struct sendrecv_plan p = {.variant =
							bulk ? k == SENDRECV_WS_BULK ? SENDRECV_WS : SENDRECV_PUT : k,
						.bulk = bulk,
						.ctas = 1,
						.sender_warps = 1,
						.receiver_warps = 1,
						.stages = 1,
						.stride = SR_GRAIN};
		struct run x = {.l = {.ctx = end->ctx, .b = &none, .e = e}, .end = end, .p = &p};
		if (end->kernel[k] && !(rc = message(&x, SR_SEND | SR_RECEIVE, 0)))
			rc = end->queue->wait(end->queue->self, end->ctx, e);
	}
	return rc;
}

/* ---- ce --------------------------------------------------------------------------------------------------------- */

/*
 * Messages without a kernel. The receiver's queue sets the sender's word `credit`. The sender's queue waits for it,
 * clears it, copies into the inbox with the copy engine, and sets the receiver's word `full`. The receiver's queue
 * waits for that and clears it. A queue copies in order, so one word after the last copy completes the whole window;
 * each word costs a queue some microseconds.
 */

static int post_write(struct run *x, struct sr_word *word, uint64_t value) {
	struct p2p_queue *q = x->end->queue;
	return q->write(q->self, (uint64_t *)&word->value, value, x->l.e);
}

/* Waits for a word to be 1 and makes it 0. */
static int post_take(struct run *x, struct sr_word *word) {
	struct p2p_queue *q = x->end->queue;
	int rc = q->await(q->self, (uint64_t *)&word->value, 1, x->l.e);
	return rc ? rc : post_write(x, word, 0);
}

static int ce_send(struct run *x) {
	const struct p2p_batch *b = x->l.b;
	const struct sr_args *a = &x->end->at;
	struct p2p_queue *q = x->end->queue;
	int rc = post_take(x, &a->out->credit);
	uint64_t at = b->offset;
	for (uint32_t w = 0; !rc && b->size && w < b->window; w++, at += b->stride)
		rc = q->copy(q->self, a->peer_dst + at, a->src + at, b->size, x->l.e);
	return rc ? rc : post_write(x, &a->peer_in->full, 1);
}

static int ce_receive(struct run *x) { return post_take(x, &x->end->at.in->full); }

/* Each rank gives its credit first: a rank never waits for a credit that comes later in the other queue. */
static int post_ce(struct run *x) {
	const int answers = x->l.b->op == P2P_OP_PINGPONG && x->end->rank != 0;
	int rc = x->receives ? post_write(x, &x->end->at.peer_out->credit, 1) : P2P_OK;
	if (!rc && answers)
		rc = ce_receive(x);
	if (!rc && x->sends)
		rc = ce_send(x);
	return rc || answers || !x->receives ? rc : ce_receive(x);
}

int p2p_sendrecv_records_words(struct sendrecv_end *end) {
	struct p2p_queue *q = end->queue;
	uint64_t *word = (uint64_t *)end->stream_wait.word;
	struct p2p_error e;
	if (!q->record_begin || q->record_begin(q->self, &e))
		return 0;
	int rc = q->await(q->self, word, end->stream_wait.value, &e);
	if (!rc)
		rc = q->write(q->self, word, end->stream_wait.value, &e);
	return q->record_end(q->self, &e) == P2P_OK && !rc;
}

int sendrecv_post(struct run *x) {
	x->follows = 0;
	return x->p->variant == SENDRECV_CE ? post_ce(x) : post_kernels(x);
}
