package ipc

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra -D_GNU_SOURCE
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0xbfb13314
#include <stdlib.h>
#include "ipc.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/autotune"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/loop"
)

// Numbers of the C side that do not follow from the order of a setting's values.
var (
	reallocs = map[string]C.uint32_t{"": C.IPC_KEEP, "same": C.IPC_REALLOC_SAME, "overlap": C.IPC_REALLOC_OVERLAP}
	faults   = map[string]C.uint32_t{
		"": C.IPC_SOUND, FaultMute: C.IPC_MUTE, FaultNoValidation: C.IPC_NO_VALIDATION,
		FaultEvictInFlight: C.IPC_EVICT_IN_FLIGHT, FaultDieBeforeAck: C.IPC_DIE_BEFORE_ACK,
		FaultDieBeforeDone: C.IPC_DIE_BEFORE_DONE, FaultNoSegment: C.IPC_NO_SEGMENT,
		FaultStutter: C.IPC_STUTTER,
	}
)

// config translates settled options whose path is not "auto".
func (o Options) config(rank int, region uint64) C.struct_ipc_config {
	word := func(name string) C.uint32_t { return C.uint32_t(knob.Word(&o, name)) }
	b, _ := o.Buffers.pattern() // checked by settle
	c := C.struct_ipc_config{
		rank: C.uint32_t(rank), completion: word("completion"), export_cache: word("export-cache"),
		open: word("open"), cache: word("cache"), cache_size: C.uint32_t(o.cacheSize()),
		allocations: C.uint32_t(b.allocations), slices: C.uint32_t(b.slices), realloc: reallocs[b.realloc],
		relay_depth: C.uint32_t(o.Relay.Depth), relay_chunk: C.uint64_t(o.Relay.Chunk), fault: faults[o.Fault],
		region: C.uint64_t(max(region, 1)), start: C.uint64_t(o.Start),
	}
	if o.Publish == "always" {
		c.publish_always = 1
	}
	if o.SameProcess {
		c.threads = 1
	}
	switch o.Path {
	case "direct":
		c.path = C.IPC_DIRECT
	case "handshake":
		c.path = C.IPC_HANDSHAKE
	case "get":
		c.path = C.IPC_GET
	case "relay":
		c.path = C.IPC_RELAY_POOLED
		if o.Relay.Mode == "fresh" {
			c.path = C.IPC_RELAY_FRESH
		}
	}
	return c
}

// side has the engines and memory of one rank's device, and the C end that uses them.
type side struct {
	o      Options
	rank   int
	device gpu.Device
	choice []gpu.Engine // candidates of autotune; empty once one is chosen
	engine gpu.Engine
	second gpu.Engine // relay pooled: copies incoming chunks
	memory gpu.Memory
	own    gpu.Buffer
	ctx    *abi.Ctx
	end    *C.struct_ipc_end
	chosen string // autotune: the engine of each size
}

// openSide opens and allocates everything of a rank; after a failure nothing stays open. It owns ctx.
func openSide(o Options, rank int, d gpu.Device, region uint64, ctx *abi.Ctx) (_ *side, err error) {
	s := &side{o: o, rank: rank, device: d, ctx: ctx}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.openEngines(); err != nil {
		return nil, err
	}
	if s.memory, err = d.Memory(o.handle()); err != nil {
		return nil, err
	}
	if s.own, err = d.Alloc(region); err != nil {
		return nil, err
	}
	cfg := o.config(rank, region)
	var e C.struct_p2p_error
	C.p2p_ipc_open(&cfg, s.table(s.engine), s.memoryTable(), (*C.struct_p2p_ctx)(ctx.Pointer()), &s.end, &e)
	if err := abi.ErrorAt(unsafe.Pointer(&e)); err != nil {
		return nil, err
	}
	s.end.own = (*C.uint8_t)(abi.Pointer(s.own.Addr()))
	if s.second != nil {
		s.end.second = s.table(s.second)
	}
	return s, nil
}

func (s *side) table(e gpu.Engine) *C.struct_p2p_engine {
	return (*C.struct_p2p_engine)(e.Table().Pointer())
}

func (s *side) memoryTable() *C.struct_p2p_memory {
	return (*C.struct_p2p_memory)(s.memory.Table().Pointer())
}

