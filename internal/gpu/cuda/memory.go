package cuda

/*
#include "memory.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// Memory is a piece of GPU memory, allocated here or mapped from another process.
type Memory struct {
	dev  *Device
	kind gpu.HandleKind
	c    *C.struct_cuda_memory
}

// nativeKind is the kind as C knows it.
func (d *Device) nativeKind(kind gpu.HandleKind) (C.int, error) {
	if !slices.Contains(d.Handles(), kind) {
		return 0, unsupported("no handle kind %q: use one of %v", kind, d.Handles())
	}
	if kind == gpu.HandleVMM {
		return C.CUDA_MEMORY_VMM, nil
	}
	return C.CUDA_MEMORY_LEGACY, nil
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
	m := &Memory{dev: d, kind: kind}
	var e C.struct_p2p_error
	C.cuda_memory_alloc(d.c, native, C.size_t(max(bytes, 1)), &m.c, &e)
	if err := failure(fmt.Sprintf("alloc %d bytes as %s", bytes, kind), &e); err != nil {
		return nil, err
	}
	d.keep(m)
	return m, nil
}

// Memory is a stub.
func (d *Device) Memory(gpu.HandleKind) (gpu.Memory, error) { return nil, gpu.ErrUnsupported }

// Reaches is a stub.
func (d *Device) Reaches(gpu.Info) bool { return true }

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
	var opaque C.struct_cuda_ipc_handle
	if h.Kind == gpu.HandleLegacy {
		if len(h.Opaque) != len(opaque.bytes) {
			return nil, fmt.Errorf("cuda: import: handle of %d bytes, want %d", len(h.Opaque), len(opaque.bytes))
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&opaque)), len(opaque.bytes)), h.Opaque)
	}
	m := &Memory{dev: d, kind: h.Kind}
	var e C.struct_p2p_error
	C.cuda_memory_import(d.c, native, &opaque, C.int(h.FD), C.size_t(h.Bytes), &m.c, &e)
	if err := failure(fmt.Sprintf("import %d bytes as %s", h.Bytes, h.Kind), &e); err != nil {
		if h.Kind == gpu.HandleLegacy && (e.native == C.CUDA_INVALID_CONTEXT || e.native == C.CUDA_ALREADY_MAPPED) {
			err = fmt.Errorf("%w: was it exported by this very process? A legacy handle opens in others only", err)
		}
		return nil, err
	}
	d.keep(m)
	return m, nil
}

// Addr is the address in this process, 0 once closed.
func (m *Memory) Addr() uintptr {
	if m.c == nil {
		return 0
	}
	return uintptr(m.c.addr)
}

// Size is in bytes, 0 once closed.
func (m *Memory) Size() uint64 {
	if m.c == nil {
		return 0
	}
	return uint64(m.c.size)
}

// Export makes a handle of the kind that Alloc was given.
func (m *Memory) Export() (gpu.Handle, error) {
	switch {
	case m.c == nil:
		return gpu.Handle{}, fmt.Errorf("cuda: export: the buffer is closed")
	case m.c.imported != 0:
		return gpu.Handle{}, unsupported("export: the memory belongs to another process")
	}
	var opaque C.struct_cuda_ipc_handle
	fd := C.int(-1)
	var e C.struct_p2p_error
	C.cuda_memory_export(m.c, &opaque, &fd, &e)
	if err := failure(fmt.Sprintf("export as %s", m.kind), &e); err != nil {
		return gpu.Handle{}, err
	}
	h := gpu.Handle{Kind: m.kind, Bytes: m.Size(), FD: int(fd)}
	if m.kind == gpu.HandleLegacy {
		h.Opaque = C.GoBytes(unsafe.Pointer(&opaque), C.int(len(opaque.bytes)))
	} else {
		unix.CloseOnExec(h.FD)
	}
	return h, nil
}

// Close frees or unmaps the memory. A second Close does nothing.
func (m *Memory) Close() error {
	if !m.dev.drop(m) {
		return nil
	}
	var e C.struct_p2p_error
	C.cuda_memory_close(m.c, &e)
	m.c = nil
	return failure("free", &e)
}
