package cuda

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/dynlib"
)

func TestFakeRunsHardwareTests(t *testing.T) {
	if os.Getenv("P2PBENCH_LIBCUDA") != "" {
		t.Skip("already on another driver")
	}
	for arch, more := range map[string][]string{"8": nil, "9": {"FAKE_FABRIC=yes", "FAKE_IPC_COUNTS=1", "FAKE_IPC_OWN=1"}} {
		t.Run("sm_"+arch+"0", func(t *testing.T) {
			cuda, nvml := buildFake(t, "fakecuda", nil), buildFake(t, "fakenvml", nil)
			out := rerun(t, "^TestHW", append(more, "P2PBENCH_REQUIRE=cuda", "P2PBENCH_LIBCUDA="+cuda, "P2PBENCH_LIBNVML="+nvml,
				"FAKE_ARCH="+arch, "FAKE_COUNTERS=none")...)
			if n := strings.Count(out, "--- PASS: TestHW"); n < 10 {
				t.Errorf("only %d tests passed:\n%s", n, out)
			}
		})
	}
}

func TestFakeDevices(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		list, err := New().Devices()
		if err != nil {
			t.Fatal(err)
		}
		want := []gpu.Info{
			{
				Kind: "cuda", Index: 0, Name: "Fake GPU 0", UUID: fakeUUID0, PCI: "0000:3b:00.0", Arch: "sm_90", NUMA: -1,
				Memory: 1 << 30, Driver: "580.159.04 (CUDA 13.0)", CTAs: 4, Warp: 32, CopyEngine: "ce",
			},
			{
				Kind: "cuda", Index: 1, Name: "Fake GPU 1", UUID: fakeUUID1, PCI: "0000:3c:00.0", Arch: "sm_90", NUMA: -1,
				Memory: 1 << 30, Driver: "580.159.04 (CUDA 13.0)", CTAs: 4, Warp: 32, CopyEngine: "ce",
			},
		}
		for i := range want {
			list[i].NUMA = -1 // this machine may have such a PCI device
			if list[i] != want[i] {
				t.Errorf("got  %+v\nwant %+v", list[i], want[i])
			}
		}
		_, err = New().Open("GPU-of-another-machine")
		refused(t, err, "no device GPU-of-another-machine among the 2", "CUDA_VISIBLE_DEVICES")
	})
}

// Without a driver the error must say so. LD_BIND_NOW proves that the binary does not link to the driver.
func TestFakeNoDriver(t *testing.T) {
	fake{noCUDA: true, noNVML: true, env: []string{"LD_BIND_NOW=1"}}.on(t, func(t *testing.T) {
		drv := New()
		if drv.Kind() != "cuda" {
			t.Error(drv.Kind())
		}
		_, err := drv.Devices()
		refused(t, err, "cuda: ", "missing.so: cannot open shared object file", "install the NVIDIA driver")
		_, err = drv.Open(fakeUUID0)
		refused(t, err, "missing.so")
		l := drv.Link(gpu.Info{Kind: "cuda", UUID: "a"}, gpu.Info{Kind: "cuda", UUID: "b"})
		if l.Peer || !strings.Contains(l.Detail, "missing.so") {
			t.Errorf("%+v", l)
		}
	})
}

func TestFakeDriverRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		fake fake
		says []string
	}{
		{"missing function", fake{cuda: []string{"-DOMIT_cuMemAlloc_v2"}}, []string{"no function cuMemAlloc_v2", "newer"}},
		{"old", fake{env: []string{"FAKE_DRIVER=11030"}}, []string{"CUDA 11.3", "11.4 or newer", "update"}},
		{"no device", fake{env: []string{"FAKE_DEVICES=0"}}, []string{"cuInit", "(100)", "CUDA_VISIBLE_DEVICES"}},
		{"stub", fake{env: []string{"FAKE_FAIL=cuInit:34"}}, []string{"stub library"}},
		{"fabric", fake{env: []string{"FAKE_FAIL=cuInit:802"}}, []string{"nvidia-fabricmanager"}},
		{"mismatch", fake{env: []string{"FAKE_FAIL=cuInit:803"}}, []string{"reboot"}},
		{"compat", fake{env: []string{"FAKE_FAIL=cuInit:804"}}, []string{"forward-compatibility"}},
		{"other", fake{env: []string{"FAKE_FAIL=cuInit:999"}}, []string{"(999)", "nvidia-smi"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.fake.on(t, func(t *testing.T) {
				_, err := New().Devices()
				t.Log(err)
				refused(t, err, c.says...)
			})
		})
	}
}

