/*
 * schedule.h: coroutines on one OS thread, here called threads, and a search through the orders in which they can run.
 *
 * A thread calls pt_point before an action that another thread can observe, pt_wait for a wait, and pt_wait_barrier for
 * a barrier. A thread whose wait is not satisfied cannot be chosen. A schedule is executed from its beginning to its
 * end; the next one repeats it up to the last choice that has an untried alternative. A switch away from a thread that
 * could continue is a preemption, whose number per schedule is limited; at waits the choice is free.
 *
 * A state that was visited before with at least as many preemptions left is not visited again. The state of a thread is
 * its number of steps, the wait that it is in, the values that it has read and still uses (`kept`), and its view of the
 * other threads; the includer adds everything else that the future can depend on (pt_rest).
 *
 * The includer has included plan.h and defines PT_THREADS, an even number, pt_rest and pt_state_text.
 */
#ifndef P2P_PROTOCOLTEST_SCHEDULE_H
#define P2P_PROTOCOLTEST_SCHEDULE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { PT_STACK = 64 << 10, PT_DEPTH = 4096, PT_EVENTS = 4096 };

/* PT_FRESH: its next actions cannot be observed, so it runs before any choice. */
enum { PT_FRESH, PT_READY, PT_WAITS_WORD, PT_WAITS_FLAG, PT_WAITS_VALUE, PT_WAITS_BARRIER, PT_ENDED };
enum { PT_GOES_ON, PT_FINISHED, PT_PRUNED, PT_FAILED };

/*
 * By thread, the time up to which its actions are ordered before the next action of the owner: `all`: all actions,
 * before the owner's loads and stores. `loads`: its loads, before the owner's stores; at least `all`.
 */
struct pt_view {
	uint32_t all[PT_THREADS], loads[PT_THREADS];
};

struct pt_thread {
	jmp_buf at, base; /* where it continues; where every execution begins */
	ucontext_t first;
	char *stack;
	uint32_t index, state;
	const volatile uint64_t
		*word; /* the word that it waits for: until it is `want` or more, or has the flag `want` */
	uint64_t want;
	const uint32_t *stop; /* 1: the wait may be given up */
	uint32_t time;        /* grows when others can observe its actions */
	struct pt_view view;
	int vote;
	uint32_t steps; /* its actions, without polls, some of which may be left out … */
	uint32_t polls; /* … and polls since its last step */
	/*
	 * Values that it has read without waiting for them, and may still use. Everything else on its stack follows
	 * from `steps`.
	 */
	const void *kept;
	uint32_t kept_bytes;
	uint32_t changed;  /* 1: hash is to be computed again */
	uint64_t hash;     /* of the state of the thread */
	uint64_t given_up; /* hash of the waits that it gave up */
};

struct pt_choice {
	uint8_t pick, of;
};

struct pt_event {
	uint8_t thread, kind;
	const void *object;
	uint64_t value;
};

struct pt_seen {
	uint64_t key;
	uint32_t used; /* preemptions */
	uint32_t full;
};

struct pt_schedule {
	jmp_buf home;
	ucontext_t maker;
	struct pt_thread thread[PT_THREADS];
	uint32_t threads;
	void (*body)(struct pt_thread *);
	struct pt_thread *now;    /* runs */
	struct pt_thread *chosen; /* by the last choice; NULL: none yet */
	int outcome;
	uint32_t used, bound; /* preemptions */
	struct pt_choice choice[PT_DEPTH];
	uint32_t depth, length; /* next choice, and number of recorded choices */
	struct pt_seen *seen;
	uint64_t seen_size, seen_count; /* size is a power of two */
	struct pt_event event[PT_EVENTS];
	uint32_t events;
	uint64_t executions, branches;
	char text[PT_TEXT];
};

/* The exploration of this OS thread. */
static _Thread_local struct pt_schedule *pt_s;

