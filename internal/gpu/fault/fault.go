// Package fault is a device that misbehaves on request, so that tests, and users who doubt, can see that a run
// notices: `--inject flip=COPY:OFFSET` changes one byte of one message in flight.
package fault

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
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

// Flip changes the byte at Offset of the message that an engine copies as its number Copy, counted from 0 and from
// the opening of the engine, warm-up included.
type Flip struct{ Copy, Offset uint64 }

// Parse reads "flip=COPY:OFFSET".
func Parse(s string) (Flip, error) {
	bad := fmt.Errorf("--inject %q: want flip=COPY:OFFSET, two numbers from 0", s)
	spec, ok := strings.CutPrefix(s, "flip=")
	if !ok {
		return Flip{}, bad
	}
	at, off, ok := strings.Cut(spec, ":")
	if !ok {
		return Flip{}, bad
	}
	n, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		return Flip{}, bad
	}
	o, err := strconv.ParseUint(off, 10, 64)
	if err != nil {
		return Flip{}, bad
	}
	return Flip{Copy: n, Offset: o}, nil
}

// Wrap makes a device whose engines commit the fault.
func Wrap(d gpu.Device, f Flip) gpu.Device { return &device{Device: d, flip: f} }

type device struct {
	gpu.Device
	flip Flip
}

func (d *device) Engine(name string) (gpu.Engine, error) {
	inner, err := d.Device.Engine(name)
	if err != nil {
		return nil, err
	}
	table := (*C.struct_p2p_engine)(inner.Table().Pointer())
	c := C.p2p_fault_flip(table, C.uint64_t(d.flip.Copy), C.uint64_t(d.flip.Offset))
	if c == nil {
		return nil, errors.Join(errors.New("fault: out of memory"), inner.Close())
	}
	return &engine{Engine: inner, c: c}, nil
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
