// Package autotune selects the fastest of several candidates by measurement. [Contest] compares candidates of any kind.
// [Engine] combines several engines: it passes each copy to the engine that was fastest for its size, measured between
// the buffers that the run uses. It implements `--engine auto` on a device with several candidates.
package autotune

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0x4928d503
#include "engine.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Engine selects an engine by the size of a copy.
type Engine struct {
	engines []gpu.Engine
	c       *C.struct_p2p_engine
	class   [C.AUTOTUNE_MODES][C.AUTOTUNE_CLASSES]int // engine by mode and class of size
}

// New measures the engines, 1 to 8, on copies from src to dst, device buffers of most bytes, and selects the fastest
// for each size, separately for single copies and for windows. It takes ownership of the engines, also when it fails. x
// must outlive the Engine.
func New(engines []gpu.Engine, x *abi.Ctx, dst, src uintptr, most uint64) (*Engine, error) {
	return newEngine(engines, x, dst, src, most, clock{})
}

func newEngine(engines []gpu.Engine, x *abi.Ctx, dst, src uintptr, most uint64, c clock) (*Engine, error) {
	b := &Engine{engines: engines}
	tables := make([]*C.struct_p2p_engine, len(engines))
	for i, e := range engines {
		tables[i] = (*C.struct_p2p_engine)(e.Table().Pointer())
	}
	b.c = C.p2p_autotune_new(unsafe.SliceData(tables), C.unsigned(len(tables)), (*C.struct_p2p_ctx)(x.Pointer()))
	if b.c == nil {
		err := fmt.Errorf("engine auto: out of memory, or %d candidates, not 1 to %d", len(engines), C.AUTOTUNE_ENGINES)
		return nil, errors.Join(err, b.Close())
	}
	if err := b.choose(newTrial(engines, x, dst, src, most, c)); err != nil {
		return nil, errors.Join(fmt.Errorf("engine auto: %w", err), b.Close())
	}
	return b, nil
}

// choose measures single copies, then windows. If the buffers are too small for a window, it uses the choice for single
// copies.
func (b *Engine) choose(t *trial) error {
	singles, err := t.sizes(1)
	if err != nil {
		return err
	}
	windows, err := t.sizes(window)
	if err != nil {
		return err
	}
	if len(windows) == 0 {
		windows = singles
	}
	b.set(C.AUTOTUNE_SINGLE, singles)
	b.set(C.AUTOTUNE_WINDOW, windows)
	return nil
}

// set applies the choices of a mode. Sizes below the smallest measured one use its engine.
func (b *Engine) set(mode int, found []choice) {
	for i, f := range found {
		from := bits.Len64(f.n)
		if i == 0 {
			from = 0
		}
		for c := from; c < len(b.class[mode]); c++ {
			b.class[mode][c] = f.engine
			C.p2p_autotune_set(b.c, C.unsigned(mode), C.unsigned(c), C.unsigned(f.engine))
		}
	}
}

// mode returns the mode for windows of that many messages.
func mode(messages int) int {
	if messages > 1 {
		return C.AUTOTUNE_WINDOW
	}
	return C.AUTOTUNE_SINGLE
}

// Use selects the choices for windows of that many messages. No copy may be in flight.
func (b *Engine) Use(messages int) { C.p2p_autotune_mode(b.c, C.unsigned(mode(messages))) }

// Name is "auto".
func (b *Engine) Name() string { return "auto" }

// For names the engine that copies messages of n bytes in windows of that many messages.
func (b *Engine) For(n uint64, messages int) string {
	return b.engines[b.class[mode(messages)][bits.Len64(n)]].Name()
}

// Choices describes the choices: "proxy, ce from 65536 bytes; in windows ce".
func (b *Engine) Choices() string {
	single, windows := b.choices(C.AUTOTUNE_SINGLE), b.choices(C.AUTOTUNE_WINDOW)
	if single == windows {
		return single
	}
	return single + "; in windows " + windows
}

func (b *Engine) choices(mode int) string {
	var out []string
	for c, e := range b.class[mode] {
		if c > 0 && e == b.class[mode][c-1] {
			continue
		}
		text := b.engines[e].Name()
		if c > 0 {
			text += fmt.Sprintf(" from %d bytes", uint64(1)<<(c-1))
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// Table is the function table for timed loops. It cannot record a window.
func (b *Engine) Table() *abi.Engine { return abi.EngineAt(unsafe.Pointer(b.c)) }

// Close closes all engines.
func (b *Engine) Close() error {
	if b.c != nil {
		C.p2p_autotune_free(b.c)
		b.c = nil
	}
	var errs []error
	for _, e := range b.engines {
		errs = append(errs, e.Close())
	}
	b.engines = nil
	return errors.Join(errs...)
}
