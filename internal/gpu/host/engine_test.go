package host

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
)

// rig is an engine with a context.
type rig struct {
	*abi.Engine
	x *abi.Ctx
}

func newRig(tb testing.TB, name string) rig {
	tb.Helper()
	e, err := (&device{}).Engine(name)
	if err != nil {
		tb.Fatal(err)
	}
	page, err := abi.NewPage(1)
	if err != nil {
		tb.Fatal(err)
	}
	x := abi.NewCtx(page, 0, time.Minute, false)
	tb.Cleanup(func() {
		x.Close()
		if err := page.Close(); err != nil {
			tb.Error(err)
		}
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return rig{e.Table(), x}
}

func at(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (r rig) fill(tb testing.TB, b []byte, key, step uint64) {
	tb.Helper()
	if err := r.Fill(r.x, at(b), uint64(len(b)), key, step); err != nil {
		tb.Fatal(err)
	}
}

func (r rig) check(tb testing.TB, b []byte, key, step uint64) abi.Mismatch {
	tb.Helper()
	m, err := r.Check(r.x, at(b), uint64(len(b)), key, step)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// payload returns the payload by its definition, byte by byte.
func payload(key uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = abitest.PayloadByte(key, uint64(i))
	}
	return b
}

// Source and destination have different guard bytes, which reveal excess copies.
const (
	guard       = 0xa5
	sourceGuard = 0x5a
)

// guarded returns n bytes that begin off bytes after a multiple of 64, with guards around them, and a function that
// checks the guards.
func guarded(tb testing.TB, guard byte, n, off int) (b []byte, intact func(what string)) {
	tb.Helper()
	whole := bytes.Repeat([]byte{guard}, n+off+256)
	start := int(-at(whole)&63) + 64 + off
	return whole[start : start+n : start+n], func(what string) {
		tb.Helper()
		for i, c := range whole {
			if (i < start || i >= start+n) && c != guard {
				tb.Fatalf("%s: byte %d was written, of a buffer of %d", what, i-start, n)
			}
		}
	}
}

var sizes = []int{0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 255, 257, 1000, 4095, 4097, 16384, 16391, 70001}

func TestPayload(t *testing.T) {
	r := newRig(t, engineCPU)
	key := abitest.PayloadKey(1, 2, 3, 4)
	want := payload(key, 70001)
	for _, n := range sizes {
		for _, off := range []int{0, 1, 2, 3, 5, 8, 13, 63} {
			b, intact := guarded(t, guard, n, off)
			r.fill(t, b, key, 0)
			intact("fill")
			if !bytes.Equal(b, want[:n]) {
				t.Fatalf("%d bytes at +%d: not the payload", n, off)
			}
			if m := r.check(t, b, key, 0); m.Count != 0 {
				t.Fatalf("%d bytes at +%d: %+v, want no mismatch", n, off, m)
			}
			intact("check")
		}
	}
}

// covered returns the bytes that a sampled fill or check of n bytes covers: 64 at every multiple of step, and the last
// 64.
func covered(n int, step uint64) []bool {
	c := make([]bool, n)
	mark := func(from int) {
		for i := from; i < from+abitest.SampleBytes; i++ {
			c[i] = true
		}
	}
	if step == 0 || n <= abitest.SampleBytes {
		for i := range c {
			c[i] = true
		}
		return c
	}
	for off := 0; off+abitest.SampleBytes <= n; off += int(step) {
		mark(off)
	}
	mark(n - abitest.SampleBytes)
	return c
}

func TestSampledPayload(t *testing.T) {
	r := newRig(t, engineCPU)
	key := abitest.PayloadKey(7, 7, 7, 0)
	want := payload(key, 70001)
	for _, n := range append([]int{4096 + 63, 4096 + 64, 4096 + 65, 8192 + 100}, sizes...) {
		for _, step := range []uint64{64, 128, 4096} {
			c := covered(n, step)
			b, intact := guarded(t, guard, n, 3)
			for i := range b {
				b[i] = ^want[i]
			}
			r.fill(t, b, key, step)
			intact("sampled fill")
			for i := range b {
				if right := b[i] == want[i]; right != c[i] {
					t.Fatalf("%d bytes, step %d: byte %d written: %v, want %v", n, step, i, right, c[i])
				}
			}
			if m := r.check(t, b, key, step); m.Count != 0 {
				t.Fatalf("%d bytes, step %d: %+v, want no mismatch", n, step, m)
			}
			wrong := uint64(0)
			for i := range b {
				b[i] = ^want[i]
				if c[i] {
					wrong++
				}
			}
			// A byte in two overlapping samples counts once.
			if m := r.check(t, b, key, step); m.Count != wrong {
				t.Fatalf("%d bytes, step %d: %d mismatches, want %d", n, step, m.Count, wrong)
			}
		}
	}
}

// A single wrong byte is found at any offset, and described.
func TestMismatch(t *testing.T) {
	r := newRig(t, engineCPU)
	key := abitest.PayloadKey(1, 5003, 9, 1)
	for _, n := range []int{1, 5, 64, 5003} {
		for off := range 4 {
			b, _ := guarded(t, guard, n, off)
			r.fill(t, b, key, 0)
			for i := range b {
				right := b[i]
				b[i] ^= 1 << (i % 8)
				want := abi.Mismatch{Count: 1, Offset: uint64(i), Expected: right, Got: b[i]}
				if m := r.check(t, b, key, 0); m != want {
					t.Fatalf("%d bytes at +%d: got %+v, want %+v", n, off, m, want)
				}
				b[i] = right
			}
		}
	}
}

// Several wrong bytes are all counted, and the first is described.
func TestMismatches(t *testing.T) {
	r := newRig(t, engineCPU)
	key := abitest.PayloadKey(2, 40000, 0, 0)
	b := payload(key, 40000)
	for _, i := range []int{39999, 16383, 16384, 20000, 777} {
		b[i]++
	}
	want := abi.Mismatch{Count: 5, Offset: 777, Expected: b[777] - 1, Got: b[777]}
	if m := r.check(t, b, key, 0); m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
}

// Messages with different keys have different payloads.
func TestOtherMessagesDiffer(t *testing.T) {
	r := newRig(t, engineCPU)
	b := payload(abitest.PayloadKey(1, 4096, 10, 0), 4096)
	for what, key := range map[string]uint64{
		"seed": abitest.PayloadKey(2, 4096, 10, 0), "size": abitest.PayloadKey(1, 4095, 10, 0),
		"iteration": abitest.PayloadKey(1, 4096, 11, 0), "rank": abitest.PayloadKey(1, 4096, 10, 1),
		"far iteration": abitest.PayloadKey(1, 4096, 1<<40, 0),
	} {
		m := r.check(t, b, key, 0)
		if m.Count < 4000 {
			t.Errorf("another %s: only %d of 4096 bytes differ", what, m.Count)
		}
	}
}

// The index of a word exceeds 2^32 at 16 GiB. The test does not allocate that much, but checks that the function does
// not repeat there.
func TestPayloadBeyond16GiB(t *testing.T) {
	key := abitest.PayloadKey(1, 1<<40, 0, 0)
	same := 0
	for i := range uint64(4096) {
		if abitest.PayloadByte(key, i) == abitest.PayloadByte(key, i+16<<30) {
			same++
		}
	}
	if same > 100 {
		t.Errorf("%d of 4096 bytes repeat", same)
	}
}

// Every engine copies exactly the requested bytes, at any alignment.
func TestCopy(t *testing.T) {
	for _, name := range (&device{}).Engines() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, name)
			for _, n := range append([]int{320, 1 << 20, 3<<20 + 77}, sizes...) {
				for _, off := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {3, 7}, {16, 48}, {63, 1}, {32, 33}} {
					src, _ := guarded(t, sourceGuard, n, off[0])
					dst, intact := guarded(t, guard, n, off[1])
					for i := range src {
						src[i] = byte(i*7 + i>>8 + 1)
					}
					before := bytes.Clone(src)
					if err := r.Copy(r.x, at(dst), at(src), uint64(n)); err != nil {
						t.Fatal(err)
					}
					intact("copy")
					if !bytes.Equal(dst, src) || !bytes.Equal(src, before) {
						t.Fatalf("%d bytes from +%d to +%d: not the same", n, off[0], off[1])
					}
				}
			}
			if r.Records() {
				t.Error("a CPU copy is done when it returns: there is nothing to record")
			}
		})
	}
}

