/*
 * explore.c: protocol.h with primitives that are scheduled by the search of schedule.h. The tests also build this file
 * as a library with one line of the protocol changed, to show that the search detects such an error.
 */
#include "plan.h"

/* Smaller than the real constants, so that a few messages fill all memory. */
#define SR_GRAIN SR_GRAIN_REAL
#define SR_LL_CTAS SR_LL_CTAS_REAL
#define SR_LL_SLOTS SR_LL_SLOTS_REAL
#define SR_LL_BYTES SR_LL_BYTES_REAL
#define SR_WIDE_LINES SR_WIDE_LINES_REAL
#define SR_LL_AREA SR_LL_AREA_REAL
#include "gpu/abi/sendrecv.h"
#undef SR_GRAIN
#undef SR_LL_CTAS
#undef SR_LL_SLOTS
#undef SR_LL_BYTES
#undef SR_WIDE_LINES
#undef SR_LL_AREA
enum { SR_GRAIN = 16, SR_LL_CTAS = 3, SR_LL_SLOTS = 2, SR_LL_BYTES = 32, SR_WIDE_LINES = 2 };
enum { SR_LL_AREA = 2 * SR_LL_SLOTS * SR_LL_CTAS * SR_LL_BYTES };

enum { PT_THREADS = 26 }; /* 2 ranks, 3 blocks, 2 roles, 2 threads of each; one that gives up; made even */

#include "memory.h"

/* Flaws of the primitives, to show that the search detects them. */
enum { PT_BLIND_HALF = 1, PT_WEAK_STORE, PT_LOOSE_BARRIER, PT_TORN_LINE };
#ifndef PT_FLAW
#define PT_FLAW 0
#endif

enum {
	PT_EVENT_STORE = PT_EVENTS_MORE,
	PT_EVENT_POLL,
	PT_EVENT_LOOK,
	PT_EVENT_GIVE_UP,
	PT_EVENT_COPY,
	PT_EVENT_PUT,
	PT_EVENT_GET
};

struct pt_team {
	struct pt_barrier stream; /* the end of a kernel: all threads of the rank */
	struct pt_barrier block[PT_BLOCKS], role[PT_BLOCKS][2];
};

struct pt_run {
	struct pt_work work;
	uint32_t at[2];  /* message of each rank */
	uint32_t drains; /* 1: a message drains, and so reads the counters of other blocks */
	struct pt_team team[2];
};

static _Thread_local struct pt_run *pt_x;

/* ---- primitives ------------------------------------------------------------------------------------------------- */

#define SR_FN static inline

enum { SR_WARP_THREADS = 1, SR_LANES = 1, SR_WORDS = PT_WORDS, SR_AHEAD = 2 };

struct sr_group {
	sr_u32 rank, size;
	struct pt_barrier *barrier;
};

static int sr_vote(struct sr_group *g, int ok) {
	struct pt_thread *t = pt_s->now;
	if (g->size > 1)
		return pt_wait_barrier(g->barrier, t, g->rank == 0 ? &ok : NULL);
	t->steps++;
	return ok;
}

static void sr_sync(struct sr_group *g) {
	if (PT_FLAW == PT_LOOSE_BARRIER)
		return;
	sr_vote(g, 1);
}

static struct pt_store *pt_last(const sr_u64 *word) {
	const struct pt_word w = pt_word_of(word);
	return &pt_rank[w.rank].last[w.kind][w.block];
}

static struct pt_store *pt_put_word(sr_u64 *word, sr_u64 value) {
	struct pt_thread *t = pt_s->now;
	struct pt_store *s = pt_last(word);
	pt_point(t);
	pt_step(t, PT_EVENT_STORE, word, value);
	if (value <= *word)
		pt_fail("a word goes from %llu to %llu", *word, value);
	*word = value;
	memset(&s->view, 0, sizeof s->view);
	s->known = 0;
	return s;
}

static void sr_store(sr_u64 *word, sr_u64 value) {
	struct pt_store *s = pt_put_word(word, value);
	if (PT_FLAW != PT_WEAK_STORE)
		s->view = pt_s->now->view;
	pt_tick(pt_s->now);
}

