// Package protocoltest runs the protocols of internal/gpu/abi/protocol.h between two ranks, for tests only: [Explore]
// under every schedule of a few threads, [Stress] with real threads and the constants as they are.
//
// What the explorer takes for an error: a byte that is not the one that was sent; a slot of the staging area, a line or
// an inbox that is overwritten before it was read, or read before it was written; two threads that touch a byte without
// anything that orders them, as the includer's contract at the head of protocol.h tells the order; a word that does not
// count up; threads that all wait; words and counters that differ at the end.
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

// What a rank does of a message, and in which order.
const (
	Send         uint32 = C.SR_SEND
	Receive      uint32 = C.SR_RECEIVE
	SendFirst    uint32 = C.SR_SEND_FIRST
	ReceiveFirst uint32 = C.SR_RECEIVE_FIRST
)

// Grain and LLBytes are SR_GRAIN and SR_LL_BYTES: as they are, for [Stress], and in the explorer.
const (
	Grain      = C.SR_GRAIN
	LLBytes    = C.SR_LL_BYTES
	SmallGrain = 16
)

// Side is what one rank does of a message; see struct sr_args.
type Side struct {
	Roles, Order, Drain, Grant uint32
}

// Launch is one message, for which both ranks start a kernel.
type Launch struct {
	Variant        Variant
	Bytes, CTAs    uint32
	Stride, Stages uint32
	Slot           uint32 // which message of its window it is
	Side           [2]Side
}

var _ [C.sizeof_struct_pt_launch]byte = [unsafe.Sizeof(Launch{})]byte{} // the same size, or this does not compile

// Plan is a run of launches, one behind the other.
type Plan struct {
	Launches []Launch
	Threads  int    // of a role in a block
	Start    uint64 // what all counters begin with
	Resident bool   // one kernel passes all messages; the host has a say between two windows only

	Preemptions int  // Explore: switches of thread that no wait forces, at most
	Pieces      int  // Explore: pieces that a thread's part of a copy is made in; 0: copies happen at once
	Abort       bool // Explore: at some time all waits are given up

	Skew    int           // Stress: bytes by which source and inbox are off the alignment, below 8
	Timeout time.Duration // Stress: the longest wait, in whole seconds
}

// Result is what came of it.
type Result struct {
	Failed     string // what went wrong, or empty
	Trace      string // Explore: what the threads did until then, a line each
	Executions uint64 // Explore: schedules, of which some were left where they became known
	Messages   uint64 // Stress: messages passed
}

// executions is more than any plan of the tests needs.
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

// Explorer is a library made of explore.c with another protocol in it.
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
