package abi

import (
	"errors"
	"math"
	"testing"
	"time"
	"unsafe"
)

func newPage(t *testing.T, n int) *Page {
	t.Helper()
	p, err := NewPage(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// The parent reads what a worker writes to its entry, through another mapping.
func TestProgress(t *testing.T) {
	parents := newPage(t, 3)
	workers, err := MapPage(parents.File, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := workers.Close(); err != nil {
			t.Error(err)
		}
	}()
	entry := workers.Rank(1)
	entry.At(PhaseOpen)
	entry.At(PhaseTimed)
	entry.c.size, entry.c.iter, entry.c.want, entry.c.have, entry.c.waiting = 4096, 17, 18, 16, 3
	want := State{
		Phase: PhaseTimed, Waiting: "the receiver's acknowledgement", Size: 4096, Iter: 17, Beat: 2, Want: 18, Have: 16,
	}
	if got := parents.Rank(1).Read(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, other := range []int{0, 2} {
		if got := parents.Rank(other).Read(); got != (State{}) {
			t.Errorf("rank %d: %+v, want nothing", other, got)
		}
	}
	parents.Rank(1).Abort()
	if entry.c.abort != 1 || workers.Rank(0).c.abort != 0 {
		t.Error("the order to stop does not reach its rank alone")
	}
}

func TestStateText(t *testing.T) {
	for _, c := range []struct {
		s    State
		want string
	}{
		{State{}, "phase start, size 0, iteration 0"},
		{State{Phase: PhaseWarmup, Size: 8, Iter: 3}, "phase warm-up, size 8, iteration 3"},
		{
			State{Phase: PhaseBarrier, Waiting: "the other ranks", Want: 2, Have: 1},
			"phase barrier, size 0, iteration 0, waiting for the other ranks (want 2, have 1)",
		},
		{State{Phase: 99}, "phase phase 99, size 0, iteration 0"},
	} {
		if got := c.s.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	for p := PhaseStart; p <= PhaseClose; p++ {
		if p.String() == "" || p.String() == Phase(99).String() {
			t.Errorf("phase %d has no name", int(p))
		}
	}
}

func TestRawNSGrows(t *testing.T) {
	for last, i := RawNS(), 0; i < 10000; i++ {
		now := RawNS()
		if now < last {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
	begin, wall := RawNS(), time.Now()
	time.Sleep(20 * time.Millisecond)
	raw, mono := float64(RawNS()-begin), float64(time.Since(wall))
	if ratio := raw / mono; ratio < 0.5 || ratio > 2 {
		t.Errorf("%.0f ns by one clock, %.0f by the other", raw, mono)
	}
}

// The clock of the timed loops agrees with CLOCK_MONOTONIC_RAW about the time between two calibrations.
func TestClockAgrees(t *testing.T) {
	page := newPage(t, 1)
	first := NewCtx(page, 0, time.Second, false)
	defer first.Close()
	time.Sleep(50 * time.Millisecond)
	second := NewCtx(page, 0, time.Second, false)
	defer second.Close()
	ticks := float64(second.k.tick0 - first.k.tick0)
	raw := float64(second.k.raw_ns0 - first.k.raw_ns0)
	if ticks <= 0 || raw <= 0 {
		t.Fatalf("%v ticks, %v ns between two moments", ticks, raw)
	}
	for _, x := range []*Ctx{first, second} {
		if off := math.Abs(ticks*float64(x.k.ns_per_tick)/raw - 1); off > 0.01 {
			t.Errorf("%s: off by %.3f %%", x.Clock(), 100*off)
		}
	}
	if o := first.Overhead(); o <= 0 || o > 1e6 {
		t.Errorf("overhead of %v ns", o)
	}
}

func TestCtx(t *testing.T) {
	x := NewCtx(newPage(t, 3), 2, 1500*time.Millisecond, true)
	defer x.Close()
	c := x.c
	if c.timeout_ns != 1500000000 || c.ranks != 3 || c.yield != 1 || x.Pointer() != unsafe.Pointer(c) {
		t.Errorf("timeout %d, %d ranks, yield %d", c.timeout_ns, c.ranks, c.yield)
	}
	if c.progress == c.team || uintptr(unsafe.Pointer(c.progress))-uintptr(unsafe.Pointer(c.team)) != 2*ProgressBytes {
		t.Error("rank 2's entry is not the third")
	}
	switch x.Clock() {
	case "TSC", "CNTVCT", "CLOCK_MONOTONIC_RAW":
	default:
		t.Errorf("clock %q", x.Clock())
	}
}

func TestErrorAt(t *testing.T) {
	type raw struct { // struct p2p_error
		code, native int32
		text         [248]byte
	}
	for _, c := range []struct {
		code  int32
		text  string
		class error
		want  string
	}{
		{1, "waited 1 s", ErrTimeout, "waited 1 s"},
		{2, "stopped by the parent", ErrAborted, "stopped by the parent"},
		{3, "cuMemcpyAsync: invalid argument (1)", ErrDevice, "cuMemcpyAsync: invalid argument (1)"},
		{4, "", ErrCorrupt, "payload differs"},
		{5, "", ErrInvalid, "invalid request"},
		{77, "", nil, "unknown error code 77"},
	} {
		r := raw{code: c.code, native: 9}
		copy(r.text[:], c.text)
		err := ErrorAt(unsafe.Pointer(&r))
		var e *Error
		if !errors.As(err, &e) || e.Native != 9 || err.Error() != c.want || c.class != nil && !errors.Is(err, c.class) {
			t.Errorf("%d: %v, want %q", c.code, err, c.want)
		}
	}
	if err := ErrorAt(unsafe.Pointer(&raw{})); err != nil {
		t.Errorf("no error: %v", err)
	}
}