func (s *side) openEngines() error {
	for _, name := range s.o.engines(s.device) {
		e, err := s.device.Engine(name)
		if err != nil {
			return err
		}
		s.choice = append(s.choice, e)
	}
	s.engine = s.choice[0]
	if len(s.choice) == 1 {
		s.choice = nil
	}
	if s.o.Path != "relay" || s.o.Relay.Mode != "pooled" {
		return nil
	}
	var err error
	s.second, err = s.device.Engine(s.engine.Name())
	return err
}

// engines names the engine to open, or the candidates of autotune.
func (o Options) engines(d gpu.Device) []string {
	if name := o.EngineName(); name != "auto" {
		return []string{name}
	}
	// A relay copies between a GPU and CPU memory; the first engine does that.
	if c, ok := d.(gpu.Chooser); ok && o.Path != "relay" {
		return c.Candidates()
	}
	return d.Engines()[:1]
}

// choose sets the engine: the only one, or for each size the fastest one between the buffers of the batch.
func (s *side) choose(region uint64) error {
	if len(s.choice) == 0 {
		return nil
	}
	dst, src := uintptr(unsafe.Pointer(C.p2p_ipc_remote(s.end))), s.own.Addr()
	if s.o.Path == "get" {
		dst, src = src, dst
	}
	choice := s.choice
	s.choice, s.engine, s.end.engine = nil, nil, nil // autotune owns them
	b, err := autotune.New(choice, s.ctx, dst, src, min(region, largestTried))
	if err != nil {
		return err
	}
	s.engine, s.chosen = b, b.Choices()
	s.end.engine = s.table(b)
	return nil
}

// largestTried limits the time that autotune takes; for larger messages the order of engines does not change.
const largestTried = 256 << 20

// records reports whether a window can be recorded as a graph: all addresses must be known before the batch.
func (s *side) records() bool {
	return s.o.Path == "direct" && s.o.Open == "eager" && s.o.Publish == "dedupe" && s.o.Buffers.plain() &&
		s.engine.Table().Records()
}

// maxWindow is the maximum number of messages of a window.
const maxWindow = C.IPC_MAX_WINDOW

func (s *side) run(path string, b transport.Batch, samples []int64) (transport.Result, error) {
	if b.Window > maxWindow {
		return transport.Result{}, fmt.Errorf("ipc: window %d: want at most %d: %w", b.Window, maxWindow, abi.ErrInvalid)
	}
	call, err := loop.Prepare(b, s.own.Size(), s.records(), samples)
	if err != nil {
		return transport.Result{}, fmt.Errorf("ipc: %w", err)
	}
	engine := s.engine.Name()
	if auto, ok := s.engine.(*autotune.Engine); ok {
		auto.Use(b.Window)
		engine = auto.For(b.Size, b.Window)
	}
	C.p2p_ipc_run(s.end, (*C.struct_p2p_batch)(call.Batch()), (*C.int64_t)(unsafe.SliceData(samples)),
		(*C.struct_p2p_result)(call.Result()), (*C.struct_p2p_error)(call.Error()))
	r, err := call.Outcome("ipc " + path + "/" + engine)
	r.Engine = engine
	return r, err
}

// Close releases everything, even after failures.
func (s *side) Close() error {
	var errs []error
	if s.end != nil {
		if err := abi.Call(func(e *C.struct_p2p_error) { C.p2p_ipc_close(s.end, e) }); err != nil {
			errs = append(errs, fmt.Errorf("ipc: close: %w", err))
		}
		s.end = nil
	}
	if s.own != nil {
		errs = append(errs, s.own.Close())
		s.own = nil
	}
	if s.memory != nil {
		errs = append(errs, s.memory.Close())
		s.memory = nil
	}
	engines := s.choice // the first of them is s.engine
	if len(engines) == 0 && s.engine != nil {
		engines = []gpu.Engine{s.engine}
	}
	if s.second != nil {
		engines = append(engines, s.second)
	}
	for _, e := range engines {
		errs = append(errs, e.Close())
	}
	s.choice, s.engine, s.second = nil, nil, nil
	if s.ctx != nil {
		s.ctx.Close()
		s.ctx = nil
	}
	return errors.Join(errs...)
}
