// Package ipc moves bytes between two processes through memory handles. Each idea of UCCL's and MPICH's IPC is a knob.
//
// Paths:
//
//	direct     the receiver publishes its buffer and the sender maps it before anything is timed; a timed send is a
//	           copy and a store of its sequence number (UCCL #876)
//	handshake  for each message the sender asks where it shall go, and the receiver answers with a handle (UCCL #876's
//	           cold path)
//	relay      through CPU memory, for devices that do not reach each other: pooled, in pinned chunks that move in and
//	           out at the same time, or fresh, a new segment for each message (UCCL #876's)
//	get        the sender names its buffer and the receiver maps and fetches it, with a cache of handles at the sender
//	           (MPICH #7862)
//
// An operation, here direct:
//
//	sender                        shared link                     receiver
//	fill(source, i)                                               check(inbox, i-1)
//	wait ready >= i        <----- ready = i  <------------------- grant
//	t0; copy to inbox; wait
//	done = i (release)     -----> done  ------------------------> wait done >= i
//	wait ack >= i; t1      <----- ack  <------------------------- ack = i
//
// Outside the timed part the receiver compares the payload and only then grants the next operation, so that unread
// data is never overwritten. Where a path needs more words than these, they travel as messages through a ring in the
// same shared memory, and descriptors beside them over a Unix socket.
//
// Link and CPU buffers are anonymous memory. Nothing has a name in a file system and nothing can be left behind.
package ipc

import (
	"fmt"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport"
)

type ipc struct{ o Options }

// New makes the transport. What does not exist or does not go together is an error that says what would.
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

// Accepts refuses windows that are longer than what a rank keeps of one, and graphs of what is not known beforehand.
func (t *ipc) Accepts(devices []gpu.Info, b transport.Batch) error {
	if err := t.Probe(devices); err != nil {
		return err
	}
	if b.Window > mostWindow {
		return fmt.Errorf("ipc: window %d: want at most %d", b.Window, mostWindow)
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
