package cuda

/*
#include "memory.h"
*/
import "C"

import (
	"fmt"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// Buffer is GPU memory that is private to this process.
type Buffer struct {
	dev *Device
	c   *C.struct_cuda_memory // nil once closed
}

// Alloc allocates by cuMemAlloc and rounds up as for legacy handles, so that the source and the destination of a copy
// have the same kind of memory.
func (d *Device) Alloc(bytes uint64) (gpu.Buffer, error) {
	free, err := d.Free()
	if err != nil {
		return nil, err
	}
	if bytes > free {
		return nil, fmt.Errorf("cuda: alloc: %d bytes (%.1f GiB) asked for, %.1f of %.1f GiB are free on %s",
			bytes, gib(bytes), gib(free), gib(d.info.Memory), d.info.UUID)
	}
	b := &Buffer{dev: d}
	var e C.struct_p2p_error
	C.cuda_memory_alloc(d.c, C.CUDA_MEMORY_LEGACY, C.size_t(max(bytes, 1)), 0, &b.c, &e)
	if err := failure(fmt.Sprintf("alloc %d bytes", bytes), &e); err != nil {
		return nil, err
	}
	d.keep(b)
	return b, nil
}

func gib(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

// Addr is the address in this process, 0 once closed.
func (b *Buffer) Addr() uintptr {
	if b.c == nil {
		return 0
	}
	return uintptr(b.c.addr)
}

// DMABuf exports a buffer as a dma-buf. Buffers begin and end at page boundaries.
func (d *Device) DMABuf(buffer gpu.Buffer) (int, error) {
	b, ok := buffer.(*Buffer)
	if !ok || b.dev != d || b.c == nil {
		return -1, fmt.Errorf("cuda: dma-buf: not a buffer of %s", d.info.UUID)
	}
	var e C.struct_p2p_error
	fd := C.int(-1)
	C.cuda_memory_dmabuf(b.c, &fd, &e)
	return int(fd), failure("dma-buf", &e)
}

// Size is the size in bytes, 0 once closed.
func (b *Buffer) Size() uint64 {
	if b.c == nil {
		return 0
	}
	return uint64(b.c.size)
}

// Close frees the memory. A second Close does nothing.
func (b *Buffer) Close() error {
	if !b.dev.drop(b) {
		return nil
	}
	var e C.struct_p2p_error
	C.cuda_memory_close(b.c, &e)
	b.c = nil
	return failure("free", &e)
}
