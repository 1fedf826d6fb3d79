package cuda

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda/enginetest"
)

// failing makes one function of the fake driver fail while f runs.
func failing(t *testing.T, name string, code int, f func() error) error {
	t.Helper()
	// The fake keeps the current context of the thread when binding is what fails.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t.Setenv("FAKE_FAIL", fmt.Sprintf("%s:%d", name, code))
	err := f()
	if err := os.Unsetenv("FAKE_FAIL"); err != nil {
		t.Fatal(err)
	}
	return err
}

// releasing releases an allocation, if there is one.
func releasing(t *testing.T, m *abi.Memory, base uintptr, err error) error {
	if err == nil {
		check(t, m.Release(base))
	}
	return err
}

// unmapping unmaps a mapping, if there is one.
func unmapping(t *testing.T, m *abi.Memory, base uintptr, err error) error {
	if err == nil {
		check(t, m.Unmap(base))
	}
	return err
}

// closingFD exports and closes the descriptor.
func closingFD(t *testing.T, m *abi.Memory, base uintptr) error {
	h, err := m.Export(base)
	if err == nil {
		check(t, unix.Close(h.FD))
	}
	return err
}

// Every failure names its call, and everything is released, which fake.on checks.
func TestFakeFailures(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		r := newRig(t, New(), 0)
		b, big := r.alloc(1<<20), r.alloc(4<<20)
		closing := func(c interface{ Close() error }, err error) error {
			if err == nil {
				check(t, c.Close())
			}
			return err
		}
		openDevice := func() error { d, err := New().Open(fakeUUID1); return closing(d, err) }
		openEngine := func() error { g, err := r.dev.Engine("bulk"); return closing(g, err) }
		openProxy := func() error { g, err := r.dev.Engine("proxy"); return closing(g, err) }
		plain := func() error { b, err := r.dev.Alloc(1); return closing(b, err) }
		record := func() error { return enginetest.Record(r.ce, b.Addr(), b.Addr()+512, 100, 128, 2) }
		launch := func() error { return enginetest.Launch(r.ce, r.ctx) }
		check(t, record())
		legacyTable, vmmTable := r.memory(t, gpu.HandleLegacy), r.memory(t, gpu.HandleVMM)
		legacyBase, vmmBase := alloc(t, legacyTable, 1, 0), alloc(t, vmmTable, 1, 0)
		host := hostBytes(t, 4096)
		openSplit := func() error { g, err := r.dev.Engine("ce:2"); return closing(g, err) }
		openVMM := func() error { m, err := r.dev.Memory(gpu.HandleVMM); return closing(m, err) }
		allocLegacy := func() error { base, err := legacyTable.Alloc(1, 0); return releasing(t, legacyTable, base, err) }
		allocVMM := func() error { base, err := vmmTable.Alloc(1, 0); return releasing(t, vmmTable, base, err) }
		rangeLegacy := func() error { _, err := legacyTable.Range(legacyBase); return err }
		exportLegacy := func() error { _, err := legacyTable.Export(legacyBase); return err }
		exportVMM := func() error { return closingFD(t, vmmTable, vmmBase) }
		h, err := vmmTable.Export(vmmBase)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { check(t, unix.Close(h.FD)) }()
		mapVMM := func() error { base, err := vmmTable.Open(h); return unmapping(t, vmmTable, base, err) }
		pin := func() error {
			err := legacyTable.Pin(address(host), 4096)
			if err == nil {
				check(t, legacyTable.Unpin(address(host)))
			}
			return err
		}
		unused := func() error { _, err := abitest.Unused(vmmTable); return err }
		mark := func() error { return enginetest.Mark(r.ce, 0) }
		reached := func() error { check(t, mark()); _, err := enginetest.Reached(r.ce, 0); return err }
		cut := r.engine("ce:2")
		fillAndCut := func() error {
			check(t, enginetest.Wait(cut, r.ctx))
			check(t, enginetest.Fill(cut, r.ctx, big.Addr(), 2<<20, 1))
			return enginetest.Start(cut, []enginetest.Copy{{Dst: big.Addr(), Src: big.Addr() + 2<<20, N: 2 << 20}})
		}
		for _, c := range []struct {
			function string
			do       func() error
		}{
			{"cuDeviceGetCount", openDevice},
			{"cuDeviceGet", openDevice},
			{"cuDeviceGetAttribute", openDevice},
			{"cuDevicePrimaryCtxRetain", openDevice},
			{"cuCtxSetCurrent", openDevice},
			{"cuModuleLoadDataEx", openDevice},
			{"cuModuleGetFunction", openDevice},
			{"cuFuncSetAttribute", openDevice},
			{"cuStreamCreate", openEngine},
			{"cuMemAlloc_v2", openEngine},
			{"cuMemHostAlloc", openEngine},
			{"cuLaunchKernel", openEngine},
			{"cuMemcpyAsync", openEngine},
			{"cuStreamQuery", openEngine},
			{"cuStreamCreateWithPriority", openProxy},
			{"cuMemAlloc_v2", openProxy},
			{"cuMemHostAlloc", openProxy},
			{"cuLaunchKernel", openProxy},
			{"cuMemcpyAsync", openProxy},
			{"cuStreamQuery", openProxy},
			{"cuMemGetInfo_v2", plain},
			{"cuMemAlloc_v2", plain},
			{"cuCtxSetCurrent", plain},
			{"cuStreamBeginCapture_v2", record},
			{"cuGraphInstantiateWithFlags", record},
			{"cuGraphLaunch", launch},
			{"cuStreamCreate", openSplit},
			{"cuEventCreate", openEngine},
			{"cuEventCreate", openSplit},
			{"cuEventRecord", mark},
			{"cuEventQuery", reached},
			{"cuEventRecord", fillAndCut},
			{"cuStreamWaitEvent", fillAndCut},
			{"cuMemGetAllocationGranularity", openVMM},
			{"cuMemAlloc_v2", allocLegacy},
			{"cuMemCreate", allocVMM},
			{"cuMemMap", allocVMM},
			{"cuMemAddressReserve", allocVMM},
			{"cuMemSetAccess", allocVMM},
			{"cuMemGetAddressRange_v2", rangeLegacy},
			{"cuPointerGetAttribute", rangeLegacy},
			{"cuIpcGetMemHandle", exportLegacy},
			{"cuPointerGetAttribute", exportLegacy},
			{"cuMemExportToShareableHandle", exportVMM},
			{"cuMemImportFromShareableHandle", mapVMM},
			{"cuMemAddressReserve", mapVMM},
			{"cuMemMap", mapVMM},
			{"cuMemSetAccess", mapVMM},
			{"cuMemHostRegister_v2", pin},
			{"cuMemGetInfo_v2", unused},
			{"cuCtxSetCurrent", exportVMM},
			{"cuCtxSetCurrent", launch},
		} {
			err := failing(t, c.function, 2, c.do)
			if c.function == "cuDeviceGetCount" {
				refused(t, err, "no device")
				continue
			}
			reports(t, err, c.function, "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory")
			check(t, c.do())
		}
		refused(t, failing(t, "cuMemGetAllocationGranularity", 801, openVMM), "cuMemGetAllocationGranularity")
	})
}