/* Releases the loads of the thread and those ordered before them, but not its stores. */
static void sr_store_after_read(sr_u64 *word, sr_u64 value) {
	struct pt_store *s = pt_put_word(word, value);
	memcpy(s->view.loads, pt_s->now->view.loads, sizeof s->view.loads);
	pt_tick(pt_s->now);
}

static sr_u32 sr_now(sr_u32 value) { return value; }

static sr_u64 sr_load(const sr_u64 *word) {
	struct pt_thread *t = pt_s->now;
	const struct pt_store *s = pt_last(word);
	pt_point(t);
	pt_polls(t, PT_EVENT_LOOK, word, *word);
	pt_join_all(&t->view, &s->view);
	return *word;
}

/* Whether the counter belongs to the thread's block; then it must belong to its role. */
static int pt_own_counter(const sr_u64 *counter);

/* Changes of counters cannot be observed, except for `sent`, which other blocks read if a message drains. */
static sr_u64 sr_load_counter(const sr_u64 *counter) {
	if (!pt_own_counter(counter))
		pt_point(pt_s->now);
	return *counter;
}

static void sr_store_counter(sr_u64 *counter, sr_u64 value) {
	if (!pt_own_counter(counter))
		pt_fail("a counter of another block is written");
	if (pt_x->drains && *counter != value)
		pt_point(pt_s->now);
	*counter = value;
}

static int sr_poll(const struct sr_args *a, sr_u32 role, sr_u32 block, const sr_u64 *word, sr_u64 want) {
	struct pt_thread *t = pt_s->now;
	const struct pt_store *s = pt_last(word);
	(void)role, (void)block;
	t->word = (const volatile uint64_t *)word;
	t->want = want;
	t->stop = &a->state->abort;
	pt_wait(t, PT_WAITS_WORD);
	if (*word < want) {
		pt_gives_up(t, PT_EVENT_GIVE_UP, word, want);
		return 0;
	}
	pt_polls(t, PT_EVENT_POLL, word, want);
	pt_join_all(&t->view, &s->view);
	return 1;
}

/* Every thread copies every size-th cell, in the number of parts that the plan sets. */
static void sr_copy(struct sr_group *g, sr_u8 *dst, const sr_u8 *src, sr_u64 n) {
	struct pt_thread *t = pt_s->now;
	const uint32_t pieces = pt_x->work.plan->pieces;
	const sr_u64 cells = (n + PT_CELL - 1) / PT_CELL;
	const sr_u64 mine = (cells + g->size - 1 - g->rank) / g->size;
	for (sr_u64 i = 0; i < mine; i++) {
		const sr_u64 at = (i * g->size + g->rank) * PT_CELL, m = n - at < PT_CELL ? n - at : PT_CELL;
		if (pieces && (i == 0 || i * pieces / mine != (i - 1) * pieces / mine)) {
			pt_point(t);
			pt_step(t, PT_EVENT_COPY, dst + at, n);
		}
		pt_each_cell(t, src + at, m, pt_read_cell);
		pt_each_cell(t, dst + at, m, pt_write_cell);
		memcpy(dst + at, src + at, m);
	}
}

static uint32_t pt_line_of(struct pt_rank **k, const sr_u8 *line) {
	for (uint32_t r = 0; r < 2; r++)
		if (line >= (sr_u8 *)pt_rank[r].line && line < (sr_u8 *)(pt_rank[r].line + PT_LINES)) {
			*k = &pt_rank[r];
			return (uint32_t)(line - (sr_u8 *)pt_rank[r].line) / sizeof(struct pt_line);
		}
	pt_fail("a line is touched that is none");
	return 0;
}

/* A line is not ordered with other writes of its writer. */
static void pt_take_line(struct pt_thread *t, struct pt_cell *c) {
	c->reader = (uint8_t)t->index;
	c->read = t->time;
	c->state = PT_TAKEN;
}

static void sr_put_line(sr_u8 *line, sr_u64 data, sr_u32 flag) {
	struct pt_thread *t = pt_s->now;
	struct pt_rank *k;
	const uint32_t n = pt_line_of(&k, line);
	for (uint32_t h = 0; h < 2; h++) {
		pt_point(t);
		pt_step(t, PT_EVENT_PUT, line + 8 * h, flag);
		if (h == 0 && !k->failed)
			pt_write_cell(t, &k->line_cell[n], "line", n);
		k->line[n].half[h] = (sr_u64)flag << 32 | (sr_u32)(data >> (32 * h));
	}
}

