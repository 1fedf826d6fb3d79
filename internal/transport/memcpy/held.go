package memcpy

/*
#include <stdlib.h>
#include "memcpy.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// held is a queue of each device, and the one word that holds them both: what timing by the device takes.
type held struct {
	queues [2]gpu.Queue
	memory gpu.Memory // pins the page, for every device of the process
	page   []byte     // holds the word
}

// openHeld opens a queue of each device; the engine is one of the first device's.
func openHeld(devices [2]gpu.Device, engine *C.struct_p2p_engine) (_ *held, err error) {
	h := &held{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("timing by the device: %w", err), h.Close())
		}
	}()
	for i, d := range devices {
		launcher, ok := d.(gpu.Launcher)
		if !ok {
			return nil, fmt.Errorf("a %s device has no queues: %w", d.Info().Kind, gpu.ErrUnsupported)
		}
		if h.queues[i], err = launcher.Queue(); err != nil {
			return nil, err
		}
	}
	if h.memory, err = devices[0].Memory(gpu.HandleAuto); err != nil {
		return nil, err
	}
	h.page, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return h, h.pin(engine)
}

func (h *held) pin(engine *C.struct_p2p_engine) error {
	table := (*C.struct_p2p_memory)(h.memory.Table().Pointer())
	return abi.Call(func(e *C.struct_p2p_error) {
		C.p2p_memcpy_pin(engine, table, unsafe.Pointer(&h.page[0]), C.size_t(len(h.page)), e)
	})
}

func (h *held) table(i int) *C.struct_p2p_queue {
	return (*C.struct_p2p_queue)(h.queues[i].Table().Pointer())
}

// gates are the gates of both queues before anything was held.
func (h *held) gates() (g [2]C.struct_p2p_gate) {
	for i := range g {
		g[i] = C.struct_p2p_gate{queue: h.table(i), word: (*C.uint64_t)(unsafe.Pointer(&h.page[0]))}
	}
	return g
}

// Close releases the queues, which must be idle or on their way to it, and the word that held them.
func (h *held) Close() error {
	var errs []error
	for i, q := range h.queues {
		if q != nil {
			errs = append(errs, q.Close())
		}
		h.queues[i] = nil
	}
	if h.memory != nil {
		errs = append(errs, h.memory.Close())
	}
	if h.page != nil {
		errs = append(errs, unix.Munmap(h.page))
	}
	h.memory, h.page = nil, nil
	return errors.Join(errs...)
}
