package cuda

/*
#include "memory.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// Buffer is a piece of GPU memory, allocated here or mapped from another process.
type Buffer struct {
	dev  *Device
	kind gpu.HandleKind
	c    *C.struct_cuda_memory
}

// Alloc returns memory of this GPU, rounded up to what can be shared on its own. HandleAuto means legacy.
func (d *Device) Alloc(bytes uint64, kind gpu.HandleKind) (gpu.Buffer, error) {
	if d.c == nil {
		return nil, errClosed
	}
	if kind == gpu.HandleAuto {
		kind = gpu.HandleLegacy
	}
	native, err := d.nativeKind(kind)
	if err != nil {
		return nil, err
	}
	free, err := d.Free()
	if err != nil {
		return nil, err
	}
	if bytes > free {
		return nil, fmt.Errorf("cuda: alloc: %d bytes (%.1f GiB) asked for, %.1f of %.1f GiB are free on %s",
			bytes, gib(bytes), gib(free), gib(d.info.Memory), d.info.UUID)
	}
	b := &Buffer{dev: d, kind: kind}
	var e C.struct_p2p_error
	C.cuda_memory_alloc(d.c, native, C.size_t(max(bytes, 1)), 0, &b.c, &e)
	if err := failure(fmt.Sprintf("alloc %d bytes as %s", bytes, kind), &e); err != nil {
		return nil, err
	}
	d.keep(b)
	return b, nil
}

func gib(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

// Import maps memory of any GPU that another process exported. It owns h.FD, whatever happens.
func (d *Device) Import(h gpu.Handle) (gpu.Buffer, error) {
	if h.FD >= 0 {
		defer func() { _ = unix.Close(h.FD) }()
	}
	if d.c == nil {
		return nil, errClosed
	}
	native, err := d.nativeKind(h.Kind)
	if err != nil {
		return nil, err
	}
	var opaque C.struct_cuda_opaque
	if h.Kind != gpu.HandleVMM {
		if len(h.Opaque) != len(opaque.bytes) {
			return nil, fmt.Errorf("cuda: import: handle of %d bytes, want %d", len(h.Opaque), len(opaque.bytes))
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&opaque)), len(opaque.bytes)), h.Opaque)
	}
	b := &Buffer{dev: d, kind: h.Kind}
	var e C.struct_p2p_error
	C.cuda_memory_import(d.c, native, &opaque, C.int(h.FD), C.size_t(h.Bytes), &b.c, &e)
	if err := failure(fmt.Sprintf("import %d bytes as %s", h.Bytes, h.Kind), &e); err != nil {
		if h.Kind == gpu.HandleLegacy && (e.native == C.CUDA_INVALID_CONTEXT || e.native == C.CUDA_ALREADY_MAPPED) {
			err = fmt.Errorf("%w: was it exported by this very process? A legacy handle opens in others only", err)
		}
		return nil, err
	}
	d.keep(b)
	return b, nil
}

// Addr is the address in this process, 0 once closed.
func (b *Buffer) Addr() uintptr {
	if b.c == nil {
		return 0
	}
	return uintptr(b.c.addr)
}

// Size is in bytes, 0 once closed.
func (b *Buffer) Size() uint64 {
	if b.c == nil {
		return 0
	}
	return uint64(b.c.size)
}

// Export makes a handle of the kind that Alloc was given.
func (b *Buffer) Export() (gpu.Handle, error) {
	switch {
	case b.c == nil:
		return gpu.Handle{}, fmt.Errorf("cuda: export: the buffer is closed")
	case b.c.origin == C.CUDA_IMPORTED:
		return gpu.Handle{}, unsupported("export: the memory belongs to another process")
	}
	var opaque C.struct_cuda_opaque
	fd := C.int(-1)
	var e C.struct_p2p_error
	C.cuda_memory_export(b.c, &opaque, &fd, &e)
	if err := failure(fmt.Sprintf("export as %s", b.kind), &e); err != nil {
		return gpu.Handle{}, err
	}
	h := gpu.Handle{Kind: b.kind, Bytes: b.Size(), FD: int(fd)}
	if b.kind != gpu.HandleVMM {
		h.Opaque = C.GoBytes(unsafe.Pointer(&opaque), C.int(len(opaque.bytes)))
	}
	return h, nil
}

// Close frees or unmaps the memory. A second Close does nothing.
func (b *Buffer) Close() error {
	if !b.dev.drop(b) {
		return nil
	}
	var e C.struct_p2p_error
	C.cuda_memory_close(b.c, &e)
	b.c = nil
	return failure("free", &e)
}
