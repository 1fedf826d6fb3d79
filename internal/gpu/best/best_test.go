package best_test

import (
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/best"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
)

// rig is CPU memory with engines of which one is made slow by a factor beyond any noise.
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
		if *b, err = dev.Alloc(bytes, gpu.HandleAuto); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*b).Close() })
	}
	return r
}

func (r rig) engines(t *testing.T, names ...string) []gpu.Engine {
	t.Helper()
	var out []gpu.Engine
	for _, n := range names {
		e, err := r.dev.Engine(n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// Whatever is chosen, every size must arrive, and the name of the engine that moved it must be one of them.
func TestCopiesEverySize(t *testing.T) {
	const most = 1 << 20
	r := newRig(t, most)
	b, err := best.New(r.engines(t, "cpu-nt", "cpu-memcpy"), r.x, r.dst.Addr(), r.src.Addr(), most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	g := b.Table()
	for _, n := range []uint64{0, 1, 255, 256, 257, 4095, 65536, 100001, most} {
		key := abi.PayloadKey(1, n, 0, 0)
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
	for _, window := range []int{1, 8} { // what holds for one copy and for several, both ways of asking
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

// Engines that are equal do not take turns: the first one keeps all sizes.
func TestEqualEnginesKeepTheFirst(t *testing.T) {
	r := newRig(t, 1<<16)
	one := r.engines(t, "cpu-memcpy")
	b, err := best.New(one, r.x, r.dst.Addr(), r.src.Addr(), 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if got := b.Choices(); got != "cpu-memcpy" {
		t.Errorf("choices %q", got)
	}
}
