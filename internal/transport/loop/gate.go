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

// Pinned is memory of the host that a device reaches too.
type Pinned struct {
	mem    []byte
	engine gpu.Engine
	memory gpu.Memory
}

// Pin maps at least n bytes, all zero, and pins them for the device of memory, which is the engine's; both must stay
// open as long as the memory is pinned.
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

// call runs f on one thread and returns the error that it left.
func (p *Pinned) call(f func(*C.struct_p2p_engine, *C.struct_p2p_memory, *C.struct_p2p_error)) error {
	return abi.Call(func(e *C.struct_p2p_error) {
		f((*C.struct_p2p_engine)(p.engine.Table().Pointer()), (*C.struct_p2p_memory)(p.memory.Table().Pointer()), e)
	})
}

// At is the address of a byte.
func (p *Pinned) At(offset int) unsafe.Pointer { return unsafe.Pointer(&p.mem[offset]) }

// Len is the number of bytes, those asked for or more.
func (p *Pinned) Len() int { return len(p.mem) }

// Close unpins and unmaps. nil is closed already.
func (p *Pinned) Close() error {
	if p == nil || p.mem == nil {
		return nil
	}
	err := p.call(func(g *C.struct_p2p_engine, m *C.struct_p2p_memory, e *C.struct_p2p_error) { C.unpin(g, m, p.At(0), e) })
	err = errors.Join(err, unix.Munmap(p.mem))
	p.mem = nil
	return err
}

// Gate is a queue of each of one or two devices, and the word of pinned memory at which they wait until the host lets
// them go: what timing by the device takes.
type Gate struct {
	queues []gpu.Queue
	memory gpu.Memory
	page   *Pinned
	c      C.struct_p2p_gate
}

// OpenGate opens a queue of each device. The engine, which must stay open, is one of the first device's.
func OpenGate(engine gpu.Engine, devices ...gpu.Device) (_ *Gate, err error) {
	g := &Gate{}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	for _, d := range devices {
		launcher, ok := d.(gpu.Launcher)
		if !ok {
			return nil, fmt.Errorf("a %s device has no queues: %w", d.Info().Kind, gpu.ErrUnsupported)
		}
		q, err := launcher.Queue()
		if err != nil {
			return nil, err
		}
		g.queues = append(g.queues, q)
	}
	if g.memory, err = devices[0].Memory(gpu.HandleAuto); err != nil {
		return nil, err
	}
	if g.page, err = Pin(engine, g.memory, os.Getpagesize()); err != nil {
		return nil, err
	}
	for i, q := range g.queues {
		g.c.queue[i] = (*C.struct_p2p_queue)(q.Table().Pointer())
	}
	g.c.queues = C.uint32_t(len(g.queues))
	g.c.word = (*C.uint64_t)(g.page.At(0))
	return g, nil
}

// Queue is the queue of the device with that number.
func (g *Gate) Queue(i int) gpu.Queue { return g.queues[i] }

// Pointer is the struct p2p_gate before anything waited at it, to be copied.
func (g *Gate) Pointer() unsafe.Pointer { return unsafe.Pointer(&g.c) }

// Close releases the queues, which must be idle or on their way to it, and the word. nil is closed already.
func (g *Gate) Close() error {
	if g == nil {
		return nil
	}
	var errs []error
	for _, q := range g.queues {
		errs = append(errs, q.Close())
	}
	errs = append(errs, g.page.Close())
	if g.memory != nil {
		errs = append(errs, g.memory.Close())
	}
	*g = Gate{}
	return errors.Join(errs...)
}
