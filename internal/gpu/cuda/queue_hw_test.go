package cuda

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda/enginetest"
)

// queue opens a queue, and locks the test to its thread, because recordings belong to one. It is called after the
// memory that it uses is allocated, which cannot be freed while the queue waits.
func (r *rig) queue() enginetest.Queue {
	r.t.Helper()
	q, err := r.dev.(gpu.Launcher).Queue()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { check(r.t, q.Close()) })
	runtime.LockOSThread()
	r.t.Cleanup(runtime.UnlockOSThread)
	return enginetest.NewQueue(q.Table())
}

// words returns words of CPU memory that the GPU can access.
func (r *rig) words() []atomic.Uint64 {
	r.t.Helper()
	page := hostBytes(r.t, 4096)
	check(r.t, r.memory(r.t, gpu.HandleLegacy).Pin(address(page), 4096))
	return unsafe.Slice((*atomic.Uint64)(abi.Pointer(address(page))), 8)
}

func addressOf(word *atomic.Uint64) uintptr { return uintptr(unsafe.Pointer(word)) }

// set writes a word of the GPU's memory on another stream.
func (r *rig) set(word uintptr, value uint64) {
	r.t.Helper()
	host := hostBytes(r.t, 8)
	*(*uint64)(abi.Pointer(address(host))) = value
	r.copy(r.ce, word, address(host), 8)
}

// get reads a word of the GPU's memory.
func (r *rig) get(word uintptr) uint64 {
	r.t.Helper()
	host := hostBytes(r.t, 8)
	r.copy(r.ce, address(host), word, 8)
	return *(*uint64)(abi.Pointer(address(host)))
}

// within returns a context with a short deadline.
func within(t testing.TB, d time.Duration) *abi.Ctx {
	t.Helper()
	page, err := abi.NewPage(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, page.Close()) })
	x := abi.NewCtx(page, 0, d, false)
	t.Cleanup(x.Close)
	return x
}

// holds fails the test if the queue completes within a short time.
func holds(t *testing.T, q enginetest.Queue, short *abi.Ctx) {
	t.Helper()
	if err := q.Wait(short); !errors.Is(err, abi.ErrTimeout) {
		t.Fatalf("a queue that is held ends: %v", err)
	}
}

// done checks all steps of a queue.
func done(t *testing.T, steps ...error) {
	t.Helper()
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
}

// TestHWQueueGate holds a copy behind a stream wait for a word of CPU memory, as timed loops do, and times it.
func TestHWQueueGate(t *testing.T) {
	r := newRig(t, New(), 0)
	const n = 16 << 20
	dst, src, words, short := r.alloc(n), r.alloc(n), r.words(), within(t, 50*time.Millisecond)
	q := r.queue()
	if !q.HasStream() {
		t.Error("no stream for libraries")
	}
	for round := range uint64(3) {
		key := abitest.PayloadKey(round, n, 0, 0)
		r.fill(src.Addr(), n, key, 0)
		r.fill(dst.Addr(), n, key+1, 0)
		done(t, q.Await(addressOf(&words[0]), round+1), q.Event(0), q.Copy(dst.Addr(), src.Addr(), n), q.Event(1),
			q.Write(addressOf(&words[1]), round+100))
		holds(t, q, short)
		r.expect(dst.Addr(), n, key+1, "before the gate is open")
		if got := words[1].Load(); got == round+100 {
			t.Errorf("round %d: the word behind the gate is written", round)
		}
		opened := time.Now()
		words[0].Store(round + 1)
		done(t, q.Wait(r.ctx))
		took := time.Since(opened)
		r.expect(dst.Addr(), n, key, "behind the gate")
		if got := words[1].Load(); got != round+100 {
			t.Errorf("the word that the queue wrote is %d, want %d", got, round+100)
		}
		ns, err := q.Elapsed(0, 1)
		t.Logf("%d MiB in %.1f us by the GPU, %.1f us by the host", n>>20, float64(ns)/1e3, float64(took.Nanoseconds())/1e3)
		if err != nil || ns == 0 || time.Duration(ns) > took+took/10 {
			t.Errorf("%d ns between the events, %v for the host: %v", ns, took, err)
		}
	}
}

// A stream wait is for an equal value, not for a greater one: the value of one iteration does not release another.
func TestHWQueueAwaitsEqual(t *testing.T) {
	r := newRig(t, New(), 0)
	words, short := r.words(), within(t, 50*time.Millisecond)
	q := r.queue()
	done(t, q.Await(addressOf(&words[0]), 5))
	for _, other := range []uint64{4, 7, 1<<32 + 5, 1 << 63} {
		words[0].Store(other)
		holds(t, q, short)
	}
	words[0].Store(5)
	done(t, q.Wait(r.ctx))
}