// The error for a missing function is a dynlib.Error with its fields set.
func TestFakeDriverErrors(t *testing.T) {
	for name, c := range map[string]struct {
		fake fake
		want dynlib.Error
	}{
		"missing function": {fake{cuda: []string{"-DOMIT_cuMemAlloc_v2"}}, dynlib.Error{Library: "libcuda", Symbol: "cuMemAlloc_v2"}},
		"old":              {fake{env: []string{"FAKE_DRIVER=11030"}}, dynlib.Error{Library: "libcuda", Have: "11.3", Need: "11.4"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.fake.on(t, func(t *testing.T) {
				_, err := New().Devices()
				lacks(t, err, c.want)
				_, again := New().Devices()
				if again == nil || again.Error() != err.Error() {
					t.Errorf("asked again: %v, before: %v", again, err)
				}
			})
		})
	}
}

func lacks(t *testing.T, err error, want dynlib.Error) {
	t.Helper()
	var e *dynlib.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no dynlib.Error", err)
	}
	if got := (dynlib.Error{Library: e.Library, Symbol: e.Symbol, Have: e.Have, Need: e.Need}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A driver that fails to initialise may succeed later, for example when the fabric manager has started.
func TestFakeDriverStartsLater(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		devices := func() error { _, err := New().Devices(); return err }
		refused(t, failing(t, "cuInit", 802, devices), "nvidia-fabricmanager")
		check(t, devices())
		check(t, failing(t, "cuInit", 802, devices)) // the library was initialised
	})
}

func TestFakeArchitectures(t *testing.T) {
	for _, c := range []struct {
		env     []string
		engines string
		says    []string
	}{
		{[]string{"FAKE_ARCH=9"}, "[ce sm bulk proxy]", nil},
		{[]string{"FAKE_ARCH=10"}, "[ce sm bulk proxy]", nil},
		{[]string{"FAKE_ARCH=8", "FAKE_DRIVER=11040"}, "[ce sm proxy]", nil},
		{[]string{"FAKE_ARCH=9", "FAKE_DRIVER=11080"}, "", []string{"need a driver for CUDA 12.0", "for 11.8", "update"}},
		{[]string{"FAKE_ARCH=6"}, "", []string{"sm_60", "sm_70 (Volta, 2017) or newer"}},
	} {
		t.Run(strings.Join(c.env, ","), func(t *testing.T) {
			fake{env: c.env}.on(t, func(t *testing.T) {
				dev, err := New().Open(fakeUUID0)
				if c.says != nil {
					refused(t, err, c.says...)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := fmt.Sprint(dev.Engines()); got != c.engines {
					t.Errorf("engines %s, want %s", got, c.engines)
				}
				if g, err := dev.Engine("auto"); err != nil || g.Name() != "ce" {
					t.Errorf("auto: %v, %v", g, err)
				}
				_, err = dev.Engine("warp")
				refused(t, err, "warp", c.engines)
				check(t, dev.Close())
			})
		})
	}
}

func TestFakeJITFailure(t *testing.T) {
	fake{env: []string{"FAKE_JIT_LOG=ptxas: line 7: unknown instruction"}}.on(t, func(t *testing.T) {
		_, err := New().Open(fakeUUID0)
		reports(t, err, "open "+fakeUUID0, "cuModuleLoadDataEx", "(218)", "ptxas: line 7: unknown instruction")
	})
}

func TestFakeAllocRefusesWhatDoesNotFit(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		for _, n := range []uint64{800 << 20, 1 << 62, ^uint64(0)} {
			_, err := r.dev.Alloc(n)
			reports(t, err, fmt.Sprintf("%d bytes", n), "0.8 of 1.0 GiB are free", fakeUUID0)
		}
		if b := r.alloc(0); b.Size() == 0 || b.Addr() == 0 {
			t.Errorf("no memory behind an empty request: %d bytes at %#x", b.Size(), b.Addr())
		}
	})
}

