/*
 * memory.h: the memory of two ranks, with detection of data races.
 *
 * Memory is divided into cells. If two threads access a cell without an order between them (a release that the other
 * thread has acquired, a barrier, the end of a kernel), that is an error, whatever the bytes are; so the model needs no
 * store buffers to show the effects of weak memory. sr_store_after_read is ordered only after the loads of its thread.
 * Besides, a cell of a message must be written once and then read once.
 *
 * The includer has defined the constants of sendrecv.h, and PT_THREADS.
 */
#ifndef P2P_PROTOCOLTEST_MEMORY_H
#define P2P_PROTOCOLTEST_MEMORY_H

#include "schedule.h"

enum {
	PT_BLOCKS = 3,
	PT_CELL = 8, /* bytes */
	PT_SLOTS = 6,
	PT_MESSAGE = 256, /* bytes of a message at most */
	PT_INBOX = PT_SLOTS * PT_MESSAGE,
	PT_STAGING = 512, /* bytes */
	PT_LINES = SR_LL_SLOTS * SR_LL_CTAS * (SR_LL_BYTES / 8),
	PT_WIDES = SR_LL_SLOTS * SR_LL_CTAS * SR_WIDE_LINES,
	PT_WORDS = 16 /* of a line of 128 bytes, which is written and read atomically */
};

enum { PT_EMPTY, PT_FULL, PT_TAKEN };

struct pt_cell {
	uint32_t written, read; /* time of the latest write, read … */
	uint8_t writer, reader; /* … and the thread that did it */
	uint8_t state;
};

/* A line: two words, each of 4 bytes of payload below 4 bytes of flag, written and read atomically. */
struct pt_line {
	sr_u64 half[2];
};

struct pt_wide {
	sr_u64 word[PT_WORDS];
};

/* The state of the writer, which a reader of the word acquires. */
struct pt_store {
	struct pt_view view;
	uint64_t hash; /* of view, if `known` */
	uint32_t known;
};

struct pt_rank {
	struct sr_words words;
	struct pt_store last[3][PT_BLOCKS]; /* to tail, head, ll_head */
	struct sr_count count[PT_BLOCKS];
	_Alignas(8) sr_u8 src[PT_INBOX], dst[PT_INBOX], staging[PT_STAGING];
	struct pt_cell inbox_cell[PT_INBOX / PT_CELL], staging_cell[PT_STAGING / PT_CELL];
	struct pt_line line[PT_LINES];
	struct pt_wide wide[PT_WIDES]; /* after `line` */
	struct pt_cell line_cell[PT_LINES], wide_cell[PT_WIDES];
	struct sr_state state;
	uint32_t failed; /* 1: a wait was given up … */
	uint32_t ended;  /* … so the next kernels do nothing */
};

static _Thread_local struct pt_rank *pt_rank; /* array of two */

static void pt_write_cell(struct pt_thread *t, struct pt_cell *c, const char *where, uint64_t at) {
	if (t->view.all[c->writer] < c->written)
		pt_fail("race: %s+%llu is written by two threads at once", where, (unsigned long long)at);
	if (c->state == PT_TAKEN && t->view.loads[c->reader] < c->read)
		pt_fail("race: %s+%llu is overwritten while it is read", where, (unsigned long long)at);
	if (c->state == PT_FULL)
		pt_fail("lost: %s+%llu is overwritten before it was read", where, (unsigned long long)at);
	c->writer = (uint8_t)t->index;
	c->written = t->time;
	c->state = PT_FULL;
}

static void pt_read_cell(struct pt_thread *t, struct pt_cell *c, const char *where, uint64_t at) {
	if (t->view.all[c->writer] < c->written)
		pt_fail("race: %s+%llu is read while it is written", where, (unsigned long long)at);
	if (c->state != PT_FULL)
		pt_fail("stale: %s+%llu is read before it was written", where, (unsigned long long)at);
	c->reader = (uint8_t)t->index;
	c->read = t->time;
	c->state = PT_TAKEN;
}

/* Whether n bytes at p begin in an area, which then must contain all of them. */
static int pt_inside(const sr_u8 *p, sr_u64 n, const sr_u8 *area, sr_u64 size, const char *where) {
	if (p < area || p >= area + size)
		return 0;
	if ((sr_u64)(p - area) % PT_CELL)
		pt_fail("%s+%llu is no whole cell", where, (unsigned long long)(p - area));
	if ((sr_u64)(p - area) + n > size)
		pt_fail("%s+%llu: %llu bytes pass its end", where, (unsigned long long)(p - area),
			(unsigned long long)n);
	return 1;
}

typedef void (*pt_touch)(struct pt_thread *, struct pt_cell *, const char *, uint64_t);

static void pt_each_cell(struct pt_thread *t, const sr_u8 *p, sr_u64 n, pt_touch touch) {
	static const char *const inbox[] = {"inbox of rank 0", "inbox of rank 1"};
	static const char *const staging[] = {"staging of rank 0", "staging of rank 1"};
	for (uint32_t r = 0; r < 2; r++) {
		struct pt_rank *k = &pt_rank[r];
		if (touch == pt_read_cell && pt_inside(p, n, k->src, sizeof k->src, "source"))
			return; /* only its owner writes it, between kernels */
		if (pt_inside(p, n, k->dst, sizeof k->dst, inbox[r])) {
			for (sr_u64 i = (sr_u64)(p - k->dst), end = i + n; i < end; i += PT_CELL)
				touch(t, &k->inbox_cell[i / PT_CELL], inbox[r], i);
			return;
		}
		if (pt_inside(p, n, k->staging, sizeof k->staging, staging[r])) {
			for (sr_u64 i = (sr_u64)(p - k->staging), end = i + n; i < end; i += PT_CELL)
				touch(t, &k->staging_cell[i / PT_CELL], staging[r], i);
			return;
		}
	}
	pt_fail("%llu bytes are touched outside of all memory", (unsigned long long)n);
}

/* A word: its rank, and its kind: tail, head or ll_head. */
struct pt_word {
	uint32_t rank, kind, block;
};

static struct pt_word pt_word_of(const sr_u64 *word) {
	for (uint32_t r = 0; r < 2; r++)
		for (uint32_t b = 0; b < PT_BLOCKS; b++) {
			const struct sr_words *w = &pt_rank[r].words;
			const sr_u64 *all[] = {&w->tail[b].value, &w->head[b].value,
					       b < SR_LL_CTAS ? &w->ll_head[b].value : NULL};
			for (uint32_t k = 0; k < 3; k++)
				if (word == all[k])
					return (struct pt_word){r, k, b};
		}
	pt_fail("a word is touched that is none");
	return (struct pt_word){0, 0, 0};
}

/* Sets the memory to its state before the first message. */
static void pt_reset_memory(uint64_t start) {
	for (uint32_t r = 0; r < 2; r++) {
		struct pt_rank *k = &pt_rank[r];
		struct sr_words *w = &k->words;
		memset((char *)k + sizeof k->words, 0, sizeof *k - sizeof k->words);
		for (uint32_t b = 0; b < PT_BLOCKS; b++) {
			w->tail[b].value = w->head[b].value = w->ll_head[b].value = start;
			k->count[b] = (struct sr_count){.sent = start,
							.received = start,
							.ll_sent = start,
							.ll_received = start,
							.head = start,
							.ll_head = start};
		}
	}
}

#endif
