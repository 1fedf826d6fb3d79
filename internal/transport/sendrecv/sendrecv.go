// Package sendrecv moves messages between kernels: a kernel of one rank sends, a kernel of another rank receives, and
// no host takes part (torchcomms #2728). Each rank is a process. Each rank sends to the next rank and receives from the
// previous one; with two ranks both are the same rank.
//
// Variants:
//
//	ws      in steps through a staging area at the receiver; in each block some warps send while others receive
//	stable  as ws, but even blocks send and odd blocks receive
//	put     directly into the inbox, after a credit from the receiver: nothing is staged
//	ll      in lines with 8 bytes of data and their own flags, for small messages
//	ll128   in lines with 120 bytes of data, which eight threads store at once and NVLink does not split
//	ce      no kernel: the copy engine writes, and the queues of both ranks write words and wait for words
//	auto    ll, ll128, put or ce: the variant, number of blocks and copy method that were fastest in a trial of the
//	        batch's shape
//
// A step of ws. Block b communicates with block b only. Each word is in the memory of the rank that waits for it:
//
//	block b of the sender                                         block b of the receiver
//	wait head[b] > step - stages
//	copy a step            ~~~~~>  staging[b][step % stages]
//	fence; store           ----->  tail[b] = step + 1  ---------> wait tail[b] > step
//	                                                              copy staging -> inbox
//	head[b] = step + 1     <-------------------------------------  fence; store
//
// An iteration timed by the device. The sample does not include the time that a host takes to start kernels:
//
//	rank 0                          both hosts                    rank 1
//	fill(source, i)                                               check(inbox, i-1)
//	enqueue: stream wait, event 0, kernels, event 1               enqueue: stream wait, event 0, kernels, event 1
//	                                <-- barrier -->
//	store the word that the queue waits for                       store the word that the queue waits for
//	sample = event 1 - event 0                                    sample = event 1 - event 0
//
// Every rank takes samples, and the longest sample of an iteration counts. In pingpong only rank 0 takes samples, and
// halves them. Timed by the host, an iteration lasts from the barrier to the end of the rank's own queue. Kernels
// neither send a message of 0 bytes nor wait for it.
//
// A window is launched kernel by kernel, or recorded once and launched as a graph, or one kernel is resident for the
// whole batch. A resident kernel starts an iteration when the host rings a doorbell; the kernels of all ranks begin
// together, and the kernel takes the time. In pingpong its round trips run back to back in bursts: the next message
// leaves as soon as the reply has arrived, without the host, and each round trip is a sample.
//
// Nothing has a name in a file system. After any failure the kernels stop waiting, and the endpoint runs no further
// batch.
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
	grain     = C.SR_GRAIN   // bytes; a block's share of a message is a multiple of it
	staging   = C.SR_STAGING // bytes

	// Bytes of a block's share that fit its lines, and data bytes of a line of ll128.
	llBytes    = C.SR_LL_BYTES
	ll128Bytes = C.SR_LL128_BYTES
	ll128Line  = C.SR_WIDE_PAYLOAD
)

type sendrecv struct{ o Options }

// New makes the transport. For an unknown or contradictory setting the error names a correct one.
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
		return unsupported("%d rank: it needs two, or two or more with --ring", len(devices))
	case len(devices) > 2 && !t.o.Ring:
		return unsupported("%d ranks: without --ring it runs between two: add --ring", len(devices))
	}
	for i, d := range devices {
		if d.Kind != devices[0].Kind {
			return unsupported("from %s to %s: all devices must be of one kind", devices[0].Kind, d.Kind)
		}
		if d.Warp != devices[0].Warp {
			return unsupported("warps of %d and of %d threads: their kernels would divide a message differently",
				devices[0].Warp, d.Warp)
		}
		for r, other := range devices[:i] {
			if !d.OnCPU() && d.Same(other) {
				return unsupported("ranks %d and %d on %s: kernels of two processes take turns on a GPU, and these wait "+
					"for each other: give each rank its own GPU", r, i, d.UUID)
			}
		}
	}
	return nil
}

// Accepts refuses what the devices cannot run, by what is known of them before they are opened.
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

// beforehand returns the limits that devices report before they are opened. What they do not report counts as
// available.
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
