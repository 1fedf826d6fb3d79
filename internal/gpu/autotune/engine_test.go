package autotune

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
	"github.com/p2pbench/p2pbench/internal/gpu/autotune/autotunetest"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
)

// rig is a pair of buffers in CPU memory.
type rig struct {
	dev      gpu.Device
	x        *abi.Ctx
	src, dst gpu.Buffer
}

func newRig(t *testing.T, bytes uint64) rig {
	t.Helper()
	infos, err := host.Driver().Devices()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := host.Driver().Open(infos[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	page, err := abi.NewPage(1)
	if err != nil {
		t.Fatal(err)
	}
	r := rig{dev: dev, x: abi.NewCtx(page, 0, time.Minute, false)}
	t.Cleanup(func() { r.x.Close(); _ = page.Close() })
	for _, b := range []*gpu.Buffer{&r.src, &r.dst} {
		if *b, err = dev.Alloc(bytes); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*b).Close() })
	}
	return r
}

// choose makes an engine of host engines.
func (r rig) choose(t *testing.T, most uint64, names ...string) *Engine {
	t.Helper()
	var engines []gpu.Engine
	for _, n := range names {
		e, err := r.dev.Engine(n)
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
	}
	b, err := New(engines, r.x, r.dst.Addr(), r.src.Addr(), most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// stage is a machine with scripted engines, which move no bytes and need no buffers.
type stage struct {
	*autotunetest.Machine
	x *abi.Ctx
}

func newStage(t *testing.T, trouble autotunetest.Trouble) stage {
	t.Helper()
	page, err := abi.NewPage(1)
	if err != nil {
		t.Fatal(err)
	}
	s := stage{autotunetest.NewMachine(trouble), abi.NewCtx(page, 0, time.Minute, false)}
	t.Cleanup(func() { s.Close(); s.x.Close(); _ = page.Close() })
	return s
}

func (s stage) try(most uint64, engines ...gpu.Engine) (*Engine, error) {
	now, self := s.Clock()
	return newEngine(engines, s.x, 0, 0, most, clock{now, self})
}

func (s stage) choose(t *testing.T, most uint64, engines ...gpu.Engine) *Engine {
	t.Helper()
	b, err := s.try(most, engines...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Copies of every size must arrive with any choice, and For must name one of the engines.
func TestCopiesEverySize(t *testing.T) {
	const most = 1 << 20
	r := newRig(t, most)
	b := r.choose(t, most, "cpu-nt", "cpu-memcpy")
	g := b.Table()
	for _, n := range []uint64{0, 1, 255, 256, 257, 4095, 65536, 100001, most} {
		key := abitest.PayloadKey(1, n, 0, 0)
		if err := g.Fill(r.x, r.src.Addr(), n, key, 0); err != nil {
			t.Fatal(err)
		}
		if err := g.Copy(r.x, r.dst.Addr(), r.src.Addr(), n); err != nil {
			t.Fatal(err)
		}
		m, err := g.Check(r.x, r.dst.Addr(), n, key, 0)
		if err != nil || m.Count != 0 {
			t.Errorf("%d bytes by %s: %+v %v", n, b.For(n, 1), m, err)
		}
		if name := b.For(n, 1); name != "cpu-nt" && name != "cpu-memcpy" {
			t.Errorf("%d bytes by %q", n, name)
		}
	}
	for _, window := range []int{1, 8} { // single copies and windows
		b.Use(window)
		if err := g.Copy(r.x, r.dst.Addr(), r.src.Addr(), most); err != nil {
			t.Errorf("window %d: %v", window, err)
		}
		if name := b.For(most, window); name != "cpu-nt" && name != "cpu-memcpy" {
			t.Errorf("window %d by %q", window, name)
		}
	}
	if b.Name() != "auto" || b.Choices() == "" {
		t.Errorf("name %q, choices %q", b.Name(), b.Choices())
	}
}

const us = time.Microsecond

// flat is a cost that is the same at every size.
func flat(wait time.Duration) []autotunetest.Cost { return []autotunetest.Cost{{Wait: wait}} }

// Each size uses the engine that is fastest for it, in single copies and in windows.
func TestChoosesTheFastest(t *testing.T) {
	crossing := func(bytes uint64) []autotunetest.Cost {
		return []autotunetest.Cost{{Wait: 10 * us}, {From: bytes, Wait: 90 * us}}
	}
	between := []autotunetest.Cost{{Wait: 90 * us}, {From: 4 << 10, Wait: 10 * us}, {From: 128 << 10, Wait: 90 * us}}
	starts, waits := []autotunetest.Cost{{Copy: 20 * us}}, flat(40*us)
	for name, c := range map[string]struct {
		a, b []autotunetest.Cost
		want string
	}{
		"the first":                             {flat(10 * us), flat(30 * us), "a"},
		"the second":                            {flat(30 * us), flat(10 * us), "b"},
		"a crossing at a size in the steps":     {crossing(64 << 10), flat(30 * us), "a, b from 65536 bytes"},
		"a crossing between the steps":          {crossing(128 << 10), flat(30 * us), "a, b from 131072 bytes"},
		"a crossing at the next step":           {crossing(256 << 10), flat(30 * us), "a, b from 262144 bytes"},
		"there and back":                        {flat(30 * us), between, "a, b from 4096 bytes, a from 131072 bytes"},
		"a close race":                          {flat(30600), flat(30 * us), "b"},
		"slow to start, nothing to wait for":    {starts, waits, "a; in windows b"},
		"the same with the engines in exchange": {waits, starts, "b; in windows a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, autotunetest.Trouble{})
			b := s.choose(t, 1<<20, s.Engine("a", c.a...), s.Engine("b", c.b...))
			if got := b.Choices(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// If engines are equal within the margin, the first of them gets all sizes.
func TestEqualEnginesKeepTheFirst(t *testing.T) {
	s := newStage(t, autotunetest.Trouble{})
	engines := []gpu.Engine{
		s.Engine("a", flat(55*us)...), s.Engine("b", flat(50*us)...),
		s.Engine("c", flat(49800)...), s.Engine("d", flat(50*us)...),
	}
	if got := s.choose(t, 1<<20, engines...).Choices(); got != "b" {
		t.Errorf("choices %q, want b, which is as fast as c and d", got)
	}
}

// Disturbances of the machine do not decide between engines.
func TestTroubleFavoursNobody(t *testing.T) {
	for name, c := range map[string]struct {
		autotunetest.Trouble
		a, b time.Duration
	}{
		"slower and slower":               {autotunetest.Trouble{Drift: 0.004}, 24 * us, 20 * us},
		"slower and slower, a close race": {autotunetest.Trouble{Drift: 0.004}, 21 * us, 20 * us},
		"the CPU is away now and then":    {autotunetest.Trouble{Every: 3, Hiccup: 4 * time.Millisecond}, 24 * us, 20 * us},
		"away, and a close race":          {autotunetest.Trouble{Every: 5, Hiccup: 4 * time.Millisecond}, 20500, 20 * us},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, c.Trouble)
			b := s.choose(t, 1<<10, s.Engine("a", flat(c.a)...), s.Engine("b", flat(c.b)...))
			if got := b.Choices(); got != "b" {
				t.Errorf("choices %q, want the faster one", got)
			}
		})
	}
}

// Engines that are close are distinguished although their times vary.
func TestJitterIsAveraged(t *testing.T) {
	const runs = 200
	right := 0
	x := newStage(t, autotunetest.Trouble{}).x
	for seed := range uint64(runs) {
		m := autotunetest.NewMachine(autotunetest.Trouble{Jitter: 0.3, Seed: seed})
		s := stage{m, x}
		b, err := s.try(1<<10, s.Engine("a", flat(21300)...), s.Engine("b", flat(20*us)...))
		if err != nil {
			t.Fatal(err)
		}
		if b.Choices() == "b" {
			right++
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		m.Close()
	}
	if right < runs*98/100 {
		t.Errorf("the faster engine was taken %d times of %d", right, runs)
	}
}

// A choice is made although the buffers are too small for a window or for any copy.
func TestLittleRoom(t *testing.T) {
	for most, want := range map[uint64]string{100: "a", 1 << 10: "b", 2 << 10: "b; in windows a"} {
		s := newStage(t, autotunetest.Trouble{})
		b := s.choose(t, most, s.Engine("a", flat(60*us)...), s.Engine("b", autotunetest.Cost{Copy: 40 * us}))
		if got := b.Choices(); got != want {
			t.Errorf("%d bytes: %q, want %q", most, got, want)
		}
	}
}

// The set-up of a slow device is bounded: sizes beyond the first slow one are not measured.
func TestSlowSizesEndTheTrial(t *testing.T) {
	s := newStage(t, autotunetest.Trouble{})
	a := s.Engine("a", autotunetest.Cost{Wait: 20 * us}, autotunetest.Cost{From: 64 << 10, Wait: 2 * time.Millisecond})
	b := s.Engine("b", autotunetest.Cost{Wait: 50 * us}, autotunetest.Cost{From: 64 << 10, Wait: 4 * time.Millisecond})
	s.choose(t, 256<<20, a, b)
	if a.Largest() != 64<<10 || b.Largest() != 64<<10 {
		t.Errorf("%d and %d bytes were tried, want no more than 64 KiB", a.Largest(), b.Largest())
	}
}

// Four equal engines, which need the most turns, are measured within the stated time.
func TestTrialIsBounded(t *testing.T) {
	costs := []autotunetest.Cost{
		{Copy: 2 * us, Wait: 4 * us},
		{From: 1 << 20, Copy: 5 * us, Wait: 5 * us},
		{From: 4 << 20, Copy: 13 * us, Wait: 5 * us},
		{From: 16 << 20, Copy: 45 * us, Wait: 5 * us},
		{From: 64 << 20, Copy: 172 * us, Wait: 5 * us},
		{From: 256 << 20, Copy: 680 * us, Wait: 5 * us},
	}
	s := newStage(t, autotunetest.Trouble{})
	s.choose(t, 256<<20, s.Engine("a", costs...), s.Engine("b", costs...), s.Engine("c", costs...), s.Engine("d", costs...))
	if took := s.Now(); took > 150*time.Millisecond {
		t.Errorf("%v of the machine's time", took)
	}
}

// A failure names the engine and the size, and all engines are closed.
func TestFailure(t *testing.T) {
	s := newStage(t, autotunetest.Trouble{})
	a, b := s.Engine("a", flat(us)...), s.Engine("b", autotunetest.Cost{}, autotunetest.Cost{From: 16 << 10, Fail: true})
	_, err := s.try(1<<20, a, b)
	if want := "engine auto: b, 16384 bytes: a scripted failure"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	if !errors.Is(err, abi.ErrDevice) || !a.Closed() || !b.Closed() {
		t.Errorf("%v; closed: %v, %v", err, a.Closed(), b.Closed())
	}
}

func TestNumberOfEngines(t *testing.T) {
	s := newStage(t, autotunetest.Trouble{})
	for _, n := range []int{0, 9} {
		var engines []gpu.Engine
		for range n {
			engines = append(engines, s.Engine("a", flat(us)...))
		}
		if _, err := s.try(1<<10, engines...); err == nil || !strings.Contains(err.Error(), "not 1 to 8") {
			t.Errorf("%d engines: %v", n, err)
		}
		for _, e := range engines {
			if !e.(*autotunetest.Engine).Closed() {
				t.Errorf("%d engines: one stays open", n)
			}
		}
	}
}

// small and large are sizes for which chosen uses different engines.
const small, large = 256, 64 << 10

// chosen combines engine a for small messages and engine b for large ones.
func chosen(t *testing.T) (s stage, g *abi.Engine, a, b *autotunetest.Engine) {
	t.Helper()
	s = newStage(t, autotunetest.Trouble{})
	a = s.Engine("a", autotunetest.Cost{Wait: 10 * us}, autotunetest.Cost{From: large, Wait: 90 * us})
	b = s.Engine("b", flat(30*us)...)
	e := s.choose(t, large, a, b)
	if e.For(small, 1) != "a" || e.For(large, 1) != "b" {
		t.Fatalf("choices %q", e.Choices())
	}
	return s, e.Table(), a, b
}

func reached(t *testing.T, g *abi.Engine, mark uint32) bool {
	t.Helper()
	yes, err := autotunetest.Reached(g, mark)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// A mark is reached when the engine that copies has completed the copies before it.
func TestMarks(t *testing.T) {
	s, g, a, b := chosen(t)
	for i, c := range []struct {
		n    uint64
		busy *autotunetest.Engine
	}{{small, a}, {large, b}} {
		mark := uint32(i * 15)
		if err := errors.Join(autotunetest.Start(g, 0, 0, c.n), autotunetest.Mark(g, mark)); err != nil {
			t.Fatal(err)
		}
		if reached(t, g, mark) {
			t.Errorf("%d bytes: reached while %s copies", c.n, c.busy.Name())
		}
		c.busy.Complete()
		if !reached(t, g, mark) {
			t.Errorf("%d bytes: not reached although %s is done", c.n, c.busy.Name())
		}
		if err := errors.Join(autotunetest.Wait(g, s.x), autotunetest.Mark(g, mark)); err != nil {
			t.Fatal(err)
		}
		if !reached(t, g, mark) {
			t.Errorf("%d bytes: a mark with nothing under way is not reached", c.n)
		}
	}
	r := newRig(t, small)
	if cpu := r.choose(t, small, "cpu-nt", "cpu-memcpy"); autotunetest.Marks(cpu.Table()) {
		t.Error("marks of engines that have none")
	}
}

// Copies complete in order although they use different engines.
func TestOrderAcrossEngines(t *testing.T) {
	_, g, a, b := chosen(t)
	for _, c := range []struct {
		n             uint64
		before, after *autotunetest.Engine
	}{{small, nil, a}, {large, a, b}, {small, b, a}} {
		if err := autotunetest.Start(g, 0, 0, c.n); err != nil {
			t.Fatal(err)
		}
		if c.before != nil && !reached(t, c.before.Table(), 0) {
			t.Errorf("%s copies while %s is not done", c.after.Name(), c.before.Name())
		}
		if err := autotunetest.Mark(c.after.Table(), 0); err != nil {
			t.Fatal(err)
		}
		if reached(t, c.after.Table(), 0) {
			t.Errorf("%s is done before anybody waited", c.after.Name())
		}
	}
}
