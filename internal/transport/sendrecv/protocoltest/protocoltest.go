// Package protocoltest runs the protocols of internal/gpu/abi/protocol.h between two ranks, for tests only: [Explore]
// under every schedule of a few threads, [Stress] with real threads and the real constants.
//
// The explorer reports these errors: a received byte that differs from the sent one; a slot of the staging area, a line
// or an inbox that is overwritten before it is read, or read before it is written; a data race, by the memory order
// that the comment at the head of protocol.h defines; a word that does not increase; a deadlock; words and counters
// that differ at the end.
package protocoltest

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -U_FORTIFY_SOURCE
#cgo CFLAGS: -I${SRCDIR}/../../.. -DP2P_SHARED_HEADERS=0x5eb4336c
#cgo LDFLAGS: -lpthread -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "plan.h"
#include "gpu/abi/sendrecv.h"

typedef void explore(const struct pt_plan *, const struct pt_launch *, uint32_t, struct pt_result *);

static void call(void *f, const struct pt_plan *p, const struct pt_launch *l, uint32_t n, struct pt_result *r) {
	((explore *)f)(p, l, n, r);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// Variant is a protocol.
type Variant uint32

// The protocols.
const (
	Staged Variant = C.PT_STAGED
	Put    Variant = C.PT_PUT
	LL     Variant = C.PT_LL
	LL128  Variant = C.PT_LL128
)

func (v Variant) String() string { return [...]string{"staged", "put", "ll", "ll128"}[v] }

// The roles of a rank in a message, and their order.
const (
	Send         uint32 = C.SR_SEND
	Receive      uint32 = C.SR_RECEIVE
	SendFirst    uint32 = C.SR_SEND_FIRST
	ReceiveFirst uint32 = C.SR_RECEIVE_FIRST
)

// Grain and LLBytes are the real SR_GRAIN and SR_LL_BYTES, for [Stress]. SmallGrain is the explorer's SR_GRAIN.
const (
	Grain      = C.SR_GRAIN
	LLBytes    = C.SR_LL_BYTES
	SmallGrain = 16
)

// Side is one rank's part of a message; see struct sr_args.
type Side struct {
	Roles, Order, Drain, Credits uint32
}

// Launch is one message, for which both ranks start a kernel.
type Launch struct {
	Variant        Variant
	Bytes, CTAs    uint32
	Stride, Stages uint32
	Slot           uint32 // index in its window
	Side           [2]Side
}

var _ [C.sizeof_struct_pt_launch]byte = [unsafe.Sizeof(Launch{})]byte{} // fails to compile if the sizes differ

// Plan is a sequence of launches.
type Plan struct {
	Launches []Launch
	Threads  int    // per role and block
	Start    uint64 // initial value of all counters
	Resident bool   // one kernel runs all messages; the host's part is between windows only

	Preemptions int  // Explore: maximum number of preemptions, which are thread switches that no wait forces
	Pieces      int  // Explore: separately scheduled parts of a thread's copy; 0: it copies at once
	Abort       bool // Explore: all waits are aborted at some point

	Skew    int           // Stress: misalignment of source and inbox, in bytes, below 8
	Timeout time.Duration // Stress: timeout of waits, in whole seconds
}

// Result is the result of a run.
type Result struct {
	Failed     string // the error, or empty
	Trace      string // Explore: the steps of the threads up to the error, one per line
	Executions uint64 // Explore: schedules, including those that were left at a known state
	Messages   uint64 // Stress: messages passed
}

// executions is the maximum number of schedules, more than any plan of the tests needs.
const executions = 1_000_000

func run(f func(*C.struct_pt_plan, *C.struct_pt_launch, C.uint32_t, *C.struct_pt_result), p Plan) Result {
	c := C.struct_pt_plan{
		start: C.uint64_t(p.Start), threads: C.uint32_t(p.Threads), resident: truth(p.Resident),
		preemptions: C.uint32_t(p.Preemptions), pieces: C.uint32_t(p.Pieces), abort: truth(p.Abort),
		skew: C.uint32_t(p.Skew), executions: executions, timeout_ns: C.uint64_t(p.Timeout),
	}
	r := new(C.struct_pt_result)
	f(&c, (*C.struct_pt_launch)(unsafe.Pointer(&p.Launches[0])), C.uint32_t(len(p.Launches)), r)
	return Result{
		Failed: C.GoString(&r.text[0]), Trace: C.GoString(&r.trace[0]),
		Executions: uint64(r.executions), Messages: uint64(r.messages),
	}
}

func truth(b bool) C.uint32_t {
	if b {
		return 1
	}
	return 0
}

// Explore runs a plan under every schedule with no more preemptions than it says.
func Explore(p Plan) Result {
	return run(func(c *C.struct_pt_plan, l *C.struct_pt_launch, n C.uint32_t, r *C.struct_pt_result) {
		C.pt_explore(c, l, n, r)
	}, p)
}

// Stress runs a plan once, with real threads.
func Stress(p Plan) Result {
	return run(func(c *C.struct_pt_plan, l *C.struct_pt_launch, n C.uint32_t, r *C.struct_pt_result) {
		C.pt_stress(c, l, n, r)
	}, p)
}

// Explorer is a library built from explore.c with a modified protocol.
type Explorer struct{ library, explore unsafe.Pointer }

// Load opens such a library.
func Load(path string) (*Explorer, error) {
	name, function := C.CString(path), C.CString("pt_explore")
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(function))
	library := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if library == nil {
		return nil, fmt.Errorf("protocoltest: dlopen: %s", C.GoString(C.dlerror()))
	}
	explore := C.dlsym(library, function)
	if explore == nil {
		return nil, errors.Join(fmt.Errorf("protocoltest: dlsym: %s", C.GoString(C.dlerror())), (&Explorer{library: library}).Close())
	}
	return &Explorer{library, explore}, nil
}

// Explore is [Explore] with the library's protocol.
func (e *Explorer) Explore(p Plan) Result {
	return run(func(c *C.struct_pt_plan, l *C.struct_pt_launch, n C.uint32_t, r *C.struct_pt_result) {
		C.call(e.explore, c, l, n, r)
	}, p)
}

// Close closes the library.
func (e *Explorer) Close() error {
	if C.dlclose(e.library) != 0 {
		return fmt.Errorf("protocoltest: dlclose: %s", C.GoString(C.dlerror()))
	}
	return nil
}
