// Package ipc moves bytes between two processes through a memory handle: the receiver exports its buffer once, the
// sender maps it and copies straight into it.
//
// The path "direct" (UCCL #876): handles are exchanged and opened before anything is timed. A timed send is: copy,
// wait for the copy, store the sequence number with release ordering in memory that both processes share (done);
// the receiver sees it and stores its acknowledgement (ack). Outside the timed part the receiver compares the
// payload and only then grants the next operation (ready), so that unread data is never overwritten.
//
//	sender                        shared link                     receiver
//	fill(source, i)                                               check(inbox, i-1)
//	wait ready >= i        <----- ready = i  <------------------- grant
//	t0; copy to inbox; wait
//	done = i (release)     -----> done  ------------------------> wait done >= i
//	wait ack >= i; t1      <----- ack  <------------------------- ack = i
//
// Link and buffers are anonymous memory; handles and the link's file descriptor travel over a Unix socket in the
// abstract namespace. Nothing has a name in a file system and nothing can be left behind.
package ipc

import (
	"fmt"
	"slices"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Options are the path's knobs.
type Options struct {
	Path   string         `json:"path"`   // "auto" or "direct"
	Engine string         `json:"engine"` // "auto", or a name the device knows
	Handle gpu.HandleKind `json:"handle"` // "auto", or a kind the device knows
}

// Paths lists the values of Options.Path.
var Paths = []string{"auto", "direct"}

// Handles lists the values of Options.Handle.
var Handles = []gpu.HandleKind{gpu.HandleAuto, gpu.HandleLegacy, gpu.HandleVMM, gpu.HandleMemFD}

type ipc struct{ o Options }

// New makes the transport. Empty options mean "auto"; an unknown path is an error.
func New(o Options) (transport.Transport, error) {
	if o.Path != "" && !slices.Contains(Paths, o.Path) {
		return nil, fmt.Errorf("ipc: no path %q: use one of %v", o.Path, Paths)
	}
	return &ipc{o: o}, nil
}

func (*ipc) Name() string { return "ipc" }

func (*ipc) Ranks(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
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

// engines names the engine to open, or those to choose from.
func (t *ipc) engines(d gpu.Device) []string {
	if t.o.Engine != "" && t.o.Engine != "auto" {
		return []string{t.o.Engine}
	}
	if c, ok := d.(gpu.Chooser); ok {
		return c.Candidates()
	}
	return d.Engines()[:1]
}

func (t *ipc) handle() gpu.HandleKind {
	if t.o.Handle == "" {
		return gpu.HandleAuto
	}
	return t.o.Handle
}
