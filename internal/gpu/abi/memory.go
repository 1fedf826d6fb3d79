package abi

/*
#include <stdlib.h>
#include "p2p.h"

static int memory_alloc(struct p2p_memory *m, size_t n, uintptr_t at, uintptr_t *base, struct p2p_error *e) {
	void *p = NULL;
	int rc = m->alloc(m->self, n, (void *)at, &p, e);
	*base = (uintptr_t)p;
	return rc;
}
static int memory_release(struct p2p_memory *m, uintptr_t base, struct p2p_error *e) {
	return m->release(m->self, (void *)base, e);
}
static int memory_range(struct p2p_memory *m, uintptr_t p, struct p2p_range *r, struct p2p_error *e) {
	return m->range(m->self, (const void *)p, r, e);
}
static int memory_export(struct p2p_memory *m, uintptr_t base, struct p2p_handle *h, struct p2p_error *e) {
	return m->export(m->self, (void *)base, h, e);
}
static int memory_open(struct p2p_memory *m, const struct p2p_handle *h, uintptr_t *base, struct p2p_error *e) {
	void *p = NULL;
	int rc = m->open(m->self, h, &p, e);
	*base = (uintptr_t)p;
	return rc;
}
static int memory_close(struct p2p_memory *m, uintptr_t base, struct p2p_error *e) {
	return m->close(m->self, (void *)base, e);
}
static int memory_pin(struct p2p_memory *m, uintptr_t p, size_t n, struct p2p_error *e) {
	return m->pin(m->self, (void *)p, n, e);
}
static int memory_unpin(struct p2p_memory *m, uintptr_t p, struct p2p_error *e) {
	return m->unpin(m->self, (void *)p, e);
}
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Memory is a struct p2p_memory. The thread that calls its methods must have bound an engine of the device.
type Memory struct{ c *C.struct_p2p_memory }

// Handle names an allocation of one process so that another can map it.
type Handle struct {
	Kind   uint32
	FD     int    // file descriptor that must be passed along with the handle; -1: none
	Length uint64 // bytes
	ID     uint64 // identifies the allocation; its process never reuses it
	Opaque [64]byte
}

// Range is the allocation that contains an address.
type Range struct {
	Base       uintptr
	Length, ID uint64
}

// Pointer converts an address of device memory to a pointer for C code. go vet rejects unsafe.Pointer(a), because the
// garbage collector does not see Go memory behind an integer. These addresses point to memory of a device's library or
// of mmap, which the garbage collector neither frees nor moves. Go code may dereference the pointer only if it points
// to CPU memory.
func Pointer(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

// MemoryAt wraps the memory table at p, which must stay valid as long as the Memory is used.
func MemoryAt(p unsafe.Pointer) *Memory {
	m := (*C.struct_p2p_memory)(p)
	if m.abi != C.P2P_ABI {
		panic(fmt.Sprintf("memory table version %d, want %d: run go generate", m.abi, Version))
	}
	return &Memory{c: m}
}

// Pointer is the struct p2p_memory for C code.
func (m *Memory) Pointer() unsafe.Pointer { return unsafe.Pointer(m.c) }

// Alloc allocates at least n bytes, at the address at if possible; 0: at any address.
func (m *Memory) Alloc(n uint64, at uintptr) (uintptr, error) {
	var base C.uintptr_t
	var e C.struct_p2p_error
	C.memory_alloc(m.c, C.size_t(n), C.uintptr_t(at), &base, &e)
	return uintptr(base), ErrorAt(unsafe.Pointer(&e))
}

// Release frees an allocation.
func (m *Memory) Release(base uintptr) error {
	var e C.struct_p2p_error
	C.memory_release(m.c, C.uintptr_t(base), &e)
	return ErrorAt(unsafe.Pointer(&e))
}

// Range returns the allocation that contains p.
func (m *Memory) Range(p uintptr) (Range, error) {
	var r C.struct_p2p_range
	var e C.struct_p2p_error
	C.memory_range(m.c, C.uintptr_t(p), &r, &e)
	return Range{Base: uintptr(unsafe.Pointer(r.base)), Length: uint64(r.length), ID: uint64(r.id)}, ErrorAt(unsafe.Pointer(&e))
}

// Export returns a handle of the allocation that begins at base. The caller closes Handle.FD.
func (m *Memory) Export(base uintptr) (Handle, error) {
	var h C.struct_p2p_handle
	var e C.struct_p2p_error
	if C.memory_export(m.c, C.uintptr_t(base), &h, &e) != C.P2P_OK {
		return Handle{FD: -1}, ErrorAt(unsafe.Pointer(&e))
	}
	out := Handle{Kind: uint32(h.kind), FD: int(h.fd), Length: uint64(h.length), ID: uint64(h.id)}
	copy(out.Opaque[:], unsafe.Slice((*byte)(unsafe.Pointer(&h.opaque[0])), len(out.Opaque)))
	return out, nil
}

// Open maps an allocation that another process exported. The caller keeps ownership of h.FD.
func (m *Memory) Open(h Handle) (uintptr, error) {
	c := C.struct_p2p_handle{
		kind: C.uint32_t(h.Kind), fd: C.int32_t(h.FD), length: C.uint64_t(h.Length), id: C.uint64_t(h.ID),
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&c.opaque[0])), len(h.Opaque)), h.Opaque[:])
	var base C.uintptr_t
	var e C.struct_p2p_error
	C.memory_open(m.c, &c, &base, &e)
	return uintptr(base), ErrorAt(unsafe.Pointer(&e))
}

// Unmap undoes Open.
func (m *Memory) Unmap(base uintptr) error {
	var e C.struct_p2p_error
	C.memory_close(m.c, C.uintptr_t(base), &e)
	return ErrorAt(unsafe.Pointer(&e))
}

// Pin page-locks n bytes of CPU memory at p, whole pages, so that the device's engines access them at full speed.
func (m *Memory) Pin(p uintptr, n uint64) error {
	var e C.struct_p2p_error
	C.memory_pin(m.c, C.uintptr_t(p), C.size_t(n), &e)
	return ErrorAt(unsafe.Pointer(&e))
}

// Unpin undoes Pin.
func (m *Memory) Unpin(p uintptr) error {
	var e C.struct_p2p_error
	C.memory_unpin(m.c, C.uintptr_t(p), &e)
	return ErrorAt(unsafe.Pointer(&e))
}
