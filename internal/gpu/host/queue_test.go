package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/host/queuetest"
)

func newCtx(tb testing.TB, timeout time.Duration) (*abi.Ctx, *abi.Page) {
	tb.Helper()
	page, err := abi.NewPage(1)
	if err != nil {
		tb.Fatal(err)
	}
	x := abi.NewCtx(page, 0, timeout, false)
	tb.Cleanup(func() { x.Close(); _ = page.Close() })
	return x, page
}

// openQueue opens a queue; closing it a second time does nothing.
func openQueue(tb testing.TB, timeout time.Duration) (q *queuetest.Queue, closeQueue func()) {
	tb.Helper()
	g, err := gpu.Device(&device{}).(gpu.Launcher).Queue()
	if err != nil {
		tb.Fatal(err)
	}
	closeQueue = func() {
		if err := g.Close(); err != nil {
			tb.Error(err)
		}
	}
	x, _ := newCtx(tb, timeout)
	tb.Cleanup(closeQueue)
	return queuetest.On(g.Table(), x), closeQueue
}

// words returns memory that is not managed by the garbage collector.
func words(tb testing.TB, n int) []uintptr {
	tb.Helper()
	b := alloc(tb, &device{}, uint64(8*n))
	w := make([]uintptr, n)
	for i := range w {
		w[i] = b.Addr() + uintptr(8*i)
	}
	return w
}