func TestHWQueueEvents(t *testing.T) {
	r := newRig(t, New(), 0)
	const n = 1 << 20
	b := r.alloc(2 * n)
	q := r.queue()
	for _, pair := range [][2]int{{0, 1}, {0, enginetest.Events}, {-1, 0}} {
		_, err := q.Elapsed(pair[0], pair[1])
		invalid(t, err, "elapsed")
	}
	invalid(t, q.Event(enginetest.Events), "event: no such number")
	for range 3 { // the first one is warm-up
		for i := range enginetest.Events {
			done(t, q.Event(i), q.Copy(b.Addr(), b.Addr()+n, n))
		}
	}
	done(t, q.Wait(r.ctx))
	var sum uint64
	for i := range enginetest.Events - 1 {
		ns, err := q.Elapsed(i, i+1)
		if err != nil || ns == 0 {
			t.Errorf("%d ns from event %d to the next: %v", ns, i, err)
		}
		sum += ns
	}
	all, err := q.Elapsed(0, enginetest.Events-1)
	if slack := all/10 + 3000; err != nil || sum > all+slack || all > sum+slack {
		t.Errorf("%d ns in all, the parts are %d: %v", all, sum, err)
	}
	if ns, err := q.Elapsed(2, 2); ns != 0 || err != nil {
		t.Errorf("%d ns from an event to itself: %v", ns, err)
	}
	_, err = q.Elapsed(3, 0)
	invalid(t, err, "before the first")
}

// TestHWQueueWords lets two queues of a GPU wait for each other by words in its memory: a queue that sees a word sees
// the copies before it. The waiting queue is enqueued first, and must not block the other.
func TestHWQueueWords(t *testing.T) {
	r := newRig(t, New(), 0)
	const n = 3<<20 + 24
	src, mid, dst := r.alloc(n), r.alloc(n), r.alloc(n)
	there, back := r.alloc(4096).Addr(), r.alloc(4096).Addr()
	a, b := r.queue(), r.queue()
	r.set(there, 0)
	r.set(back, 0)
	for i := range uint64(20) {
		key := abitest.PayloadKey(i, n, 1, 0)
		r.fill(src.Addr(), n, key, 0)
		done(t, b.Await(there, i+1), b.Copy(dst.Addr(), mid.Addr(), n), b.Write(back, i+1))
		done(t, a.Copy(mid.Addr(), src.Addr(), n), a.Write(there, i+1), a.Await(back, i+1))
		done(t, a.Wait(r.ctx), b.Wait(r.ctx))
		r.expect(dst.Addr(), n, key, "message %d", i)
	}
	if x, y := r.get(there), r.get(back); x != 20 || y != 20 {
		t.Errorf("the words are %d and %d", x, y)
	}
}

// TestHWQueuePeer does the same between two GPUs of one process: each writes a word in the other's memory.
func TestHWQueuePeer(t *testing.T) {
	drv := New()
	r, peer := newRig(t, drv, 0), newRig(t, drv, 1)
	if l := drv.Link(r.dev.Info(), peer.dev.Info()); !l.Peer {
		t.Skipf("no peer access: %+v", l)
	}
	const n = 3<<20 + 24
	src, mid, dst := r.alloc(n), peer.alloc(n), peer.alloc(n)
	there, back := peer.alloc(4096).Addr(), r.alloc(4096).Addr()
	a, b := r.queue(), peer.queue()
	peer.set(there, 0)
	r.set(back, 0)
	for i := range uint64(20) {
		key := abitest.PayloadKey(i, n, 2, 0)
		r.fill(src.Addr(), n, key, 0)
		done(t, b.Await(there, i+1), b.Copy(dst.Addr(), mid.Addr(), n), b.Write(back, i+1))
		done(t, a.Copy(mid.Addr(), src.Addr(), n), a.Write(there, i+1), a.Await(back, i+1))
		done(t, a.Wait(r.ctx), b.Wait(peer.ctx))
		peer.expect(dst.Addr(), n, key, "message %d", i)
	}
}

// TestHWQueueRecord records copies, replays them often, and replaces the recording.
func TestHWQueueRecord(t *testing.T) {
	r := newRig(t, New(), 0)
	const n, most = 100_000, 8
	dst, src := r.alloc(n*most), r.alloc(n*most)
	q := r.queue()
	invalid(t, q.Replay(), "nothing was recorded")
	for round, count := range []uintptr{8, 1, 3} {
		r.fill(dst.Addr(), n*most, 77, 0)
		done(t, q.RecordBegin())
		for i := range count {
			done(t, q.Copy(dst.Addr()+i*n, src.Addr()+i*n, n))
		}
		done(t, q.RecordEnd(), q.Wait(r.ctx))
		r.expect(dst.Addr(), n*most, 77, "a recording moves nothing")
		for start := range uint64(30) {
			for i := range count {
				r.fill(src.Addr()+i*n, n, uint64(round)<<32+start<<8+uint64(i), 0)
			}
			done(t, q.Replay(), q.Replay(), q.Wait(r.ctx))
			for i := range count {
				r.expect(dst.Addr()+i*n, n, uint64(round)<<32+start<<8+uint64(i), "%d copies, start %d, copy %d", count, start, i)
			}
		}
	}
}

