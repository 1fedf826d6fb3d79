package ringtest_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/transport/ipc/ring/ringtest"
)

// patience is how long a test of two threads waits for the other one.
const patience = time.Minute

// starts are where the count of messages may begin: around what 32 bits, their sign and a lap make special.
var starts = []uint32{
	0, 1, 5, ringtest.Entries - 1, ringtest.Entries, 1<<31 - 5, 1 << 31, math.MaxUint32 - ringtest.Entries - 3,
	math.MaxUint32 - ringtest.Entries + 1, math.MaxUint32 - 4, math.MaxUint32,
}

// message is the n-th one; no field of it is the same in any other.
func message(n uint64) ringtest.Message {
	x := n*0x9e3779b97f4a7c15 + 1
	m := ringtest.Message{
		Type: uint32(n), Flags: ^uint32(n), Seq: x, Tag: x + 1, Size: x + 2, Base: x + 3, Offset: x + 4,
		Address: x + 5, Version: x + 6,
		Handle: ringtest.Handle{Kind: uint32(x), FD: int32(n), Length: x + 7, ID: x + 8},
	}
	for o := 0; o < len(m.Handle.Opaque); o += 8 {
		binary.NativeEndian.PutUint64(m.Handle.Opaque[o:], x+9+uint64(o))
	}
	return m
}

func messages(from uint64, n int) []ringtest.Message {
	ms := make([]ringtest.Message, n)
	for k := range ms {
		ms[k] = message(from + uint64(k))
	}
	return ms
}

func closed(t testing.TB, r *ringtest.Ring, err error) *ringtest.Ring {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func newRing(t testing.TB) *ringtest.Ring {
	t.Helper()
	r, err := ringtest.New()
	return closed(t, r, err)
}

// again is a second mapping of r, which the peer would have.
func again(t testing.TB, r *ringtest.Ring) *ringtest.Ring {
	t.Helper()
	s, err := r.Again()
	return closed(t, s, err)
}

// newEnds are the ends of a ring that begins at start, each in a mapping of its own.
func newEnds(t testing.TB, start uint32) (*ringtest.Writer, *ringtest.Reader) {
	t.Helper()
	r := newRing(t)
	r.Start(start)
	return r.Writer(), again(t, r).Reader()
}

func expectEmpty(t *testing.T, d *ringtest.Reader) {
	t.Helper()
	kept := messages(77, 1)
	if d.Peek() || d.Get(kept) != 0 || kept[0] != message(77) {
		t.Fatalf("an empty ring gave %+v", kept[0])
	}
}

// expect gets n messages, which must be those from number from on.
func expect(t *testing.T, d *ringtest.Reader, from uint64, n int) {
	t.Helper()
	got := make([]ringtest.Message, n)
	if n > 0 && !d.Peek() {
		t.Fatalf("no message waits, want number %d", from)
	}
	if k := d.Get(got); k != n {
		t.Fatalf("got %d messages, want %d", k, n)
	}
	for k, m := range got {
		if want := message(from + uint64(k)); m != want {
			t.Fatalf("message %d: got %+v, want %+v", from+uint64(k), m, want)
		}
	}
}

// Zeroed memory needs no start.
func TestZeroedMemoryIsAnEmptyRing(t *testing.T) {
	r := newRing(t)
	w, d := r.Writer(), r.Reader()
	for n := range uint64(3 * ringtest.Entries) {
		expectEmpty(t, d)
		if w.Put(message(n)) != 1 {
			t.Fatalf("message %d found no room", n)
		}
		expect(t, d, n, 1)
	}
}

// A ring holds what it says, wherever its count begins, and whatever lay in its memory.
func TestFullAndEmpty(t *testing.T) {
	r := newRing(t)
	for _, start := range starts {
		t.Run(fmt.Sprint(start), func(t *testing.T) {
			r.Start(start)
			w, d := r.Writer(), r.Reader()
			expectEmpty(t, d)
			all := messages(0, ringtest.Entries+1)
			if n := w.Put(all...); n != ringtest.Entries {
				t.Fatalf("%d messages found room, want %d", n, ringtest.Entries)
			}
			for n := range uint64(2 * ringtest.Entries) { // full all the time
				if w.Put(all[0]) != 0 {
					t.Fatal("a full ring took a message")
				}
				expect(t, d, n, 1)
				if w.Put(message(n+ringtest.Entries)) != 1 {
					t.Fatal("no room where a message was just taken out")
				}
			}
			expect(t, d, 2*ringtest.Entries, ringtest.Entries)
			expectEmpty(t, d)
			if w.Put(messages(9, 5)...) != 5 { // and leaves something behind for the next start
				t.Fatal("no room for five messages in an empty ring")
			}
		})
	}
}

// The count wraps after 2^32 messages, with any number of messages in the ring.
func TestWrap(t *testing.T) {
	for _, waiting := range []int{0, 1, 4, 5, 6, 500, ringtest.Entries - 1} {
		t.Run(fmt.Sprintf("%d waiting", waiting), func(t *testing.T) {
			w, d := newEnds(t, math.MaxUint32-4)
			if n := w.Put(messages(0, waiting)...); n != waiting {
				t.Fatalf("%d messages found room, want %d", n, waiting)
			}
			for n := range uint64(3 * ringtest.Entries) {
				if w.Put(message(n+uint64(waiting))) != 1 {
					t.Fatalf("message %d found no room", n)
				}
				expect(t, d, n, 1)
			}
			expect(t, d, 3*ringtest.Entries, waiting)
			expectEmpty(t, d)
		})
	}
}

// An end may join when there is something in the ring already, and after the other one has been at work.
func TestEndsJoinLate(t *testing.T) {
	r := newRing(t)
	r.Start(math.MaxUint32 - 1)
	w := r.Writer()
	w.Put(messages(0, 3)...)
	d := again(t, r).Reader()
	expect(t, d, 0, 3)
	if again(t, r).Writer().Put(messages(3, ringtest.Entries+1)...) != ringtest.Entries {
		t.Error("an empty ring does not hold what it should")
	}
	expect(t, r.Reader(), 3, ringtest.Entries)
}

// Millions of messages from one thread to another, each with a mapping of its own, come in order and whole.
func TestTwoThreads(t *testing.T) {
	total := uint64(1_000_000)
	if testing.Short() {
		total = 50_000
	}
	for _, start := range []uint32{0, 1 << 31, math.MaxUint32 - 4} {
		t.Run(fmt.Sprint(start), func(t *testing.T) {
			w, d := newEnds(t, start)
			var both sync.WaitGroup
			deadline := time.Now().Add(patience)
			both.Go(func() { writeAll(t, w, total, deadline) })
			both.Go(func() { readAll(t, d, total, deadline) })
			both.Wait()
			if !t.Failed() {
				expectEmpty(t, d)
			}
		})
	}
}

func writeAll(t *testing.T, w *ringtest.Writer, total uint64, deadline time.Time) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := rand.New(rand.NewPCG(total, 1))
	for n := uint64(0); n < total; {
		ms := messages(n, int(min(total-n, 1+r.Uint64N(300))))
		for len(ms) > 0 {
			put := w.Put(ms...)
			ms = ms[put:]
			n += uint64(put)
			if put == 0 && !rest(t, deadline, "no room for message", n) {
				return
			}
		}
	}
}