static int pt_get_line(const struct sr_args *a, sr_u32 block, const sr_u8 *line, sr_u32 flag, sr_u64 *data) {
	struct pt_thread *t = pt_s->now;
	struct pt_rank *k;
	const uint32_t n = pt_line_of(&k, line);
	(void)block;
	*data = 0;
	for (uint32_t h = 0; h < 2; h++) {
		t->word = (const volatile uint64_t *)&k->line[n].half[h];
		t->want = flag;
		t->stop = &a->state->abort;
		if (h == 1 && PT_FLAW == PT_BLIND_HALF)
			pt_point(t);
		else
			pt_wait(t, PT_WAITS_FLAG);
		if (PT_FLAW != PT_BLIND_HALF && k->line[n].half[h] >> 32 != flag) {
			pt_gives_up(t, PT_EVENT_GIVE_UP, line, flag);
			k->failed = 1;
			return 0;
		}
		pt_step(t, PT_EVENT_GET, line + 8 * h, flag);
		*data |= (k->line[n].half[h] & 0xffffffffu) << (32 * h);
	}
	pt_take_line(t, &k->line_cell[n]);
	return 1;
}

static uint32_t pt_wide_of(struct pt_rank **k, const sr_u8 *line) {
	for (uint32_t r = 0; r < 2; r++)
		if (line >= (sr_u8 *)pt_rank[r].wide && line < (sr_u8 *)(pt_rank[r].wide + PT_WIDES)) {
			*k = &pt_rank[r];
			return (uint32_t)(line - (sr_u8 *)pt_rank[r].wide) / sizeof(struct pt_wide);
		}
	pt_fail("a line of 128 bytes is touched that is none");
	return 0;
}

static void sr_put_part(sr_u8 *line, const sr_u64 *data) {
	struct pt_thread *t = pt_s->now;
	struct pt_rank *k;
	const uint32_t n = pt_wide_of(&k, line);
	pt_point(t);
	pt_step(t, PT_EVENT_PUT, line, data[PT_WORDS - 1]);
	if (!k->failed)
		pt_write_cell(t, &k->wide_cell[n], "line of 128 bytes", n);
	k->wide[n].word[PT_WORDS - 1] = data[PT_WORDS - 1];
	if (PT_FLAW == PT_TORN_LINE)
		pt_point(t);
	memcpy(k->wide[n].word, data, sizeof k->wide[n].word);
}