func TestFakeCopyFails(t *testing.T) {
	fake{env: []string{"FAKE_FAIL_BYTES=12345"}}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		b := r.alloc(1 << 20)
		for name, call := range map[string]string{"ce": "cuMemcpyAsync", "sm": "p2p_copy:", "bulk": "p2p_copy_bulk:"} {
			err := r.engine(name).Copy(r.ctx, b.Addr(), b.Addr()+1<<19, 12345)
			reports(t, err, call, "(700)")
			var e *abi.Error
			if !errors.As(err, &e) || e.Native != 700 || !errors.Is(err, abi.ErrDevice) {
				t.Errorf("%s: %#v", name, err)
			}
		}
	})
}

// An engine that copies wrongly is rejected when it is opened.
func TestFakeEngineTriesItself(t *testing.T) {
	fake{env: []string{"FAKE_SPOIL_BYTES=2003"}}.on(t, func(t *testing.T) {
		dev, err := New().Open(fakeUUID0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = dev.Engine("ce")
		reports(t, err, "engine ce: test copy of 2003 bytes is wrong: offset 2002", "(1 bytes wrong)")
		if !errors.Is(err, abi.ErrCorrupt) {
			t.Errorf("%v is not ErrCorrupt", err)
		}
		check(t, dev.Close())
	})
}

// A wait for a copy that never completes ends at the deadline, or when the parent sets the abort flag.
func TestFakeHang(t *testing.T) {
	fake{env: []string{"FAKE_HANG_BYTES=777"}}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		b := r.alloc(1 << 20)
		page, err := abi.NewPage(1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { check(t, page.Close()) }()
		for _, yield := range []bool{false, true} {
			ctx := abi.NewCtx(page, 0, 200*time.Millisecond, yield)
			start := time.Now()
			err = r.engine("sm").Copy(ctx, b.Addr(), b.Addr()+4096, 777)
			if !errors.Is(err, abi.ErrTimeout) || time.Since(start) > 20*time.Second {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			if s := page.Rank(0).Read(); s.Waiting != "the copy engine" {
				t.Errorf("the watchdog sees %q", s)
			}
			ctx.Close()
		}
		ctx := abi.NewCtx(page, 0, time.Hour, false)
		defer ctx.Close()
		page.Rank(0).Abort()
		if err := r.engine("ce").Copy(ctx, b.Addr(), b.Addr()+4096, 777); !errors.Is(err, abi.ErrAborted) {
			t.Error(err)
		}
	})
}

// The self-test of an engine that hangs ends at the rank's deadline, or when the parent sets the abort flag.
func TestFakeHangAtOpening(t *testing.T) {
	for _, name := range []string{"ce", "proxy"} {
		fake{env: []string{"FAKE_HANG_BYTES=2003"}}.on(t, func(t *testing.T) {
			page, err := abi.NewPage(1)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { check(t, page.Close()) }()
			for _, c := range []struct {
				timeout time.Duration
				abort   bool
				want    error
			}{{100 * time.Millisecond, false, abi.ErrTimeout}, {time.Hour, true, abi.ErrAborted}} {
				ctx := abi.NewCtx(page, 0, c.timeout, false)
				dev, err := New().Open(fakeUUID0)
				if err != nil {
					t.Fatal(err)
				}
				dev.(gpu.Waiter).WaitWith(ctx)
				if c.abort {
					page.Rank(0).Abort()
				}
				begin := time.Now()
				if _, err := dev.Engine(name); !errors.Is(err, c.want) || time.Since(begin) > 40*time.Second {
					t.Errorf("%s: after %v: got %v, want %v", name, time.Since(begin), err, c.want)
				}
				_ = dev.Close() // it may fail because of the hanging copy
				ctx.Close()
			}
		})
	}
}

func TestFakePeers(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		drv := New()
		newRig(t, drv, 0)
		err := failing(t, "cuCtxEnablePeerAccess", 999, func() error { _, err := drv.Open(fakeUUID1); return err })
		reports(t, err, "join "+fakeUUID1+" and "+fakeUUID0, "cuCtxEnablePeerAccess", "(999)")
		newRig(t, drv, 1)
		newRig(t, drv, 1) // a device may be opened twice
	})
}

func TestFakeNoPeer(t *testing.T) {
	fake{env: []string{"FAKE_NO_PEER=1", "FAKE_NVLINK=none"}}.on(t, func(t *testing.T) {
		drv := New()
		a, b := newRig(t, drv, 0), newRig(t, drv, 1)
		if l := drv.Link(a.dev.Info(), b.dev.Info()); l != (gpu.Link{Type: "PCIe"}) {
			t.Errorf("%+v", l)
		}
	})
}
