/*
 * stress.c: protocol.h between two ranks with real threads, one for each thread of each role of each block, and the
 * real constants.
 */
#include "plan.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/abi/sendrecv.h"

enum { PT_BLOCKS = 4, PT_SLOTS = 6, PT_SPACING = 64 << 10, PT_LINE_BYTES = SR_LINES };

/* A barrier of threads that spin. */
struct pt_barrier {
	_Alignas(64) _Atomic uint32_t arrived;
	_Atomic uint32_t passed;
	int said[2]; /* by thread 0; it may be one ahead of the others */
};

/* The barrier at which the threads of a rank wait for the host's part. */
struct pt_stream {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	uint32_t arrived, passed, at; /* at: message */
};

struct pt_rank {
	struct sr_words words;
	struct sr_count count[PT_BLOCKS];
	struct sr_state state;
	struct pt_barrier block[PT_BLOCKS], role[PT_BLOCKS][2];
	struct pt_stream stream;
	sr_u8 *staging, *lines, *src, *dst; /* src, dst: as allocated, before the misalignment */
	uint32_t ended;
};

struct pt_run {
	struct pt_work work;
	struct pt_result *result;
	struct pt_rank *rank; /* array of two */
	pthread_mutex_t lock; /* of the result */
	int ready;            /* 1: all threads could be started */
	_Atomic uint32_t failed;
};

/* The run of this thread. */
static _Thread_local struct pt_run *pt_x;

__attribute__((format(printf, 1, 2))) static void pt_fail(const char *format, ...) {
	va_list args;
	va_start(args, format);
	pthread_mutex_lock(&pt_x->lock);
	if (!pt_x->result->failed)
		vsnprintf(pt_x->result->text, sizeof pt_x->result->text, format, args);
	pt_x->result->failed = 1;
	pthread_mutex_unlock(&pt_x->lock);
	va_end(args);
	atomic_store(&pt_x->failed, 1);
}

/* ---- primitives ------------------------------------------------------------------------------------------------- */

#define SR_FN static inline

enum { SR_WARP_THREADS = 1, SR_LANES = 1, SR_WORDS = 16, SR_AHEAD = 3 };

struct sr_group {
	sr_u32 rank, size;
	struct pt_barrier *barrier;
};

struct pt_patience {
	uint32_t polls;
	time_t since;
};

static time_t pt_seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* Called between two polls. Returns 0 if the wait is to be given up. */
static int pt_again(const struct sr_args *a, struct pt_patience *p) {
	if (++p->polls % 16)
		return 1;
	sched_yield();
	if (p->polls % 4096)
		return 1;
	if (p->since == 0)
		p->since = pt_seconds();
	return !atomic_load(&pt_x->failed) && (uint64_t)(pt_seconds() - p->since) <= a->timeout_ns / 1000000000u;
}

static int pt_wait_barrier(struct pt_barrier *b, uint32_t size, int leads, int say) {
	if (size == 1)
		return say;
	const uint32_t round = atomic_load(&b->passed);
	if (leads)
		b->said[round & 1] = say;
	if (atomic_fetch_add(&b->arrived, 1) + 1 == size) {
		atomic_store(&b->arrived, 0);
		atomic_fetch_add(&b->passed, 1);
	}
	for (uint32_t polls = 0; atomic_load(&b->passed) == round; polls++)
		if (polls % 16 == 15)
			sched_yield();
	return b->said[round & 1];
}

