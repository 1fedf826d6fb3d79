package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda/enginetest"
)

// TestFakeMemoryBook allocates and releases thousands of regions in random order: each is found exactly while it
// exists.
func TestFakeMemoryBook(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		m := r.memory(t, gpu.HandleVMM)
		random := rand.New(rand.NewPCG(1, 2))
		live := map[uintptr]abi.Range{}
		for round := range 4000 {
			if len(live) > 1500 || (round > 100 && random.IntN(4) == 0) {
				for base := range live { // Go's order is random too
					check(t, m.Release(base))
					if _, err := m.Range(base + 77); !errors.Is(err, abi.ErrInvalid) {
						t.Fatalf("range of what was released: %v", err)
					}
					delete(live, base)
					break
				}
				continue
			}
			base := alloc(t, m, 1+random.Uint64N(3*abitest.Granule(m)), 0)
			live[base] = rangeOf(t, m, base)
		}
		for base, want := range live {
			if got := rangeOf(t, m, base+uintptr(random.Uint64N(want.Length))); got != want || got.Base != base {
				t.Fatalf("at %#x: %+v, want %+v", base, got, want)
			}
		}
		if len(live) < 1000 {
			t.Errorf("only %d pieces at the end", len(live))
		}
		// Closing the memory releases them, which fake.on checks.
	})
}

func TestFakeFabric(t *testing.T) {
	for _, c := range []struct {
		name string
		fake fake
		says []string // nil: success
	}{
		{"works", fake{env: []string{"FAKE_FABRIC=yes"}}, nil},
		{"not offered", fake{}, []string{fakeUUID0, "does not support it", "CUDA 12.3 or newer"}},
		{"forbidden", fake{env: []string{"FAKE_FABRIC=forbidden"}}, []string{"cuMemCreate", "(800)"}},
		{"not supported", fake{env: []string{"FAKE_FABRIC=yes", "FAKE_FAIL=cuMemCreate:801"}}, []string{"cuMemCreate", "(801)"}},
		{
			"export is forbidden",
			fake{env: []string{"FAKE_FABRIC=yes", "FAKE_FAIL=cuMemExportToShareableHandle:800"}},
			[]string{"cuMemExportToShareableHandle", "(800)"},
		},
		{"older driver", fake{env: []string{"FAKE_FABRIC=yes", "FAKE_DRIVER=12000"}}, []string{"for CUDA 12.0", "12.3 or newer"}},
		{"oldest driver", fake{cuda: []string{"-DOMIT_VMM"}, env: []string{"FAKE_FABRIC=yes"}}, []string{"does not support it"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.fake.on(t, func(t *testing.T) {
				r := newRig(t, New(), 0)
				m, err := r.dev.Memory(gpu.HandleFabric)
				listed := strings.Contains(fmt.Sprint(r.handles()), "fabric")
				if c.says == nil {
					check(t, err)
					check(t, m.Close())
				} else {
					refused(t, err, append(c.says, `"fabric"`, "IMEX channel", "/dev/nvidia-caps-imex-channels/channel0", "nvidia-imex")...)
				}
				if listed != (c.says == nil) {
					t.Errorf("handles %v", r.handles())
				}
			})
		})
	}
}

// Temporary failures are not cached: a GPU whose memory is full may make fabric handles later.
func TestFakeFabricTriedAgain(t *testing.T) {
	fake{env: []string{"FAKE_FABRIC=yes"}}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		err := failing(t, "cuMemCreate", 2, func() error { _, err := r.dev.Memory(gpu.HandleFabric); return err })
		reports(t, err, "try a fabric handle", "cuMemCreate", "(2)")
		if errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("%v is called unsupported", err)
		}
		m, err := r.dev.Memory(gpu.HandleFabric)
		if err != nil {
			t.Fatal(err)
		}
		check(t, m.Close())
	})
}