func must(tb testing.TB, errs ...error) {
	tb.Helper()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// threads counts the threads of this process's queues.
func threads(tb testing.TB) int {
	tb.Helper()
	names, err := filepath.Glob("/proc/self/task/*/comm")
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for _, name := range names {
		text, err := os.ReadFile(name) // a thread of the runtime may have ended since
		if s := strings.TrimSpace(string(text)); err == nil && (s == "p2p-queue" || s == "p2p-warp") {
			n++
		}
	}
	return n
}

// Commands run in order, asynchronously to the caller, and a wait for a word holds back later ones.
func TestQueueOrder(t *testing.T) {
	q, _ := openQueue(t, time.Minute)
	w := words(t, 5)
	gate, first, second, source, inbox := w[0], w[1], w[2], w[3], w[4]
	queuetest.Store(gate, 1) // greater is not equal
	for round := range uint64(100) {
		must(t,
			q.Write(first, round+1),
			q.Await(gate, 0),
			q.Write(source, 1000+round),
			q.Copy(inbox, source, 8),
			q.Write(second, round+1))
		for queuetest.Load(first) != round+1 { // the caller is ahead of the queue
			time.Sleep(10 * time.Microsecond)
		}
		if got := queuetest.Load(second); got != round {
			t.Fatalf("round %d: what stands behind the word was done before: %d", round, got)
		}
		queuetest.Store(gate, 0)
		must(t, q.Wait())
		if i, s := queuetest.Load(inbox), queuetest.Load(second); i != 1000+round || s != round+1 {
			t.Fatalf("round %d: copied %d, written %d", round, i, s)
		}
		queuetest.Store(gate, round+2)
	}
}

func TestQueueEvents(t *testing.T) {
	q, _ := openQueue(t, time.Minute)
	w := words(t, 1)
	_, err := q.Elapsed(0, 1)
	refused(t, "events that were never recorded", err, abi.ErrInvalid, "was not recorded")
	queuetest.Store(w[0], 1)
	before := time.Now()
	must(t, q.Event(0), q.Await(w[0], 2), q.Event(3))
	_, err = q.Elapsed(0, 3)
	refused(t, "events of a running queue", err, abi.ErrInvalid, "after a wait for the queue")
	time.Sleep(3 * time.Millisecond)
	queuetest.Store(w[0], 2)
	must(t, q.Wait())
	all := time.Since(before)
	d, err := q.Elapsed(0, 3)
	if err != nil || d <= 0 || d > all {
		t.Errorf("%v, %v; want what passed at the word, within %v", d, err, all)
	}
	_, err = q.Elapsed(3, 0)
	refused(t, "backwards", err, abi.ErrInvalid, "the second is before the first")
	refused(t, "one too many", q.Event(queuetest.Events), abi.ErrInvalid, "no such event")
	_, err = q.Elapsed(0, queuetest.Events)
	refused(t, "one too many", err, abi.ErrInvalid, "no such event")
}

func refused(tb testing.TB, what string, err, class error, text string) {
	tb.Helper()
	if !errors.Is(err, class) || !strings.Contains(err.Error(), text) {
		tb.Errorf("%s: %v; want %q", what, err, text)
	}
}

// A recording runs once for each replay, until the next recording replaces it.
func TestQueueRecording(t *testing.T) {
	q, _ := openQueue(t, time.Minute)
	w := words(t, 4)
	turn := func(from, to uintptr) func() error { // passes a word on
		return func() error { return errors.Join(q.Copy(w[3], from, 8), q.Copy(to, w[3], 8)) }
	}
	refused(t, "nothing yet", q.Replay(), abi.ErrInvalid, "nothing was recorded")
	refused(t, "no beginning", q.RecordEnd(), abi.ErrInvalid, "none is in progress")
	must(t, q.Record(turn(w[0], w[1])), q.Wait())
	queuetest.Store(w[0], 5)
	if got := queuetest.Load(w[1]); got != 0 {
		t.Fatalf("%d: done while it was recorded", got)
	}
	for _, want := range []uint64{5, 6, 7} {
		queuetest.Store(w[0], want)
		must(t, q.Replay(), q.Wait())
		if got := queuetest.Load(w[1]); got != want {
			t.Fatalf("replayed: %d, want %d", got, want)
		}
	}
	// Other commands are before, between and after replays; the next recording waits until the previous one is no
	// longer in use.
	must(t, q.Write(w[0], 8), q.Replay(), q.Copy(w[2], w[1], 8), q.Write(w[0], 9), q.Replay(), q.Record(turn(w[2], w[0])), q.Replay(), q.Wait())
	if a, b, c := queuetest.Load(w[0]), queuetest.Load(w[1]), queuetest.Load(w[2]); a != 8 || b != 9 || c != 8 {
		t.Errorf("%d, %d, %d; want 8, 9, 8", a, b, c)
	}
	must(t, q.RecordBegin())
	refused(t, "twice", q.RecordBegin(), abi.ErrInvalid, "in progress")
	refused(t, "wait", q.Wait(), abi.ErrInvalid, "in progress")
	refused(t, "event", q.Event(0), abi.ErrInvalid, "in progress")
	refused(t, "replay", q.Replay(), abi.ErrInvalid, "nothing was recorded")
	must(t, q.RecordEnd(), q.Replay(), q.Wait())
}

// A waiting queue has space for the commands of a window; when it is full, it returns an error, and no command is lost.
func TestQueueFull(t *testing.T) {
	q, _ := openQueue(t, time.Minute)
	w := words(t, 2)
	queuetest.Store(w[0], 1)
	must(t, q.Await(w[0], 0))
	n := uint64(1)
	var err error
	for ; err == nil && n < 1<<20; n++ {
		err = q.Write(w[1], n)
	}
	refused(t, "no room", err, abi.ErrTimeout, "complete the queue's waits, or wait for the queue")
	if n < 4096*4 {
		t.Errorf("%d commands fit: too few for a window of 4096 messages", n)
	}
	queuetest.Store(w[0], 0)
	must(t, q.Wait())
	if got := queuetest.Load(w[1]); got != n-2 {
		t.Errorf("the last that was taken is %d, want %d", got, n-2)
	}
	for i := range 3 * n { // a queue that is not waiting frees its slots
		must(t, q.Write(w[1], i))
	}
	must(t, q.Wait())
	refused(t, "a recording without end", q.Record(func() error {
		for range n {
			if err := q.Write(w[1], 0); err != nil {
				return err
			}
		}
		return nil
	}), abi.ErrInvalid, "recording is full")
}

// A wait ends at its deadline, and when the parent sets the abort flag.
func TestQueueWaitEnds(t *testing.T) {
	q, _ := openQueue(t, 50*time.Millisecond)
	w := words(t, 1)
	queuetest.Store(w[0], 1)
	must(t, q.Await(w[0], 0))
	refused(t, "deadline", q.Wait(), abi.ErrTimeout, "want 1, have 0")
	x, page := newCtx(t, time.Minute)
	done := make(chan error)
	go func() { done <- q.WaitIn(x) }()
	page.Rank(0).Abort()
	refused(t, "abort", <-done, abi.ErrAborted, "stopped")
	queuetest.Store(w[0], 0)
	patient, _ := newCtx(t, time.Minute)
	must(t, q.WaitIn(patient))
}

// Close ends every wait of a queue, and all its threads.
func TestQueueCloseAtWork(t *testing.T) {
	before := threads(t)
	for name, busy := range map[string]func(q *queuetest.Queue, w uintptr) error{
		"held": func(q *queuetest.Queue, w uintptr) error { return q.Await(w, 0) },
		"held, with work behind": func(q *queuetest.Queue, w uintptr) error {
			return errors.Join(q.Write(w+8, 1), q.Await(w, 0), q.Write(w+16, 1))
		},
		"held in a recording": func(q *queuetest.Queue, w uintptr) error {
			return errors.Join(q.Record(func() error { return errors.Join(q.Await(w, 0), q.Write(w+16, 1)) }), q.Replay())
		},
		"kernel": func(q *queuetest.Queue, _ uintptr) error {
			r := queuetest.NewRank(q, ranks(t), ranks(t))
			r.Timeout = time.Hour
			return r.Start(queuetest.Launch{Kernel: queuetest.LL, CTAs: 3, Senders: 2, Receivers: 2, Bytes: 5000, Roles: queuetest.Receive})
		},
		"idle": func(q *queuetest.Queue, _ uintptr) error { return q.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			q, closeQueue := openQueue(t, time.Minute)
			w := words(t, 3)
			queuetest.Store(w[0], 1)
			must(t, busy(q, w[0]))
			if threads(t) <= before {
				t.Fatal("no threads: this test sees nothing")
			}
			closeQueue()
			if after := threads(t); after != before {
				t.Errorf("%d threads are left, of %d before", after, before)
			}
			if queuetest.Load(w[2]) != 0 {
				t.Error("what stood behind the wait was done")
			}
			closeQueue()
		})
	}
}

