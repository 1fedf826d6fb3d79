package enginetest

/*
#include <stdlib.h>
#include "gpu/abi/p2p.h"

// Go passes addresses of device memory as numbers.
static int queue_bind(struct p2p_queue *q, struct p2p_error *e) { return q->bind(q->self, e); }
static int queue_find(struct p2p_queue *q, _GoString_ name, uint32_t shared, uintptr_t *kernel, struct p2p_error *e) {
	char text[64];
	void *found = NULL;
	snprintf(text, sizeof text, "%.*s", (int)_GoStringLen(name), _GoStringPtr(name));
	int rc = q->find(q->self, text, shared, &found, e);
	*kernel = (uintptr_t)found;
	return rc;
}
static int queue_start(struct p2p_queue *q, uintptr_t kernel, struct p2p_launch l, struct p2p_error *e) {
	l.kernel = (void *)kernel;
	return q->start(q->self, &l, e);
}
static int queue_copy(struct p2p_queue *q, uintptr_t dst, uintptr_t src, size_t n, struct p2p_error *e) {
	return q->copy(q->self, (void *)dst, (const void *)src, n, e);
}
static int queue_write(struct p2p_queue *q, uintptr_t word, uint64_t value, struct p2p_error *e) {
	return q->write(q->self, (uint64_t *)word, value, e);
}
static int queue_await(struct p2p_queue *q, uintptr_t word, uint64_t value, struct p2p_error *e) {
	return q->await(q->self, (uint64_t *)word, value, e);
}
static int queue_event(struct p2p_queue *q, uint32_t i, struct p2p_error *e) { return q->event(q->self, i, e); }
static int queue_elapsed(struct p2p_queue *q, uint32_t i, uint32_t j, uint64_t *ns, struct p2p_error *e) {
	return q->elapsed(q->self, i, j, ns, e);
}
static int queue_wait(struct p2p_queue *q, const struct p2p_ctx *c, struct p2p_error *e) {
	return q->wait(q->self, c, e);
}
static int queue_record_begin(struct p2p_queue *q, struct p2p_error *e) { return q->record_begin(q->self, e); }
static int queue_record_end(struct p2p_queue *q, struct p2p_error *e) { return q->record_end(q->self, e); }
static int queue_replay(struct p2p_queue *q, struct p2p_error *e) { return q->replay(q->self, e); }
*/
import "C"

import (
	"runtime"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Events is the number of events of a queue.
const Events = C.P2P_EVENTS

// Queue calls the functions of a queue table. A recording must begin and end on one thread.
type Queue struct{ c *C.struct_p2p_queue }

// NewQueue wraps q.
func NewQueue(q *abi.Queue) Queue { return Queue{(*C.struct_p2p_queue)(q.Pointer())} }

// call binds the queue to this thread and runs f on it.
func (q Queue) call(f func(e *C.struct_p2p_error) C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return abi.Call(func(e *C.struct_p2p_error) {
		if C.queue_bind(q.c, e) == C.P2P_OK {
			f(e)
		}
	})
}

// HasStream reports whether the queue offers its stream to libraries.
func (q Queue) HasStream() bool { return q.c.stream != nil }

// Find finds a kernel; shared is the largest dynamic shared memory of its launches in bytes.
func (q Queue) Find(name string, shared uint32) (kernel uintptr, err error) {
	var k C.uintptr_t
	err = q.call(func(e *C.struct_p2p_error) C.int { return C.queue_find(q.c, name, C.uint32_t(shared), &k, e) })
	return uintptr(k), err
}

// KernelLaunch is one launch of a kernel.
type KernelLaunch struct {
	Kernel                uintptr // from Find
	CTAs, Threads, Shared uint32
	Overlap               bool
	Args                  []byte
}

// Start starts a kernel.
func (q Queue) Start(l KernelLaunch) error {
	args := C.CBytes(l.Args)
	defer C.free(args)
	c := C.struct_p2p_launch{
		ctas: C.uint32_t(l.CTAs), threads: C.uint32_t(l.Threads), shared: C.uint32_t(l.Shared),
		bytes: C.uint32_t(len(l.Args)), args: args,
	}
	if l.Overlap {
		c.overlap = 1
	}
	return q.call(func(e *C.struct_p2p_error) C.int { return C.queue_start(q.c, C.uintptr_t(l.Kernel), c, e) })
}

// Copy enqueues a copy.
func (q Queue) Copy(dst, src uintptr, n uint64) error {
	return q.call(func(e *C.struct_p2p_error) C.int {
		return C.queue_copy(q.c, C.uintptr_t(dst), C.uintptr_t(src), C.size_t(n), e)
	})
}

// Write enqueues the write of a word.
func (q Queue) Write(word uintptr, value uint64) error {
	return q.call(func(e *C.struct_p2p_error) C.int {
		return C.queue_write(q.c, C.uintptr_t(word), C.uint64_t(value), e)
	})
}

// Await enqueues a wait until the word has that value.
func (q Queue) Await(word uintptr, value uint64) error {
	return q.call(func(e *C.struct_p2p_error) C.int {
		return C.queue_await(q.c, C.uintptr_t(word), C.uint64_t(value), e)
	})
}

// Event enqueues event i.
func (q Queue) Event(i int) error {
	return q.call(func(e *C.struct_p2p_error) C.int { return C.queue_event(q.c, C.uint32_t(i), e) })
}

// Elapsed is the time from event i to event j in ns.
func (q Queue) Elapsed(i, j int) (uint64, error) {
	var ns C.uint64_t
	err := q.call(func(e *C.struct_p2p_error) C.int {
		return C.queue_elapsed(q.c, C.uint32_t(i), C.uint32_t(j), &ns, e)
	})
	return uint64(ns), err
}

// Wait waits for all work of the queue.
func (q Queue) Wait(x *abi.Ctx) error {
	return q.call(func(e *C.struct_p2p_error) C.int {
		return C.queue_wait(q.c, (*C.struct_p2p_ctx)(x.Pointer()), e)
	})
}

// RecordBegin begins a recording.
func (q Queue) RecordBegin() error {
	return q.call(func(e *C.struct_p2p_error) C.int { return C.queue_record_begin(q.c, e) })
}

// RecordEnd ends the recording.
func (q Queue) RecordEnd() error {
	return q.call(func(e *C.struct_p2p_error) C.int { return C.queue_record_end(q.c, e) })
}

// Replay starts the recording.
func (q Queue) Replay() error {
	return q.call(func(e *C.struct_p2p_error) C.int { return C.queue_replay(q.c, e) })
}
