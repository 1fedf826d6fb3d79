package rdma

/*
#include <stdlib.h>
#include "rdma.h"
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
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

// align is the alignment of inboxes, in bytes.
const align = 4096

// region is registered memory of the device.
type region struct {
	buffer gpu.Buffer
	mr     *verbs.MR
	how    MR     // how it was registered
	base   uint64 // address for work requests
}

// newRegion allocates memory and registers it. Memory that the NIC cannot access is refused; there is no staging
// through CPU memory.
func (ep *endpoint) newRegion(bytes uint64, access verbs.Access) (_ *region, err error) {
	r := &region{}
	if r.buffer, err = ep.env.Device.Alloc(bytes); err != nil {
		return nil, err
	}
	if err := ep.register(r, access); err != nil {
		return nil, errors.Join(err, r.buffer.Close())
	}
	return r, nil
}

func (ep *endpoint) register(r *region, access verbs.Access) (err error) {
	d, kind := ep.env.Device, ep.env.Device.Info().Kind
	exporter, exports := d.(gpu.DMABufs)
	r.base = uint64(r.buffer.Addr())
	if ep.o.MR == MRDMABuf && !exports {
		return fmt.Errorf("--mr dmabuf: a %s device has no dma-buf: use --mr reg: %w", kind, gpu.ErrUnsupported)
	}
	var byDMABuf error
	if exports && ep.o.MR != MRReg {
		r.how = MRDMABuf
		if byDMABuf = ep.registerDMABuf(r, exporter, access); byDMABuf == nil {
			return nil
		}
		if ep.o.MR == MRDMABuf {
			return fmt.Errorf("--mr dmabuf: %w", byDMABuf)
		}
	}
	r.how = MRReg
	if r.mr, err = ep.context.Register(r.buffer.Addr(), r.buffer.Size(), access); err == nil {
		return nil
	}
	if byDMABuf != nil {
		return fmt.Errorf("%s cannot reach the memory of %s: by dma-buf: %w; by its address: %w", ep.nic, d.Info().Name, byDMABuf, err)
	}
	return err
}

func (ep *endpoint) registerDMABuf(r *region, d gpu.DMABufs, access verbs.Access) error {
	fd, err := d.DMABuf(r.buffer)
	if err != nil {
		return err
	}
	r.mr, err = ep.context.RegisterDMABuf(fd, 0, r.buffer.Size(), r.base, access)
	return errors.Join(err, unix.Close(fd))
}

func (r *region) at() *C.uint8_t { return (*C.uint8_t)(abi.Pointer(r.buffer.Addr())) }

// Close deregisters and frees. It may be called on nil.
func (r *region) Close() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.mr.Close(), r.buffer.Close())
}

// control is registered CPU memory for credits and words.
type control struct {
	mem []byte
	mr  *verbs.MR
}

func newControl(c *verbs.Context, bytes uint64) (*control, error) {
	page := uint64(os.Getpagesize())
	mem, err := unix.Mmap(-1, 0, int(ceil(max(bytes, 1), page)*page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("control memory: mmap %d bytes: %w", bytes, err)
	}
	x := &control{mem: mem}
	if x.mr, err = c.Register(uintptr(unsafe.Pointer(&mem[0])), uint64(len(mem)), verbs.LocalWrite|verbs.RemoteWrite); err != nil {
		return nil, errors.Join(fmt.Errorf("control memory: %w", err), unix.Munmap(mem))
	}
	return x, nil
}

func (x *control) at(offset uint64) unsafe.Pointer { return unsafe.Pointer(&x.mem[offset]) }

// addr is the address to which the other end writes.
func (x *control) addr(offset uint64) uint64 { return uint64(uintptr(x.at(offset))) }

// Close deregisters and unmaps. It may be called on nil.
func (x *control) Close() error {
	if x == nil {
		return nil
	}
	return errors.Join(x.mr.Close(), unix.Munmap(x.mem))
}

// arena is C memory that is freed together.
type arena struct{ pieces []unsafe.Pointer }

func (a *arena) alloc(n int, size uintptr) unsafe.Pointer {
	p := C.calloc(C.size_t(max(n, 1)), C.size_t(size))
	a.pieces = append(a.pieces, p)
	return p
}

func (a *arena) Close() {
	for _, p := range a.pieces {
		C.free(p)
	}
	a.pieces = nil
}

// array allocates n zeroed values.
func array[T any](a *arena, n int) []T {
	var zero T
	return unsafe.Slice((*T)(a.alloc(n, unsafe.Sizeof(zero))), n)
}
