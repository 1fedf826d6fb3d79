// Package queuetest calls the functions of a queue table from Go, and sets up the memory of two ranks that send to each
// other with its kernels: for tests of queues and of the protocols without a transport.
package queuetest

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../../.. -DP2P_SHARED_HEADERS=0x44356ad4
#include "gpu/abi/p2p.h"

static void *find(struct p2p_queue *q, const char *name, struct p2p_error *e) {
	void *kernel = NULL;
	if (q->bind(q->self, e) == P2P_OK)
		q->find(q->self, name, 0, &kernel, e);
	return kernel;
}
static void copy(struct p2p_queue *q, uintptr_t dst, uintptr_t src, size_t n, struct p2p_error *e) {
	if (q->bind(q->self, e) == P2P_OK)
		q->copy(q->self, (void *)dst, (const void *)src, n, e);
}
static void set(struct p2p_queue *q, uintptr_t word, uint64_t value, struct p2p_error *e) {
	if (q->bind(q->self, e) == P2P_OK)
		q->write(q->self, (uint64_t *)word, value, e);
}
static void hold(struct p2p_queue *q, uintptr_t word, uint64_t value, struct p2p_error *e) {
	if (q->bind(q->self, e) == P2P_OK)
		q->await(q->self, (uint64_t *)word, value, e);
}
static void event(struct p2p_queue *q, uint32_t i, struct p2p_error *e) {
	if (q->bind(q->self, e) == P2P_OK)
		q->event(q->self, i, e);
}
static uint64_t elapsed(struct p2p_queue *q, uint32_t i, uint32_t j, struct p2p_error *e) {
	uint64_t ns = 0;
	if (q->bind(q->self, e) == P2P_OK)
		q->elapsed(q->self, i, j, &ns, e);
	return ns;
}
static void finish(struct p2p_queue *q, const struct p2p_ctx *c, struct p2p_error *e) {
	if (q->bind(q->self, e) == P2P_OK)
		q->wait(q->self, c, e);
}
static void record_begin(struct p2p_queue *q, struct p2p_error *e) {
	if (q->bind(q->self, e) == P2P_OK)
		q->record_begin(q->self, e);
}
static void record_end(struct p2p_queue *q, struct p2p_error *e) {
	if (q->bind(q->self, e) == P2P_OK)
		q->record_end(q->self, e);
}
static void replay(struct p2p_queue *q, struct p2p_error *e) {
	if (q->bind(q->self, e) == P2P_OK)
		q->replay(q->self, e);
}
static uint64_t load(uintptr_t word) { return atomic_load((_Atomic uint64_t *)word); }
static void store(uintptr_t word, uint64_t value) { atomic_store((_Atomic uint64_t *)word, value); }
*/
import "C"

import (
	"errors"
	"runtime"
	"time"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Events is the number of events of a queue.
const Events = C.P2P_EVENTS

// Queue is a queue with the context of its waits.
type Queue struct {
	c *C.struct_p2p_queue
	x *abi.Ctx
}

// On wraps q.
func On(q *abi.Queue, x *abi.Ctx) *Queue { return &Queue{(*C.struct_p2p_queue)(q.Pointer()), x} }

// call runs f, which binds the queue first, on one thread.
func (q *Queue) call(f func(*C.struct_p2p_error)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return abi.Call(f)
}

// Find reports whether the queue has a kernel of that name.
func (q *Queue) Find(name string) error {
	_, err := q.find(name)
	return err
}

func (q *Queue) find(name string) (kernel unsafe.Pointer, err error) {
	text := append([]byte(name), 0)
	err = q.call(func(e *C.struct_p2p_error) {
		kernel = C.find(q.c, (*C.char)(unsafe.Pointer(&text[0])), e)
	})
	return kernel, err
}

// Copy enqueues a copy of n bytes.
func (q *Queue) Copy(dst, src uintptr, n uint64) error {
	return q.call(func(e *C.struct_p2p_error) { C.copy(q.c, C.uintptr_t(dst), C.uintptr_t(src), C.size_t(n), e) })
}

// Write enqueues the write of a word.
func (q *Queue) Write(word uintptr, value uint64) error {
	return q.call(func(e *C.struct_p2p_error) { C.set(q.c, C.uintptr_t(word), C.uint64_t(value), e) })
}

// Await enqueues a wait for a word.
func (q *Queue) Await(word uintptr, value uint64) error {
	return q.call(func(e *C.struct_p2p_error) { C.hold(q.c, C.uintptr_t(word), C.uint64_t(value), e) })
}

// Event enqueues event i.
func (q *Queue) Event(i int) error {
	return q.call(func(e *C.struct_p2p_error) { C.event(q.c, C.uint32_t(i), e) })
}

// Elapsed is the time from event i to event j.
func (q *Queue) Elapsed(i, j int) (d time.Duration, err error) {
	err = q.call(func(e *C.struct_p2p_error) { d = time.Duration(C.elapsed(q.c, C.uint32_t(i), C.uint32_t(j), e)) })
	return d, err
}

// Wait waits for all work of the queue.
func (q *Queue) Wait() error { return q.WaitIn(q.x) }

// WaitIn is Wait in another context.
func (q *Queue) WaitIn(x *abi.Ctx) error {
	return q.call(func(e *C.struct_p2p_error) { C.finish(q.c, (*C.struct_p2p_ctx)(x.Pointer()), e) })
}

// RecordBegin begins a recording.
func (q *Queue) RecordBegin() error {
	return q.call(func(e *C.struct_p2p_error) { C.record_begin(q.c, e) })
}

// RecordEnd ends it.
func (q *Queue) RecordEnd() error {
	return q.call(func(e *C.struct_p2p_error) { C.record_end(q.c, e) })
}

// Record records the work that put enqueues.
func (q *Queue) Record(put func() error) error {
	if err := q.RecordBegin(); err != nil {
		return err
	}
	return errors.Join(put(), q.RecordEnd())
}

// Replay enqueues the recording.
func (q *Queue) Replay() error { return q.call(func(e *C.struct_p2p_error) { C.replay(q.c, e) }) }

// Load reads a word that other threads write.
func Load(word uintptr) uint64 { return uint64(C.load(C.uintptr_t(word))) }

// Store writes a word that other threads read.
func Store(word uintptr, value uint64) { C.store(C.uintptr_t(word), C.uint64_t(value)) }
