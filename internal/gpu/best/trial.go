package best

/*
#include "trial.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Sizes are tried from smallest in steps of four, and where two neighbours went different ways the size between them
// too. What is larger than a size that was tried goes its way up to the next one.
//
// What that costs is bounded: a size takes 1 ms for each engine, or 4 turns where those are longer, and 3 ms more where
// engines are close; after a size that takes longest, where engines are as fast as their link, no larger one is tried.
// Four engines of a GPU that moves 256 MiB in 0.7 ms, all of them close at every size, take 130 ms in all.
const (
	smallest = 1 << 10
	longest  = 3e5 // ns
	window   = 8   // copies that are tried together
	// Engines whose times differ by no more than this part are equal: the first of them is taken.
	margin = 0.01
)

// choice is the engine for copies of n bytes and more.
type choice struct {
	n      uint64
	engine int
}

// clock is where a trial's time comes from: a C function, uint64_t (void *self), that tells nanoseconds. The zero clock
// is the one that timed loops read.
type clock struct{ now, self unsafe.Pointer }

// trial compares engines between two addresses with room for most bytes.
type trial struct {
	engines []gpu.Engine
	most    uint64
	c       C.struct_best_trial
}

func newTrial(engines []gpu.Engine, x *abi.Ctx, dst, src uintptr, most uint64, c clock) *trial {
	t := &trial{engines: engines, most: most}
	t.c.clock.now, t.c.clock.self = (*[0]byte)(c.now), c.self
	t.c.ctx = (*C.struct_p2p_ctx)(x.Pointer())
	t.c.dst, t.c.src = C.uint64_t(dst), C.uint64_t(src)
	t.c.count = C.uint32_t(len(engines))
	for i, e := range engines {
		t.c.engines[i] = (*C.struct_p2p_engine)(e.Table().Pointer())
	}
	return t
}

// sizes finds the choices for copies of which so many are waited for together, the smallest size first. Where there is
// room for one alone when several are asked for, nothing is found out.
func (t *trial) sizes(together uint64) ([]choice, error) {
	var found []choice
	for n := uint64(smallest); n*min(together, 2) <= t.most; n *= 4 {
		engine, took, err := t.fastest(n, together)
		if err != nil {
			return nil, err
		}
		if last := len(found) - 1; last >= 0 && found[last].engine != engine {
			between, _, err := t.fastest(n/2, together)
			if err != nil {
				return nil, err
			}
			found = append(found, choice{n / 2, between})
		}
		found = append(found, choice{n, engine})
		if took > longest {
			break
		}
	}
	return found, nil
}

// fastest is the first engine that is as fast as any, and its time in ns.
func (t *trial) fastest(n, together uint64) (engine int, took float64, err error) {
	t.c.n, t.c.window = C.uint64_t(n), C.uint64_t(min(together, t.most/n))
	var e C.struct_p2p_error
	C.p2p_best_try(&t.c, &e)
	if err := abi.ErrorAt(unsafe.Pointer(&e)); err != nil {
		return 0, 0, fmt.Errorf("%s, %d bytes: %w", t.engines[t.c.failed].Name(), n, err)
	}
	medians := t.c.median[:len(t.engines)]
	least := float64(slices.Min(medians))
	engine = slices.IndexFunc(medians, func(m C.uint64_t) bool { return float64(m) <= least*(1+margin) })
	return engine, float64(medians[engine]), nil
}
