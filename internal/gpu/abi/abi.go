// Package abi is the Go side of p2p.h, the C that p2pbench's packages agree on: the clock, the progress page, the
// context of a wait, the payload, and the engine table through which a timed loop moves bytes on a device.
//
// It is the one place where Go code calls an engine's functions one by one; timed loops call them from C.
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

// Version is the version of the engine table; an engine of another one is refused.
const Version = C.P2P_ABI

// Errors that C calls report; a returned error wraps one of them.
var (
	ErrTimeout = errors.New("deadline passed")
	ErrAborted = errors.New("stopped")
	ErrDevice  = errors.New("device error")
	ErrCorrupt = errors.New("payload differs")
	ErrInvalid = errors.New("invalid request")
)

// Error is a failed C call: what the C code said, and the class of the failure.
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

// Unwrap gives the class.
func (e *Error) Unwrap() error { return e.Class }

// ErrorAt reads a struct p2p_error that a C call filled. It returns nil when the call succeeded.
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

// Call runs f, which makes one C call, and returns the error that the call left. E is the caller's struct p2p_error: each
// package that uses cgo has a Go type of its own for it.
func Call[E any](f func(*E)) error {
	var e E
	f(&e)
	return ErrorAt(unsafe.Pointer(&e))
}

// Ctx is what every wait of a rank needs: clock, progress page, deadline. It lives in C memory; Close frees it.
type Ctx struct {
	c *C.struct_p2p_ctx
	k *C.struct_p2p_clock
}

// NewCtx calibrates the clock, which takes about 10 ms, and binds it to rank's entry of a progress page, which must
// stay mapped. yield makes waits give the CPU away, for machines with fewer CPUs than ranks.
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

// clockSource is where the kernel says by what it keeps its own time.
const clockSource = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

// newClock calibrates a clock of C memory. It reads the processor's counter where the kernel, by the file at path,
// keeps its own time by it.
func newClock(path string) *C.struct_p2p_clock {
	k := (*C.struct_p2p_clock)(C.calloc(1, C.sizeof_struct_p2p_clock))
	trusted := C.int(0)
	name, _ := os.ReadFile(path) // unreadable: nobody vouches for the counter
	switch strings.TrimSpace(string(name)) {
	case "tsc", "arch_sys_counter":
		trusted = 1
	}
	C.p2p_clock_init(k, trusted)
	return k
}

// Wake says how a rank that waits for another one passes the time. The zero value polls without a pause.
type Wake struct {
	Mode WakeMode
	Nap  time.Duration // of WakeSleep and WakeAdaptive
}

// WakeMode is what happens between two looks.
type WakeMode uint32

// The ways to wait.
const (
	WakeSpin     WakeMode = C.P2P_WAKE_SPIN
	WakeYield    WakeMode = C.P2P_WAKE_YIELD    // sched_yield
	WakeSleep    WakeMode = C.P2P_WAKE_SLEEP    // nanosleep
	WakeAdaptive WakeMode = C.P2P_WAKE_ADAPTIVE // 256 yields, then nanosleep
)

// WithWake is a context on the same clock and page that waits for other ranks in that way. Its Close leaves x alone;
// x must outlive it.
func (x *Ctx) WithWake(w Wake) *Ctx { return x.derive(x.c.progress, w) }

// OfRank is a context on the same clock and page for another rank, which must be idle otherwise: two ranks in one
// process. Its Close leaves x alone; x must outlive it.
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

// Yields reports whether waits give the CPU away between looks whatever their Wake says.
func (x *Ctx) Yields() bool { return x.c.yield != 0 }

// Pointer is the struct p2p_ctx for C code.
func (x *Ctx) Pointer() unsafe.Pointer { return unsafe.Pointer(x.c) }

// Clock names the clock in use: "TSC", "CNTVCT" or "CLOCK_MONOTONIC_RAW".
func (x *Ctx) Clock() string { return C.GoString(C.p2p_clock_name(x.k)) }

// Overhead measures an empty timed loop: ns per iteration for reading the clock twice and storing a sample, the
// median over a few thousand iterations of the difference between successive starts.
func (x *Ctx) Overhead() float64 { return float64(C.p2p_clock_overhead(x.c)) }

// Close frees the context; nothing may wait with it any more.
func (x *Ctx) Close() {
	C.free(unsafe.Pointer(x.c))
	C.free(unsafe.Pointer(x.k))
	x.c, x.k = nil, nil
}

// RawNS is CLOCK_MONOTONIC_RAW in nanoseconds, the time base that all ranks of a host share.
func RawNS() int64 { return int64(C.raw_ns()) }

// Mismatch is the outcome of a payload check; Count 0 means that all is right.
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

// Records reports whether the engine can start a window's copies as one recorded unit.
func (g *Engine) Records() bool { return g.c.record_begin != nil }

// Copy moves n bytes and waits for them.
func (g *Engine) Copy(x *Ctx, dst, src uintptr, n uint64) error {
	return g.call(func(e *C.struct_p2p_error) C.int {
		return C.engine_copy(g.c, x.c, C.uintptr_t(dst), C.uintptr_t(src), C.size_t(n), e)
	})
}

// Fill writes the payload of key into n bytes at p; step 0 writes every byte, else see p2p.h.
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