SR_FN int sr_vote(struct sr_group *g, int ok) { return pt_wait_barrier(g->barrier, g->size, g->rank == 0, ok); }
SR_FN void sr_sync(struct sr_group *g) { sr_vote(g, 1); }
SR_FN sr_u64 sr_load(const sr_u64 *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
SR_FN sr_u32 sr_now(sr_u32 value) { return value; }

SR_FN void sr_store(sr_u64 *word, sr_u64 value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
SR_FN void sr_store_after_read(sr_u64 *word, sr_u64 value) { sr_store(word, value); }
SR_FN sr_u64 sr_load_counter(const sr_u64 *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }
SR_FN void sr_store_counter(sr_u64 *counter, sr_u64 value) { __atomic_store_n(counter, value, __ATOMIC_RELAXED); }

SR_FN void sr_copy(struct sr_group *g, sr_u8 *dst, const sr_u8 *src, sr_u64 n) {
	const sr_u64 each = (n + g->size - 1) / g->size, from = each * g->rank;
	if (from < n)
		memcpy(dst + from, src + from, n - from < each ? n - from : each);
}

SR_FN int sr_poll(const struct sr_args *a, sr_u32 role, sr_u32 block, const sr_u64 *word, sr_u64 want) {
	struct pt_patience p = {0, 0};
	while (sr_load(word) < want)
		if (!pt_again(a, &p)) {
			pt_fail("block %u of the %s waited for %llu, has %llu", block,
				role == SR_SEND ? "sender" : "receiver", want, sr_load(word));
			return 0;
		}
	return 1;
}

/* Two words, each with half of the payload below and the flag above, in no order. */
SR_FN void sr_put_line(sr_u8 *line, sr_u64 data, sr_u32 flag) {
	sr_u64 *half = (sr_u64 *)line;
	const uint32_t first = flag & 1;
	for (uint32_t i = 0; i < 2; i++) {
		const uint32_t h = first ^ i;
		__atomic_store_n(&half[h], (data >> (32 * h) & 0xffffffffu) | (sr_u64)flag << 32, __ATOMIC_RELAXED);
	}
}

static int pt_get_line(const struct sr_args *a, sr_u32 block, const sr_u8 *line, sr_u32 flag, sr_u64 *data) {
	const sr_u64 *half = (const sr_u64 *)line;
	struct pt_patience p = {0, 0};
	for (;;) {
		const sr_u64 low = sr_load_counter(half), high = sr_load_counter(half + 1);
		if (low >> 32 == flag && high >> 32 == flag) {
			*data = (low & 0xffffffffu) | high << 32;
			return 1;
		}
		if (!pt_again(a, &p)) {
			pt_fail("block %u of the receiver waited for flag %x, has %llx and %llx", block, flag,
				low >> 32, high >> 32);
			return 0;
		}
	}
}

/* Sixteen words, the flag last. */
SR_FN void sr_put_part(sr_u8 *line, const sr_u64 *data) {
	sr_u64 *word = (sr_u64 *)line;
	for (uint32_t i = 0; i < SR_WORDS - 1; i++)
		__atomic_store_n(&word[i], data[i], __ATOMIC_RELAXED);
	sr_store(&word[SR_WORDS - 1], data[SR_WORDS - 1]);
}

static int pt_get_part(const struct sr_args *a, sr_u32 block, const sr_u8 *line, sr_u64 flag, sr_u64 *data) {
	const sr_u64 *word = (const sr_u64 *)line;
	struct pt_patience p = {0, 0};
	for (sr_u64 have; (have = sr_load(&word[SR_WORDS - 1])) != flag;)
		if (!pt_again(a, &p)) {
			pt_fail("block %u of the receiver waited for flag %llx, has %llx", block, flag, have);
			return 0;
		}
	for (uint32_t i = 0; i < SR_WORDS - 1; i++)
		data[i] = sr_load_counter(&word[i]);
	return 1;
}

static int sr_get_line(const struct sr_args *a, sr_u32 block, const sr_u8 *const *line, sr_u32 n, sr_u32 flag,
		       sr_u64 (*data)[SR_WORDS]) {
	for (sr_u32 k = 0; k < n; k++)
		if (!pt_get_line(a, block, line[k], flag, data[k]))
			return 0;
	return 1;
}

static int sr_get_part(const struct sr_args *a, sr_u32 block, const sr_u8 *const *line, sr_u32 n, sr_u64 flag,
		       sr_u64 (*data)[SR_WORDS]) {
	for (sr_u32 k = 0; k < n; k++)
		if (!pt_get_part(a, block, line[k], flag, data[k]))
			return 0;
	return 1;
}

#include "gpu/abi/protocol.h"

#include "kernel.h"

/* ---- ranks ------------------------------------------------------------------------------------------------------ */

static const struct pt_work *pt_work_of(void) { return &pt_x->work; }

static struct pt_where pt_where(uint32_t rank) {
	struct pt_rank *k = &pt_x->rank[rank];
	const uint32_t skew = pt_x->work.plan->skew;
	return (struct pt_where){&k->words, k->count, &k->state, k->src + skew, k->dst + skew, k->staging, k->lines};
}

static struct sr_group pt_group(const struct pt_part *p) {
	return (struct sr_group){p->thread, pt_x->work.plan->threads, &pt_x->rank[p->rank].role[p->block][p->role]};
}

static void pt_block_barrier(const struct pt_part *p) {
	pt_wait_barrier(&pt_x->rank[p->rank].block[p->block], 2 * pt_x->work.plan->threads, 0, 0);
}

static void pt_gave_up(uint32_t rank) { (void)rank; }
static void pt_register_counts(const struct sr_count *c) { (void)c; }
static int pt_ended(uint32_t rank) { return (int)pt_x->rank[rank].ended; }

/* Byte i of message l as sent by a rank. */
static sr_u8 pt_payload(uint32_t l, uint32_t rank, uint32_t i) {
	uint32_t x = (l * 2 + rank + 1) * 0x9e3779b1u + (i >> 2) * 0x85ebca6bu;
	x ^= x >> 15;
	x *= 0x2c1b3c6du;
	return (sr_u8)((x ^ (x >> 13)) >> (8 * (i & 3)));
}

static void pt_fill_window(uint32_t rank, uint32_t l) {
	for (; l < pt_x->work.launches; l++) {
		const struct pt_launch *m = &pt_x->work.launch[l];
		if (m->side[rank].roles & SR_SEND)
			for (uint32_t i = 0; i < m->bytes; i++)
				pt_where(rank).src[m->slot * PT_SPACING + i] = pt_payload(l, rank, i);
		if (pt_pause(l))
			return;
	}
}

/* Compares the received message, and overwrites it. */
static void pt_check(uint32_t rank, uint32_t l) {
	const struct pt_launch *m = &pt_x->work.launch[l];
	sr_u8 *const dst = pt_where(rank).dst + m->slot * PT_SPACING;
	if (!(m->side[rank].roles & SR_RECEIVE))
		return;
	for (uint32_t i = 0; i < m->bytes; i++) {
		if (dst[i] != pt_payload(l, 1 - rank, i)) {
			pt_fail("byte %u of message %u to rank %u is wrong", i, l, rank);
			return;
		}
	}
	if (dst[m->bytes] != 0xee)
		pt_fail("the byte behind message %u to rank %u was written", l, rank);
	memset(dst, 0xee, m->bytes);
}

static void pt_host(uint32_t rank, struct pt_stream *s) {
	do {
		if (!atomic_load(&pt_x->failed))
			pt_check(rank, s->at);
	} while (!pt_pause(s->at++));
	pt_fill_window(rank, s->at);
	pt_x->rank[rank].ended = atomic_load(&pt_x->failed);
}

static void pt_rank_barrier(const struct pt_part *p) {
	struct pt_stream *s = &pt_x->rank[p->rank].stream;
	pthread_mutex_lock(&s->lock);
	const uint32_t round = s->passed;
	if (++s->arrived == 2 * pt_x->work.blocks * pt_x->work.plan->threads) {
		pt_host(p->rank, s);
		s->arrived = 0;
		s->passed++;
		pthread_cond_broadcast(&s->moved);
	}
	while (s->passed == round)
		pthread_cond_wait(&s->moved, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

/* At the end. */
static void pt_check_words(void) {
	for (uint32_t r = 0; r < 2; r++)
		for (uint32_t b = 0; b < PT_BLOCKS; b++) {
			const struct pt_rank *k = &pt_x->rank[r], *peer = &pt_x->rank[1 - r];
			const struct sr_count *c = &k->count[b], *d = &peer->count[b];
			if (peer->words.tail[b].value != c->sent || k->words.head[b].value != c->sent ||
			    d->received != c->sent)
				pt_fail("rank %u block %u: tail %llu, head %llu, sent %llu, received %llu", r, b,
					peer->words.tail[b].value, k->words.head[b].value, c->sent, d->received);
			if (k->words.ll_head[b].value != c->ll_sent || d->ll_received != c->ll_sent)
				pt_fail("rank %u block %u: ll_head %llu, sent %llu, received %llu", r, b,
					k->words.ll_head[b].value, c->ll_sent, d->ll_received);
		}
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

enum { PT_THREADS = 4 * PT_BLOCKS * 4 };

struct pt_thread {
	pthread_t id;
	struct pt_run *run;
	uint32_t index;
};

static void *pt_thread(void *thread) {
	const struct pt_thread *t = thread;
	pt_x = t->run;
	pthread_mutex_lock(&pt_x->lock); /* until all threads are started */
	const int ready = pt_x->ready;
	pthread_mutex_unlock(&pt_x->lock);
	const struct pt_part p = pt_part_of(t->index);
	if (ready)
		pt_run_thread(&p, PT_SPACING);
	return NULL;
}

static void pt_run_threads(struct pt_run *x) {
	struct pt_thread t[PT_THREADS];
	const uint32_t n = 4 * x->work.blocks * x->work.plan->threads;
	uint32_t made = 0;
	pthread_mutex_lock(&x->lock);
	for (; made < n; made++) {
		t[made] = (struct pt_thread){.run = x, .index = made};
		if (pthread_create(&t[made].id, NULL, pt_thread, &t[made]))
			break;
	}
	x->ready = made == n;
	pthread_mutex_unlock(&x->lock);
	for (uint32_t i = 0; i < made; i++)
		pthread_join(t[i].id, NULL);
	if (!x->ready)
		pt_fail("%u threads of %u could be started", made, n);
}

/* ---- run -------------------------------------------------------------------------------------------------------- */

/* Returns 0 if there is no memory; closed in either case. */
static int pt_open(struct pt_rank *k, uint64_t start) {
	pthread_mutex_init(&k->stream.lock, NULL);
	pthread_cond_init(&k->stream.moved, NULL);
	k->staging = calloc(1, SR_STAGING);
	k->lines = calloc(1, PT_LINE_BYTES);
	k->src = malloc(PT_SLOTS * PT_SPACING + 8);
	k->dst = malloc(PT_SLOTS * PT_SPACING + 8);
	if (!k->staging || !k->lines || !k->src || !k->dst)
		return 0;
	memset(k->dst, 0xee, PT_SLOTS * PT_SPACING + 8);
	for (uint32_t b = 0; b < PT_BLOCKS; b++) {
		k->words.tail[b].value = k->words.head[b].value = k->words.ll_head[b].value = start;
		k->count[b] =
			(struct sr_count){.sent = start, .received = start, .ll_sent = start, .ll_received = start};
	}
	return 1;
}

static void pt_close(struct pt_rank *k) {
	pthread_mutex_destroy(&k->stream.lock);
	pthread_cond_destroy(&k->stream.moved);
	free(k->staging);
	free(k->lines);
	free(k->src);
	free(k->dst);
}

static void pt_run(struct pt_run *x) {
	const uint64_t start = x->work.plan->start;
	int opened = pt_open(&x->rank[0], start);
	opened = pt_open(&x->rank[1], start) && opened;
	if (opened) {
		pt_fill_window(0, 0);
		pt_fill_window(1, 0);
		pt_run_threads(x);
		if (!x->result->failed)
			pt_check_words();
		x->result->messages = x->rank[0].stream.at;
	} else {
		pt_fail("no memory");
	}
	pt_close(&x->rank[0]);
	pt_close(&x->rank[1]);
}

void pt_stress(const struct pt_plan *p, const struct pt_launch *l, uint32_t launches, struct pt_result *r) {
	struct pt_run x = {.work = {.plan = p, .launch = l, .launches = launches}, .result = r};
	memset(r, 0, sizeof *r);
	for (uint32_t i = 0; i < launches; i++)
		x.work.blocks = l[i].ctas > x.work.blocks ? l[i].ctas : x.work.blocks;
	pthread_mutex_init(&x.lock, NULL);
	pt_x = &x;
	x.rank = aligned_alloc(64, 2 * sizeof *x.rank);
	if (x.rank) {
		memset(x.rank, 0, 2 * sizeof *x.rank);
		pt_run(&x);
	} else {
		pt_fail("no memory");
	}
	free(x.rank);
	pthread_mutex_destroy(&x.lock);
}
