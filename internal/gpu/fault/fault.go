// Package fault wraps a device and injects faults, so that tests and users can verify that a run detects them:
// `--inject flip=COPY:OFFSET` changes one byte of one message in flight, `kill=COPY` kills the process in the middle of
// a message, `drop=COPY` omits a copy, `stale=FILL` writes no payload from that fill on. `late` and
// `slow=PERCENT` are not faults: copies complete as late as a device may, or take this much longer.
package fault

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0x4928d503
#include "fault.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// What is a kind of fault.
type What int

// The faults.
const (
	Flip What = C.FAULT_FLIP // the byte at Offset of the message changes
	Kill What = C.FAULT_KILL // the process dies by SIGKILL with half of the message copied
	Drop What = C.FAULT_DROP // the message is not copied, without an error
	// Stale omits all fills from fill number Copy on, of payloads and of cleared buffers: buffers keep their old
	// contents.
	Stale What = C.FAULT_STALE
	// Late is not a fault: bytes move only when a copy is waited for.
	Late What = C.FAULT_LATE
	// Slow is not a fault: copies take Copy per cent longer.
	Slow What = C.FAULT_SLOW
)

// maxSlow is the upper bound of slow=PERCENT.
const maxSlow = 10_000

// Fault applies to message number Copy of an engine, counted from 0 since the engine was opened, warm-up included. Only
// senders copy messages.
type Fault struct {
	What   What
	Copy   uint64
	Offset uint64 // byte of the message, for Flip
}

// Parse reads flip=COPY:OFFSET, kill=COPY, drop=COPY, stale=FILL, late or slow=PERCENT.
func Parse(s string) (Fault, error) {
	name, spec, given := strings.Cut(s, "=")
	at, off, two := strings.Cut(spec, ":")
	what, known := map[string]What{"flip": Flip, "kill": Kill, "drop": Drop, "stale": Stale, "late": Late, "slow": Slow}[name]
	f := Fault{What: what}
	n, nerr := strconv.ParseUint(at, 10, 64)
	var oerr error
	if f.Copy = n; two {
		f.Offset, oerr = strconv.ParseUint(off, 10, 64)
	}
	switch {
	case known && what == Late && !given:
		return f, nil
	case what == Slow && (n < 1 || n > maxSlow):
		return Fault{}, fmt.Errorf("--inject %q: want slow=PERCENT, from 1 to %d", s, maxSlow)
	case !known || what == Late || nerr != nil || two != (what == Flip) || oerr != nil:
		return Fault{}, fmt.Errorf("--inject %q: want flip=COPY:OFFSET, kill=COPY, drop=COPY, stale=FILL, with numbers from 0, late, or slow=PERCENT", s)
	}
	return f, nil
}

// Wrap returns a device whose engines inject the fault. It implements [gpu.Launcher], [gpu.Recorder] and
// [gpu.Inspector]; if d does not, its methods return an error that wraps [gpu.ErrUnsupported].
func Wrap(d gpu.Device, f Fault) gpu.Device { return &device{Device: d, fault: f} }

type device struct {
	gpu.Device
	fault   Fault
	engines []*engine
}

// Struck is the number of injected faults, summed over all engines.
func (d *device) Struck() (n uint64) {
	for _, e := range d.engines {
		n += e.struck()
	}
	return n
}

func (d *device) Engine(name string) (gpu.Engine, error) {
	inner, err := d.Device.Engine(name)
	if err != nil {
		return nil, err
	}
	table := (*C.struct_p2p_engine)(inner.Table().Pointer())
	c := C.p2p_fault_new(table, C.int(d.fault.What), C.uint64_t(d.fault.Copy), C.uint64_t(d.fault.Offset))
	if c == nil {
		return nil, errors.Join(errors.New("fault: out of memory"), inner.Close())
	}
	e := &engine{Engine: inner, c: c}
	d.engines = append(d.engines, e)
	return e, nil
}

// Queue opens a queue of the device. For messages sent by a queue, the engine that wrote the payload injects the fault.
func (d *device) Queue() (gpu.Queue, error) {
	l, ok := d.Device.(gpu.Launcher)
	if !ok {
		return nil, fmt.Errorf("fault: a %s device runs no kernels: %w", d.Info().Kind, gpu.ErrUnsupported)
	}
	return l.Queue()
}

// WaitWith calls the device's WaitWith, if it has one.
func (d *device) WaitWith(x *abi.Ctx) {
	if w, ok := d.Device.(gpu.Waiter); ok {
		w.WaitWith(x)
	}
}

// Recorder returns the device's recorder.
func (d *device) Recorder() (*abi.Recorder, error) {
	if r, ok := d.Device.(gpu.Recorder); ok {
		return r.Recorder()
	}
	return nil, fmt.Errorf("fault: a %s device records nothing: %w", d.Info().Kind, gpu.ErrUnsupported)
}

// Kernels returns the device's kernels.
func (d *device) Kernels() ([]gpu.Kernel, error) {
	if i, ok := d.Device.(gpu.Inspector); ok {
		return i.Kernels()
	}
	return nil, fmt.Errorf("fault: a %s device has no kernels to describe: %w", d.Info().Kind, gpu.ErrUnsupported)
}

type engine struct {
	gpu.Engine
	c    *C.struct_p2p_engine
	last uint64 // injected faults when it was closed
}

func (e *engine) struck() uint64 {
	if e.c == nil {
		return e.last
	}
	return uint64(C.p2p_fault_struck(e.c))
}

func (e *engine) Table() *abi.Engine { return abi.EngineAt(unsafe.Pointer(e.c)) }

func (e *engine) Close() error {
	if e.c != nil {
		e.last = e.struck()
		C.p2p_fault_free(e.c)
		e.c = nil
	}
	return e.Engine.Close()
}
