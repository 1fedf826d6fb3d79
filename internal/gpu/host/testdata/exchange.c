/*
 * exchange.c: two ranks of one process exchange messages by the host's kernels, so that ThreadSanitizer observes all
 * their accesses. On failure it prints the cause and exits with 1.
 */
#define _GNU_SOURCE /* sched_yield, syscall */
#include "gpu/abi/sendrecv.h"
#include "queue.h"
#include "waiting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "exchange.c:%d: %s: %s\n", __LINE__, #condition, strerror(errno));             \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

enum { BLOCKS = 4, WINDOW = 12, SPACING = 16 << 10, BOTH = SR_SEND | SR_RECEIVE };

/* Launch configurations. Blocks are those of the grid; stable has two of them per sending block. */
struct form {
	const char *kernel;
	sr_u32 blocks, senders, receivers, bytes, stride, stages, in_lines;
};

static const struct form forms[] = {
	{SR_KERNEL_WS, 2, 1, 1, 5000, 512, 2, 0},
	{SR_KERNEL_WS, 3, 2, 2, 9001, 1000, 3, 0}, /* other blocks and steps: another layout of the staging area */
	{SR_KERNEL_WS, 1, 2, 1, 3000, 2048, 1, 0},
	{SR_KERNEL_WS, 2, 2, 2, 6000, 0, 0, 1},
	{SR_KERNEL_STABLE, 4, 1, 1, 7777, 1024, 2, 0}, /* and another layout */
	{SR_KERNEL_PUT, 3, 2, 1, 12345, 0, 0, 0},
	{SR_KERNEL_PUT, 2, 1, 1, 100, 0, 0, 0}, /* one block has no share */
	{SR_KERNEL_LL, 2, 2, 1, 4000, 0, 0, 0},
	{SR_KERNEL_LL, 1, 1, 1, 8, 0, 0, 0},
	{SR_KERNEL_LL128, 2, 1, 1, 4000, 0, 0, 0},
};

/* Roles and their order. */
struct way {
	const char *name;
	sr_u32 roles[2], order[2];
};

static const struct way ways[] = {
	{"both ways", {BOTH, BOTH}, {SR_TOGETHER, SR_TOGETHER}},
	{"there", {SR_SEND, SR_RECEIVE}, {SR_TOGETHER, SR_TOGETHER}},
	{"back", {SR_RECEIVE, SR_SEND}, {SR_TOGETHER, SR_TOGETHER}},
	{"there and back", {BOTH, BOTH}, {SR_SEND_FIRST, SR_RECEIVE_FIRST}},
};

struct rank {
	struct sr_words *words;
	struct sr_count count[BLOCKS];
	struct sr_team team;
	struct sr_state state;
	sr_u8 *staging, *lines, *src, *dst;
	struct p2p_queue *queue;
	sr_u32 staged;   /* blocks that used the peer's staging area last */
	sr_u64 iterated; /* by resident kernels */
	struct p2p_progress progress;
	struct p2p_ctx ctx;
};

static struct rank ranks[2];
static sr_u32 windows; /* so far; makes payloads differ */

static void *zeroed(size_t n) {
	void *p = aligned_alloc(128, (n + 127) / 128 * 128);
	MUST(p);
	return memset(p, 0, n);
}

static void open_rank(struct rank *r) {
	struct p2p_error e;
	r->words = zeroed(sizeof *r->words);
	r->staging = zeroed(SR_STAGING);
	r->lines = zeroed(SR_LINES);
	r->src = zeroed(WINDOW * SPACING);
	r->dst = zeroed(WINDOW * SPACING);
	cpu_set_t here;
	MUST(sched_getaffinity(0, sizeof here, &here) == 0);
	r->queue = p2p_host_queue_new(&here, sizeof here, &e);
	MUST(r->queue);
	r->ctx = (struct p2p_ctx){
		.progress = &r->progress, .team = &r->progress, .ranks = 1, .timeout_ns = 120000000000u, .yield = 1};
}

static void close_rank(struct rank *r) {
	p2p_host_queue_free(r->queue);
	free(r->words);
	free(r->staging);
	free(r->lines);
	free(r->src);
	free(r->dst);
}

static sr_u8 payload(sr_u32 rank, sr_u32 message, sr_u32 i) {
	return (sr_u8)((windows * 31 + rank * 17 + message * 7 + i) * 0x9e3779b1u >> 23);
}

static void fill(const struct form *f, const struct way *w) {
	windows++;
	for (sr_u32 r = 0; r < 2; r++)
		for (sr_u32 m = 0; m < WINDOW && (w->roles[r] & SR_SEND); m++)
			for (sr_u32 i = 0; i < f->bytes; i++)
				ranks[r].src[m * SPACING + i] = payload(r, m, i);
}

