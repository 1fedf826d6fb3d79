package cuda

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda/enginetest"
)

// memory opens memory of that kind until the test ends, and makes the GPU's context current in this thread.
func (r *rig) memory(t testing.TB, kind gpu.HandleKind) *abi.Memory {
	t.Helper()
	m, err := r.dev.Memory(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, m.Close()) })
	if got, why := m.Kind(); got != kind || why != "" {
		t.Errorf("memory asked for as %s is %s, %q", kind, got, why)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	if err := enginetest.Wait(r.ce, r.ctx); err != nil {
		t.Fatal(err)
	}
	return m.Table()
}

func alloc(t testing.TB, m *abi.Memory, n uint64, at uintptr) uintptr {
	t.Helper()
	base, err := m.Alloc(n, at)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

func rangeOf(t testing.TB, m *abi.Memory, p uintptr) abi.Range {
	t.Helper()
	r, err := m.Range(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func invalid(t *testing.T, err error, says ...string) {
	t.Helper()
	if !errors.Is(err, abi.ErrInvalid) {
		t.Errorf("error %v is not ErrInvalid", err)
	}
	reports(t, err, says...)
}

// exported is the data that an exporter passes to an importer.
type exported struct {
	Kind   gpu.HandleKind
	Handle abi.Handle
}

const shareBytes = 4<<20 + 4096

// TestHWMemoryShare exports allocations to another process, which maps them several times, on another GPU if there is
// one, and writes to them with every engine.
func TestHWMemoryShare(t *testing.T) {
	if h := os.Getenv("P2PBENCH_TEST_HANDLE"); h != "" {
		openShared(t, h)
		return
	}
	r := newRig(t, New(), 0)
	for _, kind := range r.handles() {
		t.Run(string(kind), func(t *testing.T) {
			m := r.memory(t, kind)
			base := alloc(t, m, shareBytes, 0)
			r.fill(base, shareBytes, 1, 0)
			h := exportOften(t, m, base)
			x := rangeOf(t, m, base+12345)
			if x.Base != base || x.ID != h.ID || x.Length != h.Length || h.Length < shareBytes || h.Length%abitest.Granule(m) != 0 {
				t.Errorf("range %+v, handle %+v, granule %d", x, h, abitest.Granule(m))
			}
			runImporter(t, exported{kind, h})
			for i := range r.dev.Engines() {
				part := uint64(i) << 20
				r.expect(base+uintptr(part), 1<<20-100, 100+part, "written by the other process's engine %d", i)
			}
			if err := m.Release(base); err != nil {
				t.Fatal(err)
			}
			_, err := m.Export(base)
			invalid(t, err, "export: no allocation", fmt.Sprintf("%#x", base))
		})
	}
}

// exportOften exports several times, logs the time, and checks that the handles are equal.
func exportOften(t *testing.T, m *abi.Memory, base uintptr) abi.Handle {
	t.Helper()
	var last abi.Handle
	var took []time.Duration
	for range 5 {
		start := time.Now()
		h, err := m.Export(base)
		took = append(took, time.Since(start))
		if err != nil {
			t.Fatal(err)
		}
		if (h.FD >= 0) != abitest.FDs(m) || (len(took) > 1 && (h.ID != last.ID || h.Length != last.Length)) {
			t.Errorf("descriptors: %v; handle %+v after %+v", abitest.FDs(m), h, last)
		}
		if last.FD >= 0 && len(took) > 1 {
			check(t, unix.Close(last.FD))
		}
		last = h
	}
	if last.FD >= 0 {
		if flags, err := unix.FcntlInt(uintptr(last.FD), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("the descriptor would be inherited: %d, %v", flags, err)
		}
	}
	t.Logf("export: %v", took)
	return last
}

// runImporter runs this test in another process as the importer. It closes the file descriptor.
func runImporter(t *testing.T, x exported) {
	t.Helper()
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+name+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), "P2PBENCH_TEST_HANDLE="+string(text))
	if x.Handle.FD >= 0 {
		f := os.NewFile(uintptr(x.Handle.FD), "memory")
		defer func() { check(t, f.Close()) }()
		cmd.ExtraFiles = []*os.File{f}
	}
	out, err := cmd.CombinedOutput()
	t.Logf("importer:\n%s", out)
	if err != nil || !strings.Contains(string(out), "importer is done") {
		t.Fatalf("importer: %v", err)
	}
}

func openShared(t *testing.T, text string) {
	var x exported
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		t.Fatal(err)
	}
	if x.Handle.FD >= 0 {
		x.Handle.FD = 3
	}
	drv := New()
	r := newRig(t, drv, min(1, len(visible(t, drv))-1))
	m := r.memory(t, x.Kind)
	var took []time.Duration
	for range 4 {
		start := time.Now()
		base, err := m.Open(x.Handle)
		took = append(took, time.Since(start))
		if err != nil {
			t.Fatal(err)
		}
		r.expect(base, shareBytes, 1, "written by the exporter")
		if err := m.Unmap(base); err != nil {
			t.Fatal(err)
		}
		invalid(t, m.Unmap(base), "close: nothing that was opened", fmt.Sprintf("%#x", base))
	}
	t.Logf("open on GPU %d: %v", r.dev.Info().Index, took)
	base, err := m.Open(x.Handle)
	if err != nil {
		t.Fatal(err)
	}
	openAgain(t, r, m, x.Handle, base)
	writeShared(r, base)
	_, err = m.Export(base)
	invalid(t, err, "export: no allocation")
	invalid(t, m.Release(base), "release: no allocation")
	refuseHandles(t, m, x.Handle)
	if abitest.FDs(m) {
		if _, err := unix.FcntlInt(3, unix.F_GETFD, 0); err != nil {
			t.Errorf("opening took the caller's descriptor: %v", err)
		}
	}
	fmt.Println("importer is done") // base is still mapped: closing the memory unmaps it
}