func readAll(t *testing.T, d *ringtest.Reader, total uint64, deadline time.Time) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	room := make([]ringtest.Message, 200)
	for n := uint64(0); n < total; {
		got := d.Get(room)
		if got == 0 && !rest(t, deadline, "waiting for message", n) {
			return
		}
		for _, m := range room[:got] {
			if want := message(n); m != want {
				t.Errorf("message %d: got %+v, want %+v", n, m, want)
				return
			}
			n++
		}
	}
}

// rest lets the other thread run; false: too much time has passed.
func rest(t *testing.T, deadline time.Time, what string, n uint64) bool {
	t.Helper()
	runtime.Gosched()
	if t.Failed() || time.Now().After(deadline) {
		t.Errorf("%s %d", what, n)
		return false
	}
	return true
}

// queue puts and gets as ops says, and compares with what a list of waiting messages would do. An op is a number of
// messages (its upper bits, scaled) to put, to get, or (rarely) a drain after which both ends join anew.
func queue(t *testing.T, start uint32, ops []byte) {
	t.Helper()
	r := newRing(t)
	r.Start(start)
	w, d := r.Writer(), r.Reader()
	var first, next uint64 // messages that wait: from first up to next
	for _, op := range ops {
		n := int(op>>2) * int(op>>2) / 2 // up to 1984, which overfills
		waiting := int(next - first)
		switch op & 3 {
		case 0, 1:
			want := min(n, ringtest.Entries-waiting)
			if got := w.Put(messages(next, n)...); got != want {
				t.Fatalf("%d of %d messages found room, %d were waiting", got, n, waiting)
			}
			next += uint64(want)
		case 2:
			n = min(n, waiting)
			expect(t, d, first, n)
			first += uint64(n)
		case 3:
			expect(t, d, first, waiting)
			expectEmpty(t, d)
			first = next
			w, d = r.Writer(), r.Reader()
		}
		if d.Peek() != (next > first) {
			t.Fatalf("peek says %v with %d messages waiting", d.Peek(), next-first)
		}
	}
	expect(t, d, first, int(next-first))
	expectEmpty(t, d)
}

func TestModel(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 876))
		ops := make([]byte, 300)
		for i := range ops {
			ops[i] = byte(r.Uint32())
		}
		queue(t, starts[seed%uint64(len(starts))]+r.Uint32N(3), ops)
	}
}

func FuzzModel(f *testing.F) {
	f.Add(uint32(0), []byte{0xfc, 0xfe, 0x10, 0x12, 0xff})
	f.Add(uint32(math.MaxUint32-4), []byte{0x14, 0x16, 0x80, 0x84, 0x82, 0x03})
	f.Fuzz(func(t *testing.T, start uint32, ops []byte) { queue(t, start, ops[:min(len(ops), 200)]) })
}

// roundTrips sends a message there and back between two threads, n times, and returns the time in ns of each.
func roundTrips(t testing.TB, n int) []int64 {
	t.Helper()
	w0, d1 := newEnds(t, 0)
	w1, d0 := newEnds(t, math.MaxUint32-4)
	samples := make([]int64, min(n, 1<<20))
	var made [2]int
	var both sync.WaitGroup
	both.Go(func() { made[0] = ringtest.RoundTrips(w0, d0, n, true, patience, samples) })
	both.Go(func() { made[1] = ringtest.RoundTrips(w1, d1, n, false, patience, nil) })
	both.Wait()
	if made != [2]int{n, n} {
		t.Errorf("%d round trips on either side, want %d", made, n)
	}
	return samples
}

func TestRoundTrips(t *testing.T) { roundTrips(t, 20_000) }

// The latency is half the median round trip. The mean, ns/op, holds what other processes take of the CPUs as well.
func BenchmarkLatency(b *testing.B) {
	samples := roundTrips(b, b.N)
	slices.Sort(samples)
	b.ReportMetric(float64(samples[len(samples)/2])/2, "ns/message")
}

func BenchmarkPutGet(b *testing.B) {
	w, d := newEnds(b, 0)
	b.ResetTimer()
	if n := ringtest.Turns(w, d, b.N); n != b.N {
		b.Errorf("%d of %d messages came back", n, b.N)
	}
}
