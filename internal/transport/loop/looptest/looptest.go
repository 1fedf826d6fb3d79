// Package looptest lets tests be the clock of a timed loop, and its steps.
package looptest

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../../.. -DP2P_SHARED_HEADERS=0xcbe43ac2
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

// The time is what steps make it.
static uint64_t time_ns;
static int fake_clock(struct timespec *t) {
	*t = (struct timespec){(time_t)(time_ns / 1000000000u), (long)(time_ns % 1000000000u)};
	return 0;
}
#define clock_gettime(id, t) fake_clock(t)
#include "transport/loop/loop.h"
#undef clock_gettime

static void take(const struct p2p_batch *b, struct p2p_result *r, int64_t *samples, const uint64_t *t) {
	static const struct p2p_clock clock = {.ns_per_tick = 1, .tsc = 1};
	static const struct p2p_ctx ctx = {.clock = &clock};
	const struct p2p_loop l = {.ctx = &ctx, .b = b, .r = r, .samples = samples};
	for (uint32_t i = 0; i < p2p_loop_length(&l); i++)
		p2p_loop_sample(&l, i, t[2 * i], t[2 * i + 1]);
}

struct run {
	struct p2p_loop l;
	const char *fails; // the step that does; "": none
	char trace[512];
};

// What a step does: it is noted, takes so long, and may fail.
static int step(struct run *x, const char *name, uint64_t ns) {
	size_t n = strlen(x->trace);
	snprintf(x->trace + n, sizeof x->trace - n, "%s%s", n ? " " : "", name);
	time_ns += ns;
	return strcmp(name, x->fails) ? P2P_OK : p2p_fail(x->l.e, P2P_ERR_DEVICE, 0, name);
}

static int bind(struct run *x) { return step(x, "bind", 0); }
static int poison(struct run *x, uint32_t k) { return (void)k, step(x, "poison", 1000); }
static int record(struct run *x) { return step(x, "record", 1000); }
static int begin(struct run *x, uint32_t i, uint32_t *n) { return (void)i, (void)n, step(x, "begin", 1000); }
static int burst(struct run *x, uint32_t i, uint32_t *n) {
	*n = p2p_loop_length(&x->l) - i;
	return step(x, "begin", 1000);
}
static int fill(struct run *x, uint32_t i, uint32_t k, uint64_t density) {
	return (void)i, (void)k, (void)density, step(x, "fill", 1000);
}
static int leave(struct run *x, uint32_t i, uint32_t k) { return (void)i, (void)k, step(x, "leave", 1000); }
static int credit(struct run *x, enum p2p_role role, uint32_t i) { return (void)role, (void)i, step(x, "credit", 1000); }
static int await_credit(struct run *x, enum p2p_role role, uint32_t i) {
	return (void)role, (void)i, step(x, "await_credit", 1000);
}
static int transfer(struct run *x, enum p2p_role role, uint32_t i) { return (void)role, (void)i, step(x, "transfer", 2); }
static int acknowledge(struct run *x) { return step(x, "acknowledge", 10); }
static int await_ack(struct run *x) { return step(x, "await_ack", 100); }
static int64_t duration(struct run *x, uint32_t i, uint32_t k) { return (void)x, 40 + i + k; }
static int enqueue(struct run *x, enum p2p_role role, uint32_t q) { return (void)role, step(x, q ? "enqueue1" : "enqueue0", 1000); }
static int cleanup(struct run *x) { return step(x, "cleanup", 1000); }
static int verify(struct run *x, uint32_t i, uint32_t k) { return (void)i, (void)k, step(x, "verify", 1000); }

#define COMMON \
	.bind = bind, .poison = poison, .record = record, .fill = fill, .leave = leave, .transfer = transfer, \
	.cleanup = cleanup, .verify = verify
static const struct p2p_steps acknowledged = {COMMON, .begin = begin, .credit = credit, .await_credit = await_credit,
	.acknowledge = acknowledge, .await_ack = await_ack};
static const struct p2p_steps unacknowledged = {COMMON, .enqueue = enqueue, .each_rank_times = 1};
static const struct p2p_steps bursts = {COMMON, .begin = burst, .duration = duration};

