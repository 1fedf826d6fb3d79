package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda/enginetest"
)

// idle is long enough for the proxy's kernel to exit.
const idle = 100 * time.Millisecond

// proxy opens a proxy engine, which the test may close before it ends.
func (r *rig) proxy(name string) *Engine {
	r.t.Helper()
	g, err := r.dev.Engine(name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { check(r.t, g.Close()) })
	return g.(*Engine)
}

// sizes around the limits at which the kernel changes its method: one warp, one block, all blocks, a whole round.
func proxySizes() []uint64 {
	var sizes []uint64
	for _, n := range []uint64{4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 2 << 20} {
		sizes = append(sizes, n-16, n-1, n, n+1, n+16, n+n/2+48)
	}
	return sizes
}

func TestHWProxySizes(t *testing.T) {
	r := newRig(t, New(), 0)
	const room = 4 << 20
	dst, src := r.alloc(room), r.alloc(room)
	for _, name := range []string{"proxy", "proxy:1", "proxy:2"} {
		t.Run(name, func(t *testing.T) {
			g := r.engine(name)
			for _, n := range proxySizes() {
				for _, o := range [][2]int{{0, 0}, {5, 5}, {8, 0}, {1, 3}} {
					if err := copyOnce(r, r, g, dst.Addr(), src.Addr(), n, o[0], o[1]); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestHWProxyWindows starts more copies than the ring has slots, of one size and of many, and checks every byte.
func TestHWProxyWindows(t *testing.T) {
	r := newRig(t, New(), 0)
	const slot, most = 256 << 10, 150 // the ring wraps around twice
	dst, src := r.alloc(slot*most), r.alloc(slot*most)
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"proxy", "proxy:1", "proxy:3"} {
		for _, limit := range []int{64, 8 << 10, slot} {
			for round := range 2 {
				t.Run(fmt.Sprintf("%s/%d/%d", name, limit, round), func(t *testing.T) {
					g := r.engine(name)
					key := abitest.PayloadKey(uint64(limit), slot, uint64(round), 0)
					r.fill(src.Addr(), slot*most, key, 0)
					r.fill(dst.Addr(), slot*most, key+1, 0)
					var copies []enginetest.Copy
					for i := range most {
						n := uint64(limit)
						if round > 0 {
							n = 1 + random.Uint64N(n)
						}
						at := uintptr(i * slot)
						copies = append(copies, enginetest.Copy{Dst: dst.Addr() + at, Src: src.Addr() + at, N: n})
					}
					if err := enginetest.Start(g, copies); err != nil {
						t.Fatal(err)
					}
					if err := enginetest.Wait(g, r.ctx); err != nil {
						t.Fatal(err)
					}
					// All sources are one message, so the bytes behind a copy have the old payload of dst.
					got, want, old := hostBytes(t, slot*most), hostBytes(t, slot*most), hostBytes(t, slot*most)
					r.copy(r.ce, address(want), src.Addr(), slot*most)
					r.copy(r.ce, address(got), dst.Addr(), slot*most)
					r.fill(dst.Addr(), slot*most, key+1, 0)
					r.copy(r.ce, address(old), dst.Addr(), slot*most)
					for i, c := range copies {
						at := i * slot
						copy(old[at:at+int(c.N)], want[at:])
						if string(old[at:at+slot]) != string(got[at:at+slot]) {
							t.Fatalf("copy %d of %d bytes: %s", i, c.N, firstDifference(old[at:at+slot], got[at:at+slot]))
						}
					}
				})
			}
		}
	}
}

// TestHWProxyOrder starts copies that depend on each other: each must read what the previous one wrote.
func TestHWProxyOrder(t *testing.T) {
	r := newRig(t, New(), 0)
	const steps = 100 // of two copies: the ring wraps around three times
	for _, name := range []string{"proxy", "proxy:1"} {
		for _, n := range []uint64{16, 1024, 40_000, 300_000} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				g := r.engine(name)
				stride := uintptr(n+255) &^ 255
				b := r.alloc(uint64(stride) * (steps + 1))
				key := abitest.PayloadKey(3, n, 0, 0)
				r.fill(b.Addr(), uint64(stride)*(steps+1), key+1, 0)
				r.fill(b.Addr(), n, key, 0)
				var chain []enginetest.Copy
				for i := range uintptr(steps) {
					to, from := b.Addr()+(i+1)*stride, b.Addr()+i*stride
					// Divided differently each time, so that no thread reads only what it wrote itself.
					cut := uintptr(n) / (2 + i%3) &^ 15
					chain = append(chain,
						enginetest.Copy{Dst: to, Src: from, N: uint64(cut)},
						enginetest.Copy{Dst: to + cut, Src: from + cut, N: n - uint64(cut)})
				}
				// The first place is overwritten after its bytes were copied on.
				chain = append(chain, enginetest.Copy{Dst: b.Addr(), Src: b.Addr() + steps*stride - stride/2&^15, N: 16})
				if err := enginetest.Start(g, chain); err != nil {
					t.Fatal(err)
				}
				if err := enginetest.Wait(g, r.ctx); err != nil {
					t.Fatal(err)
				}
				r.expect(b.Addr()+steps*stride, n, key, "end of the chain")
			})
		}
	}
}

// The kernel exits when it is idle, and is launched again.
func TestHWProxyIdle(t *testing.T) {
	r := newRig(t, New(), 0)
	const n = 100_000
	dst, src := r.alloc(n), r.alloc(n)
	g := r.proxy("proxy")
	for round := range uint64(4) {
		before := g.Launches()
		for i := range uint64(3) {
			key := abitest.PayloadKey(round, n, i, 0)
			r.fill(src.Addr(), n, key, 0)
			r.copy(g.Table(), dst.Addr(), src.Addr(), n)
			r.expect(dst.Addr(), n, key, "round %d, copy %d", round, i)
		}
		if g.Launches() == before {
			t.Errorf("round %d: the kernel had not left after %v", round, idle)
		}
		t.Logf("round %d: %d launches", round, g.Launches()-before)
		time.Sleep(idle)
	}
}

// While there is work the kernel stays resident, and copies need no launch.
func TestHWProxyStays(t *testing.T) {
	r := newRig(t, New(), 0)
	dst, src := r.alloc(4096), r.alloc(4096)
	g := r.proxy("proxy")
	r.copy(g.Table(), dst.Addr(), src.Addr(), 4096)
	before := g.Launches()
	start := time.Now()
	for range 5000 {
		r.copy(g.Table(), dst.Addr(), src.Addr(), 4096)
	}
	took := time.Since(start)
	t.Logf("5000 copies took %v and %d launches", took, g.Launches()-before)
	// It exits five times per second, and whenever this process was not running for 10 ms.
	if got, most := g.Launches()-before, 2+uint64(took/(10*time.Millisecond)); got > most {
		t.Errorf("%d launches, want at most %d", got, most)
	}
}

// Close must not hang, in any state of the engine.
func TestHWProxyClose(t *testing.T) {
	r := newRig(t, New(), 0)
	const n, count = 1 << 20, 40
	dst, src := r.alloc(n*count), r.alloc(n*count)
	r.fill(src.Addr(), n*count, 1, 0)
	var window []enginetest.Copy
	for i := range uintptr(count) {
		window = append(window, enginetest.Copy{Dst: dst.Addr() + i*n, Src: src.Addr() + i*n, N: n})
	}
	for what, use := range map[string]func(g *abi.Engine) error{
		"unused":          func(*abi.Engine) error { return nil },
		"just after work": func(g *abi.Engine) error { return g.Copy(r.ctx, dst.Addr(), src.Addr(), n) },
		"idle": func(g *abi.Engine) error {
			defer time.Sleep(idle)
			return g.Copy(r.ctx, dst.Addr(), src.Addr(), n)
		},
		"filling": func(g *abi.Engine) error { return g.Fill(r.ctx, dst.Addr(), n, 1, 0) },
		"copying": func(g *abi.Engine) error { return enginetest.Start(g, window) },
	} {
		t.Run(what, func(t *testing.T) {
			g := r.proxy("proxy")
			if err := use(g.Table()); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			check(t, g.Close())
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("closing took %v", took)
			}
		})
	}
}

// others performs operations that may wait for an idle GPU: memory, handles, engines.
func others(r *rig, m *abi.Memory) error {
	b, err := r.dev.Alloc(64 << 20)
	if err != nil {
		return err
	}
	base, err := m.Alloc(64<<20, 0)
	if err != nil {
		return err
	}
	if _, err := m.Export(base); err != nil {
		return err
	}
	if err := m.Release(base); err != nil {
		return err
	}
	for _, name := range []string{"sm", "proxy:2", "ce"} {
		g, err := r.dev.Engine(name)
		if err != nil {
			return err
		}
		if err := g.Table().Fill(r.ctx, b.Addr(), 1<<20, 7, 0); err != nil {
			return err
		}
		if err := g.Table().Copy(r.ctx, b.Addr()+32<<20, b.Addr(), 1<<20); err != nil {
			return err
		}
		if err := g.Close(); err != nil {
			return err
		}
	}
	again, err := New().Open(r.dev.Info().UUID)
	if err != nil {
		return err
	}
	if err := again.Close(); err != nil {
		return err
	}
	return b.Close()
}

// TestHWProxyLetsOthersIn allocates, frees, opens and closes while the kernel is resident, first idle, then never.
func TestHWProxyLetsOthersIn(t *testing.T) {
	r := newRig(t, New(), 0)
	const n = 8192
	dst, src := r.alloc(n), r.alloc(n)
	g, m := r.proxy("proxy"), r.memory(t, gpu.HandleLegacy)
	for round := range uint64(3) {
		key := abitest.PayloadKey(round, n, 0, 0)
		r.fill(src.Addr(), n, key, 0)
		r.copy(g.Table(), dst.Addr(), src.Addr(), n)
		start := time.Now()
		if err := others(r, m); err != nil {
			t.Fatal(err)
		}
		t.Logf("beside an idle kernel: %v", time.Since(start))
		r.expect(dst.Addr(), n, key, "round %d", round)
	}
	quit, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		for copies := 0; ; copies++ {
			select {
			case <-quit:
				failed <- nil
				return
			default:
			}
			if err := g.Table().Copy(r.ctx, dst.Addr(), src.Addr(), n); err != nil {
				failed <- fmt.Errorf("copy %d: %w", copies, err)
				return
			}
		}
	}()
	// Both use r.ctx, so both write its progress page, which matters only to a watchdog.
	start, err := time.Now(), others(r, m)
	close(quit)
	t.Logf("beside a busy kernel: %v", time.Since(start))
	check(t, err)
	check(t, <-failed)
}

