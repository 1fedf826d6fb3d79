#include "kernels.h"

/* ---- primitives of protocol.h ----------------------------------------------------------------------------------- */

#define SR_FN static inline

enum { SR_WARP_THREADS = 1, SR_LANES = 1, SR_WORDS = 16, SR_AHEAD = 1 }; /* one thread emulates a warp */

struct sr_group {
	sr_u32 rank, size;
	struct host_barrier *barrier;
};

/* A thread of a grid. */
struct warp {
	const struct host_grid *grid;
	struct sr_group role, cell; /* the threads of its role in its cell; all threads of its cell */
	sr_u32 block, blocks;       /* cells, which the protocol calls blocks */
	sr_u32 roles;               /* the thread's roles */
	int ok;                     /* 0: a wait failed in its role, or in the role before it */
	struct sr_count count;
	/* Resident kernels, leading thread only: */
	sr_u64 began, arrived; /* ns, and team->arrived, at the start of the iteration or sample */
	sr_u64 samples;        /* samples so far */
};

SR_FN int sr_vote(struct sr_group *g, int ok) { return host_barrier_meet(g->barrier, g->size, ok); }

SR_FN void sr_sync(struct sr_group *g) { sr_vote(g, 1); }

SR_FN sr_u64 sr_load(const sr_u64 *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

SR_FN void sr_store(sr_u64 *word, sr_u64 value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

SR_FN void sr_store_after_read(sr_u64 *word, sr_u64 value) { sr_store(word, value); }

SR_FN sr_u64 sr_load_counter(const sr_u64 *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }

SR_FN void sr_store_counter(sr_u64 *counter, sr_u64 value) { __atomic_store_n(counter, value, __ATOMIC_RELAXED); }

SR_FN void sr_copy(struct sr_group *g, sr_u8 *dst, const sr_u8 *src, sr_u64 n) {
	const sr_u64 each = ((n + g->size - 1) / g->size + 63) / 64 * 64, from = each * g->rank;
	if (from < n)
		memcpy(dst + from, src + from, n - from < each ? n - from : each);
}

/* A wait for a word of this process or another one. */
struct word_wait {
	uint64_t limit_ns;
	struct p2p_lapse lapse;
	uint32_t polls; /* polls so far */
};

static int failed(const struct sr_args *a) { return __atomic_load_n(&a->state->failed, __ATOMIC_ACQUIRE) != 0; }

/* Whether all waits must end. */
static int called_off(const struct sr_args *a) {
	const struct host_grid *g = (const struct host_grid *)a;
	return failed(a) || __atomic_load_n(&a->state->abort, __ATOMIC_RELAXED) || atomic_load(g->stop);
}

/* Pauses before the next poll; false if the wait must end. */
static int again(const struct sr_args *a, struct word_wait *p) {
	host_pause(p->polls++);
	if (p->polls % 64 && p->polls < HOST_SPINS + HOST_YIELDS)
		return 1;
	return p2p_lapse(&p->lapse, p->limit_ns) <= p->limit_ns && !called_off(a);
}

/* Reports a failed wait to the host. Only the first report counts. */
static void give_up(const struct sr_args *a, sr_u32 role, sr_u32 block, sr_u64 want, sr_u64 have) {
	struct host_grid *g = (struct host_grid *)a;
	if (failed(a) || atomic_exchange(&g->gave_up, 1))
		return;
	a->state->role = role;
	a->state->block = block;
	a->state->want = want;
	a->state->have = have;
	__atomic_store_n(&a->state->failed, 1, __ATOMIC_RELEASE);
}

static int poll_word(const struct sr_args *a, sr_u64 limit_ns, sr_u32 role, sr_u32 block, const sr_u64 *word,
		     sr_u64 want) {
	struct word_wait p = {.limit_ns = limit_ns};
	for (;;) {
		sr_u64 have = sr_load(word);
		if (have >= want)
			return 1;
		if (again(a, &p))
			continue;
		give_up(a, role, block, want, have);
		return 0;
	}
}

SR_FN int sr_poll(const struct sr_args *a, sr_u32 role, sr_u32 block, const sr_u64 *word, sr_u64 want) {
	return poll_word(a, a->timeout_ns, role, block, word, want);
}

/*
 * A wait without a deadline of its own. The host, which writes and checks payloads before it rings the doorbell, and
 * the other blocks have deadlines for their waits. If one of them fails, this wait ends.
 */
static int poll_own(const struct sr_args *a, sr_u32 role, sr_u32 block, const sr_u64 *word, sr_u64 want) {
	return poll_word(a, UINT64_MAX, role, block, word, want);
}

/*
 * A line is two words, each with half of the payload in the low and the flag in the high 32 bits; they need no order.
 */
SR_FN void sr_put_line(sr_u8 *line, sr_u64 data, sr_u32 flag) {
	sr_u64 *half = (sr_u64 *)line;
	sr_store(half, (data & 0xffffffffu) | (sr_u64)flag << 32);
	sr_store(half + 1, data >> 32 | (sr_u64)flag << 32);
}

static int get_line(const struct sr_args *a, sr_u32 block, const sr_u8 *line, sr_u32 flag, sr_u64 *data) {
	const sr_u64 *half = (const sr_u64 *)line;
	struct word_wait p = {.limit_ns = a->timeout_ns};
	for (;;) {
		const sr_u64 low = sr_load(half), high = sr_load(half + 1);
		if (low >> 32 == flag && high >> 32 == flag) {
			*data = (low & 0xffffffffu) | high << 32;
			return 1;
		}
		if (again(a, &p))
			continue;
		give_up(a, SR_RECEIVE, block, flag, low >> 32 == flag ? high >> 32 : low >> 32);
		return 0;
	}
}

/* Waits for one line after the other: polling several gains nothing on a CPU. */
SR_FN int sr_get_line(const struct sr_args *a, sr_u32 block, const sr_u8 *const *line, sr_u32 n, sr_u32 flag,
		      sr_u64 (*data)[SR_WORDS]) {
	for (sr_u32 k = 0; k < n; k++)
		if (!get_line(a, block, line[k], flag, data[k]))
			return 0;
	return 1;
}

SR_FN void sr_put_part(sr_u8 *line, const sr_u64 *data) {
	sr_u64 *word = (sr_u64 *)line;
	for (sr_u32 i = 0; i < SR_WORDS - 1; i++)
		__atomic_store_n(word + i, data[i], __ATOMIC_RELAXED);
	sr_store(word + SR_WORDS - 1, data[SR_WORDS - 1]);
}

static int get_part(const struct sr_args *a, sr_u32 block, const sr_u8 *line, sr_u64 flag, sr_u64 *data) {
	const sr_u64 *word = (const sr_u64 *)line;
	struct word_wait p = {.limit_ns = a->timeout_ns};
	for (;;) {
		const sr_u64 have = sr_load(word + SR_WORDS - 1);
		if (have == flag)
			break;
		if (again(a, &p))
			continue;
		give_up(a, SR_RECEIVE, block, flag, have);
		return 0;
	}
	for (sr_u32 i = 0; i < SR_WORDS - 1; i++)
		data[i] = __atomic_load_n(word + i, __ATOMIC_RELAXED);
	return 1;
}

SR_FN int sr_get_part(const struct sr_args *a, sr_u32 block, const sr_u8 *const *line, sr_u32 n, sr_u64 flag,
		      sr_u64 (*data)[SR_WORDS]) {
	for (sr_u32 k = 0; k < n; k++)
		if (!get_part(a, block, line[k], flag, data[k]))
			return 0;
	return 1;
}

SR_FN sr_u32 sr_now(sr_u32 value) { return value; }

#include "gpu/abi/protocol.h"

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

typedef int part(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks);

static inline int send_lines(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block,
			     sr_u32 blocks, int form) {
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	form |= sr_form(a, g, &s, form);
	const struct sr_line first = sr_prepare_ll(a, g, c, block, &s, 0, form);
	return sr_send_ll(a, g, c, block, &s, &first, form);
}

static inline int receive_lines(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block,
				sr_u32 blocks, int form) {
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	form |= sr_form(a, g, &s, form);
	if (!sr_receive_ll(a, g, c, block, &s, form))
		return 0;
	sr_release_ll(a, g, c, block, &s, form);
	return 1;
}

static int send_ll(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	return send_lines(a, g, c, block, blocks, 0);
}

static int receive_ll(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	return receive_lines(a, g, c, block, blocks, 0);
}

static int send_ll128(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	return send_lines(a, g, c, block, blocks, SR_WIDE);
}

static int receive_ll128(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	return receive_lines(a, g, c, block, blocks, SR_WIDE);
}

struct host_kernel {
	const char *name;
	uint32_t ctas;   /* blocks per cell */
	uint32_t shared; /* 1: all threads of a cell execute both roles, one after the other */
	part *send, *receive;
};

static const struct host_kernel kernels[] = {
	{SR_KERNEL_WS, 1, 0, sr_send_ws, sr_receive_ws},    {SR_KERNEL_STABLE, 2, 0, sr_send_staged, sr_receive_staged},
	{SR_KERNEL_PUT, 1, 0, sr_send_put, sr_receive_put}, {SR_KERNEL_LL, 1, 1, send_ll, receive_ll},
	{SR_KERNEL_LL128, 1, 1, send_ll128, receive_ll128},
};

const struct host_kernel *host_kernel_find(const char *name) {
	for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
		if (strcmp(kernels[i].name, name) == 0)
			return &kernels[i];
	return NULL;
}

/* Assigns a thread its place in the grid. Threads of roles that the launch does not have stay idle. */
static void place(struct warp *w, const struct host_grid *g, uint32_t number) {
	const struct host_kernel *k = g->kernel;
	const sr_u32 size = k->ctas * g->warps, rank = number % size;
	const sr_u32 senders = k->shared ? size : k->ctas == 2 ? g->warps : g->args.sender_warps;
	const int receives = rank >= senders;
	w->grid = g;
	w->block = number / size;
	w->blocks = g->ctas / k->ctas;
	struct host_cell *cell = &g->cell[w->block];
	w->cell = (struct sr_group){rank, size, &cell->all};
	w->role = (struct sr_group){receives ? rank - senders : rank, receives ? size - senders : senders,
				    &cell->role[receives]};
	w->roles = g->args.roles & (k->shared ? SR_SEND | SR_RECEIVE : receives ? SR_RECEIVE : SR_SEND);
	w->ok = 1;
	w->samples = 0;
	w->count = sr_load_counts(&g->args.count[w->block], w->roles);
}

static void play(struct warp *w, sr_u32 role) {
	const struct host_grid *g = w->grid;
	part *p = role == SR_SEND ? g->kernel->send : g->kernel->receive;
	if (w->ok && (w->roles & role))
		w->ok = p(&g->args, &w->role, &w->count, w->block, w->blocks);
}

/* Runs the roles of one message. If the roles follow each other, the second runs only after the first has succeeded. */
static void message(struct warp *w) {
	const sr_u32 order = w->grid->args.order;
	play(w, order == SR_RECEIVE_FIRST ? SR_RECEIVE : SR_SEND);
	if (order != SR_TOGETHER)
		w->ok = sr_vote(&w->cell, w->ok);
	play(w, order == SR_RECEIVE_FIRST ? SR_SEND : SR_RECEIVE);
	if (order != SR_TOGETHER)
		w->ok = sr_vote(&w->cell, w->ok);
}

/* Ends a sample and begins the next. */
static void sample(struct warp *w) {
	const struct sr_args *a = &w->grid->args;
	const sr_u64 t = p2p_raw_ns();
	if (a->samples)
		a->samples[w->samples++] = t - w->began;
	w->began = t;
}

/* Back-to-back round trips are separate samples. */
static void window(struct warp *w) {
	const struct sr_args *a = &w->grid->args;
	for (sr_u32 m = 0; w->ok && m < a->window; m++) {
		if (m > 0 && a->order != SR_TOGETHER && w->block == 0 && w->cell.rank == 0)
			sample(w);
		message(w);
		w->count.offset += a->spacing;
	}
	w->count.offset = 0;
}

/* ---- resident --------------------------------------------------------------------------------------------------- */

/* Barrier with both peers at the start of iteration n. */
static int meet_peers(const struct sr_args *a, sr_u64 n) {
	sr_store(&a->peer_in->sync.value, n);
	if (a->peer_out != a->peer_in)
		sr_store(&a->peer_out->sync.value, n);
	return sr_poll(a, SR_SEND, 0, &a->out->sync.value, n) && sr_poll(a, SR_RECEIVE, 0, &a->in->sync.value, n);
}

/*
 * The leading thread of each cell waits for the start of iteration n, which the leading thread of cell 0 signals. That
 * thread reads team->arrived while no block works, so that it need not know how many blocks other launches had.
 */
static int begin(struct warp *w, sr_u64 n) {
	const struct sr_args *a = &w->grid->args;
	if (w->block != 0)
		return poll_own(a, SR_SEND, w->block, &a->team->go.value, n);
	if (called_off(a)) { /* checked here, because the doorbell may allow many iterations */
		give_up(a, SR_SEND, 0, n, n - 1);
		return 0;
	}
	if (!poll_own(a, SR_SEND, 0, &a->state->doorbell, n) || (a->begins && !meet_peers(a, n)))
		return 0;
	w->arrived = sr_load(&a->team->arrived.value);
	w->began = p2p_raw_ns();
	sr_store(&a->team->go.value, n);
	return 1;
}

/* Reports that its cell has finished iteration n; cell 0 waits for all cells and reports to the host. */
static void end(struct warp *w, sr_u64 n) {
	const struct sr_args *a = &w->grid->args;
	__atomic_fetch_add(&a->team->arrived.value, 1, __ATOMIC_ACQ_REL);
	if (w->block != 0 || !poll_own(a, SR_RECEIVE, 0, &a->team->arrived.value, w->arrived + w->blocks))
		return;
	if (failed(a))
		return;
	sample(w);
	sr_store(&a->state->done, n);
}

static void reside(struct warp *w) {
	const struct sr_args *a = &w->grid->args;
	const int leads = w->cell.rank == 0;
	for (sr_u64 n = a->first + 1; n <= a->first + a->iters; n++) {
		if (!sr_vote(&w->cell, leads ? begin(w, n) : 1))
			return;
		window(w);
		if (!sr_vote(&w->cell, w->ok))
			return;
		if (leads)
			end(w, n);
	}
}

/* ---- start ------------------------------------------------------------------------------------------------------ */

static void run_warp(void *grid, uint32_t number) {
	struct warp w;
	place(&w, grid, number);
	if (w.grid->args.iters)
		reside(&w);
	else
		message(&w);
	if (w.role.rank == 0)
		sr_store_counts(&w.grid->args.count[w.block], &w.count, w.roles);
}

void host_kernel_run(struct host_grid *g, struct host_pool *p) {
	if (failed(&g->args))
		return;
	atomic_store(&g->gave_up, 0);
	host_pool_run(p, g->ctas * g->warps, run_warp, g);
}

/* The error in the arguments of a kernel with the given number of cells; NULL: none. */
static const char *fault_of(const struct host_kernel *k, const struct sr_args *a, uint32_t cells) {
	const int in_lines = k->shared || (k->send == sr_send_ws && a->in_lines);
	const int staged = !in_lines && k->send != sr_send_put;
	const sr_u64 most = k->send == send_ll128 ? SR_LL128_BYTES : SR_LL_BYTES;
	if (a->roles == 0 || a->roles > (SR_SEND | SR_RECEIVE))
		return "no such roles";
	if (k->ctas == 1 && !k->shared &&
	    (((a->roles & SR_SEND) && a->sender_warps == 0) || ((a->roles & SR_RECEIVE) && a->receiver_warps == 0)))
		return "a role without a warp";
	if (staged &&
	    (a->stride == 0 || a->stages == 0 || a->stride > SR_STAGING || a->stride * a->stages > SR_STAGING / cells))
		return "the steps of all blocks do not fit the staging area";
	if (in_lines && (cells > SR_LL_CTAS || sr_share_of(a->bytes, 0, cells).bytes > most))
		return "more blocks, or more bytes per block, than the lines can hold";
	return NULL;
}

int host_kernel_accepts(const struct p2p_launch *l, struct p2p_error *e) {
	const struct host_kernel *k = l->kernel;
	const struct sr_args *a = l->args;
	const char *fault = NULL;
	if (!k || l->bytes != sizeof *a)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "host: start: unknown kernel, or arguments of the wrong size");
	if (l->ctas == 0 || l->ctas > HOST_CTAS || l->ctas % k->ctas)
		fault = "no such number of blocks";
	else if (l->threads == 0 || l->threads > HOST_WARPS || l->threads != a->sender_warps + a->receiver_warps)
		fault = "threads differ from the warps in the arguments";
	else
		fault = fault_of(k, a, l->ctas / k->ctas);
	if (!fault)
		return P2P_OK;
	p2p_fail(e, P2P_ERR_INVALID, 0, "");
	snprintf(e->text, sizeof e->text, "host: start %s, %u blocks of %u threads: %s", k->name, l->ctas, l->threads,
		 fault);
	return P2P_ERR_INVALID;
}
