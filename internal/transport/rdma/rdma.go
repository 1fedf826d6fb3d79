// Package rdma moves messages by RDMA writes over reliably connected queue pairs that connections may share, as ROCm's
// ANP does (PR #20).
//
// A rank has connections to the ranks that it sends to. A message is a write into the receiver's inbox with immediate
// data, or a write without it followed by an empty write with it. The immediate data consume one of the receives that
// the receiver has posted; these have no buffer, so any of them serves any connection. The immediate data contain the
// receiver's numbers of the connection and the request; wr_id contains the sender's. With --completion memory the
// message is the write alone, and the receiver polls its last byte.
//
// The receiver gives clear-to-send credits by small writes into the sender's FIFO, one per message, or all credits of a
// sample at once (pre-granted). When all messages of a sample are complete, it writes a word in the sender's memory,
// which ends the sample.
//
//	pool/   assigns queue pairs to connections
//	verbs/  libibverbs, loaded at run time
package rdma

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0xcbe43ac2
#include "rdma.h"
*/
import "C"

import (
	"errors"
	"fmt"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

type rdma struct{ o Options }

// New makes the transport. For an unknown or contradictory setting the error names a correct one.
func New(o Options) (transport.Transport, error) {
	o, err := o.settle()
	if err != nil {
		return nil, err
	}
	return &rdma{o}, nil
}

// Accepts refuses batches that no NIC can carry. It does not query the ranks' NICs.
func (t *rdma) Accepts(devices []gpu.Info, b transport.Batch) error {
	if err := t.o.joins(devices); err != nil {
		return err
	}
	if err := t.o.accepts(b); err != nil {
		return fmt.Errorf("rdma: %w", err)
	}
	return nil
}

// accepts refuses a batch that cannot be run.
func (o Options) accepts(b transport.Batch) error {
	both := b.Op == transport.OpBidir || b.Op == transport.OpPingPong
	switch {
	case b.Size == 0 && o.Completion == InMemory:
		return errors.New("--completion memory: a message of 0 bytes has no last byte to poll: use --completion write-imm")
	case both && !o.Back:
		return fmt.Errorf("%s: there are no connections from rank 1 to rank 0", b.Op)
	case b.Graph:
		return errors.New("rdma cannot be recorded as a graph: leave out --cudagraph")
	}
	return nil
}

// joins refuses ranks that the options do not connect.
func (o Options) joins(devices []gpu.Info) error {
	switch {
	case len(devices) < 2:
		return fmt.Errorf("rdma: one rank: want at least 2: %w", gpu.ErrUnsupported)
	case o.Fan == Pair && len(devices) != 2:
		return fmt.Errorf("rdma: %d ranks: --fan pair runs between two: use --fan out or --fan in: %w", len(devices), gpu.ErrUnsupported)
	}
	if comms := o.comms(len(devices)); comms > pool.MaxComms {
		return fmt.Errorf("rdma: a rank would have %d connections, at most %d: use a smaller --conns: %w", comms, pool.MaxComms, gpu.ErrUnsupported)
	}
	for rank, d := range devices {
		if o.Completion == InMemory && !d.OnCPU() {
			return fmt.Errorf("rdma: rank %d: --completion memory: the CPU polls messages, and cannot read the memory of a %s device: use --completion write-imm: %w", rank, d.Kind, gpu.ErrUnsupported)
		}
	}
	return nil
}

// Probe checks that each rank has a NIC.
func (t *rdma) Probe(devices []gpu.Info) error {
	if err := t.o.joins(devices); err != nil {
		return err
	}
	all, err := verbs.Devices()
	if err != nil {
		return fmt.Errorf("rdma: %w", err)
	}
	for rank, d := range devices {
		if _, err := t.o.choose(all, rank, d); err != nil {
			return fmt.Errorf("rdma: rank %d: %w", rank, err)
		}
	}
	return nil
}

// Largest is the maximum size of a message between these devices, and the NIC that limits it.
func (o Options) Largest(devices []gpu.Info) (bytes uint64, name string, err error) {
	all, err := verbs.Devices()
	if err != nil {
		return 0, "", fmt.Errorf("rdma: %w", err)
	}
	for rank, d := range devices {
		n, err := o.choose(all, rank, d)
		if err != nil {
			return 0, "", fmt.Errorf("rdma: rank %d: %w", rank, err)
		}
		if rank == 0 || n.largest() < bytes {
			bytes, name = n.largest(), n.String()
		}
	}
	return bytes, name, nil
}

// comms is the maximum number of connections of a rank.
func (o Options) comms(ranks int) int {
	switch {
	case o.Fan != Pair:
		return o.Conns * (ranks - 1)
	case o.Back:
		return 2 * o.Conns
	}
	return o.Conns
}

func (t *rdma) Ranks(n int) []int {
	out := make([]int, n)
	for r := range out {
		out[r] = r
	}
	return out
}

// rankPair is a sending and a receiving rank.
type rankPair struct{ from, to int }

func (o Options) rankPairs(ranks int) []rankPair {
	if o.Fan == Pair {
		out := []rankPair{{0, 1}}
		if o.Back {
			out = append(out, rankPair{1, 0})
		}
		return out
	}
	var out []rankPair
	for r := 1; r < ranks; r++ {
		if o.Fan == FanOut {
			out = append(out, rankPair{0, r})
		} else {
			out = append(out, rankPair{r, 0})
		}
	}
	return out
}

// Regions is the memory of a rank, in multiples of the largest batch's bytes: its source, and an inbox for each rank
// that sends to it.
func (o Options) Regions(ranks int) int {
	if o.Fan == FanIn {
		return ranks
	}
	return 2
}
