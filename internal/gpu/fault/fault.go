// Package fault is a device that misbehaves on request, so that tests, and users who doubt, can see that a run
// notices: `--inject flip=COPY:OFFSET` changes one byte of one message in flight, `--inject kill=COPY` ends the
// process in the middle of one, `drop=COPY` copies nothing, `stale=FILL` writes no payload from then on, and `late` is no
// fault: it completes copies as late as a device may.
package fault

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0x426a8fc1
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

// What goes wrong.
type What int

// The faults.
const (
	Flip What = C.FAULT_FLIP // the byte at Offset of the message is another one
	Kill What = C.FAULT_KILL // the process dies by SIGKILL with half of the message copied
	Drop What = C.FAULT_DROP // the message is not copied, and nobody says so
	// Stale leaves what a buffer holds: from fill number Copy on no payload is written, nor what shall be no message.
	Stale What = C.FAULT_STALE
	// Late is a sound device, whose bytes move when a copy is waited for and not before.
	Late What = C.FAULT_LATE
)

// Fault befalls the message that an engine copies as its number Copy, counted from 0 and from the opening of the
// engine, warm-up included. Only who sends copies.
type Fault struct {
	What   What
	Copy   uint64
	Offset uint64 // of Flip
}

// Parse reads flip=COPY:OFFSET, kill=COPY, drop=COPY, stale=FILL or late.
func Parse(s string) (Fault, error) {
	name, spec, given := strings.Cut(s, "=")
	at, off, two := strings.Cut(spec, ":")
	what, known := map[string]What{"flip": Flip, "kill": Kill, "drop": Drop, "stale": Stale, "late": Late}[name]
	f := Fault{What: what}
	n, nerr := strconv.ParseUint(at, 10, 64)
	var oerr error
	if f.Copy = n; two {
		f.Offset, oerr = strconv.ParseUint(off, 10, 64)
	}
	switch {
	case known && what == Late && !given:
		return f, nil
	case !known || what == Late || nerr != nil || two != (what == Flip) || oerr != nil:
		return Fault{}, fmt.Errorf("--inject %q: want flip=COPY:OFFSET, kill=COPY, drop=COPY, stale=FILL, with numbers from 0, or late", s)
	}
	return f, nil
}

// Wrap makes a device whose engines commit the fault. It is a [gpu.Launcher], a [gpu.Recorder] and a [gpu.Inspector]
// where d is one, and answers with gpu.ErrUnsupported where d is none.
func Wrap(d gpu.Device, f Fault) gpu.Device { return &device{Device: d, fault: f} }

type device struct {
	gpu.Device
	fault   Fault
	engines []*engine
}

// Struck is how often the fault struck, on all engines.
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

// Queue is the device's own: faults befall a message when the engine that wrote it sees it leave.
func (d *device) Queue() (gpu.Queue, error) {
	l, ok := d.Device.(gpu.Launcher)
	if !ok {
		return nil, fmt.Errorf("fault: a %s device runs no kernels: %w", d.Info().Kind, gpu.ErrUnsupported)
	}
	return l.Queue()
}

// WaitWith is the device's own.
func (d *device) WaitWith(x *abi.Ctx) {
	if w, ok := d.Device.(gpu.Waiter); ok {
		w.WaitWith(x)
	}
}

// Recorder is the device's own: recordings hold what a library does.
func (d *device) Recorder() (*abi.Recorder, error) {
	if r, ok := d.Device.(gpu.Recorder); ok {
		return r.Recorder()
	}
	return nil, fmt.Errorf("fault: a %s device records nothing: %w", d.Info().Kind, gpu.ErrUnsupported)
}

// Kernels are the device's own.
func (d *device) Kernels() ([]gpu.Kernel, error) {
	if i, ok := d.Device.(gpu.Inspector); ok {
		return i.Kernels()
	}
	return nil, fmt.Errorf("fault: a %s device has no kernels to describe: %w", d.Info().Kind, gpu.ErrUnsupported)
}

type engine struct {
	gpu.Engine
	c    *C.struct_p2p_engine
	last uint64 // strikes until it was closed
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
