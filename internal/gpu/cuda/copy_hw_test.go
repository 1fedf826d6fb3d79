package cuda

import (
	"fmt"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda/enginetest"
)

// Bytes before and after the destination of a copy that must not change.
const margin = 64

// copyOnce copies n bytes between addresses `from` and `to` bytes past a multiple of 16, and checks destination and
// margins on to.dev, which owns the destination.
func copyOnce(r, owner *rig, g *abi.Engine, dst, src uintptr, n uint64, to, from int) error {
	key := abitest.PayloadKey(uint64(to), n, uint64(from), 0)
	before, after := dst+uintptr(to), dst+uintptr(to)+margin+uintptr(n)
	r.fill(src+uintptr(from), n, key, 0)
	owner.fill(before, n+2*margin, key+1, 0)
	owner.fill(after, margin, key+2, 0)
	if err := g.Copy(r.ctx, before+margin, src+uintptr(from), n); err != nil {
		return err
	}
	for _, part := range []struct {
		what string
		p    uintptr
		n    uint64
		key  uint64
	}{{"copy", before + margin, n, key}, {"before", before, margin, key + 1}, {"after", after, margin, key + 2}} {
		m, err := owner.ce.Check(owner.ctx, part.p, part.n, part.key, 0)
		if err != nil {
			return err
		}
		if m.Count != 0 {
			return fmt.Errorf("%d bytes to +%d from +%d: %s: %+v", n, to, from, part.what, m)
		}
	}
	return nil
}

func TestHWCopyAlignments(t *testing.T) {
	r := newRig(t, New(), 0)
	const largest = 1<<20 + 1
	dst, src := r.alloc(largest+2*margin+16), r.alloc(largest+16)
	all := make([]int, 16)
	for i := range all {
		all[i] = i
	}
	few := []int{0, 1, 4, 8, 15}
	for _, name := range r.engines() {
		t.Run(name, func(t *testing.T) {
			g := r.engine(name)
			for _, n := range []uint64{0, 1, 7, 8, 15, 16, 17, 33, 63, 64, 65, 127, 1000, 16384, 16399, 65536, 262151, largest} {
				offsets := all
				if n > 4096 {
					offsets = few
				}
				for _, to := range offsets {
					for _, from := range offsets {
						if err := copyOnce(r, r, g, dst.Addr(), src.Addr(), n, to, from); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}

func TestHWCopyBeyond4GiB(t *testing.T) {
	r := newRig(t, New(), 0)
	const n = 4<<30 + 5<<20 + 3
	r.need(2*n + 64<<20)
	dst, src := r.alloc(n+2*margin+16), r.alloc(n+16)
	for _, name := range r.dev.Engines() {
		t.Run(name, func(t *testing.T) {
			g := r.engine(name)
			for _, offsets := range [][2]int{{0, 0}, {9, 9}, {4, 8}} {
				if err := copyOnce(r, r, g, dst.Addr(), src.Addr(), n, offsets[0], offsets[1]); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestHWPeer writes to and reads from another GPU's memory in one process, as the memcpy baseline does.
func TestHWPeer(t *testing.T) {
	drv := New()
	r, peer := newRig(t, drv, 0), newRig(t, drv, 1)
	l := drv.Link(r.dev.Info(), peer.dev.Info())
	t.Logf("link: %+v", l)
	const largest = 64<<20 + 7
	here, there := r.alloc(largest+2*margin+16), peer.alloc(largest+2*margin+16)
	for _, name := range r.engines() {
		t.Run(name, func(t *testing.T) {
			if !l.Peer && name != "ce" {
				t.Skip("no peer access: only the copy engine reaches the other GPU")
			}
			g := r.engine(name)
			for _, n := range []uint64{1, 64, 1000, 65536, 1<<20 + 5, largest} {
				for _, o := range [][2]int{{0, 0}, {3, 3}, {0, 8}, {5, 1}} {
					if err := copyOnce(r, peer, g, there.Addr(), here.Addr(), n, o[0], o[1]); err != nil {
						t.Fatalf("write: %v", err)
					}
				}
				key := abitest.PayloadKey(5, n, 5, 5)
				peer.fill(there.Addr(), n, key, 0)
				r.fill(here.Addr(), n, key+1, 0)
				r.copy(g, here.Addr(), there.Addr(), n)
				r.expect(here.Addr(), n, key, "read of %d bytes", n)
			}
		})
	}
}

// TestHWRecord records a window, launches it on different payloads, and replaces it by another recording.
func TestHWRecord(t *testing.T) {
	r := newRig(t, New(), 0)
	const n, stride, most = 10_000, 16 << 10, 8
	dst, src := r.alloc(most*stride), r.alloc(most*stride)
	for _, name := range r.dev.Engines() {
		g := r.engine(name)
		if g.Records() == (name == "proxy") {
			t.Errorf("%s records: %v", name, g.Records())
		}
		if !g.Records() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if err := enginetest.Launch(g, r.ctx); err == nil {
				t.Error("launch before anything was recorded succeeds")
			}
			for round, count := range []int{4, 8, 1} {
				if err := enginetest.Record(g, dst.Addr(), src.Addr(), n, stride, count); err != nil {
					t.Fatal(err)
				}
				for launch := range 2 {
					key := abitest.PayloadKey(uint64(round), n, uint64(launch), 0)
					r.fill(src.Addr(), most*stride, key, 0)
					r.fill(dst.Addr(), most*stride, key+1, 0)
					if err := enginetest.Launch(g, r.ctx); err != nil {
						t.Fatal(err)
					}
					for i := range count {
						// The payload restarts at each slot; compare with the source's bytes instead.
						at := uintptr(i * stride)
						if err := same(r, dst.Addr()+at, src.Addr()+at, n); err != nil {
							t.Fatalf("window of %d, message %d: %v", count, i, err)
						}
					}
				}
			}
		})
	}
}

// same compares two ranges of device memory on the host.
func same(r *rig, a, b uintptr, n uint64) error {
	x, y := make([]byte, n), make([]byte, n)
	if err := r.ce.Copy(r.ctx, address(x), a, n); err != nil {
		return err
	}
	if err := r.ce.Copy(r.ctx, address(y), b, n); err != nil {
		return err
	}
	if string(x) != string(y) {
		return fmt.Errorf("%s", firstDifference(x, y))
	}
	return nil
}