// openAgain opens a handle that is already mapped: for a legacy handle, drivers either reject that or count the
// mappings.
func openAgain(t *testing.T, r *rig, m *abi.Memory, h abi.Handle, base uintptr) {
	t.Helper()
	again, err := m.Open(h)
	if err != nil {
		t.Logf("opened again while mapped: %v", err)
		if abitest.FDs(m) || !errors.Is(err, abi.ErrDevice) {
			t.Error(err)
		}
		reports(t, err, "cuIpcOpenMemHandle_v2")
		return
	}
	t.Logf("opened again while mapped: same address %v", again == base)
	r.expect(again, shareBytes, 1, "through the second mapping")
	check(t, m.Unmap(again))
	r.expect(base, shareBytes, 1, "through the first mapping, the second is closed")
}

// refuseHandles opens invalid handles of this kind.
func refuseHandles(t *testing.T, m *abi.Memory, h abi.Handle) {
	t.Helper()
	for what, spoil := range map[string]func(h *abi.Handle){
		"kind":       func(h *abi.Handle) { h.Kind++ },
		"zero":       func(h *abi.Handle) { *h = abi.Handle{} },
		"length":     func(h *abi.Handle) { h.Length = 0 },
		"descriptor": func(h *abi.Handle) { h.FD = -1 },
	} {
		bad := h
		spoil(&bad)
		if what == "descriptor" && !abitest.FDs(m) {
			continue
		}
		_, err := m.Open(bad)
		invalid(t, err, "open: not a handle of kind")
	}
}

func writeShared(r *rig, base uintptr) {
	src := r.alloc(1 << 20)
	for i, name := range r.dev.Engines() {
		part := uint64(i) << 20
		r.fill(src.Addr(), 1<<20-100, 100+part, 0)
		r.copy(r.engine(name), base+uintptr(part), src.Addr(), 1<<20-100)
	}
}

// A process that opens its own legacy handle gets an error that explains the cause, or the same memory if the driver
// permits it.
func TestHWMemoryOpenOwn(t *testing.T) {
	r := newRig(t, New(), 0)
	m := r.memory(t, gpu.HandleLegacy)
	const n, key = 1 << 12, 7
	own := alloc(t, m, n, 0)
	h, err := m.Export(own)
	if err != nil {
		t.Fatal(err)
	}
	base, err := m.Open(h)
	t.Logf("%#x, %v", base, err)
	if err == nil {
		r.fill(own, n, key, 0)
		r.expect(base, n, key, "the mapping of its own handle")
		check(t, m.Unmap(base))
		return
	}
	reports(t, err, "cuIpcOpenMemHandle_v2", "did this process export it", "only be opened in other processes")
}

