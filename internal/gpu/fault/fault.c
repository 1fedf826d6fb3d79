#include "fault.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

/* Number of recent fills that are kept, to identify messages by their address. */
#define REMEMBERED 256

/* Maximum number of deferred copies; when it is reached, the oldest copy starts. */
#define LATE 8192

/* FAULT_LATE: every LATE_POLLS-th poll of an incomplete mark completes it. */
#define LATE_POLLS 3

/* FAULT_KILL: longest wait for the last copy before the process is killed. */
#define LAST_WAIT_NS 10000000000u

struct fault {
	struct p2p_engine engine;
	struct p2p_engine *inner;
	int what;
	const struct p2p_ctx *ctx; /* of the last fill */
	uint64_t at, offset, copies, fills, struck;
	/* FAULT_LATE: copies that were requested but have not started, and the number of copies before each mark. */
	struct {
		uint8_t *dst;
		const uint8_t *src;
		size_t n;
	} late[LATE];
	uint64_t asked, begun, marked[P2P_MARKS];
	uint32_t polls;
	uint64_t since; /* FAULT_SLOW: start of the first copy that has not completed; 0: none */
	struct {
		uint8_t *p;
		size_t n;
		uint64_t key;
	} fill[REMEMBERED];
};

/* The number, from 1, of the latest fill that begins at src; 0: none. */
static uint64_t filled(const struct fault *f, const uint8_t *src) {
	for (uint64_t i = f->fills, seen = 0; i > 0 && seen < REMEMBERED; i--, seen++)
		if (f->fill[(i - 1) % REMEMBERED].p == src)
			return i;
	return 0;
}

static int fault_bind(void *self, struct p2p_error *e) {
	struct fault *f = self;
	return f->inner->bind(f->inner->self, e);
}

/*
 * Starts the deferred copies before number `limit`, after a pause in which a rank that was notified too early can read
 * stale bytes.
 */
