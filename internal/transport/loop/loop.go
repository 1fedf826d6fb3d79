// Package loop is the timed loop of all transports: loop.h on the C side, which runs a batch of any operation from the
// steps that a transport supplies. Here are the translation of transport's batch and result to C, and the memory and
// queues that timing by the device takes. It knows no transport and no device.
//
// # A sample
//
// A sample is the time of one iteration of an operation on a rank that observes its end. It begins when everything is
// ready: the payload is written, the receiver has granted credit (it has compared the previous message, and the inbox
// may be overwritten), and the sender has seen the credit. It ends when this rank knows that the operation is complete.
// Payloads are written before the sample and compared after it; credits, graph capture and cleanup are not in it.
//
//	operation          begins                                  ends
//	latency, stream    rank 0 posts its message, or window     rank 0 has rank 1's acknowledgement of all of it
//	bidir              a rank posts its window                 it has the peer's, and the acknowledgement of its own
//	pingpong           rank 0 posts its message                rank 0 has the reply; halved
//
// Rank 1 takes no samples of latency, stream and pingpong; of bidir's two times the longer one counts.
//
// Where no rank acknowledges (sendrecv, NCCL in a ring, and everything that the device times), all ranks begin at a
// barrier, and each takes the time of its own part, until what it sends has left and what it receives is complete. The
// longest time of all ranks is the sample; of pingpong it is rank 0's alone, halved.
//
// Timed by the host, a sample is the time between two readings of the host's clock, with nothing between them but the
// transport's steps. Timed by the device, it is the time between two events on the device's queue, in front of which a
// stream wait stands until the whole operation is on the queue; of several queues the longest time counts. A transport
// that posts a burst of iterations back to back times them itself: the end of one is the beginning of the next.
package loop

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0x4928d503
#include "loop.h"
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// ops and checks translate to the C side's numbers.
var (
	ops = map[transport.Op]C.uint32_t{
		transport.OpLatency: C.P2P_OP_LATENCY, transport.OpStream: C.P2P_OP_STREAM,
		transport.OpBidir: C.P2P_OP_BIDIR, transport.OpPingPong: C.P2P_OP_PINGPONG,
	}
	checks = map[transport.Check]C.uint32_t{
		transport.CheckOff: C.P2P_CHECK_OFF, transport.CheckSample: C.P2P_CHECK_SAMPLE,
		transport.CheckFull: C.P2P_CHECK_FULL,
	}
)

// Call is one batch on its way through a C loop: what goes in and what comes out. It holds no pointers to Go memory
// and may be handed to C as it is.
type Call struct {
	b transport.Batch
	c C.struct_p2p_batch
	r C.struct_p2p_result
	e C.struct_p2p_error
}

// Prepare translates b and refuses what cannot be: region is the size in bytes of the buffers at each end, records
// whether the engine can record a window as one unit, samples where the samples go.
func Prepare(b transport.Batch, region uint64, records bool, samples []int64) (*Call, error) {
	op, knownOp := ops[b.Op]
	check, knownCheck := checks[b.Check]
	var problem string
	switch {
	case !knownOp:
		problem = fmt.Sprintf("no operation %q", b.Op)
	case !knownCheck:
		problem = fmt.Sprintf("no check %q", b.Check)
	case b.Window < 1 || b.Iters < 1 || b.Warmup < 0 || uint64(b.Warmup)+uint64(b.Iters) > math.MaxUint32:
		problem = fmt.Sprintf("window %d, %d iterations, %d warm-up", b.Window, b.Iters, b.Warmup)
	case b.Window > 1 && (b.Op == transport.OpLatency || b.Op == transport.OpPingPong):
		problem = fmt.Sprintf("%s has one message in flight, not %d", b.Op, b.Window)
	case b.Region() > region:
		problem = fmt.Sprintf("%d bytes needed, %d allocated", b.Region(), region)
	case len(samples) < b.Iters:
		problem = fmt.Sprintf("room for %d samples, %d wanted", len(samples), b.Iters)
	case b.Graph && !records:
		problem = "the engine cannot record a window as one unit"
	}
	if problem != "" {
		return nil, fmt.Errorf("batch: %s: %w", problem, abi.ErrInvalid)
	}
	l := &Call{b: b, c: C.struct_p2p_batch{
		size: C.uint64_t(b.Size), offset: C.uint64_t(b.Offset), stride: C.uint64_t(b.Stride()),
		first: C.uint64_t(b.First), seed: payloadSeed(b, op), barrier: C.uint64_t(b.Barrier), op: op, check: check,
		window: C.uint32_t(b.Window), warmup: C.uint32_t(b.Warmup), iters: C.uint32_t(b.Iters),
	}}
	if b.Graph {
		l.c.graph = 1
	}
	return l, nil
}

// payloadSeed is the seed of the batch's payloads. Operation and cell are mixed into it here, so that what another cell
// left in a buffer never passes for a message of this one, whatever its size and numbers.
func payloadSeed(b transport.Batch, op C.uint32_t) C.uint64_t {
	const operations = 4
	return C.uint64_t(b.Seed) + C.p2p_mix64(C.uint64_t(b.Cell)*operations+C.uint64_t(op))
}

// Batch is the struct p2p_batch, Result the struct p2p_result, Error the struct p2p_error of the call.
func (l *Call) Batch() unsafe.Pointer { return unsafe.Pointer(&l.c) }

// Result is the struct p2p_result.
func (l *Call) Result() unsafe.Pointer { return unsafe.Pointer(&l.r) }

// Error is the struct p2p_error.
func (l *Call) Error() unsafe.Pointer { return unsafe.Pointer(&l.e) }

// Outcome translates what the C loop left behind. path names what ran, for messages.
func (l *Call) Outcome(path string) (transport.Result, error) {
	res := transport.Result{
		Entered: int64(l.r.entered), FirstNS: int64(l.r.first_ns), Samples: int(l.r.samples),
		Checked: uint64(l.r.checked),
	}
	if l.e.code == C.P2P_ERR_CORRUPT {
		m := l.r.mismatch
		return res, &transport.CorruptError{
			Path: path, Op: l.b.Op, Size: l.b.Size, Iteration: uint64(l.r.iter), Slot: int(l.r.slot),
			Offset: uint64(m.offset), Expected: byte(m.expected), Got: byte(m.got), Count: uint64(m.count),
		}
	}
	if err := abi.ErrorAt(l.Error()); err != nil {
		return res, fmt.Errorf("%s: %s, size %d: %w", path, l.b.Op, l.b.Size, err)
	}
	if l.r.backwards != 0 {
		return res, fmt.Errorf("%s: %s, size %d: the clock went backwards during a message: its samples are worthless: "+
			"make the kernel keep its time by another clock (clocksource=hpet at boot), which this program then uses: %w",
			path, l.b.Op, l.b.Size, abi.ErrDevice)
	}
	return res, nil
}
