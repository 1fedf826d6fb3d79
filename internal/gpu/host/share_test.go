package host

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
)

// openMemory opens a memory table, and closes it when the test ends.
func openMemory(tb testing.TB) *abi.Memory {
	tb.Helper()
	m, err := (&device{}).Memory(gpu.HandleAuto)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	return m.Table()
}

func allocate(tb testing.TB, m *abi.Memory, n uint64, at uintptr) uintptr {
	tb.Helper()
	base, err := m.Alloc(n, at)
	if err != nil {
		tb.Fatal(err)
	}
	return base
}

func rangeOf(tb testing.TB, m *abi.Memory, p uintptr) abi.Range {
	tb.Helper()
	r, err := m.Range(p)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func bytesAt(a uintptr, n uint64) []byte { return unsafe.Slice((*byte)(abi.Pointer(a)), n) }

// mappings counts this process's mappings of memory that p2pbench made.
func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "/memfd:p2pbench")
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestMemoryKinds(t *testing.T) {
	d := &device{}
	for kind, why := range map[gpu.HandleKind]string{
		gpu.HandleMemFD: "", gpu.HandleAuto: "the only kind of CPU memory",
	} {
		m, err := d.Memory(kind)
		if err != nil {
			t.Fatal(err)
		}
		if k, w := m.Kind(); k != gpu.HandleMemFD || w != why {
			t.Errorf("%s: %q because %q, want %q because %q", kind, k, w, gpu.HandleMemFD, why)
		}
		if !abitest.FDs(m.Table()) || abitest.Granule(m.Table()) != uint64(os.Getpagesize()) {
			t.Errorf("%s: descriptors %v, granule %d", kind, abitest.FDs(m.Table()), abitest.Granule(m.Table()))
		}
		for range 2 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := d.Memory(gpu.HandleVMM); !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), "memfd") {
		t.Errorf("a handle that CPU memory has not: %v, want the kinds that it has", err)
	}
}

func TestReaches(t *testing.T) {
	d := &device{info: gpu.Info{Kind: Kind, UUID: "host-0"}}
	if !d.Reaches(gpu.Info{Kind: Kind, UUID: "host-1", NUMA: 1}) {
		t.Error("a CPU does not reach the memory of another node")
	}
	if d.Reaches(gpu.Info{Kind: "cuda", UUID: "GPU-0"}) {
		t.Error("a CPU reaches GPU memory")
	}
}

// Every allocation has at least the requested size, in whole pages.
func TestMemoryAlloc(t *testing.T) {
	m := openMemory(t)
	page := abitest.Granule(m)
	for n, want := range map[uint64]uint64{0: page, 1: page, page: page, page + 1: 2 * page, 1<<20 + 1: 1<<20 + page} {
		base := allocate(t, m, n, 0)
		if r := rangeOf(t, m, base); r.Base != base || r.Length != want {
			t.Errorf("%d bytes: %+v, want %d at %#x", n, r, want, base)
		}
		b := bytesAt(base, want)
		b[0], b[want-1] = 1, 2
		if err := m.Release(base); err != nil {
			t.Error(err)
		}
	}
}

// An allocation is at the requested address if that is free, otherwise elsewhere; it never overwrites another mapping.
func TestMemoryAllocAt(t *testing.T) {
	m := openMemory(t)
	const n = 1 << 20
	first := allocate(t, m, n, 0)
	old := rangeOf(t, m, first)
	bytesAt(first, n)[n/2] = 77
	for _, at := range []uintptr{first, first + uintptr(abitest.Granule(m)), first + 1, 1, math.MaxUint64 &^ 4095} {
		other := allocate(t, m, n, at)
		if other == at {
			t.Errorf("memory at %#x, which is taken or none", at)
		}
		bytesAt(other, n)[n/2] = 1
		if err := m.Release(other); err != nil {
			t.Error(err)
		}
	}
	if bytesAt(first, n)[n/2] != 77 {
		t.Error("another allocation wrote over the first")
	}
	if err := m.Release(first); err != nil {
		t.Fatal(err)
	}
	again := allocate(t, m, n, first)
	if again != first {
		t.Fatalf("memory at %#x, want it at %#x, which was just released", again, first)
	}
	if bytesAt(again, n)[n/2] != 0 {
		t.Error("the memory released before is back")
	}
	if r := rangeOf(t, m, again); r.ID == old.ID {
		t.Errorf("the id %d names two allocations", r.ID)
	}
}

// A mapping of a handle is the same memory, and remains valid after the allocation is released.
func TestMemoryExportAndOpen(t *testing.T) {
	m := openMemory(t)
	const n = 3 << 12
	base := allocate(t, m, n, 0)
	h, err := m.Export(base)
	if err != nil {
		t.Fatal(err)
	}
	if r := rangeOf(t, m, base); h.ID != r.ID || h.Length != n || h.Length != r.Length || h.FD < 0 {
		t.Errorf("handle %+v of %+v", h, r)
	}
	mapped, err := m.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(h.FD); err != nil { // the test still owns it
		t.Fatal(err)
	}
	bytesAt(base, n)[n-1] = 42
	if mapped == base || bytesAt(mapped, n)[n-1] != 42 {
		t.Error("what one wrote the other does not see")
	}
	if r, err := m.Range(mapped); !errors.Is(err, abi.ErrInvalid) {
		t.Errorf("another's memory is an allocation of this process: %+v, %v", r, err)
	}
	if err := m.Release(base); err != nil {
		t.Fatal(err)
	}
	if bytesAt(mapped, n)[n-1] != 42 {
		t.Error("the memory left with its first owner")
	}
	if err := m.Unmap(mapped); err != nil {
		t.Fatal(err)
	}
}

