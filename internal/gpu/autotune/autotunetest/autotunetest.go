// Package autotunetest provides engines with scripted cost, for tests of code that selects or wraps engines, and calls
// functions of engine tables that the abi package does not export: copies without a wait, and marks.
//
// The engines move no bytes, and their time passes on a simulated clock: results do not depend on the machine that a
// test runs on.
package autotunetest

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../../.. -DP2P_SHARED_HEADERS=0x4928d503
#include <stdlib.h>
#include "script.h"
*/
import "C"

import (
	"time"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Cost is what copies of From bytes and more cost, up to where the next Cost begins.
type Cost struct {
	From uint64
	Copy time.Duration // of starting one
	Wait time.Duration // of a wait
	Fail bool          // such a copy fails
}

// Trouble is a disturbance that makes copies take longer than their cost.
type Trouble struct {
	Drift  float64 // every copy makes all later ones slower by this fraction of their cost
	Jitter float64 // up to this fraction of its cost is added to each copy, uniformly distributed
	Seed   uint64  // seed of the jitter
	Every  int     // one copy in Every takes Hiccup longer
	Hiccup time.Duration
}

// Machine is the state that engines share: a clock and disturbances.
type Machine struct{ c *C.struct_script_machine }

// NewMachine returns a machine. Close it after its engines.
func NewMachine(t Trouble) *Machine {
	m := &Machine{c: (*C.struct_script_machine)(C.calloc(1, C.sizeof_struct_script_machine))}
	m.c.drift, m.c.jitter, m.c.random = C.double(t.Drift), C.double(t.Jitter), C.uint64_t(t.Seed)
	m.c.hiccup_every, m.c.hiccup_ns = C.uint64_t(t.Every), C.uint64_t(t.Hiccup)
	return m
}

// Clock returns a C function, uint64_t (void *self), that returns the machine's time in nanoseconds, and its argument.
func (m *Machine) Clock() (now, self unsafe.Pointer) { return C.script_now, unsafe.Pointer(m.c) }

// Now returns the machine's time.
func (m *Machine) Now() time.Duration { return time.Duration(m.c.ns) }

// Close frees the machine.
func (m *Machine) Close() { C.free(unsafe.Pointer(m.c)) }

// Engine is an engine with scripted costs. It has marks.
type Engine struct {
	name string
	c    *C.struct_p2p_engine // nil once closed
}

// Engine returns an engine with 1 to 8 costs, in ascending order of size.
func (m *Machine) Engine(name string, costs ...Cost) *Engine {
	script := make([]C.struct_script_cost, len(costs))
	for i, c := range costs {
		script[i] = C.struct_script_cost{
			from: C.uint64_t(c.From), copy_ns: C.uint64_t(c.Copy), wait_ns: C.uint64_t(c.Wait),
		}
		if c.Fail {
			script[i].fail = 1
		}
	}
	e := &Engine{name: name, c: C.script_new(m.c, unsafe.SliceData(script), C.unsigned(len(script)))}
	if e.c == nil {
		panic("autotunetest: no memory, or not 1 to 8 costs")
	}
	return e
}

// Synchronous makes copies complete when they return, like those of a CPU.
func (e *Engine) Synchronous() { e.c.async = 0 }

// Name is the engine's name.
func (e *Engine) Name() string { return e.name }

// Table is the function table for timed loops.
func (e *Engine) Table() *abi.Engine { return abi.EngineAt(unsafe.Pointer(e.c)) }

// Close frees the engine. A second Close does nothing.
func (e *Engine) Close() error {
	if e.c != nil {
		C.script_free(e.c)
		e.c = nil
	}
	return nil
}

// Closed reports whether the engine was closed.
func (e *Engine) Closed() bool { return e.c == nil }

// Largest is the size of the largest copy that was started.
func (e *Engine) Largest() uint64 { return uint64(C.script_largest(e.c)) }

// Complete completes all started copies, like a device that works in the background.
func (e *Engine) Complete() { C.script_complete(e.c) }

// Start starts a copy and does not wait for it.
func Start(g *abi.Engine, dst, src uintptr, n uint64) error {
	var e C.struct_p2p_error
	C.script_start(table(g), abi.Pointer(dst), abi.Pointer(src), C.size_t(n), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}

// Wait waits for all started work.
func Wait(g *abi.Engine, x *abi.Ctx) error {
	var e C.struct_p2p_error
	C.script_wait(table(g), (*C.struct_p2p_ctx)(x.Pointer()), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}

// Marks reports whether an engine has marks.
func Marks(g *abi.Engine) bool { return table(g).mark != nil && table(g).reached != nil }

// Mark sets mark i behind all work started so far.
func Mark(g *abi.Engine, i uint32) error {
	var e C.struct_p2p_error
	C.script_mark(table(g), C.uint32_t(i), &e)
	return abi.ErrorAt(unsafe.Pointer(&e))
}

// Reached reports whether all work before mark i is complete.
func Reached(g *abi.Engine, i uint32) (bool, error) {
	var yes C.int
	var e C.struct_p2p_error
	C.script_reached(table(g), C.uint32_t(i), &yes, &e)
	return yes != 0, abi.ErrorAt(unsafe.Pointer(&e))
}

func table(g *abi.Engine) *C.struct_p2p_engine { return (*C.struct_p2p_engine)(g.Pointer()) }
