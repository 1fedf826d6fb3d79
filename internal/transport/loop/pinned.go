package loop

/*
#include "loop.h"

// Binds the engine's device to the calling thread, then lets it see n bytes of CPU memory at p.
static void pin(struct p2p_engine *g, struct p2p_memory *m, void *p, size_t n, struct p2p_error *e) {
	if (g->bind(g->self, e) == P2P_OK)
		m->pin(m->self, p, n, e);
}

static void unpin(struct p2p_engine *g, struct p2p_memory *m, void *p, struct p2p_error *e) {
	if (g->bind(g->self, e) == P2P_OK)
		m->unpin(m->self, p, e);
}
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

// Pinned is host memory that a device can access.
type Pinned struct {
	mem    []byte
	engine gpu.Engine
	memory gpu.Memory
}

// Pin maps at least n bytes, all zero, and pins them for the device of engine and memory, which must be the same device
// and stay open until Close.
func Pin(engine gpu.Engine, memory gpu.Memory, n int) (*Pinned, error) {
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, (max(n, 1)+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mmap %d bytes: %w", n, err)
	}
	p := &Pinned{mem: mem, engine: engine, memory: memory}
	err = p.call(func(g *C.struct_p2p_engine, m *C.struct_p2p_memory, e *C.struct_p2p_error) {
		C.pin(g, m, p.At(0), C.size_t(len(mem)), e)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pin %d bytes: %w", len(mem), err), unix.Munmap(mem))
	}
	return p, nil
}

// call runs f on one thread and returns its error.
func (p *Pinned) call(f func(*C.struct_p2p_engine, *C.struct_p2p_memory, *C.struct_p2p_error)) error {
	return abi.Call(func(e *C.struct_p2p_error) {
		f((*C.struct_p2p_engine)(p.engine.Table().Pointer()), (*C.struct_p2p_memory)(p.memory.Table().Pointer()), e)
	})
}

// At is the address of the byte at offset.
func (p *Pinned) At(offset int) unsafe.Pointer { return unsafe.Pointer(&p.mem[offset]) }

// Len is the number of bytes, at least those requested.
func (p *Pinned) Len() int { return len(p.mem) }

// Close unpins and unmaps. It may be called on nil, and again.
func (p *Pinned) Close() error {
	if p == nil || p.mem == nil {
		return nil
	}
	err := p.call(func(g *C.struct_p2p_engine, m *C.struct_p2p_memory, e *C.struct_p2p_error) { C.unpin(g, m, p.At(0), e) })
	err = errors.Join(err, unix.Munmap(p.mem))
	p.mem = nil
	return err
}