static int pt_get_part(const struct sr_args *a, sr_u32 block, const sr_u8 *line, sr_u64 flag, sr_u64 *data) {
	struct pt_thread *t = pt_s->now;
	struct pt_rank *k;
	const uint32_t n = pt_wide_of(&k, line);
	(void)block;
	t->word = (const volatile uint64_t *)&k->wide[n].word[PT_WORDS - 1];
	t->want = flag;
	t->stop = &a->state->abort;
	pt_wait(t, PT_WAITS_VALUE);
	memcpy(data, k->wide[n].word, sizeof k->wide[n].word);
	if (data[PT_WORDS - 1] != flag) {
		pt_gives_up(t, PT_EVENT_GIVE_UP, line, flag);
		k->failed = 1;
		return 0;
	}
	pt_step(t, PT_EVENT_GET, line, flag);
	pt_take_line(t, &k->wide_cell[n]);
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

/* The threads of role 0 send, and receive lines. */
static int pt_own_counter(const sr_u64 *counter) {
	const struct pt_part p = pt_part_of(pt_s->now->index);
	const struct sr_count *own = &pt_rank[p.rank].count[p.block];
	const int received = counter == &own->received, ll_received = counter == &own->ll_received;
	const int lines = pt_in_lines(&pt_x->work.launch[pt_x->at[p.rank]]);
	if (counter < (const sr_u64 *)own || counter >= (const sr_u64 *)(own + 1))
		return 0;
	if (p.role == 0 ? received && !lines : !received && !ll_received)
		pt_fail("a counter of the other role is touched");
	return 1;
}

/* Byte i of message l as sent by a rank. */
static sr_u8 pt_payload(uint32_t l, uint32_t rank, uint32_t i) { return (sr_u8)pt_mix((l * 2 + rank) * 4096 + i + 1); }

static void pt_fill(uint32_t rank, uint32_t l) {
	const struct pt_launch *m = &pt_x->work.launch[l];
	if (m->side[rank].roles & SR_SEND)
		for (uint32_t i = 0; i < m->bytes; i++)
			pt_rank[rank].src[m->slot * PT_MESSAGE + i] = pt_payload(l, rank, i);
}

/* Compares the received message, and clears the inbox. */
static void pt_check(struct pt_thread *t, uint32_t rank, uint32_t l) {
	const struct pt_launch *m = &pt_x->work.launch[l];
	struct pt_rank *k = &pt_rank[rank];
	const uint32_t from = m->slot * PT_MESSAGE;
	if (!(m->side[rank].roles & SR_RECEIVE))
		return;
	for (uint32_t i = 0; i < m->bytes; i++) {
		struct pt_cell *c = &k->inbox_cell[(from + i) / PT_CELL];
		if (i % PT_CELL == 0 && !pt_in_lines(m)) {
			pt_read_cell(t, c, "inbox", from + i);
			pt_write_cell(t, c, "inbox", from + i);
			c->state = PT_EMPTY;
		}
		if (k->dst[from + i] != pt_payload(l, 1 - rank, i))
			pt_fail("byte %u of message %u to rank %u is wrong", i, l, rank);
		k->dst[from + i] = 0;
	}
	for (uint32_t i = m->bytes; i < PT_MESSAGE; i++)
		if (k->dst[from + i] != 0)
			pt_fail("byte %u behind message %u to rank %u was written", i, l, rank);
}

static void pt_fill_window(uint32_t rank, uint32_t l) {
	for (; l < pt_x->work.launches; l++) {
		pt_fill(rank, l);
		if (pt_pause(l))
			return;
	}
}

/* The host's part, when all threads of the rank have reached its barrier. */
static void pt_host(struct pt_thread *t, void *self) {
	const uint32_t rank = (uint32_t)(size_t)self;
	uint32_t l = pt_x->at[rank];
	do {
		if (!pt_rank[rank].failed)
			pt_check(t, rank, l);
	} while (!pt_pause(l++));
	pt_x->at[rank] = l;
	pt_fill_window(rank, l);
	pt_rank[rank].ended = pt_rank[rank].failed;
}

static const struct pt_work *pt_work_of(void) { return &pt_x->work; }

static struct pt_where pt_where(uint32_t rank) {
	struct pt_rank *k = &pt_rank[rank];
	return (struct pt_where){&k->words, k->count, &k->state, k->src, k->dst, k->staging, (sr_u8 *)k->line};
}

static struct sr_group pt_group(const struct pt_part *p) {
	return (struct sr_group){p->thread, pt_x->work.plan->threads, &pt_x->team[p->rank].role[p->block][p->role]};
}

static void pt_block_barrier(const struct pt_part *p) {
	pt_wait_barrier(&pt_x->team[p->rank].block[p->block], pt_s->now, NULL);
}

static void pt_rank_barrier(const struct pt_part *p) { pt_wait_barrier(&pt_x->team[p->rank].stream, pt_s->now, NULL); }

static void pt_gave_up(uint32_t rank) { pt_rank[rank].failed = 1; }

static void pt_register_counts(const struct sr_count *c) {
	struct pt_thread *t = pt_s->now;
	t->kept = c;
	t->kept_bytes = sizeof *c;
}

static int pt_ended(uint32_t rank) { return (int)pt_rank[rank].ended; }

/* Checks at the end of a schedule in which no wait was given up. */
static void pt_check_words(void) {
	static const char *const name[] = {"tail", "head"};
	for (uint32_t r = 0; r < 2; r++)
		for (uint32_t b = 0; b < PT_BLOCKS; b++) {
			const struct pt_rank *k = &pt_rank[r], *peer = &pt_rank[1 - r];
			const sr_u64 sent = k->count[b].sent,
				     words[] = {peer->words.tail[b].value, k->words.head[b].value};
			for (uint32_t i = 0; i < 2; i++)
				if (words[i] != sent)
					pt_fail("rank %u block %u has sent %llu, %s is %llu", r, b, sent, name[i],
						words[i]);
			if (peer->count[b].received != sent)
				pt_fail("rank %u block %u has sent %llu, %llu were received", r, b, sent,
					peer->count[b].received);
			if (k->count[b].ll_sent != peer->count[b].ll_received ||
			    k->count[b].ll_sent != k->words.ll_head[b].value)
				pt_fail("rank %u block %u: the counters of lines differ", r, b);
		}
}

static void pt_body(struct pt_thread *t) {
	if (t->index == pt_s->threads - 1 && pt_x->work.plan->abort) {
		pt_point(t);
		pt_gives_up(t, PT_EVENT_GIVE_UP, &pt_rank[0].state.abort, 1);
		pt_rank[0].state.abort = pt_rank[1].state.abort = 1;
	} else {
		const struct pt_part p = pt_part_of(t->index);
		pt_run_thread(&p, PT_MESSAGE);
	}
	t->state = PT_ENDED;
	pt_point(t);
}

static uint64_t pt_store_hash(struct pt_store *s) {
	if (!s->known)
		s->hash = pt_hash(&s->view, sizeof s->view);
	s->known = 1;
	return s->hash;
}

/*
 * Hash of the state that the future can depend on, besides the state of threads. It does not contain memory: each byte
 * has one writer, or several that are ordered, so it follows from the steps of the threads. The kept counters are
 * included because their `head` is a value that a thread has read without waiting.
 */
static uint64_t pt_rest(void) {
	uint64_t h = 0;
	for (uint32_t r = 0; r < 2; r++) {
		struct pt_rank *k = &pt_rank[r];
		h = pt_mix(h + pt_hash(k->count, sizeof k->count) + k->failed + 2 * k->ended + 4 * k->state.abort);
		for (uint32_t i = 0; i < 3 * PT_BLOCKS; i++)
			h = h * 0x9e3779b97f4a7c15u + pt_store_hash(&k->last[i / PT_BLOCKS][i % PT_BLOCKS]);
	}
	return pt_mix(h);
}

/* ---- exploration ------------------------------------------------------------------------------------------------ */

static void pt_thread_name(const struct pt_part *p, char *text, size_t size) {
	static const char *const role[] = {"sender", "receiver"};
	if (p->rank > 1)
		snprintf(text, size, "the parent");
	else
		snprintf(text, size, "rank %u block %u %s.%u", p->rank, p->block, role[p->role], p->thread);
}

static void pt_object_text(const void *object, char *text, size_t size) {
	static const char *const name[] = {"tail", "head", "ll_head"};
	for (uint32_t r = 0; r < 2; r++) {
		const struct pt_rank *k = &pt_rank[r];
		const size_t at = (size_t)((const char *)object - (const char *)k);
		if ((const char *)object < (const char *)k || at >= sizeof *k)
			continue;
		if (at >= offsetof(struct pt_rank, state))
			snprintf(text, size, "all waits");
		else if (at >= offsetof(struct pt_rank, wide))
			snprintf(text, size, "rank %u's line of 128 bytes %zu", r,
				 (at - offsetof(struct pt_rank, wide)) / sizeof(struct pt_wide));
		else if (at >= offsetof(struct pt_rank, line))
			snprintf(text, size, "rank %u's line %zu", r,
				 (at - offsetof(struct pt_rank, line)) / sizeof(struct pt_line));
		else if (at >= offsetof(struct pt_rank, staging))
			snprintf(text, size, "rank %u's staging+%zu", r, at - offsetof(struct pt_rank, staging));
		else if (at >= offsetof(struct pt_rank, dst))
			snprintf(text, size, "rank %u's inbox+%zu", r, at - offsetof(struct pt_rank, dst));
		else {
			const struct pt_word w = pt_word_of(object);
			snprintf(text, size, "rank %u's %s of block %u", w.rank, name[w.kind], w.block);
		}
		return;
	}
}

static void pt_state_text(const struct pt_thread *t, char *text, size_t size) {
	char who[64], what[64] = "";
	const struct pt_part p = pt_part_of(t->index);
	pt_thread_name(&p, who, sizeof who);
	pt_object_text((const void *)t->word, what, sizeof what);
	snprintf(text, size, " %s waits for %s;", who, what);
}

static void pt_trace(const struct pt_schedule *s, char *text, size_t size) {
	static const char *const did[] = {
		[PT_EVENT_BARRIER] = "comes to", [PT_EVENT_STORE] = "stores to",  [PT_EVENT_POLL] = "has waited for",
		[PT_EVENT_LOOK] = "polls at",    [PT_EVENT_GIVE_UP] = "gives up", [PT_EVENT_COPY] = "copies to",
		[PT_EVENT_PUT] = "puts",         [PT_EVENT_GET] = "gets",
	};
	const uint32_t n = s->events < PT_EVENTS ? s->events : PT_EVENTS;
	size_t used = 0;
	for (uint32_t i = n > 100 ? n - 100 : 0; i < n && used < size; i++) {
		const struct pt_event *e = &s->event[i];
		char who[64], what[64] = "a barrier";
		const struct pt_part p = pt_part_of(e->thread);
		pt_thread_name(&p, who, sizeof who);
		if (e->object)
			pt_object_text(e->object, what, sizeof what);
		used += (size_t)snprintf(text + used, size - used, "%s %s %s: %llu\n", who, did[e->kind], what,
					 (unsigned long long)e->value);
	}
}

static void pt_set_up(struct pt_run *x, struct pt_schedule *s) {
	for (uint32_t l = 0; l < x->work.launches; l++)
		x->work.blocks = x->work.launch[l].ctas > x->work.blocks ? x->work.launch[l].ctas : x->work.blocks;
	for (uint32_t l = 0; l < x->work.launches; l++)
		x->drains |= x->work.launch[l].side[0].drain | x->work.launch[l].side[1].drain;
	s->threads = 4 * x->work.blocks * x->work.plan->threads + (x->work.plan->abort ? 1 : 0);
	s->bound = x->work.plan->preemptions;
	s->body = pt_body;
	for (uint32_t r = 0; r < 2; r++) {
		struct pt_team *t = &x->team[r];
		t->stream = (struct pt_barrier){
			.size = 2 * x->work.blocks * x->work.plan->threads, .last = pt_host, .self = (void *)(size_t)r};
		for (uint32_t b = 0; b < PT_BLOCKS; b++) {
			t->block[b].size = 2 * x->work.plan->threads;
			t->role[b][0].size = t->role[b][1].size = x->work.plan->threads;
		}
	}
}

/* Resets everything to the state before the first message. */
static void pt_begin(struct pt_run *x) {
	pt_reset_memory(x->work.plan->start);
	for (uint32_t r = 0; r < 2; r++) {
		x->at[r] = x->team[r].stream.arrived = 0;
		for (uint32_t b = 0; b < PT_BLOCKS; b++)
			x->team[r].block[b].arrived = x->team[r].role[b][0].arrived = x->team[r].role[b][1].arrived = 0;
		pt_fill_window(r, 0);
	}
}

/* An execution, and the checks at its end. */
static int pt_try(struct pt_run *x, struct pt_schedule *s) {
	pt_begin(x);
	int outcome = pt_execute(s);
	if (outcome != PT_FINISHED || x->work.plan->abort)
		return outcome;
	if (!_setjmp(s->home))
		pt_check_words();
	return pt_s->outcome;
}

static void pt_search(struct pt_run *x, struct pt_schedule *s, struct pt_result *r) {
	do {
		if (s->executions == x->work.plan->executions)
			return;
		if (pt_try(x, s) == PT_FAILED) {
			r->failed = 1;
			memcpy(r->text, s->text, sizeof r->text);
			pt_trace(s, r->trace, sizeof r->trace);
			return;
		}
	} while (pt_next(s));
	r->complete = 1;
}

void pt_explore(const struct pt_plan *p, const struct pt_launch *l, uint32_t launches, struct pt_result *r) {
	struct pt_run x = {.work = {.plan = p, .launch = l, .launches = launches}};
	struct pt_schedule *s = calloc(1, sizeof *s);
	memset(r, 0, sizeof *r);
	pt_rank = calloc(2, sizeof *pt_rank);
	pt_x = &x;
	pt_s = s;
	if (s && pt_rank) {
		pt_set_up(&x, s);
		if (pt_prepare(s))
			pt_search(&x, s, r);
	}
	if (!r->complete && !r->failed)
		snprintf(r->text, sizeof r->text, "not all schedules were tried");
	r->executions = s ? s->executions : 0;
	r->branches = s ? s->branches : 0;
	if (s)
		pt_dispose(s);
	free(pt_rank);
}
