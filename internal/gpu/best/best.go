// Package best is an engine made of several: it hands each copy to the one that was fastest at its size when it was
// set up, between the very buffers that will be used. It is what `--engine auto` means on a device with a choice.
package best

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#include "best.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"strings"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Sizes are tried from smallest in steps of four; a size in between goes the way of the next smaller one tried.
const (
	smallest = 256
	many     = 51      // repetitions of small messages,
	few      = 7       // and of those …
	large    = 1 << 20 // … from this size
	window   = 8       // copies that are tried together
	// A challenger must be faster by this part of the time: engines that are equal should not take turns.
	margin = 0.02
)

// Engine chooses by size.
type Engine struct {
	engines []gpu.Engine
	c       *C.struct_p2p_engine
	class   [C.BEST_MODES][C.BEST_CLASSES]int // engine by mode and class of size
}

// New tries each engine on copies from src to dst, addresses of the device with room for most bytes, and keeps the
// fastest for each size: for one copy at a time, and for several that are waited for together. It owns the engines from
// then on, also when it fails.
func New(engines []gpu.Engine, x *abi.Ctx, dst, src uintptr, most uint64) (*Engine, error) {
	b := &Engine{engines: engines}
	tables := make([]*C.struct_p2p_engine, len(engines))
	for i, e := range engines {
		tables[i] = (*C.struct_p2p_engine)(e.Table().Pointer())
	}
	if b.c = C.p2p_best_new(unsafe.SliceData(tables), C.unsigned(len(tables))); b.c == nil {
		return nil, errors.Join(errors.New("engine auto: out of memory"), b.Close())
	}
	for mode := range b.class {
		if err := b.choose(mode, tables, x, dst, src, most); err != nil {
			return nil, errors.Join(fmt.Errorf("engine auto: %w", err), b.Close())
		}
	}
	return b, nil
}

func (b *Engine) choose(mode int, tables []*C.struct_p2p_engine, x *abi.Ctx, dst, src uintptr, most uint64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from := 0 // what is smaller than all that is tried goes the way of the smallest
	for n := uint64(smallest); n <= most; n *= 4 {
		fastest, ns := 0, 0.0
		for i, t := range tables {
			together := uint64(1)
			if mode == C.BEST_WINDOW {
				together = min(window, most/n)
			}
			took, err := timed(t, x, dst, src, n, together)
			if err != nil {
				return fmt.Errorf("%s, %d bytes: %w", b.engines[i].Name(), n, err)
			}
			if i == 0 || took < ns*(1-margin) {
				fastest, ns = i, took
			}
		}
		b.set(mode, from, fastest)
		from = bits.Len64(n * 4)
	}
	return nil
}

func timed(t *C.struct_p2p_engine, x *abi.Ctx, dst, src uintptr, n, together uint64) (float64, error) {
	var ns C.uint64_t
	var e C.struct_p2p_error
	C.p2p_best_time(t, (*C.struct_p2p_ctx)(x.Pointer()), pointer(dst), pointer(src), C.size_t(n), C.unsigned(together),
		repetitions(n), &ns, &e)
	return float64(ns), abi.ErrorAt(unsafe.Pointer(&e))
}

func repetitions(n uint64) C.unsigned {
	if n >= large {
		return few
	}
	return many
}

// pointer is a device address as C code takes it; Go never follows it.
func pointer(a uintptr) *C.uint8_t { return *(**C.uint8_t)(unsafe.Pointer(&a)) }

// set chooses an engine for sizes of class from and above.
func (b *Engine) set(mode, from, engine int) {
	for c := from; c < len(b.class[mode]); c++ {
		b.class[mode][c] = engine
		C.p2p_best_set(b.c, C.unsigned(mode), C.unsigned(c), C.unsigned(engine))
	}
}

// mode is the choice that holds for windows of that many messages.
func mode(messages int) int {
	if messages > 1 {
		return C.BEST_WINDOW
	}
	return C.BEST_SINGLE
}

// Use makes the choice for windows of that many messages the one that holds from now on. Nothing may be under way.
func (b *Engine) Use(messages int) { C.p2p_best_mode(b.c, C.unsigned(mode(messages))) }

// Name is "auto".
func (b *Engine) Name() string { return "auto" }

// For names the engine that copies messages of n bytes in windows of that many.
func (b *Engine) For(n uint64, messages int) string {
	return b.engines[b.class[mode(messages)][bits.Len64(n)]].Name()
}

// Choices tells the choice in words: "proxy, ce from 65536 bytes; in windows ce".
func (b *Engine) Choices() string {
	single, windows := b.choices(C.BEST_SINGLE), b.choices(C.BEST_WINDOW)
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

// Table is the engine for the timed loops. It cannot record a window.
func (b *Engine) Table() *abi.Engine { return abi.EngineAt(unsafe.Pointer(b.c)) }

// Close closes all of them.
func (b *Engine) Close() error {
	if b.c != nil {
		C.p2p_best_free(b.c)
		b.c = nil
	}
	var errs []error
	for _, e := range b.engines {
		errs = append(errs, e.Close())
	}
	b.engines = nil
	return errors.Join(errs...)
}
