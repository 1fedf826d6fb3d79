package nccl

/*
#include "nccl.h"
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

// held is a queue that can be held: what timing by the device takes.
type held struct {
	queue  gpu.Queue
	memory gpu.Memory // pins the page
	page   []byte     // holds the gate's word
}

// openHeld opens a queue of the device; the engine is one of its engines.
func openHeld(d gpu.Device, engine *C.struct_p2p_engine) (_ *held, err error) {
	h := &held{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("timing by the device: %w", err), h.Close())
		}
	}()
	launcher, ok := d.(gpu.Launcher)
	if !ok {
		return nil, fmt.Errorf("a %s device has no queues: %w", d.Info().Kind, gpu.ErrUnsupported)
	}
	if h.queue, err = launcher.Queue(); err != nil {
		return nil, err
	}
	if h.table().stream == nil {
		return nil, fmt.Errorf("a queue without a stream: %w", gpu.ErrUnsupported)
	}
	if h.memory, err = d.Memory(gpu.HandleAuto); err != nil {
		return nil, err
	}
	h.page, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return h, abi.Call(func(e *C.struct_p2p_error) {
		table := (*C.struct_p2p_memory)(h.memory.Table().Pointer())
		C.p2p_nccl_pin(engine, table, unsafe.Pointer(&h.page[0]), C.size_t(len(h.page)), e)
	})
}

func (h *held) table() *C.struct_p2p_queue { return (*C.struct_p2p_queue)(h.queue.Table().Pointer()) }

// gate is the gate before anything was held.
func (h *held) gate() C.struct_p2p_gate {
	return C.struct_p2p_gate{queue: h.table(), word: (*C.uint64_t)(unsafe.Pointer(&h.page[0]))}
}

// Close releases the queue, which must be idle, and the word that held it.
func (h *held) Close() error {
	var errs []error
	if h.queue != nil {
		errs = append(errs, h.queue.Close())
	}
	if h.memory != nil {
		errs = append(errs, h.memory.Close())
	}
	if h.page != nil {
		errs = append(errs, unix.Munmap(h.page))
	}
	h.queue, h.memory, h.page = nil, nil, nil
	return errors.Join(errs...)
}
