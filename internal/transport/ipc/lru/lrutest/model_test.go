package lrutest_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport/ipc/lru/lrutest"
)

// A model is what the cache should be: entries by index, in a map.
type model struct {
	t       *testing.T
	l       *lrutest.Cache
	limit   int
	entries map[int]*modelEntry
	clock   uint64
	unit    uint64 // bytes; bases and lengths are multiples of it
}

type modelEntry struct {
	lrutest.Entry
	used uint64
}

func newModel(t *testing.T, limit int, unit uint64) *model {
	return &model{t: t, l: lrutest.New(limit), limit: limit, entries: map[int]*modelEntry{}, unit: unit}
}

func (m *model) find(base uint64) int {
	for i, e := range m.entries {
		if e.Base == base {
			return i
		}
	}
	return -1
}

func (m *model) overlapping(base, length uint64) map[int]bool {
	all := map[int]bool{}
	for i, e := range m.entries {
		if e.Base < base+length && base < e.Base+e.Length {
			all[i] = true
		}
	}
	return all
}

func (m *model) victim() int {
	victim := -1
	for i, e := range m.entries {
		if e.InUse == 0 && (victim < 0 || e.used < m.entries[victim].used) {
			victim = i
		}
	}
	return victim
}

func (m *model) use(e *modelEntry) {
	m.clock++
	e.used = m.clock
}

// nth picks a present entry, nil if there is none.
func (m *model) nth(n int) (int, *modelEntry) {
	for i := range lrutest.Max {
		at := (n + i) % lrutest.Max
		if e := m.entries[at]; e != nil {
			return at, e
		}
	}
	return -1, nil
}

// step does one operation, chosen by op, to the cache and the model, and compares. a and b are its arguments.
func (m *model) step(op byte, a, b uint16) {
	m.t.Helper()
	base, length := m.unit*uint64(1+a), m.unit*uint64(1+b%8)
	switch op % 9 {
	case 0, 1, 2:
		m.insert(base, length, uint64(b))
	case 3:
		if got, want := m.l.Find(base), m.find(base); got != want {
			m.t.Fatalf("find %#x: %d, want %d", base, got, want)
		}
	case 4:
		got, all := m.l.Overlap(base, length), m.overlapping(base, length)
		if (got < 0) != (len(all) == 0) || got >= 0 && !all[got] {
			m.t.Fatalf("overlap %#x+%#x: %d, want one of %v", base, length, got, all)
		}
	case 5:
		if i, e := m.nth(int(a)); e != nil && e.InUse == 0 {
			m.remove(i)
		}
	case 6:
		if i, e := m.nth(int(a)); e != nil {
			m.l.Touch(i)
			m.use(e)
		}
	case 7:
		if i, e := m.nth(int(a)); e != nil {
			m.l.Hold(i)
			e.InUse++
		}
	case 8:
		if i, e := m.nth(int(a)); e != nil && e.InUse > 0 {
			m.l.Drop(i)
			e.InUse--
		}
	}
}

func (m *model) insert(base, length, id uint64) {
	m.t.Helper()
	for i := range m.overlapping(base, length) {
		if m.entries[i].InUse > 0 {
			return // a sound caller waits for the message in flight
		}
		m.remove(i)
	}
	if v := m.victim(); len(m.entries) == m.limit && v >= 0 && id%4 > 0 {
		m.remove(v)
	}
	i := m.l.Insert(base, length, id)
	if len(m.entries) == m.limit {
		if i != -1 {
			m.t.Fatalf("inserted as %d, %d entries of %d were there", i, len(m.entries), m.limit)
		}
		return
	}
	if i < 0 || i >= lrutest.Max || m.entries[i] != nil {
		m.t.Fatalf("inserted as %d, with %d entries of %d", i, len(m.entries), m.limit)
	}
	e := &modelEntry{Entry: lrutest.Entry{Base: base, Length: length, ID: id}}
	if e.ID%2 == 0 {
		e.Mapped, e.Handle = id+1, lrutest.Handle{Length: length, Last: byte(id)}
		m.l.Fill(i, e.Mapped, e.Handle)
	}
	m.use(e)
	m.entries[i] = e
}

func (m *model) remove(i int) {
	m.l.Remove(i)
	delete(m.entries, i)
}

// compare looks at everything.
func (m *model) compare() {
	m.t.Helper()
	if m.l.Count() != len(m.entries) || m.l.Limit() != m.limit {
		m.t.Fatalf("%d entries, limit %d; want %d, %d", m.l.Count(), m.l.Limit(), len(m.entries), m.limit)
	}
	if got, want := m.l.Victim(), m.victim(); got != want {
		m.t.Fatalf("victim %d, want %d", got, want)
	}
	for i, e := range m.entries {
		if got := m.l.Entry(i); got != e.Entry {
			m.t.Fatalf("entry %d: %+v, want %+v", i, got, e.Entry)
		}
		if got := m.l.Find(e.Base); got != i {
			m.t.Fatalf("find %#x: %d, want %d", e.Base, got, i)
		}
	}
}

// The cache does what a map would, whatever is asked of it, with few entries and with many.
func TestModel(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 7862))
		limit := []int{0, 1, 3, 16, 200, lrutest.Max}[seed%6]
		m := newModel(t, limit, []uint64{4096, 2 << 20}[seed/6])
		for n := range 20000 {
			op := byte(r.IntN(9))
			if op == 9 && r.IntN(50) > 0 { // seldom a new limit, or nothing would ever fill up
				op = 0
			}
			most := 8 + 8*m.limit // bases, for insertions to meet what is there
			if op == 9 {
				most = 2 + 2*limit
			}
			m.step(op, uint16(r.IntN(most)), uint16(r.Uint32()))
			if n%20 == 0 {
				m.compare()
			}
		}
		m.compare()
	}
}

// A full cache is emptied in the order in which its entries were used last, skipping none.
func TestEvictionOrder(t *testing.T) {
	m := newModel(t, lrutest.Max, 1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for k := range lrutest.Max {
		m.insert(uint64(1+8*k)<<20, 8<<20, uint64(k))
	}
	for range 5000 {
		m.step(6, uint16(r.Uint32()), 0)
	}
	for left := lrutest.Max; left > 0; left-- {
		if m.l.Count() != left {
			t.Fatalf("%d entries, want %d", m.l.Count(), left)
		}
		got, want := m.l.Victim(), m.victim()
		if got != want {
			t.Fatalf("victim %d with %d entries left, want %d", got, left, want)
		}
		m.remove(got)
	}
	m.compare()
}

func FuzzModel(f *testing.F) {
	f.Add(uint16(4), []byte{0, 1, 0, 1, 0, 0, 1, 0, 2, 0, 3, 1, 0, 1, 0})
	f.Add(uint16(0), []byte{9, 2, 0, 0, 0, 0, 1, 0, 1, 0, 7, 0, 0, 0, 0, 0, 9, 0, 2, 0})
	f.Fuzz(func(t *testing.T, limit uint16, ops []byte) {
		m := newModel(t, int(limit)%(lrutest.Max+1), 1<<20)
		for ; len(ops) >= 5; ops = ops[5:] {
			m.step(ops[0], binary.LittleEndian.Uint16(ops[1:]), binary.LittleEndian.Uint16(ops[3:]))
			m.compare()
		}
	})
}