// A queue: the word at which it waits is looked at when the host waits for it.
struct queue {
	struct p2p_queue q;
	struct run *x;
	uint64_t *word, value, ns;
};
static int q_bind(void *self, struct p2p_error *e) { return (void)self, (void)e, P2P_OK; }
static int q_await(void *self, uint64_t *word, uint64_t value, struct p2p_error *e) {
	struct queue *q = self;
	(void)e;
	q->word = word;
	q->value = value;
	return step(q->x, "await", 1000);
}
static int q_event(void *self, uint32_t i, struct p2p_error *e) {
	return (void)e, step(((struct queue *)self)->x, i ? "event1" : "event0", 1000);
}
static int q_wait(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	struct queue *q = self;
	(void)c, (void)e;
	return step(q->x, *q->word == q->value ? "wait" : "wait for the word", 1000);
}
static int q_elapsed(void *self, uint32_t i, uint32_t j, uint64_t *ns, struct p2p_error *e) {
	(void)i, (void)j, (void)e;
	*ns = ((struct queue *)self)->ns;
	return P2P_OK;
}

static int run(int timing, int role, const struct p2p_batch *b, const char *fails, int64_t *samples, struct p2p_result *r,
	       struct p2p_error *e, char *trace, size_t room, uint32_t *phase, int *released) {
	static const struct p2p_clock clock = {.ns_per_tick = 1};
	static struct p2p_progress progress;
	static const struct p2p_ctx ctx = {.clock = &clock, .progress = &progress, .team = &progress, .ranks = 1};
	_Atomic uint64_t word = 0;
	struct run x = {.l = {.ctx = &ctx, .b = b, .r = r, .e = e, .samples = samples}, .fails = fails};
	struct queue q[2];
	struct p2p_stream_wait stream_wait = {.queues = 2, .word = &word};
	for (int i = 0; i < 2; i++) {
		q[i] = (struct queue){{.self = &q[i], .bind = q_bind, .await = q_await, .event = q_event, .wait = q_wait,
			.elapsed = q_elapsed}, &x, NULL, 0, i ? 70 : 50};
		stream_wait.queue[i] = &q[i].q;
	}
	x.l.stream_wait = timing == 2 ? &stream_wait : NULL;
	int rc;
	switch (timing) {
	case 0:
		rc = p2p_loop_run(&x.l, &acknowledged, &x, (enum p2p_role)role);
		break;
	case 3:
		rc = p2p_loop_run(&x.l, &bursts, &x, (enum p2p_role)role);
		break;
	default:
		rc = p2p_loop_run(&x.l, &unacknowledged, &x, (enum p2p_role)role);
	}
	*phase = progress.phase;
	*released = word == stream_wait.value;
	snprintf(trace, room, "%s", x.trace);
	return rc;
}
*/
import "C"

import (
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport/loop"
)

// Take takes the samples of a batch whose iteration i lasts from times[2i] to times[2i+1], in ns.
func Take(call *loop.Call, samples []int64, times ...uint64) {
	C.take((*C.struct_p2p_batch)(call.Batch()), (*C.struct_p2p_result)(call.Result()), (*C.int64_t)(unsafe.SliceData(samples)),
		(*C.uint64_t)(unsafe.SliceData(times)))
}

// The roles of a rank in an operation.
const (
	Send     = C.P2P_SEND
	Receive  = C.P2P_RECEIVE
	Exchange = C.P2P_EXCHANGE
	Ping     = C.P2P_PING
	Pong     = C.P2P_PONG
)

// Who times, and how a rank knows that an operation has ended.
const (
	Acknowledged   = iota // by the host; ranks grant credits and acknowledge
	Unacknowledged        // by the host; each rank times its own part
	Device                // by the device; two queues that take 50 and 70 ns
	Bursts                // by the transport; iteration i takes 40+i ns, and all are one burst
)

// Outcome is what is left of a batch.
type Outcome struct {
	Steps    string    // in the order of their calls
	Phase    abi.Phase // of the rank when the batch ended
	Released bool      // no queue waits for the host
}

// Run runs a batch of one rank whose steps do nothing: a transfer takes 2 ns, an acknowledgement 10, the wait for one 100,
// every other step 1,000. fails names the step that fails.
func Run(call *loop.Call, timing, role int, fails string, samples []int64) Outcome {
	const room = 512
	name, trace := C.CString(fails), (*C.char)(C.calloc(1, room))
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(trace))
	var phase C.uint32_t
	var released C.int
	C.run(C.int(timing), C.int(role), (*C.struct_p2p_batch)(call.Batch()), name, (*C.int64_t)(unsafe.SliceData(samples)),
		(*C.struct_p2p_result)(call.Result()), (*C.struct_p2p_error)(call.Error()), trace, room, &phase, &released)
	return Outcome{C.GoString(trace), abi.Phase(phase), released != 0}
}
