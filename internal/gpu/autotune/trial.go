package autotune

/*
#include "turn.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"time"
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
	longest  = uint64(300 * time.Microsecond)
	window   = 8 // copies that are tried together
)

// Rounds come in groups, the warm-up included: an engine that takes messages in groups, as a resident kernel does, then
// stands at each size where it stood at the one before.
const (
	group       = 4
	firstRounds = 32
	firstBudget = time.Millisecond // for each engine
	moreRounds  = 5 * firstRounds
	moreBudget  = 3 * time.Millisecond
)

// How long the device is idle before a turn. Between two messages of a ping-pong there is the peer's, between two windows
// the check of every message. On two H200 a window of copies by the copy engine takes 2 us longer after the latter, a
// tenth of the time of small ones; by the resident kernel it does not.
const (
	idleBeforeCopy   = 3 * time.Microsecond
	idleBeforeWindow = 150 * time.Microsecond
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
	c       C.struct_autotune_copies
}

func newTrial(engines []gpu.Engine, x *abi.Ctx, dst, src uintptr, most uint64, c clock) *trial {
	t := &trial{engines: engines, most: most}
	t.c.clock.now, t.c.clock.self = (*[0]byte)(c.now), c.self
	t.c.ctx = (*C.struct_p2p_ctx)(x.Pointer())
	t.c.dst, t.c.src = C.uint64_t(dst), C.uint64_t(src)
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

// fastest is the engine for copies of n bytes, and its time in ns.
func (t *trial) fastest(n, together uint64) (engine int, took uint64, err error) {
	idle := idleBeforeCopy
	t.c.n, t.c.window = C.uint64_t(n), C.uint64_t(min(together, t.most/n))
	if t.c.window > 1 {
		idle = idleBeforeWindow
	}
	t.c.idle_ns = C.uint64_t(idle)
	runtime.LockOSThread() // the engines are bound to it
	defer runtime.UnlockOSThread()
	for i := range t.engines {
		if err := abi.Call(func(e *C.struct_p2p_error) { C.p2p_autotune_warm_up(&t.c, t.table(i), e) }); err != nil {
			return 0, 0, t.failure(i, err)
		}
	}
	contest := Contest{
		Candidates: len(t.engines), Turn: t.turn, Pause: idle,
		First: Rounds{Skip: 1, Most: firstRounds, Group: group, Budget: firstBudget * time.Duration(len(t.engines))},
		More:  Rounds{Most: moreRounds, Group: group, Budget: moreBudget},
	}
	engine, took, err = contest.Fastest()
	var f *Failure
	if errors.As(err, &f) {
		err = t.failure(f.Candidate, f.Err)
	}
	return engine, took, err
}

func (t *trial) table(i int) *C.struct_p2p_engine {
	return (*C.struct_p2p_engine)(t.engines[i].Table().Pointer())
}

func (t *trial) turn(i int) ([]uint64, error) {
	var ns C.uint64_t
	err := abi.Call(func(e *C.struct_p2p_error) { C.p2p_autotune_turn(&t.c, t.table(i), &ns, e) })
	return []uint64{uint64(ns)}, err
}

func (t *trial) failure(engine int, err error) error {
	return fmt.Errorf("%s, %d bytes: %w", t.engines[engine].Name(), uint64(t.c.n), err)
}
