package verbs

/*
#include "verbs.h"
*/
import "C"

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Access is the permissions of a memory region.
type Access uint32

// LocalWrite is for memory that the device writes; RemoteWrite and RemoteAtomic require it. RelaxedOrdering allows
// writes over PCIe to be reordered; after a completion all are visible. It is left out if the library does not know it.
const (
	LocalWrite      Access = C.IBV_ACCESS_LOCAL_WRITE
	RemoteWrite     Access = C.IBV_ACCESS_REMOTE_WRITE
	RemoteRead      Access = C.IBV_ACCESS_REMOTE_READ
	RemoteAtomic    Access = C.IBV_ACCESS_REMOTE_ATOMIC
	RelaxedOrdering Access = C.IBV_ACCESS_RELAXED_ORDERING
)

// MR is registered memory.
type MR struct {
	LKey, RKey uint32 // for work requests of this end and of the remote end
	c          *Context
	p          *C.struct_ibv_mr
}

// Register registers memory of this process, or of a GPU whose driver lets devices access it by address.
func (c *Context) Register(addr uintptr, bytes uint64, access Access) (*MR, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	var p *C.struct_ibv_mr
	errno := C.p2p_verbs_reg(c.pd, C.uintptr_t(addr), C.size_t(bytes), C.uint(access), &p)
	if err := c.fail("ibv_reg_mr", errno); err != nil {
		err = hint(err, syscall.ENOMEM, "%s", c.lockedMemory(bytes))
		return nil, hint(err, syscall.EFAULT, "there is no memory for devices at %#x (for GPU memory: load nvidia_peermem, or use dma-buf)", addr)
	}
	return c.region(p), nil
}

// RegisterDMABuf registers bytes of a dma-buf from an offset on. Work requests of both ends address them from iova. The
// descriptor may be closed afterwards. If it is not supported, the error wraps gpu.ErrUnsupported.
func (c *Context) RegisterDMABuf(fd int, offset, bytes, iova uint64, access Access) (*MR, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	var p *C.struct_ibv_mr
	errno := C.p2p_verbs_reg_dmabuf(c.pd, C.int(fd), C.uint64_t(offset), C.size_t(bytes), C.uint64_t(iova), C.uint(access), &p)
	if err := c.fail("ibv_reg_dmabuf_mr", errno); err != nil {
		return nil, err
	}
	return c.region(p), nil
}

func (c *Context) region(p *C.struct_ibv_mr) *MR {
	c.mrs.Add(1)
	return &MR{LKey: uint32(p.lkey), RKey: uint32(p.rkey), c: c, p: p}
}

// lockedMemory returns what to do if memory could not be locked.
func (c *Context) lockedMemory(bytes uint64) string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY {
		return fmt.Sprintf("%d bytes; memory may be locked without limit (ulimit -l), so that the machine or the device, "+
			"which takes %d regions, has too little", bytes, c.limits.MRs)
	}
	return fmt.Sprintf("%d bytes must be locked, and this process may lock %d KiB (ulimit -l): raise it with `ulimit -l unlimited`, "+
		"memlock in /etc/security/limits.conf, LimitMEMLOCK= of systemd or --ulimit memlock=-1 of a container", bytes, limit.Cur>>10)
}

// Close deregisters the memory. A second Close does nothing.
func (m *MR) Close() error {
	if m.p == nil {
		return nil
	}
	if err := m.c.fail("ibv_dereg_mr", C.p2p_verbs_dereg(m.p)); err != nil {
		return err
	}
	m.p = nil
	m.c.mrs.Add(-1)
	return nil
}
