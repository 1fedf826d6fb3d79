package cuda

/*
#include "engine.h"
#include "streams.h"
*/
import "C"

import (
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/kernel"
)

// Engine copies on a GPU by one method, on its own streams.
type Engine struct {
	dev   *Device
	name  string
	table *abi.Engine // nil once closed
}

var engineKinds = map[string]C.int{
	gpu.EngineCE: C.CUDA_ENGINE_CE, "sm": C.CUDA_ENGINE_SM, "bulk": C.CUDA_ENGINE_BULK, "proxy": C.CUDA_ENGINE_PROXY,
}

// Engines names the engines of this GPU. Engines that use SMs also accept a limit, as in "sm:N", of N thread blocks,
// and the copy engine accepts "ce:N", with N streams.
func (d *Device) Engines() []string { return enginesOf(d.image) }

// Accepts checks that the GPU has an engine and a kind of handle; see gpu.Driver.
func (*Driver) Accepts(i gpu.Info, engine string, handle gpu.HandleKind) error {
	image, err := kernel.Pick(kernel.PTX, i.Arch)
	if err != nil {
		return err
	}
	if _, _, err := parseEngine(engine, enginesOf(image)); err != nil {
		return err
	}
	if handle != "" && handle != gpu.HandleAuto && !slices.Contains(handleKinds, handle) {
		return gpu.UnknownHandle("cuda", handle, handleKinds)
	}
	return nil
}

func enginesOf(image kernel.Image) []string {
	names := []string{gpu.EngineCE, "sm"}
	if image.Has(kernel.CopyBulk) {
		names = append(names, "bulk")
	}
	return append(names, "proxy")
}

// parseEngine splits "sm:8" into the engine and its limit, 0 if there is none. "ce:1" is the same as "ce".
func parseEngine(name string, known []string) (string, uint32, error) {
	if name == "auto" || name == "" {
		return known[0], 0, nil
	}
	base, limit, limited := strings.Cut(name, ":")
	if !slices.Contains(known, base) {
		return "", 0, gpu.UnknownEngine("cuda", name, known)
	}
	if !limited {
		return base, 0, nil
	}
	n, err := strconv.ParseUint(limit, 10, 16)
	if err != nil || n == 0 || base == gpu.EngineCE && n > C.CUDA_STREAMS {
		return "", 0, unsupported("engine %q: ce takes a number of streams, 1 to %d, like ce:4; sm, bulk and proxy take "+
			"a number of thread blocks, like sm:8", name, C.CUDA_STREAMS)
	}
	if base == gpu.EngineCE && n == 1 {
		return base, 0, nil
	}
	return base, uint32(n), nil
}

// WaitWith sets the context of waits whose caller has none; see gpu.Waiter.
func (d *Device) WaitWith(x *abi.Ctx) {
	if d.c != nil {
		d.c.wait = (*C.struct_p2p_ctx)(x.Pointer())
	}
}

// Engine opens an engine and tests it on a few bytes.
func (d *Device) Engine(name string) (gpu.Engine, error) {
	if d.c == nil {
		return nil, errClosed
	}
	base, limit, err := parseEngine(name, d.Engines())
	if err != nil {
		return nil, err
	}
	if limit == 0 {
		name = base
	}
	var c *C.struct_p2p_engine
	var e C.struct_p2p_error
	C.cuda_engine_open(d.c, engineKinds[base], C.unsigned(limit), &c, &e)
	if err := failure("engine "+name, &e); err != nil {
		return nil, err
	}
	g := &Engine{dev: d, name: name, table: abi.EngineAt(unsafe.Pointer(c))}
	d.keep(g)
	return g, nil
}

// Name is the name that the engine was opened by, or the engine that "auto" chose.
func (g *Engine) Name() string { return g.name }

// Table is the function table for timed loops.
func (g *Engine) Table() *abi.Engine { return g.table }

// Launches is the number of launches of the engine's resident kernel, which exits at its time limits and is launched
// again. It is 0 for engines that have none.
func (g *Engine) Launches() uint64 {
	if g.table == nil {
		return 0
	}
	return uint64(C.cuda_engine_launches((*C.struct_p2p_engine)(g.table.Pointer())))
}

// Close releases the engine. A second Close does nothing.
func (g *Engine) Close() error {
	if !g.dev.drop(g) {
		return nil
	}
	var e C.struct_p2p_error
	C.cuda_engine_close((*C.struct_p2p_engine)(g.table.Pointer()), &e)
	g.table = nil
	return failure("close engine "+g.name, &e)
}