// TestHWQueueRecordWords records a message with its flow control: credit and full are 1 or 0, so that one recording
// serves for every message. It replays many before it waits.
func TestHWQueueRecordWords(t *testing.T) {
	r := newRig(t, New(), 0)
	const n, messages = 200_000, 50
	src, mid, dst, short := r.alloc(n), r.alloc(n), r.alloc(n), within(t, 50*time.Millisecond)
	credit, full := r.alloc(4096).Addr(), r.alloc(4096).Addr()
	a, b := r.queue(), r.queue()
	r.set(credit, 0)
	r.set(full, 0)
	done(t, a.RecordBegin(), a.Await(credit, 1), a.Write(credit, 0), a.Copy(mid.Addr(), src.Addr(), n), a.Write(full, 1), a.RecordEnd())
	done(t, b.RecordBegin(), b.Write(credit, 1), b.Await(full, 1), b.Write(full, 0), b.Copy(dst.Addr(), mid.Addr(), n), b.RecordEnd())
	for round := range uint64(4) {
		key := abitest.PayloadKey(round, n, 3, 0)
		r.fill(src.Addr(), n, key, 0)
		for range messages {
			done(t, a.Replay())
		}
		holds(t, a, short)
		for range messages {
			done(t, b.Replay())
		}
		done(t, a.Wait(r.ctx), b.Wait(r.ctx))
		r.expect(dst.Addr(), n, key, "round %d", round)
		if c, f := r.get(credit), r.get(full); c != 0 || f != 0 {
			t.Errorf("round %d: credit %d and full %d are left", round, c, f)
		}
	}
}

// Operations that cannot be recorded are rejected, and recording and queue remain valid.
func TestHWQueueMisuse(t *testing.T) {
	r := newRig(t, New(), 0)
	b := r.alloc(4096)
	q := r.queue()
	invalid(t, q.RecordEnd(), "no recording")
	done(t, q.RecordBegin())
	invalid(t, q.RecordBegin(), "a recording is in progress")
	invalid(t, q.Event(0), "event: not within a recording")
	invalid(t, q.Wait(r.ctx), "wait: not within a recording")
	invalid(t, q.Replay(), "replay: not within a recording")
	_, err := q.Find("p2p_copy", 0)
	invalid(t, err, "find: not within a recording")
	done(t, q.Copy(b.Addr(), b.Addr()+2048, 100), q.Copy(b.Addr(), b.Addr()+2048, 0), q.RecordEnd(), q.Replay(), q.Wait(r.ctx))
	_, err = q.Find("p2p_of_another_release", 0)
	reports(t, err, "cuModuleGetFunction p2p_of_another_release", "(500)")
	k, err := q.Find("p2p_copy", 0)
	done(t, err)
	invalid(t, q.Start(enginetest.KernelLaunch{Kernel: k, CTAs: 1 << 20, Threads: 32}), "more thread blocks than can run concurrently")
	done(t, q.RecordBegin()) // the queue is closed within the recording
}

// TestHWHeldQueueCloses closes a queue that waits for a word that is never written. Nothing waits after that.
func TestHWHeldQueueCloses(t *testing.T) {
	r := newRig(t, New(), 0)
	word, other := r.alloc(4096).Addr(), r.alloc(4096)
	r.set(word, 0)
	g, err := r.dev.Engine("proxy")
	if err != nil {
		t.Fatal(err)
	}
	launcher := r.dev.(gpu.Launcher)
	q, err := launcher.Queue()
	if err != nil {
		t.Fatal(err)
	}
	done(t, enginetest.NewQueue(q.Table()).Await(word, 1))
	start := time.Now()
	err = q.Close()
	reports(t, err, "close queue", "does not complete")
	if !errors.Is(err, abi.ErrTimeout) || time.Since(start) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	check(t, q.Close())
	if _, err := launcher.Queue(); err == nil {
		t.Error("another queue opens")
	} else {
		reports(t, err, "an earlier queue of this device did not complete")
	}
	check(t, other.Close())
	check(t, g.Close())
	// Write the word after all, so that the remaining work ends and does not disturb later tests.
	r.set(word, 1)
}

// TestHWKernels lists the kernels. None may spill registers, which would cause memory traffic.
func TestHWKernels(t *testing.T) {
	r := newRig(t, New(), 0)
	list, err := r.dev.(gpu.Inspector).Kernels()
	if err != nil {
		t.Fatal(err)
	}
	image := r.dev.(*Device).image
	var names []string
	for _, k := range list {
		t.Logf("%+v", k)
		names = append(names, k.Name)
		if k.Local != 0 {
			t.Errorf("%s: %d bytes of local memory", k.Name, k.Local)
		}
		if k.Registers < 1 || k.Registers > 255 || k.Shared < 0 || k.Threads < 32 || k.Threads > 1024 || k.Target != image.Target {
			t.Errorf("absurd: %+v", k)
		}
	}
	if !slices.Equal(names, image.Kernels) {
		t.Errorf("kernels %v, want %v", names, image.Kernels)
	}
}
