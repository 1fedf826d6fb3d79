// Package loop is the timed loop of all transports. loop.h, its C side, runs a batch of any operation by calling the
// steps that a transport supplies. The Go side translates batches and results of package transport to C, and provides
// the memory and queues that timing by the device needs. The package depends on no transport and no device.
//
// # A sample
//
// A sample is the time of one iteration of an operation on a rank that observes its end. It begins when everything is
// ready: the payload is written, the receiver has given credit (it has compared the previous message, and the inbox
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
// Without acknowledgements (sendrecv, NCCL in a ring, and all timing by the device), all ranks begin at a barrier, and
// each measures its own part: until its sends have left and its receives are complete. The longest time of all ranks is
// the sample; in pingpong it is rank 0's time, halved.
//
// Timed by the host, a sample is the time between two readings of the host's clock, with only the transport's steps
// between them. Timed by the device, it is the time between two events on the device's queue, behind a stream wait that
// ends when the whole operation is on the queue; of several queues the longest time counts. A transport that posts a
// burst of iterations back to back times them itself: the end of one is the beginning of the next.
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

// Call is the input and output of one call of a C loop. It holds no pointers to Go memory, so it may be passed to C.
type Call struct {
	b transport.Batch
	c C.struct_p2p_batch
	r C.struct_p2p_result
	e C.struct_p2p_error
}

// Prepare translates b and refuses an invalid batch. region is the size in bytes of each rank's buffers, records is
// whether the engine can record a window as one unit, and samples is where the samples are written.
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

// payloadSeed is the seed of the batch's payloads. Operation and cell are mixed into it, so that data of another cell
// that is left in a buffer never passes the check of this one.
func payloadSeed(b transport.Batch, op C.uint32_t) C.uint64_t {
	const operations = 4
	return C.uint64_t(b.Seed) + C.p2p_mix64(C.uint64_t(b.Cell)*operations+C.uint64_t(op))
}

// Batch is the struct p2p_batch.
func (l *Call) Batch() unsafe.Pointer { return unsafe.Pointer(&l.c) }

// Result is the struct p2p_result.
func (l *Call) Result() unsafe.Pointer { return unsafe.Pointer(&l.r) }

// Error is the struct p2p_error.
func (l *Call) Error() unsafe.Pointer { return unsafe.Pointer(&l.e) }

// Outcome translates the result of the C loop. path names the transport and path in errors.
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
		return res, fmt.Errorf("%s: %s, size %d: the clock went backwards during a message: its samples are invalid: "+
			"let the kernel use another clock source (clocksource=hpet at boot), which this program then uses: %w",
			path, l.b.Op, l.b.Size, abi.ErrDevice)
	}
	return res, nil
}
