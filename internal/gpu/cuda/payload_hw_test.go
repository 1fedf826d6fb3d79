package cuda

import (
	"bytes"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
)

var payloadSizes = []uint64{1, 2, 3, 4, 15, 16, 17, 31, 63, 64, 65, 127, 255, 4095, 65537, 1<<20 + 1}

// TestHWFill reads filled memory back and compares it with the host's payload function; the bytes around it must not
// change.
func TestHWFill(t *testing.T) {
	r := newRig(t, New(), 0)
	const guard = 64
	for _, n := range payloadSizes {
		aligns := 16
		if n > 4096 {
			aligns = 4
		}
		room := int(n) + 2*guard + aligns
		b := r.alloc(uint64(room))
		host := hostBytes(t, room)
		want := make([]byte, room)
		for align := range aligns {
			key := abitest.PayloadKey(7, n, uint64(align), 1)
			for i := range want {
				host[i], want[i] = 0xee, 0xee
			}
			for i := range n {
				want[guard+align+int(i)] = abitest.PayloadByte(key, i)
			}
			r.copy(r.ce, b.Addr(), address(host), uint64(room))
			r.fill(b.Addr()+guard+uintptr(align), n, key, 0)
			r.copy(r.ce, address(host), b.Addr(), uint64(room))
			if !bytes.Equal(host, want) {
				t.Fatalf("%d bytes at alignment %d: %s", n, align, firstDifference(host, want))
			}
			r.expect(b.Addr()+guard+uintptr(align), n, key, "%d bytes at alignment %d", n, align)
		}
		check(t, b.Close())
	}
}

func firstDifference(got, want []byte) string {
	for i := range want {
		if got[i] != want[i] {
			return differs(i, want[i], got[i])
		}
	}
	return "equal"
}

// TestHWCheckFindsOneByte flips single bytes.
func TestHWCheckFindsOneByte(t *testing.T) {
	r := newRig(t, New(), 0)
	b := r.alloc(2 << 20)
	for _, n := range payloadSizes {
		for _, align := range []uintptr{0, 1, 3, 4, 8, 15} {
			p := b.Addr() + align
			key := abitest.PayloadKey(3, n, uint64(align), 0)
			r.fill(p, n, key, 0)
			for _, o := range []uint64{0, 1, 3, 15, 16, 17, 63, 64, 65, 4094, n / 2, n - 1} {
				if o >= n {
					continue
				}
				right := abitest.PayloadByte(key, o)
				r.poke(p+uintptr(o), ^right)
				want := abi.Mismatch{Count: 1, Offset: o, Expected: right, Got: ^right}
				if m := r.mismatch(p, n, key, 0); m != want {
					t.Fatalf("%d bytes at alignment %d: got %+v, want %+v", n, align, m, want)
				}
				r.poke(p+uintptr(o), right)
			}
			r.expect(p, n, key, "%d bytes at alignment %d, mended", n, align)
		}
	}
}

func TestHWCheckCounts(t *testing.T) {
	r := newRig(t, New(), 0)
	const n = 100_000
	b := r.alloc(n)
	key := abitest.PayloadKey(1, n, 2, 3)
	r.fill(b.Addr(), n, key, 0)
	wrong := []uint64{99_999, 70_001, 70_000, 513, 512}
	for _, o := range wrong {
		r.poke(b.Addr()+uintptr(o), ^abitest.PayloadByte(key, o))
	}
	if m := r.mismatch(b.Addr(), n, key, 0); m.Count != uint64(len(wrong)) || m.Offset != 512 {
		t.Errorf("got %+v, want %d bytes from 512 on", m, len(wrong))
	}
	if m := r.mismatch(b.Addr(), n, key+1, 0); m.Count < n*9/10 {
		t.Errorf("another key's payload: only %d of %d bytes differ", m.Count, n)
	}
	if m := r.mismatch(b.Addr(), 0, key, 0); m.Count != 0 {
		t.Errorf("nothing to check: %+v", m)
	}
}

// TestHWBeyond4GiB detects 32-bit arithmetic in fill and check.
func TestHWBeyond4GiB(t *testing.T) {
	r := newRig(t, New(), 0)
	const n = 4<<30 + 3<<20 + 5
	r.need(n + 64<<20)
	b := r.alloc(n)
	key := abitest.PayloadKey(9, n, 0, 0)
	for _, step := range []uint64{0, 1 << 20} {
		r.fill(b.Addr(), n, key, step)
		for _, o := range []uint64{0, 1<<32 - 1, 1 << 32, 1<<32 + 1<<20, n - 1} {
			if step != 0 && o%step >= abitest.SampleBytes && o < n-abitest.SampleBytes {
				continue
			}
			right := abitest.PayloadByte(key, o)
			r.poke(b.Addr()+uintptr(o), ^right)
			want := abi.Mismatch{Count: 1, Offset: o, Expected: right, Got: ^right}
			if m := r.mismatch(b.Addr(), n, key, step); m != want {
				t.Fatalf("step %d: got %+v, want %+v", step, m, want)
			}
			r.poke(b.Addr()+uintptr(o), right)
		}
	}
}

// TestHWSampled compares sampled fill and check with their definition in p2p.h.
func TestHWSampled(t *testing.T) {
	r := newRig(t, New(), 0)
	const room = 16 << 10
	b := r.alloc(room)
	host := hostBytes(t, room)
	for _, n := range []uint64{1, 5, 63, 64, 65, 100, 127, 128, 129, 191, 1000, 4096, 4097, 4160, 4161, 10_000} {
		for _, step := range []uint64{64, 128, 1024, 4096, 1 << 20} {
			old, key := abitest.PayloadKey(1, n, step, 0), abitest.PayloadKey(2, n, step, 0)
			p := b.Addr() + 5
			r.fill(p, n, old, 0)
			r.fill(p, n, key, step)
			r.copy(r.ce, address(host), p, n)
			inside := func(o uint64) bool { return o%step < abitest.SampleBytes || o+abitest.SampleBytes >= n }
			for o := range n {
				want := abitest.PayloadByte(old, o)
				if inside(o) {
					want = abitest.PayloadByte(key, o)
				}
				if host[o] != want {
					t.Fatalf("n %d, step %d: %s", n, step, differs(int(o), want, host[o]))
				}
			}
			if m := r.mismatch(p, n, key, step); m.Count != 0 {
				t.Fatalf("n %d, step %d: %+v after a sampled fill", n, step, m)
			}
			var covered uint64
			for o := range n {
				if inside(o) {
					covered++
				}
			}
			for o := range n {
				host[o] = ^host[o]
			}
			r.copy(r.ce, p, address(host), n)
			if m := r.mismatch(p, n, key, step); m.Count != covered || m.Offset != 0 {
				t.Fatalf("n %d, step %d: all bytes flipped: %+v, want %d from 0 on", n, step, m, covered)
			}
		}
	}
}
