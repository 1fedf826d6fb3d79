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

// Sizes from smallest on are measured in steps of a factor of four. If two neighbouring sizes select different engines,
// the size between them is measured, too. Each choice applies up to the next measured size.
//
// The total time is limited. A size takes 1 ms per engine, or 4 turns if those are longer, and 3 ms more if engines are
// close. No size is measured after one that takes longer than longest, since there the engines reach the speed of the
// link. Four engines of a GPU that moves 256 MiB in 0.7 ms, all of them close at every size, take 130 ms in total.
const (
	smallest = 1 << 10
	longest  = uint64(300 * time.Microsecond)
	window   = 8 // copies per window
)

// The number of rounds, including the warm-up, is a multiple of group: an engine that processes messages in groups,
// such as a resident kernel, then starts every size at the same position within a group.
const (
	group       = 4
	firstRounds = 32
	firstBudget = time.Millisecond // for each engine
	moreRounds  = 5 * firstRounds
	moreBudget  = 3 * time.Millisecond
)

// Idle time of the device before a turn, as in a run: between two messages of a ping-pong the peer sends, between two
// windows every message is checked. On two H200 a window of the copy engine takes 2 us longer after the longer pause, a
// tenth of the time of a window of small copies; a window of the resident kernel does not.
const (
	idleBeforeCopy   = 3 * time.Microsecond
	idleBeforeWindow = 150 * time.Microsecond
)

// choice is the engine for copies of n bytes and more.
type choice struct {
	n      uint64
	engine int
}

// clock is the clock of a trial: a C function, uint64_t (void *self), that returns nanoseconds. The zero value is the
// clock of timed loops.
type clock struct{ now, self unsafe.Pointer }

// trial compares engines on copies between two buffers of most bytes.
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

// sizes returns the choices for windows of `together` copies, the smallest size first. Sizes of which the buffers hold
// only one copy are not measured if together is larger than 1.
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

// fastest returns the fastest engine for copies of n bytes, and its time in ns.
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