func TestIMEXState(t *testing.T) {
	dir := t.TempDir()
	if got := imexState(dir); got != "this machine has no IMEX channel" {
		t.Error(got)
	}
	for _, name := range []string{"channel0", "channel7", "other"} {
		check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	if got, want := imexState(dir), fmt.Sprintf("IMEX channels here: %s/channel0, %s/channel7", dir, dir); got != want {
		t.Error(got)
	}
}

// An old driver has legacy handles; other kinds are rejected by Memory, not at their first use.
func TestFakeMemoryWithoutVMM(t *testing.T) {
	fake{cuda: []string{"-DOMIT_VMM"}, env: []string{"FAKE_DRIVER=12000"}}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		_, err := r.dev.Memory(gpu.HandleVMM)
		refused(t, err, "vmm-fd", "for CUDA 12.0", "use one of [legacy]")
		_, err = r.dev.Memory("memfd")
		refused(t, err, "memfd", "use one of [legacy]")
		m := r.memory(t, gpu.HandleLegacy)
		base := alloc(t, m, 1, 0)
		if x := rangeOf(t, m, base); x.Base != base || abitest.Granule(m) != 2<<20 {
			t.Errorf("%+v, granule %d", x, abitest.Granule(m))
		}
		r.fill(r.alloc(100).Addr(), 100, 1, 0)
	})
}

// The driver rejects a handle whose size exceeds the memory. The caller keeps ownership of the descriptor, and
// resources taken before the failure are released, which fake.on checks.
func TestFakeMemoryOpenFails(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		m := r.memory(t, gpu.HandleVMM)
		base := alloc(t, m, 1, 0)
		h, err := m.Export(base)
		if err != nil {
			t.Fatal(err)
		}
		wrong := h
		wrong.Length += abitest.Granule(m)
		_, err = m.Open(wrong)
		reports(t, err, "cuMemMap: CUDA_ERROR_FAKE (1)")
		wrong = h
		wrong.FD = 1 << 20
		_, err = m.Open(wrong)
		reports(t, err, "cuMemImportFromShareableHandle: CUDA_ERROR_FAKE (1)")
		again, err := m.Open(h)
		if err != nil {
			t.Fatal(err)
		}
		check(t, unix.Close(h.FD))
		r.fill(base, h.Length, 9, 0)
		r.expect(again, h.Length, 9, "the second mapping")
		check(t, m.Unmap(again))
	})
}

func TestFakeMemoryAddress(t *testing.T) {
	for _, c := range []struct {
		env     string
		honours bool
	}{{"FAKE_NO_HINT=", true}, {"FAKE_NO_HINT=1", false}} {
		t.Run(c.env, func(t *testing.T) {
			f := fake{}
			if !c.honours {
				f.env = []string{c.env}
			}
			f.on(t, func(t *testing.T) {
				r := newRig(t, New(), 0)
				m := r.memory(t, gpu.HandleVMM)
				first := alloc(t, m, 4*abitest.Granule(m), 0)
				hole := first + uintptr(abitest.Granule(m))
				check(t, m.Release(first))
				keep := alloc(t, m, abitest.Granule(m), first+3*uintptr(abitest.Granule(m)))
				base := alloc(t, m, 2*abitest.Granule(m), hole)
				if c.honours && (base != hole || keep != first+3*uintptr(abitest.Granule(m))) {
					t.Errorf("asked for %#x and %#x, got %#x and %#x", first+3*uintptr(abitest.Granule(m)), hole, keep, base)
				}
				r.fill(base, 2*abitest.Granule(m), 3, 0)
				r.fill(keep, abitest.Granule(m), 4, 0)
				r.expect(base, 2*abitest.Granule(m), 3, "where it came")
			})
		})
	}
}

func TestFakePinRefused(t *testing.T) {
	fake{env: []string{"FAKE_NO_REGISTERED=1"}}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		m := r.memory(t, gpu.HandleLegacy)
		host := hostBytes(t, 4096)
		err := m.Pin(address(host), 4096)
		reports(t, err, "pin: this GPU cannot access pinned memory")
		var e *abi.Error
		if !errors.As(err, &e) || e.Native != 801 || !errors.Is(err, abi.ErrDevice) {
			t.Errorf("%#v", err)
		}
	})
}

// Closing memory, or its device, releases what is still open, which fake.on checks.
func TestFakeMemoryClose(t *testing.T) {
	fake{env: []string{"FAKE_FABRIC=yes"}}.on(t, func(t *testing.T) {
		drv := New()
		host := hostBytes(t, 8192)
		for _, kind := range []gpu.HandleKind{gpu.HandleLegacy, gpu.HandleVMM, gpu.HandleFabric} {
			dev, err := drv.Open(fakeUUID0)
			if err != nil {
				t.Fatal(err)
			}
			m, err := dev.Memory(kind)
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				alloc(t, m.Table(), 1, 0)
			}
			check(t, m.Table().Pin(address(host), 8192))
			check(t, dev.Close())
			if m.Table() != nil {
				t.Errorf("%s: the table outlives the device", kind)
			}
			check(t, m.Close())
			if _, err := dev.Memory(kind); err == nil {
				t.Errorf("a closed device has memory of kind %s", kind)
			}
		}
		// A failure to release is reported, and the rest is released.
		r := newRig(t, drv, 0)
		m, err := r.dev.Memory(gpu.HandleVMM)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			alloc(t, m.Table(), 1, 0)
		}
		err = failing(t, "cuMemUnmap", 2, m.Close)
		reports(t, err, "close memory as vmm-fd", "cuMemUnmap", "(2)")
		check(t, m.Close())
	})
}