// Close works in any order, twice, and with objects still open.
func TestFakeClose(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		drv := New()
		dev, err := drv.Open(fakeUUID0)
		if err != nil {
			t.Fatal(err)
		}
		var parts []interface{ Close() error }
		for _, name := range []string{"ce", "sm:2", "bulk", "proxy:1", "ce:5"} {
			g, err := dev.Engine(name)
			if err != nil {
				t.Fatal(err)
			}
			if g.Name() != name {
				t.Errorf("engine %s is called %s", name, g.Name())
			}
			parts = append(parts, g)
		}
		b, err := dev.Alloc(1)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dev.Memory(gpu.HandleVMM)
		if err != nil {
			t.Fatal(err)
		}
		alloc(t, m.Table(), 1, 0)
		parts = append(parts, b, m)
		check(t, parts[0].Close())
		check(t, parts[0].Close())
		check(t, dev.Close())
		check(t, dev.Close())
		for _, p := range parts {
			check(t, p.Close())
		}
		if b.Addr() != 0 || b.Size() != 0 {
			t.Error("a closed buffer has an address")
		}
		for what, f := range map[string]func() error{
			"Alloc":  func() error { _, err := dev.Alloc(1); return err },
			"Engine": func() error { _, err := dev.Engine("ce"); return err },
			"Free":   func() error { _, err := dev.Free(); return err },
			"Memory": func() error { _, err := dev.Memory(gpu.HandleAuto); return err },
		} {
			if f() == nil {
				t.Errorf("%s works on a closed device", what)
			}
		}
		again, err := drv.Open(fakeUUID0)
		if err != nil {
			t.Fatal(err)
		}
		check(t, again.Close())
	})
}
