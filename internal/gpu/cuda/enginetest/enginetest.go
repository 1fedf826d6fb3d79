// Package enginetest gives tests and benchmarks access to engine and queue tables beyond the abi package: several
// copies before a wait, recordings, marks, and the single functions of a queue.
package enginetest

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../../.. -DP2P_SHARED_HEADERS=0x4928d503
#include "gpu/abi/p2p.h"

static int start(struct p2p_engine *g, uintptr_t dst, uintptr_t src, size_t n, size_t stride, int count,
		 struct p2p_error *e) {
	int rc = P2P_OK;
	for (int i = 0; i < count && !rc; i++)
		rc = g->copy(g->self, (void *)(dst + i * stride), (const void *)(src + i * stride), n, e);
	return rc;
}

static int window(struct p2p_engine *g, const struct p2p_ctx *c, uintptr_t dst, uintptr_t src, size_t n, size_t stride,
		  int count, struct p2p_error *e) {
	int rc = g->bind(g->self, e);
	if (rc || (rc = start(g, dst, src, n, stride, count, e)))
		return rc;
	return g->wait(g->self, c, e);
}

static int scatter(struct p2p_engine *g, const uint64_t *dst, const uint64_t *src, const uint64_t *n, int count,
		   struct p2p_error *e) {
	int rc = g->bind(g->self, e);
	for (int i = 0; i < count && !rc; i++)
		rc = g->copy(g->self, (void *)(uintptr_t)dst[i], (const void *)(uintptr_t)src[i], n[i], e);
	return rc;
}

static int fill(struct p2p_engine *g, const struct p2p_ctx *c, uintptr_t p, size_t n, uint64_t key,
		struct p2p_error *e) {
	int rc = g->bind(g->self, e);
	return rc ? rc : g->fill(g->self, c, (void *)p, n, key, 0, e);
}

static int fire(struct p2p_engine *g, struct p2p_error *e) {
	int rc = g->bind(g->self, e);
	return rc ? rc : g->launch(g->self, e);
}

static int mark(struct p2p_engine *g, uint32_t i, struct p2p_error *e) {
	int rc = g->bind(g->self, e);
	return rc ? rc : g->mark(g->self, i, e);
}

static int reached(struct p2p_engine *g, uint32_t i, int *yes, struct p2p_error *e) {
	int rc = g->bind(g->self, e);
	return rc ? rc : g->reached(g->self, i, yes, e);
}

static int await(struct p2p_engine *g, const struct p2p_ctx *c, struct p2p_error *e) {
	int rc = g->bind(g->self, e);
	return rc ? rc : g->wait(g->self, c, e);
}

static int record(struct p2p_engine *g, uintptr_t dst, uintptr_t src, size_t n, size_t stride, int count,
		  struct p2p_error *e) {
	struct p2p_error later;
	int rc = g->bind(g->self, e);
	if (rc || (rc = g->record_begin(g->self, e)))
		return rc;
	rc = start(g, dst, src, n, stride, count, e);
	int last = g->record_end(g->self, rc ? &later : e);
	return rc ? rc : last;
}

static int launch(struct p2p_engine *g, const struct p2p_ctx *c, struct p2p_error *e) {
	int rc = g->bind(g->self, e);
	if (rc || (rc = g->launch(g->self, e)))
		return rc;
	return g->wait(g->self, c, e);
}
*/
import "C"

import (
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Window starts count copies of n bytes, stride bytes apart, and waits for them.
func Window(g *abi.Engine, x *abi.Ctx, dst, src uintptr, n, stride uint64, count int) error {
	var e C.struct_p2p_error
	C.window((*C.struct_p2p_engine)(g.Pointer()), (*C.struct_p2p_ctx)(x.Pointer()), C.uintptr_t(dst), C.uintptr_t(src),
		C.size_t(n), C.size_t(stride), C.int(count), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}

// Copy is one copy of Start.
type Copy struct {
	Dst, Src uintptr
	N        uint64
}

// Start starts copies and does not wait for them.
func Start(g *abi.Engine, copies []Copy) error {
	var dst, src, n []C.uint64_t
	for _, c := range copies {
		dst, src, n = append(dst, C.uint64_t(c.Dst)), append(src, C.uint64_t(c.Src)), append(n, C.uint64_t(c.N))
	}
	var e C.struct_p2p_error
	C.scatter((*C.struct_p2p_engine)(g.Pointer()), unsafe.SliceData(dst), unsafe.SliceData(src), unsafe.SliceData(n),
		C.int(len(copies)), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}

// Fill starts writing a payload and does not wait for it.
func Fill(g *abi.Engine, x *abi.Ctx, p uintptr, n, key uint64) error {
	var e C.struct_p2p_error
	C.fill((*C.struct_p2p_engine)(g.Pointer()), (*C.struct_p2p_ctx)(x.Pointer()), C.uintptr_t(p), C.size_t(n), C.uint64_t(key), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}

// Fire launches the recording and does not wait for it.
func Fire(g *abi.Engine) error {
	var e C.struct_p2p_error
	C.fire((*C.struct_p2p_engine)(g.Pointer()), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}

// HasStream reports whether the engine offers its stream to libraries.
func HasStream(g *abi.Engine) bool { return (*C.struct_p2p_engine)(g.Pointer()).stream != nil }

// Marks is the number of marks of an engine.
const Marks = C.P2P_MARKS

// Mark sets mark i behind all work started so far.
func Mark(g *abi.Engine, i int) error {
	var e C.struct_p2p_error
	C.mark((*C.struct_p2p_engine)(g.Pointer()), C.uint32_t(i), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}

// Reached reports whether all work before mark i is complete.
func Reached(g *abi.Engine, i int) (bool, error) {
	var yes C.int
	var e C.struct_p2p_error
	C.reached((*C.struct_p2p_engine)(g.Pointer()), C.uint32_t(i), &yes, &e)
	return yes != 0, abi.ErrorAt(unsafe.Pointer(&e))
}

// Wait waits for all started work.
func Wait(g *abi.Engine, x *abi.Ctx) error {
	var e C.struct_p2p_error
	C.await((*C.struct_p2p_engine)(g.Pointer()), (*C.struct_p2p_ctx)(x.Pointer()), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}

// Record records the copies of such a window, replacing an earlier recording, without executing them.
func Record(g *abi.Engine, dst, src uintptr, n, stride uint64, count int) error {
	var e C.struct_p2p_error
	C.record((*C.struct_p2p_engine)(g.Pointer()), C.uintptr_t(dst), C.uintptr_t(src), C.size_t(n), C.size_t(stride),
		C.int(count), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}

// Launch launches the recording and waits for it.
func Launch(g *abi.Engine, x *abi.Ctx) error {
	var e C.struct_p2p_error
	C.launch((*C.struct_p2p_engine)(g.Pointer()), (*C.struct_p2p_ctx)(x.Pointer()), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}