// TestFakeStreamsShuffled runs the tests of streams, marks and queues on a driver that executes the work of several
// streams in any permitted order.
func TestFakeStreamsShuffled(t *testing.T) {
	if os.Getenv("P2PBENCH_LIBCUDA") != "" {
		t.Skip("already on another driver")
	}
	cuda := buildFake(t, "fakecuda", nil)
	for _, seed := range []string{"1", "2"} {
		out := rerun(t, "^TestHW(Streams|Marks|Record|Queue)", "P2PBENCH_REQUIRE=cuda", "P2PBENCH_LIBCUDA="+cuda,
			"P2PBENCH_LIBNVML="+filepath.Join(t.TempDir(), "missing.so"), "FAKE_SHUFFLE="+seed)
		if n := strings.Count(out, "--- PASS: TestHW"); n < 8 {
			t.Errorf("seed %s: only %d tests passed:\n%s", seed, n, out)
		}
	}
}

// The mark behind an incomplete copy is not reached, however often it is polled.
func TestFakeMarkBehindAHang(t *testing.T) {
	fake{env: []string{"FAKE_HANG_BYTES=777"}}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		b := r.alloc(1 << 20)
		for _, name := range []string{"ce", "sm", "bulk", "proxy", "ce:4"} {
			g, err := r.dev.Engine(name)
			if err != nil {
				t.Fatal(err)
			}
			start := func(n uint64) {
				check(t, enginetest.Start(g.Table(), []enginetest.Copy{{Dst: b.Addr(), Src: b.Addr() + 4096, N: n}}))
			}
			start(100)
			check(t, enginetest.Mark(g.Table(), 3))
			start(777)
			check(t, enginetest.Mark(g.Table(), 4))
			until(t, g.Table(), 3)
			for range 1000 {
				if yes, err := enginetest.Reached(g.Table(), 4); yes || err != nil {
					t.Fatalf("%s: reached: %v, %v", name, yes, err)
				}
			}
			check(t, g.Close())
		}
	})
}

// The proxy's kernel may exit before the copies in front of a mark are complete: polling the mark launches it again, or
// fails.
func TestFakeProxyMarks(t *testing.T) {
	for env, says := range map[string]string{
		"FAKE_PROXY_SERVES=1":       "",
		"FAKE_PROXY_SLOW_US=15000":  "",
		"FAKE_FAIL_BYTES=777":       "p2p_proxy died (cuStreamQuery)",
		"FAKE_PROXY_QUIT_BYTES=777": "p2p_proxy ended unexpectedly",
	} {
		t.Run(env, func(t *testing.T) {
			fake{env: []string{env}}.on(t, func(t *testing.T) {
				r := newRig(t, New(), 0)
				b := r.alloc(1 << 20)
				g := r.proxy("proxy")
				for i := range 5 {
					r.fill(b.Addr(), 1000, uint64(i), 0)
					check(t, enginetest.Start(g.Table(), []enginetest.Copy{
						{Dst: b.Addr() + 8192, Src: b.Addr() + 4096, N: 512},
						{Dst: b.Addr() + 4096, Src: b.Addr(), N: 777},
					}))
					check(t, enginetest.Mark(g.Table(), i))
					if says != "" {
						reports(t, untilFails(t, g.Table(), i), says)
						break
					}
					until(t, g.Table(), i)
					r.expect(b.Addr()+4096, 777, uint64(i), "mark %d", i)
				}
				if err := g.Close(); strings.Contains(env, "FAIL") {
					reports(t, err, "close engine proxy", "(700)")
				} else {
					check(t, err)
				}
			})
		})
	}
}

// untilFails polls a mark until that fails.
func untilFails(t *testing.T, g *abi.Engine, mark int) error {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; {
		if _, err := enginetest.Reached(g, mark); err != nil {
			return err
		}
	}
	t.Fatal("nobody says that the kernel is gone")
	return nil
}