static void check(const struct form *f, const struct way *w) {
	for (sr_u32 r = 0; r < 2; r++)
		for (sr_u32 m = 0; m < WINDOW && (w->roles[r] & SR_RECEIVE); m++)
			for (sr_u32 i = 0; i < f->bytes; i++)
				MUST(ranks[r].dst[m * SPACING + i] == payload(1 - r, m, i));
}

static struct sr_args args_of(const struct form *f, const struct way *w, sr_u32 r) {
	struct rank *own = &ranks[r], *peer = &ranks[1 - r];
	return (struct sr_args){
		.src = own->src,
		.dst = own->dst,
		.bytes = f->bytes,
		.peer_dst = peer->dst,
		.peer_staging = peer->staging,
		.staging = own->staging,
		.peer_lines = peer->lines,
		.lines = own->lines,
		.in = own->words,
		.out = own->words,
		.peer_in = peer->words,
		.peer_out = peer->words,
		.count = own->count,
		.team = &own->team,
		.state = &own->state,
		.stride = f->stride,
		.timeout_ns = 60000000000u,
		.spacing = SPACING,
		.stages = f->stages,
		.roles = w->roles[r],
		.order = w->order[r],
		.sender_warps = f->senders,
		.receiver_warps = f->receivers,
		.credits = WINDOW,
		.window = WINDOW,
		.in_lines = f->in_lines,
	};
}

static void start(const struct form *f, struct rank *r, const struct sr_args *a) {
	struct p2p_error e;
	struct p2p_launch l = {.ctas = f->blocks, .threads = f->senders + f->receivers, .bytes = sizeof *a, .args = a};
	MUST(r->queue->find(r->queue->self, f->kernel, 0, &l.kernel, &e) == P2P_OK);
	if (r->queue->start(r->queue->self, &l, &e) != P2P_OK) {
		fprintf(stderr, "%s\n", e.text);
		exit(1);
	}
}

static void wait_for(struct rank *r) {
	struct p2p_error e;
	MUST(r->queue->wait(r->queue->self, &r->ctx, &e) == P2P_OK);
	MUST(!__atomic_load_n(&r->state.failed, __ATOMIC_ACQUIRE));
}

/* A kernel for each message. */
static void launched(const struct form *f, const struct way *w) {
	const int staged = f->stride != 0;
	fill(f, w);
	for (sr_u32 r = 0; r < 2; r++) {
		struct rank *own = &ranks[r];
		struct sr_args a = args_of(f, w, r);
		a.drain = staged ? own->staged : 0;
		for (sr_u32 m = 0; m < WINDOW; m++) {
			start(f, own, &a);
			a.src += SPACING;
			a.dst += SPACING;
			a.peer_dst += SPACING;
			a.credits = a.drain = 0;
		}
		own->staged = staged ? BLOCKS : own->staged;
	}
	wait_for(&ranks[0]);
	wait_for(&ranks[1]);
	check(f, w);
}

static void await_iteration(struct rank *r, sr_u64 n) {
	for (sr_u32 polls = 0; __atomic_load_n(&r->state.done, __ATOMIC_ACQUIRE) < n; polls++) {
		MUST(!__atomic_load_n(&r->state.failed, __ATOMIC_ACQUIRE));
		host_pause(polls);
	}
}

/* One kernel for all messages, and for later payloads in the same buffers. */
static void resident(const struct form *f, const struct way *w) {
	enum { ITERATIONS = 3 };
	for (sr_u32 r = 0; r < 2; r++) {
		struct sr_args a = args_of(f, w, r);
		a.iters = ITERATIONS;
		a.begins = 1;
		a.first = ranks[r].iterated;
		start(f, &ranks[r], &a);
	}
	for (sr_u32 i = 0; i < ITERATIONS; i++) {
		fill(f, w);
		for (sr_u32 r = 0; r < 2; r++)
			__atomic_store_n(&ranks[r].state.doorbell, ++ranks[r].iterated, __ATOMIC_RELEASE);
		for (sr_u32 r = 0; r < 2; r++)
			await_iteration(&ranks[r], ranks[r].iterated);
		check(f, w);
	}
	wait_for(&ranks[0]);
	wait_for(&ranks[1]);
}

int main(void) {
	open_rank(&ranks[0]);
	open_rank(&ranks[1]);
	for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
		for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
			fprintf(stderr, "%s, %u blocks, %s\n", forms[f].kernel, forms[f].blocks, ways[w].name);
			launched(&forms[f], &ways[w]);
			resident(&forms[f], &ways[w]);
		}
	close_rank(&ranks[0]);
	close_rank(&ranks[1]);
	return 0;
}
