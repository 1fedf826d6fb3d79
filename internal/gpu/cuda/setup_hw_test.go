package cuda

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// The TestHW tests and BenchmarkHW need a GPU. Without one they are skipped, or fail if P2PBENCH_REQUIRE names cuda.
// TestFakeRunsHardwareTests runs them on the fake driver.

// rig is an opened GPU with a context.
type rig struct {
	t   testing.TB
	drv *Driver
	dev gpu.Device
	ctx *abi.Ctx
	ce  *abi.Engine
}

// visible lists the GPUs, or ends the test.
func visible(t testing.TB, drv *Driver) []gpu.Info {
	t.Helper()
	list, err := drv.Devices()
	switch {
	case err == nil:
		return list
	case strings.Contains(os.Getenv("P2PBENCH_REQUIRE"), "cuda"):
		t.Fatalf("P2PBENCH_REQUIRE asks for cuda: %v", err)
	default:
		t.Skip(err)
	}
	return nil
}

// newRig opens the GPU of that index, or ends the test. drv may be shared between rigs.
func newRig(t testing.TB, drv *Driver, index int) *rig {
	t.Helper()
	list := visible(t, drv)
	if index >= len(list) {
		t.Skipf("%d GPUs here, number %d is needed", len(list), index)
	}
	dev, err := drv.Open(list[index].UUID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, dev.Close()) })
	page, err := abi.NewPage(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, page.Close()) })
	r := &rig{t: t, drv: drv, dev: dev, ctx: abi.NewCtx(page, 0, time.Minute, false)}
	t.Cleanup(r.ctx.Close)
	r.ce = r.engine("ce")
	return r
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func (r *rig) engine(name string) *abi.Engine {
	r.t.Helper()
	g, err := r.dev.Engine(name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { check(r.t, g.Close()) })
	return g.Table()
}

// engines names all engines, with and without limits.
func (r *rig) engines() []string {
	names := r.dev.Engines()
	for _, n := range names {
		names = append(names, n+":3")
	}
	return names
}

// handles names the kinds of handle that this GPU supports.
func (r *rig) handles() []gpu.HandleKind { return r.dev.(*Device).handles() }

func (r *rig) alloc(n uint64) gpu.Buffer {
	r.t.Helper()
	b, err := r.dev.Alloc(n)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { check(r.t, b.Close()) })
	return b
}

// need skips the test unless the GPU has that much free memory.
func (r *rig) need(bytes uint64) {
	r.t.Helper()
	free, err := r.dev.Free()
	if err != nil {
		r.t.Fatal(err)
	}
	if free < bytes {
		r.t.Skipf("%.1f GiB free, %.1f needed", gib(free), gib(bytes))
	}
}

func (r *rig) fill(p uintptr, n, key, step uint64) {
	r.t.Helper()
	if err := r.ce.Fill(r.ctx, p, n, key, step); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) copy(g *abi.Engine, dst, src uintptr, n uint64) {
	r.t.Helper()
	if err := g.Copy(r.ctx, dst, src, n); err != nil {
		r.t.Fatal(err)
	}
}

// mismatch checks n bytes at p.
func (r *rig) mismatch(p uintptr, n, key, step uint64) abi.Mismatch {
	r.t.Helper()
	m, err := r.ce.Check(r.ctx, p, n, key, step)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// expect fails the test unless n bytes at p are the payload of key.
func (r *rig) expect(p uintptr, n, key uint64, format string, args ...any) {
	r.t.Helper()
	if m := r.mismatch(p, n, key, 0); m.Count != 0 {
		r.t.Fatalf("%s: %d bytes wrong, the first at %d: expected 0x%02x, got 0x%02x",
			fmt.Sprintf(format, args...), m.Count, m.Offset, m.Expected, m.Got)
	}
}

// poke writes one byte.
func (r *rig) poke(p uintptr, b byte) {
	r.t.Helper()
	host := hostBytes(r.t, 1)
	host[0] = b
	r.copy(r.ce, p, address(host), 1)
}

// hostBytes returns memory that Go's garbage collector does not manage.
func hostBytes(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, unix.Munmap(b)) })
	return b
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func differs(offset int, want, got byte) string {
	return fmt.Sprintf("offset %d: expected 0x%02x, got 0x%02x", offset, want, got)
}