// A peer that has mapped the memory cannot shrink it.
func TestMemorySealed(t *testing.T) {
	m := openMemory(t)
	h, err := m.Export(allocate(t, m, 1<<16, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(h.FD) }()
	for _, size := range []int64{0, 4096, 1 << 20} {
		if err := unix.Ftruncate(h.FD, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("to %d bytes: %v, want %v", size, err, unix.EPERM)
		}
	}
}

// Every address of every allocation is found, also among many that are allocated and released; addresses between them
// are not.
func TestMemoryRange(t *testing.T) {
	m := openMemory(t)
	page := uintptr(abitest.Granule(m))
	type piece struct{ base, length uintptr }
	var live []piece
	for i := range uintptr(900) { // below every machine's limit of file descriptors
		length := (1 + i%3) * page
		live = append(live, piece{allocate(t, m, uint64(length), 0), length})
	}
	// Releases every third.
	for i := len(live) - 1; i >= 0; i -= 3 {
		if err := m.Release(live[i].base); err != nil {
			t.Fatal(err)
		}
		if r, err := m.Range(live[i].base); !errors.Is(err, abi.ErrInvalid) {
			t.Fatalf("released, yet found: %+v, %v", r, err)
		}
		live = append(live[:i], live[i+1:]...)
	}
	ids := map[uint64]bool{}
	for _, p := range live {
		var id uint64
		for _, at := range []uintptr{0, 1, p.length / 2, p.length - 1} {
			r := rangeOf(t, m, p.base+at)
			if r.Base != p.base || uintptr(r.Length) != p.length {
				t.Fatalf("+%d of %#x, %d bytes: %+v", at, p.base, p.length, r)
			}
			id = r.ID
		}
		if ids[id] {
			t.Fatalf("id %d names two allocations", id)
		}
		ids[id] = true
	}
	for _, p := range []uintptr{0, 1, page, at(make([]byte, 8))} {
		if r, err := m.Range(p); !errors.Is(err, abi.ErrInvalid) {
			t.Errorf("%#x: %+v, %v", p, r, err)
		}
	}
}

// IDs identify allocations of the process, not of one table.
func TestMemoryIDsAcrossTables(t *testing.T) {
	a, b := openMemory(t), openMemory(t)
	if x, y := rangeOf(t, a, allocate(t, a, 1, 0)), rangeOf(t, b, allocate(t, b, 1, 0)); x.ID == y.ID {
		t.Errorf("%+v and %+v share an id", x, y)
	}
}

func TestMemoryRefuses(t *testing.T) {
	m := openMemory(t)
	base := allocate(t, m, 8192, 0)
	h, err := m.Export(base)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(h.FD) }()
	mapped, err := m.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	changed := func(f func(*abi.Handle)) error {
		c := h
		f(&c)
		_, err := m.Open(c)
		return err
	}
	_, exported := m.Export(base + 4096)
	_, foreign := m.Export(mapped)
	_, huge := m.Alloc(math.MaxUint64, 0)
	_, large := m.Alloc(1<<62, 0)
	before := mappings(t)
	for name, c := range map[string]struct {
		err   error
		class error
		want  string
	}{
		"release inside":       {m.Release(base + 4096), abi.ErrInvalid, "no allocation begins at"},
		"release what is none": {m.Release(4096), abi.ErrInvalid, "no allocation begins at 0x1000"},
		"release a mapping":    {m.Release(mapped), abi.ErrInvalid, "no allocation begins at"},
		"close an allocation":  {m.Unmap(base), abi.ErrInvalid, "nothing that was opened begins at"},
		"export inside":        {exported, abi.ErrInvalid, "no allocation of this process begins at"},
		"export a mapping":     {foreign, abi.ErrInvalid, "no allocation of this process begins at"},
		"too many bytes":       {huge, abi.ErrInvalid, "exceeds the address space"},
		"more than fit":        {large, abi.ErrDevice, "mmap, 4611686018427387904 bytes"},
		"open too much":        {changed(func(h *abi.Handle) { h.Length = 8193 }), abi.ErrInvalid, "the memory has 8192 bytes, the handle says 8193"},
		"open beyond measure":  {changed(func(h *abi.Handle) { h.Length = math.MaxUint64 }), abi.ErrInvalid, "the memory has 8192 bytes, the handle says 1844"},
		"open nothing":         {changed(func(h *abi.Handle) { h.Length = 0 }), abi.ErrInvalid, "not a handle of CPU memory"},
		"open another kind":    {changed(func(h *abi.Handle) { h.Kind = 99 }), abi.ErrInvalid, "not a handle of CPU memory"},
		"open without":         {changed(func(h *abi.Handle) { h.FD = -1 }), abi.ErrInvalid, "not a handle of CPU memory"},
		"open a closed one":    {changed(func(h *abi.Handle) { h.FD = 1 << 20 }), abi.ErrDevice, "Bad file descriptor (9)"},
	} {
		if !errors.Is(c.err, c.class) || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
	if after := mappings(t); after != before {
		t.Errorf("%d mappings before, %d after", before, after)
	}
	if err := m.Unmap(mapped); err != nil {
		t.Error(err)
	}
	if err := m.Unmap(mapped); !errors.Is(err, abi.ErrInvalid) {
		t.Errorf("closed twice: %v", err)
	}
}

// A loop that allocates, exports, maps and releases leaves no mapping or descriptor open.
func TestMemoryRoundsLeaveNothing(t *testing.T) {
	m := openMemory(t)
	fds, maps := descriptors(t), mappings(t)
	for i := range 10000 {
		base := allocate(t, m, 1<<12, 0)
		h, err := m.Export(base)
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		mapped, err := m.Open(h)
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := errors.Join(unix.Close(h.FD), m.Unmap(mapped), m.Release(base)); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	if f, n := descriptors(t), mappings(t); f != fds || n != maps {
		t.Errorf("%d descriptors and %d mappings before, %d and %d after", fds, maps, f, n)
	}
}

// Closing the table releases what a failed loop has left open.
func TestMemoryCloseReleasesTheRest(t *testing.T) {
	fds, maps := descriptors(t), mappings(t)
	m, err := (&device{}).Memory(gpu.HandleMemFD)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		h, err := m.Table().Export(allocate(t, m.Table(), 1<<14, 0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = m.Table().Open(h); err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(h.FD); err != nil {
			t.Fatal(err)
		}
	}
	if f, n := descriptors(t), mappings(t); f != fds+100 || n != maps+200 {
		t.Errorf("%d descriptors and %d mappings for 100 allocations", f-fds, n-maps)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if f, n := descriptors(t), mappings(t); f != fds || n != maps {
		t.Errorf("%d descriptors and %d mappings before, %d and %d after", fds, maps, f, n)
	}
}

func TestMemoryPin(t *testing.T) {
	m := openMemory(t)
	page := make([]byte, os.Getpagesize())
	if err := errors.Join(m.Pin(at(page), uint64(len(page))), m.Unpin(at(page))); err != nil {
		t.Errorf("CPU memory is in the CPU's reach without more: %v", err)
	}
}

// Unused agrees with /proc/meminfo. Both change, so the test reads them until they agree.
func TestMemoryUnused(t *testing.T) {
	m := openMemory(t)
	var got, want uint64
	for range 1000 {
		var err error
		if got, err = abitest.Unused(m); err != nil {
			t.Fatal(err)
		}
		if want, err = memAvailable("/proc/meminfo"); err != nil {
			t.Fatal(err)
		}
		if max(got, want)-min(got, want) < 16<<20 {
			return
		}
	}
	t.Errorf("%d bytes unused, the kernel says %d", got, want)
}

const fewFiles = "P2PBENCH_TEST_FEW_FILES"

// Without free descriptors, the error names the limit, and existing memory remains usable.
func TestMemoryOutOfDescriptors(t *testing.T) {
	if os.Getenv(fewFiles) != "" {
		outOfDescriptors(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), fewFiles+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

// outOfDescriptors runs in a separate process, whose limit it lowers.
func outOfDescriptors(t *testing.T) {
	limit := uint64(descriptors(t) + 20)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	m := openMemory(t)
	var bases []uintptr
	var refused error
	for range limit + 1 {
		base, err := m.Alloc(4096, 0)
		if err != nil {
			refused = err
			break
		}
		bases = append(bases, base)
	}
	if refused == nil || len(bases) == 0 {
		t.Fatalf("%d allocations under a limit of %d descriptors, %v", len(bases), limit, refused)
	}
	_, unexportable := m.Export(bases[0])
	for what, err := range map[string]error{"alloc": refused, "export": unexportable} {
		var e *abi.Error
		if !errors.As(err, &e) || e.Native != int(unix.EMFILE) || !strings.Contains(e.Text, "ulimit -n") {
			t.Errorf("%s: %v, want EMFILE and what to do about it", what, err)
		}
	}
	if err := m.Release(bases[0]); err != nil {
		t.Error(err)
	}
	if _, err := m.Alloc(4096, 0); err != nil {
		t.Errorf("with a descriptor free again: %v", err)
	}
}

func BenchmarkMemoryRange(b *testing.B) {
	for _, n := range []int{1, 1024} {
		b.Run(fmt.Sprintf("allocations=%d", n), func(b *testing.B) {
			m := openMemory(b)
			bases := make([]uintptr, n)
			for i := range bases {
				bases[i] = allocate(b, m, 4096, 0)
			}
			i := 0
			for b.Loop() {
				if _, err := m.Range(bases[i*7919%n] + 100); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
