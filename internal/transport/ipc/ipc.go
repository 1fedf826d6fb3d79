// Package ipc moves bytes between two processes through memory handles. Each design choice of UCCL's and MPICH's IPC is
// a setting.
//
// Paths:
//
//	direct     the receiver publishes its buffer and the sender maps it before anything is timed; a timed send is a
//	           copy and a store of its sequence number (UCCL #876)
//	handshake  for each message the sender requests a buffer, and the receiver replies with a handle (the cold path of
//	           UCCL #876)
//	relay      through CPU memory, for devices that cannot access each other's memory: pooled, in pinned chunks that are
//	           copied in and out at the same time, or fresh, in a new segment for each message (UCCL #876)
//	get        the sender sends a handle of its buffer, and the receiver maps the buffer and copies from it, with a
//	           cache of handles at the sender (MPICH #7862)
//
// An operation with path direct:
//
//	sender                        shared memory                   receiver
//	fill(source, i)                                               check(inbox, i-1)
//	wait ready >= i        <----- ready = i  <------------------- credit
//	t0; copy to inbox; wait
//	done = i (release)     -----> done  ------------------------> wait done >= i
//	wait ack >= i; t1      <----- ack  <------------------------- ack = i
//
// Outside the timed part the receiver compares the payload, and gives the credit for the next operation only then, so
// that unread data is never overwritten. Paths that need more than these words send control messages through a ring in
// the same shared memory, and file descriptors over a Unix socket.
//
// The shared memory and CPU buffers are anonymous memory. Nothing has a name in a file system, so nothing can be left
// behind.
package ipc

import (
	"fmt"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport"
)

type ipc struct{ o Options }

// New makes the transport. For an unknown or contradictory setting the error names a correct one.
func New(o Options) (transport.Transport, error) {
	settled, err := o.settle()
	if err != nil {
		return nil, err
	}
	return &ipc{o: settled}, nil
}

func (t *ipc) Ranks(n int) []int {
	if t.o.SameProcess {
		return []int{0}
	}
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

// Accepts refuses windows longer than maxWindow, and graphs of settings that a graph cannot record.
func (t *ipc) Accepts(devices []gpu.Info, b transport.Batch) error {
	if err := t.Probe(devices); err != nil {
		return err
	}
	if b.Window > maxWindow {
		return fmt.Errorf("ipc: window %d: want at most %d", b.Window, maxWindow)
	}
	if b.Graph {
		return t.o.Recordable()
	}
	return nil
}

func (t *ipc) Probe(devices []gpu.Info) error {
	if len(devices) != 2 {
		return fmt.Errorf("ipc: %d ranks: it runs between two: %w", len(devices), gpu.ErrUnsupported)
	}
	if devices[0].Kind != devices[1].Kind {
		return fmt.Errorf("ipc: from %s to %s: both devices must be of one kind: %w", devices[0].Kind, devices[1].Kind,
			gpu.ErrUnsupported)
	}
	return nil
}
