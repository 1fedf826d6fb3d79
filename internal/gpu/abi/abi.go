// Package abi is the Go side of p2p.h, the C interface between p2pbench's packages: the clock, the progress page, the
// context of a wait, the payload, and the engine table through which a timed loop moves bytes on a device.
//
// Only this package calls single functions of an engine from Go; timed loops call them from C.
package abi

//go:generate ../../../scripts/stamp-headers

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#include <stdlib.h>
#include "p2p.h"
#include "clock.h"

static int engine_bind(struct p2p_engine *g, struct p2p_error *e) { return g->bind(g->self, e); }
static int engine_copy(struct p2p_engine *g, const struct p2p_ctx *c, uintptr_t dst, uintptr_t src, size_t n,
		       struct p2p_error *e) {
	int rc = g->copy(g->self, (void *)dst, (const void *)src, n, e);
	return rc ? rc : g->wait(g->self, c, e);
}
static int engine_fill(struct p2p_engine *g, const struct p2p_ctx *c, uintptr_t p, size_t n, uint64_t key,
		       uint64_t step, struct p2p_error *e) {
	int rc = g->fill(g->self, c, (void *)p, n, key, step, e);
	return rc ? rc : g->wait(g->self, c, e);
}
static int engine_check(struct p2p_engine *g, const struct p2p_ctx *c, uintptr_t p, size_t n, uint64_t key,
			uint64_t step, struct p2p_mismatch *m, struct p2p_error *e) {
	return g->check(g->self, c, (const void *)p, n, key, step, m, e);
}
static uint64_t raw_ns(void) { return p2p_raw_ns(); }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// Version is the version of the function tables. A table of another version is refused.
const Version = C.P2P_ABI

// Errors of C calls. Every error returned by a C call wraps one of them.
var (
	ErrTimeout = errors.New("deadline passed")
	ErrAborted = errors.New("stopped")
	ErrDevice  = errors.New("device error")
	ErrCorrupt = errors.New("payload differs")
	ErrInvalid = errors.New("invalid request")
)

// Error is the error of a C call.
type Error struct {
	Class  error  // one of the errors above
	Native int    // the vendor library's code, 0 if none
	Text   string // "cuMemcpyAsync: CUDA_ERROR_INVALID_VALUE (1)"
}

func (e *Error) Error() string {
	if e.Text == "" {
		return e.Class.Error()
	}
	return e.Text
}

// Unwrap returns the class.
func (e *Error) Unwrap() error { return e.Class }

// ErrorAt converts a struct p2p_error that a C call filled. It returns nil if the call succeeded.
func ErrorAt(p unsafe.Pointer) error {
	e := (*C.struct_p2p_error)(p)
	class, ok := map[C.int32_t]error{
		C.P2P_ERR_TIMEOUT: ErrTimeout, C.P2P_ERR_ABORTED: ErrAborted, C.P2P_ERR_DEVICE: ErrDevice,
		C.P2P_ERR_CORRUPT: ErrCorrupt, C.P2P_ERR_INVALID: ErrInvalid,
	}[e.code]
	switch {
	case e.code == C.P2P_OK:
		return nil
	case !ok:
		class = fmt.Errorf("unknown error code %d", int(e.code))
	}
	return &Error{Class: class, Native: int(e.native), Text: C.GoString(&e.text[0])}
}

// Call runs f, which makes one C call, and returns that call's error. E is the caller's struct p2p_error: cgo gives
// every package a type of its own for it.
func Call[E any](f func(*E)) error {
	var e E
	f(&e)
	return ErrorAt(unsafe.Pointer(&e))
}

// Ctx is the context of a rank's waits: clock, progress page and deadline. It is in C memory; Close frees it.
type Ctx struct {
	c *C.struct_p2p_ctx
	k *C.struct_p2p_clock
}

// NewCtx calibrates the clock, which takes about 10 ms, and returns a context for the rank's entry of a progress page,
// which must stay mapped. With yield, waits yield the CPU, for machines with fewer CPUs than ranks.
func NewCtx(page *Page, rank int, timeout time.Duration, yield bool) *Ctx {
	x := &Ctx{
		c: (*C.struct_p2p_ctx)(C.calloc(1, C.sizeof_struct_p2p_ctx)),
		k: newClock(clockSource),
	}
	x.c.clock = x.k
	x.c.progress = page.Rank(rank).c
	x.c.team = page.Rank(0).c
	x.c.ranks = C.uint32_t(len(page.mem) / ProgressBytes)
	x.c.timeout_ns = C.uint64_t(timeout)
	if yield {
		x.c.yield = 1
	}
	return x
}

// clockSource is the file that names the operating system's clock source.
const clockSource = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

// newClock calibrates a clock in C memory. The clock reads the processor's counter if the file at path names that
// counter as the operating system's clock source.
func newClock(path string) *C.struct_p2p_clock {
	k := (*C.struct_p2p_clock)(C.calloc(1, C.sizeof_struct_p2p_clock))
	trusted := C.int(0)
	name, _ := os.ReadFile(path) // unreadable: the counter is not trusted
	switch strings.TrimSpace(string(name)) {
	case "tsc", "arch_sys_counter":
		trusted = 1
	}
	C.p2p_clock_init(k, trusted)
	return k
}