static uint64_t pt_mix(uint64_t x) { /* the finaliser of SplitMix64 (Steele, Lea, Flood 2014) */
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* Of n bytes, a multiple of 8. */
static uint64_t pt_hash(const void *p, size_t n) {
	uint64_t lane[2] = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u}, v;
	for (size_t i = 0; i < n / 8; i++) {
		memcpy(&v, (const char *)p + 8 * i, 8);
		lane[i & 1] = (lane[i & 1] ^ v) * 0x94d049bb133111ebu;
		lane[i & 1] ^= lane[i & 1] >> 29;
	}
	return pt_mix(lane[0] + pt_mix(lane[1]));
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* Goes from one thread to where another one has stopped. */
static void pt_switch(struct pt_thread *from, struct pt_thread *to) {
	from->changed = 1;
	if (!_setjmp(from->at))
		_longjmp(to->at, 1);
}

static uint64_t pt_thread_hash(struct pt_thread *t) {
	if (t->changed) {
		const uint64_t h[] = {
			t->state,
			t->time,
			(uint64_t)t->vote,
			t->steps,
			t->polls,
			(uint64_t)(uintptr_t)t->word,
			t->want,
			t->given_up,
			t->kept ? pt_hash(t->kept, t->kept_bytes) : 0,
			pt_hash(&t->view, sizeof t->view),
		};
		t->hash = pt_hash(h, sizeof h);
	}
	t->changed = 0;
	return t->hash;
}

/* Ends the execution. Does not return. */
static void pt_end(int outcome) {
	pt_s->outcome = outcome;
	_longjmp(pt_s->home, 1);
}

__attribute__((format(printf, 1, 2))) static void pt_fail(const char *format, ...) {
	va_list args;
	va_start(args, format);
	vsnprintf(pt_s->text, sizeof pt_s->text, format, args);
	va_end(args);
	pt_end(PT_FAILED);
}

static void pt_enter(void) {
	struct pt_thread *t = pt_s->now;
	if (!_setjmp(t->base))
		setcontext(&pt_s->maker);
	pt_s->now->state = PT_READY;
	pt_s->body(pt_s->now);
}

/* Makes a thread at its beginning. Returns 0 if there is no memory for it. */
static int pt_make(struct pt_schedule *s, uint32_t index) {
	struct pt_thread *t = &s->thread[index];
	volatile int made = 0;
	t->index = index;
	t->stack = malloc(PT_STACK);
	if (!t->stack)
		return 0;
	getcontext(&t->first);
	t->first.uc_stack.ss_sp = t->stack;
	t->first.uc_stack.ss_size = PT_STACK;
	t->first.uc_link = NULL;
	makecontext(&t->first, pt_enter, 0);
	s->now = t;
	getcontext(&s->maker);
	if (!made) {
		made = 1;
		setcontext(&t->first);
	}
	return 1;
}

static int pt_enabled(const struct pt_thread *t) {
	switch (t->state) {
	case PT_READY:
		return 1;
	case PT_WAITS_WORD:
		return *t->word >= t->want || *t->stop;
	case PT_WAITS_FLAG:
		return *t->word >> 32 == t->want || *t->stop;
	case PT_WAITS_VALUE:
		return *t->word == t->want || *t->stop;
	default:
		return 0;
	}
}

/* ---- recorded events ------------------------------------------------------------------------------------------ */

/* Records an event of the schedule. */
static void pt_record(struct pt_thread *t, int kind, const void *object, uint64_t value) {
	if (pt_s->events < PT_EVENTS)
		pt_s->event[pt_s->events] = (struct pt_event){(uint8_t)t->index, (uint8_t)kind, object, value};
	pt_s->events++;
	t->changed = 1;
}

/* An action that every schedule with this state contains. */
static void pt_step(struct pt_thread *t, int kind, const void *object, uint64_t value) {
	pt_record(t, kind, object, value);
	t->steps++;
	t->polls = 0;
}

/* A poll, which other schedules with this state may not contain. */
static void pt_polls(struct pt_thread *t, int kind, const void *object, uint64_t value) {
	pt_record(t, kind, object, value);
	t->polls++;
}

/* The thread gives up a wait. */
static void pt_gives_up(struct pt_thread *t, int kind, const void *object, uint64_t value) {
	pt_record(t, kind, object, value);
	t->given_up = pt_mix(t->given_up + (uint64_t)(uintptr_t)object + value);
}

/* A barrier, which passes a value of one thread to all. */
struct pt_barrier {
	uint32_t size, arrived;
	struct pt_thread *at[PT_THREADS];
	int vote;
	void (*last)(struct pt_thread *, void *); /* NULL, or called by the last thread before all continue */
	void *self;
};

static void pt_join(uint32_t *into, const uint32_t *more) {
	for (uint32_t i = 0; i < PT_THREADS; i++)
		into[i] = more[i] > into[i] ? more[i] : into[i];
}

static void pt_join_all(struct pt_view *into, const struct pt_view *more) {
	pt_join(into->all, more->all);
	pt_join(into->loads, more->loads);
}

/* Starts a new time, whose actions no other thread is ordered after. */
static void pt_tick(struct pt_thread *t) {
	const uint32_t i = t->index;
	t->view.all[i] = t->view.loads[i] = ++t->time;
}

/* ---- choices ---------------------------------------------------------------------------------------------------- */

static int pt_grow(struct pt_schedule *s) {
	uint64_t size = s->seen_size ? 2 * s->seen_size : 1 << 14;
	struct pt_seen *seen = calloc(size, sizeof *seen);
	if (!seen)
		return 0;
	for (uint64_t i = 0; i < s->seen_size; i++) {
		if (!s->seen[i].full)
			continue;
		uint64_t j = s->seen[i].key & (size - 1);
		while (seen[j].full)
			j = (j + 1) & (size - 1);
		seen[j] = s->seen[i];
	}
	free(s->seen);
	s->seen = seen;
	s->seen_size = size;
	return 1;
}

static uint64_t pt_rest(void);

/* Whether the state was explored already; if not, marks it as explored. */
static int pt_known(struct pt_schedule *s, const struct pt_thread *current) {
	uint64_t key = pt_mix(current ? current->index + 1 : 0) + pt_rest();
	for (uint32_t i = 0; i < s->threads; i++)
		key += pt_mix(pt_thread_hash(&s->thread[i]) + i);
	if (2 * s->seen_count >= s->seen_size && !pt_grow(s))
		pt_fail("no memory for the states that were seen");
	uint64_t j = key & (s->seen_size - 1);
	for (; s->seen[j].full; j = (j + 1) & (s->seen_size - 1)) {
		if (s->seen[j].key != key)
			continue;
		if (s->seen[j].used <= s->used)
			return 1;
		s->seen[j].used = s->used;
		return 0;
	}
	s->seen[j] = (struct pt_seen){key, s->used, 1};
	s->seen_count++;
	return 0;
}

/* Chooses one of n threads; the first is the current thread, if it can continue. */
static uint32_t pt_branch(struct pt_schedule *s, const struct pt_thread *current, uint32_t n) {
	if (s->depth == s->length) {
		if (pt_known(s, current))
			pt_end(PT_PRUNED);
		if (s->length == PT_DEPTH)
			pt_fail("more than %d choices in one execution", PT_DEPTH);
		s->choice[s->length++] = (struct pt_choice){0, (uint8_t)n};
		s->branches++;
	}
	return s->choice[s->depth++].pick;
}

static void pt_state_text(const struct pt_thread *t, char *text, size_t size);

/* No thread can continue. */
static void pt_stuck(struct pt_schedule *s) {
	char text[sizeof s->text] = "deadlock:";
	int all = 1, n = 0;
	for (uint32_t i = 0; i < s->threads; i++) {
		const struct pt_thread *t = &s->thread[i];
		const size_t used = strlen(text);
		all = all && t->state == PT_ENDED;
		n += t->state == PT_WAITS_BARRIER;
		if (t->state == PT_WAITS_WORD || t->state == PT_WAITS_FLAG || t->state == PT_WAITS_VALUE)
			pt_state_text(t, text + used, sizeof text - used);
	}
	if (all)
		pt_end(PT_FINISHED);
	pt_fail("%s %d wait at barriers", text, n);
}

static struct pt_thread *pt_choose(struct pt_schedule *s) {
	struct pt_thread *way[PT_THREADS], *current = s->chosen;
	uint32_t n = 0, pick = 0;
	for (uint32_t i = 0; i < s->threads; i++)
		if (s->thread[i].state == PT_FRESH)
			return &s->thread[i];
	if (current && pt_enabled(current))
		way[n++] = current;
	else
		current = NULL;
	for (uint32_t i = 0; i < s->threads && (!current || s->used < s->bound); i++)
		if (&s->thread[i] != current && pt_enabled(&s->thread[i]))
			way[n++] = &s->thread[i];
	if (n == 0)
		pt_stuck(s);
	if (n > 1)
		pick = pt_branch(s, current, n);
	if (current && pick != 0)
		s->used++;
	return s->chosen = way[pick];
}

/* Lets the search choose the thread that continues. */
static void pt_point(struct pt_thread *self) {
	struct pt_thread *next = pt_choose(pt_s);
	if (next == self)
		return;
	pt_s->now = next;
	pt_switch(self, next);
}

/* Waits in a state other than PT_READY until it is chosen. */
static void pt_wait(struct pt_thread *self, uint32_t state) {
	self->state = state;
	self->changed = 1;
	pt_point(self);
	self->state = PT_READY;
	self->word = NULL;
	self->want = 0;
	self->changed = 1;
}

enum { PT_EVENT_BARRIER = 1, PT_EVENTS_MORE };

/* Waits at a barrier. Returns the value of the thread that passed one. */
static int pt_wait_barrier(struct pt_barrier *b, struct pt_thread *self, const int *vote) {
	pt_step(self, PT_EVENT_BARRIER, NULL, b->arrived);
	if (vote)
		b->vote = *vote;
	b->at[b->arrived++] = self;
	if (b->arrived < b->size) {
		self->state = PT_WAITS_BARRIER;
		pt_point(self);
		self->state = PT_READY;
		return self->vote;
	}
	b->arrived = 0;
	for (uint32_t i = 0; i < b->size; i++)
		pt_join_all(&self->view, &b->at[i]->view);
	if (b->last)
		b->last(self, b->self);
	for (uint32_t i = 0; i < b->size; i++) {
		struct pt_thread *t = b->at[i];
		t->view = self->view;
		t->changed = 1;
		t->vote = b->vote;
		t->state = PT_FRESH;
	}
	for (uint32_t i = 0; i < b->size; i++)
		pt_tick(b->at[i]);
	self->state = PT_READY;
	return self->vote;
}

/* ---- the search ------------------------------------------------------------------------------------------------- */

/* Executes the recorded choices, and then the first alternative of each new choice. */
static int pt_execute(struct pt_schedule *s) {
	s->used = s->depth = s->events = 0;
	s->outcome = PT_GOES_ON;
	s->chosen = NULL;
	s->executions++;
	for (uint32_t i = 0; i < s->threads; i++) {
		struct pt_thread *t = &s->thread[i];
		memcpy(t->at, t->base, sizeof t->at);
		memset(&t->view, 0, sizeof t->view);
		t->time = 0;
		pt_tick(t);
		t->state = PT_FRESH;
		t->steps = t->polls = 0;
		t->word = NULL;
		t->want = 0;
		t->kept = NULL;
		t->given_up = 0;
		t->changed = 1;
	}
	if (!_setjmp(s->home)) {
		s->now = pt_choose(s);
		_longjmp(s->now->at, 1);
	}
	return pt_s->outcome;
}

/* Advances to the next schedule. Returns 0 if there is none. */
static int pt_next(struct pt_schedule *s) {
	for (; s->length > 0; s->length--) {
		struct pt_choice *c = &s->choice[s->length - 1];
		if (++c->pick < c->of)
			return 1;
	}
	return 0;
}

/* threads and body are set. Returns 0 if there is no memory. */
static int pt_prepare(struct pt_schedule *s) {
	for (uint32_t i = 0; i < s->threads; i++)
		if (!pt_make(s, i))
			return 0;
	return pt_grow(s);
}

static void pt_dispose(struct pt_schedule *s) {
	for (uint32_t i = 0; i < PT_THREADS; i++)
		free(s->thread[i].stack);
	free(s->seen);
	free(s);
}

#endif