// TestHWMemoryRange allocates and releases: ranges are up to date, and no ID is reused.
func TestHWMemoryRange(t *testing.T) {
	r := newRig(t, New(), 0)
	for _, kind := range r.handles() {
		t.Run(string(kind), func(t *testing.T) {
			m := r.memory(t, kind)
			seen := map[uint64]bool{}
			var at uintptr
			sameAddress := 0
			for i := range uint64(20) {
				n := 1 + i*abitest.Granule(m)/3
				base := alloc(t, m, n, at)
				x := rangeOf(t, m, base)
				if x.Base != base || x.Length < n || x.Length%abitest.Granule(m) != 0 || seen[x.ID] {
					t.Fatalf("%d bytes at %#x: %+v, known ids %v", n, base, x, seen)
				}
				seen[x.ID] = true
				for _, p := range []uintptr{base + 1, base + uintptr(x.Length)/2, base + uintptr(x.Length) - 1} {
					if got := rangeOf(t, m, p); got != x {
						t.Errorf("range around %#x: %+v, want %+v", p, got, x)
					}
				}
				invalid(t, m.Release(base+1), "release: no allocation")
				if err := m.Release(base); err != nil {
					t.Fatal(err)
				}
				if _, err := m.Range(base); err == nil {
					t.Error("released memory has a range")
				}
				invalid(t, m.Release(base), "release: no allocation", fmt.Sprintf("%#x", base))
				if base == at {
					sameAddress++
				}
				at = base
			}
			t.Logf("%d of 20 came at the address of the one before", sameAddress)
			unused, err := abitest.Unused(m)
			if err != nil || unused == 0 || unused > r.dev.Info().Memory {
				t.Errorf("%d bytes unused, %v", unused, err)
			}
			_, err = m.Alloc(^uint64(0), 0)
			invalid(t, err, "exceeds the address space")
		})
	}
}

// TestHWMemoryAddress requests addresses: the one of a released allocation, and one within it.
func TestHWMemoryAddress(t *testing.T) {
	r := newRig(t, New(), 0)
	for _, kind := range r.handles() {
		if kind == gpu.HandleLegacy {
			continue // the address is not used
		}
		t.Run(string(kind), func(t *testing.T) {
			m := r.memory(t, kind)
			n := 4 * abitest.Granule(m)
			first := alloc(t, m, n, 0)
			id := rangeOf(t, m, first).ID
			taken := alloc(t, m, n, first) // not free: placed elsewhere
			if taken == first {
				t.Fatal("two allocations at one address")
			}
			check(t, m.Release(taken))
			check(t, m.Release(first))
			for _, want := range []uintptr{first, first + uintptr(abitest.Granule(m))} {
				base := alloc(t, m, n, want)
				t.Logf("asked for %#x, got it: %v", want, base == want)
				x := rangeOf(t, m, base)
				if x.Base != base || x.Length != n || x.ID == id {
					t.Errorf("%+v, the one before had id %d", x, id)
				}
				id = x.ID
				r.fill(base, n, id, 0)
				r.expect(base, n, id, "memory at %#x", base)
				check(t, m.Release(base))
			}
		})
	}
}

// TestHWMemoryTables opens several tables: each knows only its own allocations.
func TestHWMemoryTables(t *testing.T) {
	r := newRig(t, New(), 0)
	a, b := r.memory(t, gpu.HandleLegacy), r.memory(t, gpu.HandleLegacy)
	base := alloc(t, a, 1, 0)
	r.fill(base, abitest.Granule(a), 5, 0)
	invalid(t, b.Release(base), "release: no allocation")
	other, err := r.dev.Memory(gpu.HandleAuto)
	if err != nil {
		t.Fatal(err)
	}
	if kind, why := other.Kind(); kind != gpu.HandleLegacy || why == "" {
		t.Errorf("auto is %s, %q", kind, why)
	}
	alloc(t, other.Table(), 1, 0)
	check(t, other.Close())
	check(t, other.Close())
	r.expect(base, abitest.Granule(a), 5, "after another table was closed")
	check(t, a.Release(base))
}