// Wake selects how a rank waits for another rank. The zero value polls without pause.
type Wake struct {
	Mode WakeMode
	Nap  time.Duration // sleep of WakeSleep and WakeAdaptive
}

// WakeMode is what a rank does between two polls.
type WakeMode uint32

// The wake modes.
const (
	WakeSpin     WakeMode = C.P2P_WAKE_SPIN
	WakeYield    WakeMode = C.P2P_WAKE_YIELD    // sched_yield
	WakeSleep    WakeMode = C.P2P_WAKE_SLEEP    // nanosleep
	WakeAdaptive WakeMode = C.P2P_WAKE_ADAPTIVE // 256 yields, then nanosleep
)

// WithWake returns a context with the same clock and page and another wake mode. Its Close does not close x, which must
// outlive it.
func (x *Ctx) WithWake(w Wake) *Ctx { return x.derive(x.c.progress, w) }

// OfRank returns a context with the same clock and page for another rank, for two ranks in one process. No other
// context of that rank may be in use. Its Close does not close x, which must outlive it.
func (x *Ctx) OfRank(rank int, w Wake) *Ctx {
	team := unsafe.Slice(x.c.team, int(x.c.ranks))
	return x.derive(&team[rank], w)
}

func (x *Ctx) derive(progress *C.struct_p2p_progress, w Wake) *Ctx {
	y := &Ctx{c: (*C.struct_p2p_ctx)(C.calloc(1, C.sizeof_struct_p2p_ctx))}
	*y.c = *x.c
	y.c.progress = progress
	y.c.wake = C.uint32_t(w.Mode)
	y.c.nap_ns = C.uint64_t(w.Nap)
	return y
}

// Yields reports whether waits yield the CPU between polls in every wake mode.
func (x *Ctx) Yields() bool { return x.c.yield != 0 }

// Pointer is the struct p2p_ctx for C code.
func (x *Ctx) Pointer() unsafe.Pointer { return unsafe.Pointer(x.c) }

// Clock names the clock in use: "TSC", "CNTVCT" or "CLOCK_MONOTONIC_RAW".
func (x *Ctx) Clock() string { return C.GoString(C.p2p_clock_name(x.k)) }

// Overhead measures an empty timed loop, which reads the clock twice and stores a sample. It returns ns per iteration:
// the median, over a few thousand iterations, of the difference between successive starts.
func (x *Ctx) Overhead() float64 { return float64(C.p2p_clock_overhead(x.c)) }

// Close frees the context. No wait may use it any more.
func (x *Ctx) Close() {
	C.free(unsafe.Pointer(x.c))
	C.free(unsafe.Pointer(x.k))
	x.c, x.k = nil, nil
}

// RawNS is CLOCK_MONOTONIC_RAW in nanoseconds, the time base that all ranks of a host share.
func RawNS() int64 { return int64(C.raw_ns()) }

// Mismatch is the result of a payload check. Count is 0 if the payload is correct.
type Mismatch struct {
	Count, Offset uint64
	Expected, Got byte
}

// Engine is a struct p2p_engine.
type Engine struct{ c *C.struct_p2p_engine }

// EngineAt wraps the engine table at p, which must stay valid as long as the Engine is used.
func EngineAt(p unsafe.Pointer) *Engine {
	g := (*C.struct_p2p_engine)(p)
	if g.abi != C.P2P_ABI {
		panic(fmt.Sprintf("engine table version %d, want %d: run go generate", g.abi, Version))
	}
	return &Engine{c: g}
}

// Pointer is the struct p2p_engine for C code.
func (g *Engine) Pointer() unsafe.Pointer { return unsafe.Pointer(g.c) }

// Records reports whether the engine can record the copies of a window and launch them as one unit.
func (g *Engine) Records() bool { return g.c.record_begin != nil }

// Copy moves n bytes and waits for them.
func (g *Engine) Copy(x *Ctx, dst, src uintptr, n uint64) error {
	return g.call(func(e *C.struct_p2p_error) C.int {
		return C.engine_copy(g.c, x.c, C.uintptr_t(dst), C.uintptr_t(src), C.size_t(n), e)
	})
}

// Fill writes the payload of key into n bytes at p. Step 0 writes every byte; p2p.h describes other steps.
func (g *Engine) Fill(x *Ctx, p uintptr, n, key, step uint64) error {
	return g.call(func(e *C.struct_p2p_error) C.int {
		return C.engine_fill(g.c, x.c, C.uintptr_t(p), C.size_t(n), C.uint64_t(key), C.uint64_t(step), e)
	})
}

// Check compares n bytes at p with the payload of key.
func (g *Engine) Check(x *Ctx, p uintptr, n, key, step uint64) (Mismatch, error) {
	var m C.struct_p2p_mismatch
	err := g.call(func(e *C.struct_p2p_error) C.int {
		return C.engine_check(g.c, x.c, C.uintptr_t(p), C.size_t(n), C.uint64_t(key), C.uint64_t(step), &m, e)
	})
	return Mismatch{Count: uint64(m.count), Offset: uint64(m.offset), Expected: byte(m.expected), Got: byte(m.got)}, err
}

// call binds the engine to this thread and runs f on it.
func (g *Engine) call(f func(*C.struct_p2p_error) C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return Call(func(e *C.struct_p2p_error) {
		if C.engine_bind(g.c, e) == C.P2P_OK {
			f(e)
		}
	})
}
