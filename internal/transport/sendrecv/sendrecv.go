// Package sendrecv is kernels that talk to each other: a kernel of one rank sends, a kernel of another one receives, and
// no host stands between them (torchcomms #2728). Each rank is a process of its own; each sends to the next rank and
// receives from the previous one, which between two ranks is the same and in a ring is not.
//
// Variants:
//
//	ws      through a staging area of the receiver's, in steps; in each block some warps send while others receive
//	stable  the same; even blocks send and odd ones receive
//	put     into the inbox itself, which the receiver has granted: nothing is staged
//	ll      in lines of 8 bytes that carry their own flags, for small messages
//	ll128   the same by lines of 120 bytes, which eight threads store at once and NVLink keeps whole
//	ce      no kernel: the copy engine writes, and the queues of both ranks write words and wait for them
//	auto    ll, ll128, put or ce, with so many blocks, and by such copies, as were fastest when the batch's shape was new
//
// A step of ws. Block b talks to block b only; a word lies in the memory of the rank that waits for it:
//
//	block b of the sender                                         block b of the receiver
//	wait head[b] > step - stages
//	copy a step            ~~~~~>  staging[b][step % stages]
//	fence; store           ----->  tail[b] = step + 1  ---------> wait tail[b] > step
//	                                                              copy staging -> inbox
//	head[b] = step + 1     <-------------------------------------  fence; store
//
// An iteration timed by the device. What it costs a host to start kernels is not in its time:
//
//	rank 0                          both hosts                    rank 1
//	fill(source, i)                                               check(inbox, i-1)
//	enqueue: stream wait, event 0, kernels, event 1               enqueue: stream wait, event 0, kernels, event 1
//	                                <-- barrier -->
//	store the word that the queue waits for                       store the word that the queue waits for
//	sample = event 1 - event 0                                    sample = event 1 - event 0
//
// Every rank takes samples, and the largest of an iteration counts; of a ping-pong only rank 0 does, and halves it.
// Timed by the host, an iteration lasts from the barrier to the end of the rank's own queue. A message of no bytes is
// none to kernels: nobody waits for it.
//
// A window is launched kernel by kernel, or recorded once and launched as a graph; or one kernel is resident for the
// whole batch: then the host rings a doorbell, the kernels of all ranks begin together, and the kernel takes the time.
// Its round trips follow each other in trains: the next message leaves when the answer has come, without a word to a host
// in between, and each round trip is a sample.
//
// Nothing has a name in a file system. Whatever fails, the kernels are told to stop waiting, and an end that failed runs
// no other batch.
package sendrecv

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0x676d549c
#include "sendrecv.h"
*/
import "C"

import (
	"fmt"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Limits of the protocol.
const (
	maxCTAs   = C.SR_CTAS
	maxBurst  = C.SR_BURST
	maxLLCTAs = C.SR_LL_CTAS
	grain     = C.SR_GRAIN   // bytes that a block's share of a message is a multiple of
	staging   = C.SR_STAGING // bytes

	// Of a block's share in lines.
	llBytes    = C.SR_LL_BYTES
	ll128Bytes = C.SR_LL128_BYTES
	ll128Line  = C.SR_WIDE_PAYLOAD
)

type sendrecv struct{ o Options }

// New makes the transport. What does not exist or does not go together is an error that says what would.
func New(o Options) (transport.Transport, error) {
	settled, err := o.settle()
	if err != nil {
		return nil, err
	}
	return &sendrecv{o: settled}, nil
}

func (*sendrecv) Ranks(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

func (t *sendrecv) Probe(devices []gpu.Info) error {
	switch {
	case len(devices) < 2:
		return unsupported("%d rank: there is nobody to send to, give it 2", len(devices))
	case len(devices) > 2 && !t.o.Ring:
		return unsupported("%d ranks: more than 2 send in a ring only: add --ring", len(devices))
	}
	for i, d := range devices {
		if d.Kind != devices[0].Kind {
			return unsupported("from %s to %s: all devices must be of one kind", devices[0].Kind, d.Kind)
		}
		if d.Warp != devices[0].Warp {
			return unsupported("warps of %d threads and of %d: their kernels would share out a message in different ways",
				devices[0].Warp, d.Warp)
		}
		for r, other := range devices[:i] {
			if !d.OnCPU() && d.Same(other) {
				return unsupported("ranks %d and %d on %s: kernels of two processes take turns on a GPU, and these wait "+
					"for each other: give each rank a GPU of its own", r, i, d.UUID)
			}
		}
	}
	return nil
}

// Accepts refuses what the devices cannot run, as far as they are known before they are opened.
func (t *sendrecv) Accepts(devices []gpu.Info, b transport.Batch) error {
	if err := t.Probe(devices); err != nil {
		return err
	}
	l := beforehand(devices)
	if t.o.Copy == "bulk" && l.cpu {
		return unsupported("--copy bulk: CPU memory has no bulk copies: use ldst")
	}
	l = t.o.usable(l)
	if err := t.o.fits(l); err != nil {
		return fmt.Errorf("sendrecv: %w", err)
	}
	if err := t.o.accepts(b, l); err != nil {
		return fmt.Errorf("sendrecv: %w", err)
	}
	return nil
}

// beforehand are the limits that devices show before they are opened. What they do not show counts as there.
func beforehand(devices []gpu.Info) limits {
	l := limits{ctas: maxCTAs, warp: devices[0].Warp, ll128: true, wsBulk: true, putBulk: true, recordedWords: true}
	for _, d := range devices {
		if d.CTAs > 0 {
			l.ctas = min(l.ctas, d.CTAs)
		}
		if d.OnCPU() {
			l.cpu, l.wsBulk, l.putBulk = true, false, false
		}
	}
	return l
}

// unsupported makes an error of this package that wraps gpu.ErrUnsupported.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("sendrecv: "+format+": %w", append(args, gpu.ErrUnsupported)...)
}
