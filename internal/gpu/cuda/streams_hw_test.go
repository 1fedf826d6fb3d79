package cuda

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda/enginetest"
)

// split are copy engines that divide large copies among several streams.
var split = []string{"ce:2", "ce:3", "ce:4", "ce:8"}

// sizes around the limits at which a copy gets one more part, also with remainders.
func TestHWStreamsSizes(t *testing.T) {
	r := newRig(t, New(), 0)
	const largest = 16<<20 + 5
	dst, src := r.alloc(largest+2*margin+16), r.alloc(largest+16)
	for _, name := range split {
		t.Run(name, func(t *testing.T) {
			g := r.engine(name)
			for _, n := range []uint64{1, 1<<20 + 1, 2<<20 - 1, 2 << 20, 2<<20 + 1, 3<<20 + 17, 4<<20 + 15, largest} {
				for _, o := range [][2]int{{0, 0}, {3, 3}, {5, 1}} {
					if err := copyOnce(r, r, g, dst.Addr(), src.Addr(), n, o[0], o[1]); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestHWStreamsOrder mixes fills, copies and checks without a wait between them: a copy moves what the previous fill
// wrote, a fill does not affect earlier copies, and a check sees all earlier work.
func TestHWStreamsOrder(t *testing.T) {
	r := newRig(t, New(), 0)
	const n, slots, rounds = 4<<20 + 48, 3, 6
	src := r.alloc(n)
	var dst []uintptr
	for range slots {
		dst = append(dst, r.alloc(n).Addr())
	}
	for _, name := range append(r.dev.Engines(), split...) {
		t.Run(name, func(t *testing.T) {
			g := r.engine(name)
			for round := range uint64(rounds) {
				key := func(slot int) uint64 { return abitest.PayloadKey(round, n, uint64(slot), 0) }
				for i, p := range dst {
					// A small copy in between, which is not divided.
					steps := []enginetest.Copy{{Dst: p, Src: src.Addr(), N: n}, {Dst: p, Src: src.Addr(), N: 100}}
					if err := enginetest.Fill(g, r.ctx, src.Addr(), n, key(i)); err != nil {
						t.Fatal(err)
					}
					if err := enginetest.Start(g, steps[round%2:]); err != nil {
						t.Fatal(err)
					}
					if err := enginetest.Start(g, steps[:1]); err != nil {
						t.Fatal(err)
					}
				}
				for i, p := range slices.Backward(dst) { // the last is still in flight
					m, err := g.Check(r.ctx, p, n, key(i), 0)
					if err != nil || m.Count != 0 {
						t.Fatalf("round %d, copy %d: %+v, %v", round, i, m, err)
					}
				}
			}
		})
	}
}

// TestHWStreamsRecord records windows of divided copies, and launches them between fills and checks without a wait.
func TestHWStreamsRecord(t *testing.T) {
	r := newRig(t, New(), 0)
	const n, stride, most = 3<<20 + 5, 4 << 20, 4
	dst, src := r.alloc(most*stride), r.alloc(most*stride)
	for _, name := range split {
		t.Run(name, func(t *testing.T) {
			g := r.engine(name)
			for round, count := range []int{4, 1, 2} {
				// Work on all streams, which must not become part of the recording.
				if err := enginetest.Start(g, []enginetest.Copy{{Dst: dst.Addr(), Src: src.Addr(), N: most * stride}}); err != nil {
					t.Fatal(err)
				}
				if err := enginetest.Record(g, dst.Addr(), src.Addr(), n, stride, count); err != nil {
					t.Fatal(err)
				}
				for launch := range uint64(3) {
					key := abitest.PayloadKey(uint64(round), n, launch, 0)
					for i := range uintptr(count) {
						if err := enginetest.Fill(g, r.ctx, src.Addr()+i*stride, n, key+uint64(i)); err != nil {
							t.Fatal(err)
						}
					}
					if err := enginetest.Fire(g); err != nil {
						t.Fatal(err)
					}
					// The next fill must not run before the recorded copies, nor this copy before the fill.
					if err := enginetest.Fill(g, r.ctx, src.Addr(), n, key+100); err != nil {
						t.Fatal(err)
					}
					for i := range uintptr(count) {
						m, err := g.Check(r.ctx, dst.Addr()+i*stride, n, key+uint64(i), 0)
						if err != nil || m.Count != 0 {
							t.Fatalf("window of %d, launch %d, message %d: %+v, %v", count, launch, i, m, err)
						}
					}
				}
			}
		})
	}
}

// TestHWStreamsLaunch launches a recorded window between divided copies, without a wait: each moves what the previous
// one wrote.
func TestHWStreamsLaunch(t *testing.T) {
	r := newRig(t, New(), 0)
	const n = 4<<20 + 33
	var at []uintptr // addresses; each copy goes from one to the next
	for range 4 {
		at = append(at, r.alloc(n).Addr())
	}
	for _, name := range append(r.dev.Engines()[:2], split...) {
		t.Run(name, func(t *testing.T) {
			g := r.engine(name)
			if err := enginetest.Record(g, at[2], at[1], n, n, 1); err != nil {
				t.Fatal(err)
			}
			for round := range uint64(6) {
				check(t, enginetest.Fill(g, r.ctx, at[0], n, round))
				check(t, enginetest.Start(g, []enginetest.Copy{{Dst: at[1], Src: at[0], N: n}}))
				check(t, enginetest.Fire(g))
				check(t, enginetest.Start(g, []enginetest.Copy{{Dst: at[3], Src: at[2], N: n}}))
				for i, p := range slices.Backward(at) {
					m, err := g.Check(r.ctx, p, n, round, 0)
					if err != nil || m.Count != 0 {
						t.Fatalf("round %d, place %d: %+v, %v", round, i, m, err)
					}
				}
			}
		})
	}
}

// until polls a mark until it is reached, and returns how often it was not.
func until(t *testing.T, g *abi.Engine, mark int) (looks int) {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; looks++ {
		yes, err := enginetest.Reached(g, mark)
		if err != nil {
			t.Fatal(err)
		}
		if yes {
			return looks
		}
	}
	t.Fatalf("mark %d is not reached", mark)
	return looks
}

// TestHWMarks starts a large copy and polls the mark behind it: once the mark is reached, the bytes are visible without
// a wait for the engine.
func TestHWMarks(t *testing.T) {
	r := newRig(t, New(), 0)
	free, err := r.dev.Free()
	if err != nil {
		t.Fatal(err)
	}
	n := min(256<<20, free/32)
	dst, src := r.alloc(n), r.alloc(n)
	for i, name := range append(r.engines(), "ce:4") {
		t.Run(name, func(t *testing.T) {
			g := r.engine(name)
			key := abitest.PayloadKey(uint64(i), n, 0, 0)
			r.fill(src.Addr(), n, key, 0)
			r.fill(dst.Addr(), n, key+1, 0)
			if yes, err := enginetest.Reached(g, 0); !yes || err != nil {
				t.Errorf("nothing before a mark that was not set: %v, %v", yes, err)
			}
			if err := enginetest.Start(g, []enginetest.Copy{{Dst: dst.Addr(), Src: src.Addr(), N: n}}); err != nil {
				t.Fatal(err)
			}
			check(t, enginetest.Mark(g, 0))
			t.Logf("%d MiB: not reached at %d looks", n>>20, until(t, g, 0))
			r.expect(dst.Addr(), n, key, "behind the mark")
			check(t, enginetest.Wait(g, r.ctx))
			for _, bad := range []int{enginetest.Marks, -1} {
				_, err := enginetest.Reached(g, bad)
				if !errors.Is(err, abi.ErrInvalid) || !errors.Is(enginetest.Mark(g, bad), abi.ErrInvalid) {
					t.Errorf("mark %d: %v", bad, err)
				}
			}
		})
	}
}

// TestHWMarksInOrder sets all marks, one behind each of many copies: when a mark is reached, the bytes before it are
// visible and all earlier marks are reached.
func TestHWMarksInOrder(t *testing.T) {
	r := newRig(t, New(), 0)
	const n = 2<<20 + 16
	dst, src := r.alloc(n*enginetest.Marks), r.alloc(n*enginetest.Marks)
	for _, name := range append(r.dev.Engines(), "ce:2", "ce:8") {
		t.Run(name, func(t *testing.T) {
			g := r.engine(name)
			for round := range uint64(3) {
				for i := range uintptr(enginetest.Marks) {
					r.fill(src.Addr()+i*n, n, round*100+uint64(i), 0)
				}
				for i := range uintptr(enginetest.Marks) {
					check(t, enginetest.Start(g, []enginetest.Copy{{Dst: dst.Addr() + i*n, Src: src.Addr() + i*n, N: n}}))
					check(t, enginetest.Mark(g, int(i)))
				}
				if round > 0 { // the first marks are not polled
					marksInOrder(t, g, func(i int) {
						r.expect(dst.Addr()+uintptr(i)*n, n, round*100+uint64(i), "round %d, behind mark %d", round, i)
					})
				}
				check(t, enginetest.Wait(g, r.ctx))
			}
		})
	}
}

// marksInOrder polls all marks until all are reached, and calls f for each when it is.
func marksInOrder(t *testing.T, g *abi.Engine, f func(i int)) {
	t.Helper()
	reached := make([]bool, enginetest.Marks)
	for start := time.Now(); slices.Contains(reached, false); {
		before := slices.Clone(reached)
		for i := range slices.Backward(reached) { // the last first: no mark is reached before the earlier ones
			yes, err := enginetest.Reached(g, i)
			if err != nil {
				t.Fatal(err)
			}
			if before[i] && !yes {
				t.Fatalf("mark %d is no longer reached", i)
			}
			if yes && !before[i] {
				f(i)
			}
			reached[i] = yes
		}
		if open := slices.Index(reached, false); open >= 0 && slices.Contains(reached[open:], true) {
			t.Fatalf("marks are reached out of order: %v", reached)
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("not all marks are reached: %v", reached)
		}
	}
}

// Libraries need an engine with a single stream: an engine with several offers none.
func TestHWStreamsTable(t *testing.T) {
	r := newRig(t, New(), 0)
	for name, want := range map[string]string{"ce": "ce", "ce:1": "ce", "ce:2": "ce:2", "ce:8": "ce:8"} {
		g, err := r.dev.Engine(name)
		if err != nil {
			t.Fatal(err)
		}
		if g.Name() != want {
			t.Errorf("engine %s is called %s", name, g.Name())
		}
		if has := enginetest.HasStream(g.Table()); has != (want == "ce") {
			t.Errorf("engine %s has a stream: %v", name, has)
		}
		check(t, g.Close())
	}
	for _, name := range []string{"ce:0", "ce:9"} {
		if _, err := r.dev.Engine(name); err == nil {
			t.Errorf("%s is an engine", name)
		} else {
			reports(t, err, fmt.Sprintf("%q", name), "streams, 1 to 8")
		}
	}
}
