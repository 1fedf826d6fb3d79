// Package fault is a device that misbehaves on request, so that tests, and users who doubt, can see that a run
// notices: `--inject flip=COPY:OFFSET` changes one byte of one message in flight, `--inject kill=COPY` ends the
// process in the middle of one.
package fault

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0xe3ded4e5
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
)

// Fault befalls the message that an engine copies as its number Copy, counted from 0 and from the opening of the
// engine, warm-up included. Only who sends copies.
type Fault struct {
	What   What
	Copy   uint64
	Offset uint64 // of Flip
}

// Parse reads "flip=COPY:OFFSET" or "kill=COPY".
func Parse(s string) (Fault, error) {
	name, spec, _ := strings.Cut(s, "=")
	at, off, two := strings.Cut(spec, ":")
	f := Fault{What: Flip}
	if name == "kill" {
		f.What, off = Kill, "0"
	}
	n, nerr := strconv.ParseUint(at, 10, 64)
	o, oerr := strconv.ParseUint(off, 10, 64)
	if name != "flip" && name != "kill" || two != (f.What == Flip) || nerr != nil || oerr != nil {
		return Fault{}, fmt.Errorf("--inject %q: want flip=COPY:OFFSET or kill=COPY, with numbers from 0", s)
	}
	f.Copy, f.Offset = n, o
	return f, nil
}

// Wrap makes a device whose engines commit the fault. It is a [gpu.Launcher] and a [gpu.Inspector] where d is one, and
// answers with gpu.ErrUnsupported where d is none.
func Wrap(d gpu.Device, f Fault) gpu.Device { return &device{Device: d, fault: f} }

type device struct {
	gpu.Device
	fault Fault
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
	return &engine{Engine: inner, c: c}, nil
}

// Queue is the device's own: faults befall a message when the engine that wrote it sees it leave.
func (d *device) Queue() (gpu.Queue, error) {
	l, ok := d.Device.(gpu.Launcher)
	if !ok {
		return nil, fmt.Errorf("fault: a %s device runs no kernels: %w", d.Info().Kind, gpu.ErrUnsupported)
	}
	return l.Queue()
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
	c *C.struct_p2p_engine
}

func (e *engine) Table() *abi.Engine { return abi.EngineAt(unsafe.Pointer(e.c)) }

func (e *engine) Close() error {
	if e.c != nil {
		C.p2p_fault_free(e.c)
		e.c = nil
	}
	return e.Engine.Close()
}