// Two proxies on one GPU, and one on each of two GPUs, run concurrently.
func TestHWProxyPairs(t *testing.T) {
	drv := New()
	r, peer := newRig(t, drv, 0), newRig(t, drv, 1)
	const n, rounds = 300_000, 50
	a, b := r.alloc(2*n), peer.alloc(2*n)
	engines := []*abi.Engine{r.engine("proxy"), r.engine("proxy:2"), peer.engine("proxy")}
	if !drv.Link(r.dev.Info(), peer.dev.Info()).Peer {
		t.Skip("no peer access")
	}
	for i := range uint64(rounds) {
		key := abitest.PayloadKey(i, n, 0, 0)
		r.fill(a.Addr(), n, key, 0)
		// 0 → 1 by the first, back by the third, and on inside GPU 0 by the second.
		r.copy(engines[0], b.Addr(), a.Addr(), n)
		peer.copy(engines[2], b.Addr()+n, b.Addr(), n)
		peer.copy(engines[2], a.Addr()+n, b.Addr()+n, n)
		r.copy(engines[1], a.Addr(), a.Addr()+n, n)
		r.expect(a.Addr(), n, key, "round %d, GPU 0", i)
		peer.expect(b.Addr()+n, n, key, "round %d, GPU 1", i)
	}
}