// Launches that would exceed memory, or wait for a thread that does not exist, are rejected.
func TestQueueRefuses(t *testing.T) {
	q, _ := openQueue(t, time.Minute)
	for _, name := range []string{queuetest.WSBulk, queuetest.PutBulk, "p2p_sr", ""} {
		refused(t, name, q.Find(name), abi.ErrInvalid, "host: no kernel "+name)
	}
	r := queuetest.NewRank(q, ranks(t), ranks(t))
	sound := queuetest.Launch{
		Kernel: queuetest.WS, CTAs: 2, Senders: 2, Receivers: 2, Bytes: 1 << 20, Stride: 64 << 10, Stages: 2,
		Roles: queuetest.Send | queuetest.Receive,
	}
	for want, change := range map[string]func(l *queuetest.Launch){
		"no such number of blocks":                       func(l *queuetest.Launch) { l.CTAs = 0 },
		"65 blocks of 4 threads":                         func(l *queuetest.Launch) { l.CTAs = 65 },
		"p2p_sr_stable, 3 blocks":                        func(l *queuetest.Launch) { l.Kernel, l.CTAs = queuetest.Stable, 3 },
		"threads differ from the warps in the arguments": func(l *queuetest.Launch) { l.Threads = 3 },
		"of 33 threads":                                  func(l *queuetest.Launch) { l.Senders, l.Receivers = 16, 17 },
		"a role without a warp":                          func(l *queuetest.Launch) { l.Senders, l.Receivers = 0, 4 },
		"no such roles":                                  func(l *queuetest.Launch) { l.Roles = 0 },
		"do not fit the staging area":                    func(l *queuetest.Launch) { l.Stride, l.Stages = queuetest.Staging/4+1, 2 },
		"2 blocks of 4 threads: the steps":               func(l *queuetest.Launch) { l.Stages = 0 },
		"than the lines can hold":                        func(l *queuetest.Launch) { l.Kernel, l.Bytes = queuetest.LL, 2*queuetest.LLBytes+1 },
		"33 blocks of 4 threads: more blocks": func(l *queuetest.Launch) {
			l.Kernel, l.Bytes, l.CTAs = queuetest.LL, 1, queuetest.LLCTAs+1
		},
		"unknown kernel, or arguments of the wrong size": func(l *queuetest.Launch) { l.Argument = 8 },
	} {
		l := sound
		change(&l)
		refused(t, want, r.Start(l), abi.ErrInvalid, want)
	}
	must(t, q.Wait())
	if s := r.State(); s != (queuetest.State{}) {
		t.Errorf("something ran: %+v", s)
	}
	if q, err := (&device{}).Queue(); err != nil || q.Table().CTAs() < 64 {
		t.Errorf("%v; want room for 32 blocks each way", err)
	} else {
		must(t, q.Close(), q.Close())
	}
}

// ranks allocates the memory of a rank.
func ranks(tb testing.TB) []byte {
	tb.Helper()
	return content(alloc(tb, &device{}, queuetest.RankBytes))[:queuetest.RankBytes]
}