// TestHWMemoryPin copies from a GPU to CPU memory that processes share, and back.
func TestHWMemoryPin(t *testing.T) {
	r := newRig(t, New(), 0)
	m := r.memory(t, gpu.HandleLegacy)
	const n = 8 << 20
	fd, err := unix.MemfdCreate("pinned", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { check(t, unix.Close(fd)) }()
	check(t, unix.Ftruncate(fd, n))
	host, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { check(t, unix.Munmap(host)) }()
	dst, src := r.alloc(n), r.alloc(n)
	for round := range 2 { // pinned a second time
		start := time.Now()
		if err := m.Pin(address(host), n); err != nil {
			t.Fatal(err)
		}
		t.Logf("pinned %d MiB in %v", n>>20, time.Since(start))
		for i, name := range append(r.dev.Engines(), "ce:2") {
			g, key := r.engine(name), abitest.PayloadKey(uint64(round), n, uint64(i), 0)
			r.fill(src.Addr(), n, key, 0)
			r.fill(dst.Addr(), n, key+1, 0)
			r.copy(g, address(host), src.Addr(), n)
			for _, o := range []uint64{0, 1, n / 2, n - 1} {
				if want := abitest.PayloadByte(key, o); host[o] != want {
					t.Fatalf("%s to CPU memory: %s", name, differs(int(o), want, host[o]))
				}
			}
			r.copy(g, dst.Addr(), address(host), n)
			r.expect(dst.Addr(), n, key, "%s from CPU memory", name)
		}
		if err := m.Pin(address(host), n); err == nil {
			t.Error("pinned twice")
		} else {
			reports(t, err, "cuMemHostRegister_v2")
		}
		if err := m.Unpin(address(host)); err != nil {
			t.Fatal(err)
		}
		invalid(t, m.Unpin(address(host)), "unpin: nothing that was pinned", fmt.Sprintf("%#x", address(host)))
	}
}

// TestHWFabric: fabric handles work, or the error names the missing requirement.
func TestHWFabric(t *testing.T) {
	r := newRig(t, New(), 0)
	listed := slices.Contains(r.handles(), gpu.HandleFabric)
	check(t, r.drv.Accepts(r.dev.Info(), "ce", gpu.HandleFabric))
	m, err := r.dev.Memory(gpu.HandleFabric)
	if err != nil {
		t.Log(err)
		refused(t, err, "fabric", "IMEX channel", "/dev/nvidia-caps-imex-channels", "nvidia-imex")
		if listed {
			t.Error("fabric is listed and does not work")
		}
		return
	}
	if !listed {
		t.Error("fabric works and is not listed")
	}
	base := alloc(t, m.Table(), 1, 0)
	h, err := m.Table().Export(base)
	if err != nil || h.FD != -1 || h.Opaque == [64]byte{} {
		t.Errorf("%+v, %v", h, err)
	}
	check(t, m.Close())
}

func TestHWReaches(t *testing.T) {
	drv := New()
	list := visible(t, drv)
	r := newRig(t, drv, 0)
	for _, other := range list {
		if got, want := r.dev.Reaches(other), drv.Link(r.dev.Info(), other).Peer; got != want {
			t.Errorf("reaches %s: %v, and the link says %v", other.UUID, got, want)
		}
		if l := drv.Link(r.dev.Info(), other); (l.Type != "PCIe") != (r.dev.StoresLines(other) == nil) {
			t.Errorf("lines to %s: %v, and the link says %+v", other.UUID, r.dev.StoresLines(other), l)
		}
	}
	gone, host := list[0], list[0]
	gone.UUID = "GPU-of-another-container"
	host.Kind = "host"
	if r.dev.Reaches(gone) || r.dev.Reaches(host) {
		t.Error("reaches a GPU that this process does not see, or CPU memory")
	}
}
