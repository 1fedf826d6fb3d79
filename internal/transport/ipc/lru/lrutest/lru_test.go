package lrutest_test

import (
	"fmt"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport/ipc/lru/lrutest"
)

const (
	first = 0x7f00_0000_0000 // where allocations begin here
	size  = 2 << 20          // of each
)

// at is the base of allocation k; the allocations are neighbours.
func at(k int) uint64 { return first + uint64(k)*size }

// send does what a sender does for a message from allocation k, and says whether it hit.
func send(t *testing.T, l *lrutest.Cache, k int) bool {
	t.Helper()
	if i := l.Find(at(k)); i >= 0 {
		l.Touch(i)
		return true
	}
	for i := l.Overlap(at(k), size); i >= 0; i = l.Overlap(at(k), size) {
		l.Remove(i)
	}
	if l.Count() == l.Limit() {
		if i := l.Victim(); i >= 0 {
			l.Remove(i)
		}
	}
	if i := l.Insert(at(k), size, uint64(k)); i < 0 && l.Limit() > 0 {
		t.Fatalf("allocation %d of %d bytes found no place", k, size)
	}
	return false
}

// As many allocations in turn as there are entries always hit; one more and nothing ever does.
func TestCliff(t *testing.T) {
	for _, limit := range []int{1, 2, 16, 100, lrutest.Max} {
		for k, want := range map[int]int{1: 1, (limit + 1) / 2: (limit + 1) / 2, limit: limit, limit + 1: -1} {
			t.Run(fmt.Sprintf("%d allocations in %d entries", k, limit), func(t *testing.T) {
				const rounds = 4
				l := lrutest.New(limit)
				misses := 0
				for n := range rounds * k {
					if !send(t, l, n%k) {
						misses++
					}
				}
				if want < 0 {
					want = rounds * k
				}
				if misses != want {
					t.Errorf("%d of %d messages missed, want %d", misses, rounds*k, want)
				}
			})
		}
	}
}

func TestNoCache(t *testing.T) {
	l := lrutest.New(0)
	for k := range 3 {
		if send(t, l, k%2) {
			t.Error("a hit in a cache of no entries")
		}
	}
	if l.Count() != 0 || l.Victim() != -1 || l.Overlap(0, 1<<63) != -1 {
		t.Errorf("%d entries, victim %d, overlap %d", l.Count(), l.Victim(), l.Overlap(0, 1<<63))
	}
}

// What a message in flight uses is never evicted, however long ago it was used last.
func TestVictimIsNotInUse(t *testing.T) {
	l := lrutest.New(3)
	for k := range 3 {
		send(t, l, k)
	}
	l.Hold(0)
	l.Hold(0)
	l.Hold(2)
	l.Touch(1)
	if v := l.Victim(); v != 1 {
		t.Errorf("victim %d, want 1, the only one that is not in use", v)
	}
	l.Hold(1)
	if v := l.Victim(); v != -1 {
		t.Errorf("victim %d while all are in use", v)
	}
	if i := l.Insert(at(9), size, 9); i != -1 {
		t.Errorf("inserted as %d into a full cache", i)
	}
	l.Drop(0)
	if v := l.Victim(); v != -1 {
		t.Errorf("victim %d, which a second message still uses", v)
	}
	l.Drop(0)
	if v := l.Victim(); v != 0 {
		t.Errorf("victim %d, want 0, whose messages are complete", v)
	}
}

// A new allocation never inherits what the peer said, or the handle, of the one before it.
func TestInsertForgets(t *testing.T) {
	l := lrutest.New(1)
	i := l.Insert(at(0), size, 7)
	l.Fill(i, 0xabc000, lrutest.Handle{Length: size, Last: 0x55})
	want := lrutest.Entry{Base: at(0), Length: size, ID: 7, Mapped: 0xabc000, Handle: lrutest.Handle{Length: size, Last: 0x55}}
	if got := l.Entry(i); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	l.Remove(i)
	i = l.Insert(at(0), size/2, 8)
	if got, want := l.Entry(i), (lrutest.Entry{Base: at(0), Length: size / 2, ID: 8}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		base, length uint64
		want         bool
	}{
		"the same":           {at(5), size, true},
		"inside":             {at(5) + 4096, 4096, true},
		"around":             {at(4), 3 * size, true},
		"its first byte":     {at(4), size + 1, true},
		"its last byte":      {at(6) - 1, size, true},
		"ends where it does": {at(5) + 1, size - 1, true},
		"just before":        {at(4), size, false},
		"just behind":        {at(6), size, false},
		"far below":          {4096, 4096, false},
		"far above":          {1 << 62, 4096, false},
		"at address 0":       {0, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := lrutest.New(4)
			gone := l.Insert(at(0), size, 0)
			want := l.Insert(at(5), size, 1)
			l.Remove(gone)
			if !c.want {
				want = -1
			}
			if got := l.Overlap(c.base, c.length); got != want {
				t.Errorf("entry %d, want %d", got, want)
			}
		})
	}
}

// No cache is larger than it can be.
func TestLimit(t *testing.T) {
	if got := lrutest.New(lrutest.Max + 1).Limit(); got != lrutest.Max {
		t.Errorf("a new cache of limit %d, want %d", got, lrutest.Max)
	}
}

func BenchmarkHit(b *testing.B) {
	for _, entries := range []int{1, 16, lrutest.Max} {
		b.Run(fmt.Sprintf("%d entries", entries), func(b *testing.B) {
			l := full(b, entries)
			bases := make([]uint64, entries)
			for k := range bases {
				bases[k] = at(k * 7 % entries) // 7 divides none of the counts: every entry has its turn
			}
			b.ResetTimer()
			if got := l.Hits(bases, b.N); got != b.N {
				b.Fatalf("%d of %d hit", got, b.N)
			}
		})
	}
}

func BenchmarkMiss(b *testing.B) {
	for _, entries := range []int{1, 16, lrutest.Max} {
		b.Run(fmt.Sprintf("%d entries", entries), func(b *testing.B) {
			l := full(b, entries)
			b.ResetTimer()
			if got := l.Misses(at(entries), size, b.N); got != b.N {
				b.Fatalf("%d of %d missed", got, b.N)
			}
		})
	}
}

func full(b *testing.B, entries int) *lrutest.Cache {
	b.Helper()
	l := lrutest.New(entries)
	for k := range entries {
		if l.Insert(at(k), size, uint64(k)) < 0 {
			b.Fatalf("no room for allocation %d of %d", k, entries)
		}
	}
	return l
}