func TestUnknownEngine(t *testing.T) {
	_, err := (&device{}).Engine("warp")
	if want := `host: no engine "warp": use one of [cpu cpu-memcpy cpu-nt]: `; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
	if !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("%v does not say that this machine cannot", err)
	}
}

func BenchmarkCopy(b *testing.B) {
	for _, name := range (&device{}).Engines() {
		for _, n := range []int{64, 4 << 10, 64 << 10, 1 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("engine=%s/size=%d", name, n), func(b *testing.B) {
				r := newRig(b, name)
				src, dst := make([]byte, n), make([]byte, n)
				b.SetBytes(int64(n))
				for b.Loop() {
					if err := r.Copy(r.x, at(dst), at(src), uint64(n)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkFill(b *testing.B) {
	benchmarkPayload(b, func(b *testing.B, r rig, p []byte, step uint64) { r.fill(b, p, 1, step) })
}

func BenchmarkCheck(b *testing.B) {
	benchmarkPayload(b, func(b *testing.B, r rig, p []byte, step uint64) {
		if m := r.check(b, p, 1, step); m.Count != 0 {
			b.Fatalf("%+v", m)
		}
	})
}

func benchmarkPayload(b *testing.B, f func(*testing.B, rig, []byte, uint64)) {
	for _, n := range []int{64, 4 << 10, 1 << 20, 64 << 20} {
		for _, step := range []uint64{0, 4096} {
			b.Run(fmt.Sprintf("size=%d/step=%d", n, step), func(b *testing.B) {
				r := newRig(b, engineCPU)
				p := make([]byte, n)
				r.fill(b, p, 1, 0)
				b.SetBytes(int64(n))
				for b.Loop() {
					f(b, r, p, step)
				}
			})
		}
	}
}