static int catch_up(struct fault *f, uint64_t limit, struct p2p_error *e) {
	const struct timespec pause = {0, 1000000};
	if (f->begun < limit)
		nanosleep(&pause, NULL);
	for (; f->begun < limit; f->begun++) {
		const uint64_t k = f->begun % LATE;
		int rc = f->inner->copy(f->inner->self, f->late[k].dst, f->late[k].src, f->late[k].n, e);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

static int ask_late(struct fault *f, void *dst, const void *src, size_t n, struct p2p_error *e) {
	int rc = f->asked - f->begun == LATE ? catch_up(f, f->begun + 1, e) : P2P_OK;
	f->late[f->asked % LATE].dst = dst;
	f->late[f->asked % LATE].src = src;
	f->late[f->asked % LATE].n = n;
	f->asked++;
	f->struck++;
	return rc;
}

/* What has completed now took so much longer. */
static void slow_down(struct fault *f) {
	const uint64_t now = p2p_raw_ns();
	if (f->what != FAULT_SLOW || f->since == 0)
		return;
	for (uint64_t until = now + (now - f->since) * f->at / 100; p2p_raw_ns() < until;)
		;
	f->since = 0;
}

static int fault_wait(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	struct fault *f = self;
	int rc = catch_up(f, f->asked, e);
	if (rc == P2P_OK)
		rc = f->inner->wait(f->inner->self, c, e);
	slow_down(f);
	return rc;
}

static int fault_fill(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
		      struct p2p_error *e) {
	((struct fault *)self)->ctx = c;
	struct fault *f = self;
	f->fill[f->fills % REMEMBERED].p = p;
	f->fill[f->fills % REMEMBERED].n = n;
	f->fill[f->fills % REMEMBERED].key = key;
	f->fills++;
	if (f->what == FAULT_STALE && f->fills > f->at) {
		f->struck++;
		return P2P_OK;
	}
	return f->inner->fill(f->inner->self, c, p, n, key, step, e);
}

static int fault_check(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
		       struct p2p_mismatch *m, struct p2p_error *e) {
	struct fault *f = self;
	return f->inner->check(f->inner->self, c, p, n, key, step, m, e);
}

static int fault_mark(void *self, uint32_t i, struct p2p_error *e) {
	struct fault *f = self;
	if (f->what == FAULT_LATE) {
		f->marked[i % P2P_MARKS] = f->asked;
		return P2P_OK;
	}
	return f->inner->mark(f->inner->self, i, e);
}

static int fault_reached(void *self, uint32_t i, int *yes, struct p2p_error *e) {
	struct fault *f = self;
	if (f->what == FAULT_LATE) {
		*yes = f->begun >= f->marked[i % P2P_MARKS];
		if (*yes || ++f->polls % LATE_POLLS)
			return P2P_OK;
		int rc = catch_up(f, f->marked[i % P2P_MARKS], e);
		return rc || !f->ctx ? rc : f->inner->wait(f->inner->self, f->ctx, e);
	}
	int rc = f->inner->reached(f->inner->self, i, yes, e);
	if (*yes)
		slow_down(f);
	return rc;
}

/* Overwrites the byte at `offset` of fill number i with a different value. */
static int flip(struct fault *f, uint64_t i, struct p2p_error *e) {
	uint64_t key = f->fill[(i - 1) % REMEMBERED].key, other = key + 1;
	uint8_t *p = f->fill[(i - 1) % REMEMBERED].p;
	f->struck++;
	while (p2p_payload_byte(other, 0) == p2p_payload_byte(key, f->offset))
		other++;
	return f->inner->fill(f->inner->self, f->ctx, p + f->offset, 1, other, 0, e);
}

/* Copies n bytes and kills the process, also after a failure. */
static int die(struct fault *f, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct p2p_progress unused;
	struct p2p_ctx last = {.progress = &unused, .team = &unused, .timeout_ns = LAST_WAIT_NS};
	memset(&unused, 0, sizeof unused);
	int rc = f->inner->copy(f->inner->self, dst, src, n, e);
	if (rc == P2P_OK)
		rc = f->inner->wait(f->inner->self, &last, e);
	raise(SIGKILL);
	return rc;
}

/*
 * The hook for sends that bypass copy. FAULT_KILL kills the process before the message, since the engine cannot copy
 * half of it.
 */
static int fault_leave(void *self, const void *src, size_t n, struct p2p_error *e) {
	struct fault *f = self;
	uint64_t i = filled(f, src);
	(void)n;
	if (f->what > FAULT_KILL || i == 0 || f->copies++ != f->at)
		return P2P_OK;
	if (f->what == FAULT_KILL)
		raise(SIGKILL);
	return f->offset < f->fill[(i - 1) % REMEMBERED].n ? flip(f, i, e) : P2P_OK;
}

static int copy_slowly(struct fault *f, void *dst, const void *src, size_t n, struct p2p_error *e) {
	if (f->since == 0)
		f->since = p2p_raw_ns();
	f->struck++;
	int rc = f->inner->copy(f->inner->self, dst, src, n, e);
	if (!f->inner->async)
		slow_down(f);
	return rc;
}

/*
 * Only a copy that begins at the start of a payload written by this engine counts as a message. Other copies are later
 * parts of a message, or data that other ranks sent.
 */
static int fault_copy(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct fault *f = self;
	if (f->what == FAULT_LATE)
		return ask_late(f, dst, src, n, e);
	if (f->what == FAULT_SLOW)
		return copy_slowly(f, dst, src, n, e);
	if (f->what == FAULT_DROP && filled(f, src) && f->copies++ == f->at) {
		f->struck++;
		return P2P_OK;
	}
	if (f->what == FAULT_KILL && f->copies == f->at && filled(f, src))
		return die(f, dst, src, n / 2, e);
	int rc = fault_leave(self, src, n, e);
	return rc ? rc : f->inner->copy(f->inner->self, dst, src, n, e);
}

struct p2p_engine *p2p_fault_new(struct p2p_engine *inner, int what, uint64_t at, uint64_t offset) {
	struct fault *f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	f->inner = inner;
	f->what = what;
	f->at = at;
	f->offset = offset;
	f->engine = (struct p2p_engine){
		.abi = P2P_ABI,
		.async = inner->async || what == FAULT_LATE,
		.self = f,
		.bind = fault_bind,
		.copy = fault_copy,
		.wait = fault_wait,
		.fill = fault_fill,
		.check = fault_check,
		.stream = inner->stream,
		.leave = fault_leave,
		.mark = inner->mark || what == FAULT_LATE ? fault_mark : NULL,
		.reached = inner->reached || what == FAULT_LATE ? fault_reached : NULL,
	};
	return &f->engine;
}

uint64_t p2p_fault_struck(const struct p2p_engine *g) { return ((const struct fault *)g->self)->struck; }

void p2p_fault_free(struct p2p_engine *g) { free(g->self); }
