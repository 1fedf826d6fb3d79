package host

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu/abi/abitest"
	"github.com/p2pbench/p2pbench/internal/gpu/host/queuetest"
)

const both = queuetest.Send | queuetest.Receive

// pair is two ranks of this process, and the engine that fills and checks their payloads.
type pair struct {
	rig
	rank [2]*queuetest.Rank
	sent uint64 // messages so far; makes every payload different
}

func newPair(tb testing.TB) *pair {
	tb.Helper()
	p := &pair{rig: newRig(tb, engineCPU)}
	mem := [2][]byte{ranks(tb), ranks(tb)}
	for i := range p.rank {
		q, _ := openQueue(tb, time.Minute)
		p.rank[i] = queuetest.NewRank(q, mem[i], mem[1-i])
	}
	return p
}

func (p *pair) key(rank int, message uint64) uint64 { return abitest.PayloadKey(1, 2, message, rank) }

// start starts l on both ranks; if the launch has only one role, rank 0 sends to rank 1.
func (p *pair) start(tb testing.TB, l queuetest.Launch) {
	tb.Helper()
	for i, r := range p.rank {
		own := l
		if l.Roles != both {
			own.Roles = []int{queuetest.Send, queuetest.Receive}[i]
		}
		must(tb, r.Start(own))
	}
}

func (p *pair) wait(tb testing.TB) {
	tb.Helper()
	for i, r := range p.rank {
		must(tb, r.Wait())
		if s := r.State(); s.Failed {
			tb.Fatalf("rank %d gave up: %+v", i, s)
		}
	}
}

// fill writes the payloads of a window of n messages, and poisons the inboxes.
func (p *pair) fill(tb testing.TB, l queuetest.Launch, n int) {
	tb.Helper()
	for i, r := range p.rank {
		for m := range uint64(n) {
			p.rig.fill(tb, r.Source()[l.Source+m*l.Spacing:][:l.Bytes], p.key(i, p.sent+m), 0)
		}
		p.poison(r, l, n)
	}
}

// edge is the number of bytes around an inbox that must not change.
const edge = 300

func (*pair) poison(r *queuetest.Rank, l queuetest.Launch, n int) {
	inbox := r.Inbox()[l.Inbox-edge:][:uint64(n-1)*l.Spacing+l.Bytes+2*edge]
	copy(inbox, bytes.Repeat([]byte{guard}, len(inbox)))
}

// check checks the payloads in the inboxes, and the bytes around them.
func (p *pair) check(tb testing.TB, l queuetest.Launch, n int) {
	tb.Helper()
	for i, r := range p.rank {
		if l.Roles != both && i == 0 {
			continue
		}
		inbox := r.Inbox()[l.Inbox-edge:]
		for m := range uint64(n) {
			at := edge + m*l.Spacing
			if m := p.rig.check(tb, inbox[at:][:l.Bytes], p.key(1-i, p.sent+m), 0); m.Count != 0 {
				tb.Fatalf("rank %d: %+v", i, m)
			}
			for k := range uint64(edge) {
				if b, a := inbox[at-1-k], inbox[at+l.Bytes+k]; b != guard || m+1 == uint64(n) && a != guard {
					tb.Fatalf("rank %d: message %d: %d bytes around it, %x and %x", i, m, k+1, b, a)
				}
			}
			if l.Spacing < l.Bytes+edge {
				break // only the first message and the end of the last are distinct
			}
		}
	}
	p.sent += uint64(n)
}

// exchange sends one message.
func (p *pair) exchange(tb testing.TB, l queuetest.Launch) {
	tb.Helper()
	p.fill(tb, l, 1)
	p.start(tb, l)
	p.wait(tb)
	p.check(tb, l, 1)
}

// shape is a launch without a message.
func shape(kernel string, ctas, senders, receivers int, stride uint64, stages int) queuetest.Launch {
	return queuetest.Launch{
		Kernel: kernel, CTAs: ctas, Senders: senders, Receivers: receivers, Stride: stride, Stages: stages, Grant: 1,
		Roles: both, Inbox: edge,
	}
}

var shapes = []queuetest.Launch{
	shape(queuetest.WS, 1, 1, 1, 4096, 2),
	shape(queuetest.WS, 3, 2, 2, 1000, 3), // steps at unaligned addresses
	shape(queuetest.WS, 8, 4, 4, 64<<10, 2),
	shape(queuetest.WS, 2, 3, 1, 256<<10, 1),
	shape(queuetest.Stable, 2, 1, 1, 4096, 2),
	shape(queuetest.Stable, 6, 2, 2, 65536, 2),
	shape(queuetest.Put, 1, 1, 1, 0, 0),
	shape(queuetest.Put, 5, 7, 1, 0, 0),
	shape(queuetest.LL, 1, 1, 1, 0, 0),
	shape(queuetest.LL, 32, 2, 1, 0, 0),
}

func name(l queuetest.Launch) string {
	return fmt.Sprintf("%s/%d×%d+%d,%d×%d", strings.TrimPrefix(l.Kernel, "p2p_sr_"), l.CTAs, l.Senders, l.Receivers, l.Stride, l.Stages)
}

// most is the largest message that a launch of that shape can send.
func most(l queuetest.Launch) uint64 {
	if l.Kernel == queuetest.LL {
		return uint64(l.CTAs) * queuetest.LLBytes
	}
	return queuetest.BufferBytes / 2
}

// Messages of all sizes and alignments, in both directions and in one, reuse the same memory.
func TestSendRecv(t *testing.T) {
	for _, l := range shapes {
		t.Run(name(l), func(t *testing.T) {
			p := newPair(t)
			for _, roles := range []int{both, queuetest.Send, both} {
				for i, n := range []uint64{1, 7, 8, 511, 512, 513, 4<<10 + 3, 100_001, 1<<20 + 5, 0, 9} {
					l.Roles, l.Bytes = roles, n
					l.Source, l.Inbox = uint64(i%3*5), edge+uint64(i%4*3)
					if l.Bytes <= most(l) {
						p.exchange(t, l)
					}
				}
			}
		})
	}
}

// A whole window is enqueued before it runs; a receiver of put gives the credit for all of it with its first message.
func TestSendRecvWindow(t *testing.T) {
	for _, l := range shapes {
		t.Run(name(l), func(t *testing.T) {
			const window = 20
			p := newPair(t)
			gate := words(t, 1)[0]
			queuetest.Store(gate, 1)
			for round, n := range []uint64{3, 5000, 16 << 10} {
				l.Bytes, l.Spacing = n, n+2*edge+5
				p.fill(t, l, window)
				must(t, p.rank[0].Await(gate, uint64(2*round)))
				for m := range window {
					one := l
					one.Source, one.Inbox = uint64(m)*l.Spacing, l.Inbox+uint64(m)*l.Spacing
					one.Grant = 0
					if m == 0 {
						one.Grant = window
					}
					p.start(t, one)
				}
				queuetest.Store(gate, uint64(2*round))
				p.wait(t)
				p.check(t, l, window)
				queuetest.Store(gate, uint64(2*round+1))
			}
		})
	}
}

// A recording sends the data that is present when it is replayed.
func TestSendRecvReplay(t *testing.T) {
	for _, l := range shapes {
		t.Run(name(l), func(t *testing.T) {
			p := newPair(t)
			l.Bytes = 9001
			p.exchange(t, l)
			for _, r := range p.rank {
				must(t, r.Record(func() error { return r.Start(l) }))
			}
			for range 5 {
				p.fill(t, l, 1)
				must(t, p.rank[0].Replay(), p.rank[1].Replay())
				p.wait(t)
				p.check(t, l, 1)
			}
			p.exchange(t, l)
		})
	}
}

// A resident kernel runs the iterations that the doorbell permits, and reports their completion.
func TestSendRecvResident(t *testing.T) {
	for _, l := range shapes {
		t.Run(name(l), func(t *testing.T) {
			const iters, many, window = 4, 25, 3
			p := newPair(t)
			l.Bytes, l.Spacing, l.Grant = 12_345, 13_000, window
			l.Iters, l.Window, l.Begins = iters, window, true
			for launch := range uint64(2) { // each launch continues after the previous one
				l.First = launch * iters
				p.start(t, l)
				for n := l.First + 1; n <= l.First+iters; n++ {
					p.fill(t, l, window)
					for _, r := range p.rank {
						if s := r.State(); s.Done != n-1 {
							t.Fatalf("%+v, before iteration %d may begin", s, n)
						}
						r.Ring(n)
					}
					p.done(t, n)
					p.check(t, l, window)
				}
				p.wait(t)
				for i, ns := range p.rank[0].Samples()[:iters] {
					if ns == 0 || ns > uint64(time.Minute) {
						t.Errorf("iteration %d took %d ns", i, ns)
					}
				}
			}
			// Other kernels, and other numbers of blocks, continue with the same words.
			l.Iters, l.Grant = 0, 1
			p.exchange(t, l)
			l.CTAs *= 2
			l.Drain = l.CTAs
			if l.Kernel == queuetest.LL {
				l.CTAs, l.Drain = 7, 0
			}
			p.exchange(t, l)
			l.Iters, l.First, l.Grant, l.Begins = many, 2*iters, window, false
			p.start(t, l)
			p.fill(t, l, window)
			for _, r := range p.rank {
				r.Ring(l.First + many) // all at once
			}
			p.wait(t)
			p.check(t, l, window)
			p.done(t, l.First+many)
		})
	}
}

// Iterations begin with a barrier of both ranks.
func TestSendRecvBeginTogether(t *testing.T) {
	p := newPair(t)
	l := shapes[9]
	l.Bytes, l.Iters, l.Window, l.Begins = 100, 10, 1, true
	p.start(t, l)
	for n := range uint64(10) {
		first, second := p.rank[n%2], p.rank[1-n%2]
		first.Ring(n + 1)
		for start := time.Now(); second.Invited() != n+1; time.Sleep(time.Millisecond) {
			if time.Since(start) > time.Minute {
				t.Fatalf("iteration %d: %+v does not come", n+1, first.State())
			}
		}
		time.Sleep(time.Millisecond) // long enough for a faulty kernel to begin, except on a slow machine
		if got := first.Begun(); got != n {
			t.Fatalf("iteration %d has begun before the peer may", got)
		}
		second.Ring(n + 1)
		p.done(t, n+1)
	}
	p.wait(t)
}

// done waits until both ranks' kernels have finished iteration n.
func (p *pair) done(tb testing.TB, n uint64) {
	tb.Helper()
	for i, r := range p.rank {
		for start := time.Now(); r.State().Done < n; time.Sleep(20 * time.Microsecond) {
			if s := r.State(); s.Failed || time.Since(start) > time.Minute {
				tb.Fatalf("rank %d: %+v, waiting for %d", i, s, n)
			}
		}
		if s := r.State(); s.Done != n {
			tb.Fatalf("rank %d has done %d, when %d were to begin", i, s.Done, n)
		}
	}
}

// Steps, stages and blocks may change between consecutive launches that use one staging area.
func TestSendRecvChangesShape(t *testing.T) {
	p := newPair(t)
	geometries := []queuetest.Launch{
		shape(queuetest.WS, 4, 1, 1, 4096, 2), shape(queuetest.WS, 1, 2, 2, 64<<10, 3),
		shape(queuetest.Stable, 6, 1, 1, 1024, 1), shape(queuetest.WS, 7, 1, 1, 777, 5),
	}
	const messages = 64
	used := 0
	l := queuetest.Launch{Bytes: 50_003, Roles: both, Inbox: edge}
	l.Spacing = 52_000
	p.fill(t, l, messages)
	for m := range messages {
		one := geometries[(m*m+m/3)%len(geometries)]
		one.Bytes, one.Source, one.Inbox, one.Drain = l.Bytes, uint64(m)*l.Spacing, l.Inbox+uint64(m)*l.Spacing, used
		p.start(t, one)
		used = max(used, one.CTAs)
	}
	p.wait(t)
	p.check(t, l, messages)
}

// A rank that receives before it sends can send the message that it has received.
func TestSendRecvOrder(t *testing.T) {
	for _, l := range shapes {
		t.Run(name(l), func(t *testing.T) {
			p := newPair(t)
			l.Bytes, l.Source, l.Spacing = 16<<10, edge, 20_000
			ping, pong := l, l
			ping.Order, pong.Order, pong.Echo = queuetest.SendFirst, queuetest.ReceiveFirst, true
			round := func(iters int) {
				for i, r := range p.rank {
					p.rig.fill(t, r.Source()[l.Source:][:l.Bytes], p.key(i, p.sent), 0)
					p.poison(r, l, 1)
					one := []queuetest.Launch{ping, pong}[i]
					one.Iters, one.Window, one.Begins = iters, 1, true
					r.Ring(uint64(iters))
					must(t, r.Start(one))
				}
				p.wait(t)
				for i, r := range p.rank {
					if m := p.rig.check(t, r.Inbox()[l.Inbox:][:l.Bytes], p.key(0, p.sent), 0); m.Count != 0 {
						t.Fatalf("rank %d: %+v", i, m)
					}
				}
				p.sent++
			}
			for range 10 {
				round(0)
			}
			round(20)
		})
	}
}

// A rank whose peer does not start reports what it waited for at its deadline, and later launches do nothing.
func TestSendRecvPeerNeverComes(t *testing.T) {
	for _, c := range []struct {
		launch queuetest.Launch
		roles  int
		bytes  uint64
		want   queuetest.State
	}{
		{shapes[0], queuetest.Receive, 10, queuetest.State{Role: queuetest.Receive, Want: 1}},
		{shapes[0], queuetest.Send, 3*4096 + 1, queuetest.State{Role: queuetest.Send, Want: 1}}, // both slots are full
		{shapes[4], both, 10, queuetest.State{Role: queuetest.Receive, Want: 1}},
		{shapes[6], queuetest.Send, 10, queuetest.State{Role: queuetest.Send, Want: 1}},
		{shapes[6], queuetest.Receive, 10, queuetest.State{Role: queuetest.Receive, Want: 1}},
		{shapes[8], both, 10, queuetest.State{Role: queuetest.Receive, Want: 1}},
	} {
		for _, resident := range []int{0, 1000} {
			l := c.launch
			l.Roles, l.Bytes = c.roles, c.bytes
			l.Iters, l.Window = resident, 1
			t.Run(fmt.Sprintf("%s/%d/%d", name(l), l.Roles, resident), func(t *testing.T) {
				p := newPair(t)
				r := p.rank[0]
				r.Timeout = 20 * time.Millisecond
				r.Ring(uint64(resident))
				must(t, r.Start(l), r.Start(l), r.Wait())
				c.want.Failed = true
				if got := r.State(); got != c.want {
					t.Errorf("%+v, want %+v", got, c.want)
				}
				p.rank[1].Timeout = time.Millisecond
				p.rank[1].Ring(uint64(resident))
				must(t, p.rank[1].Start(l), p.rank[1].Wait(), r.Start(l), r.Wait())
				if got := r.State(); got != c.want {
					t.Errorf("changed: %+v, want %+v", got, c.want)
				}
			})
		}
	}
}

// A resident kernel waits for its host without a deadline, since the host may have to write and check gigabytes, and
// ends when the host sets the abort flag.
func TestSendRecvSlowHost(t *testing.T) {
	for _, l := range []queuetest.Launch{shapes[1], shapes[9]} {
		t.Run(name(l), func(t *testing.T) {
			p := newPair(t)
			l.Bytes, l.Iters, l.Window, l.Begins = 1, 3, 1, true
			for _, r := range p.rank {
				r.Timeout = 20 * time.Millisecond
				must(t, r.Start(l))
			}
			time.Sleep(10 * p.rank[0].Timeout)
			for _, r := range p.rank {
				r.Timeout = time.Minute // for later launches
				if s := r.State(); s.Failed {
					t.Fatalf("not called off, and gave up: %+v", s)
				}
				r.CallOff()
				must(t, r.Wait())
				if s := r.State(); !s.Failed || s.Want != 1 || s.Have != 0 || s.Done != 0 {
					t.Errorf("nobody rang: %+v", s)
				}
			}
		})
	}
}

// stopped is the time for which TestSendRecvStopped stops its process, patience the timeout of the waits there.
const (
	stopped  = 2500 * time.Millisecond
	patience = 2 * time.Second
)

// The time for which a process is stopped does not count towards the timeout of its waits.
func TestSendRecvStopped(t *testing.T) {
	if os.Getenv(peerOf) != "" {
		waitStopped(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSendRecvStopped$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), peerOf+"=1")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() { // the first rank waits
		t.Fatal("the other process has said nothing")
	}
	must(t, cmd.Process.Signal(unix.SIGSTOP))
	time.Sleep(stopped)
	_, err = in.Write([]byte("go on\n"))
	must(t, err, cmd.Process.Signal(unix.SIGCONT))
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, strings.Join(said, "\n"))
	}
}

// waitStopped keeps a kernel, and the wait for its queue, waiting until there is a line to read.
func waitStopped(t *testing.T) {
	p := newPair(t)
	l := shapes[0]
	l.Bytes, l.Iters, l.Window = 100, 1, 1
	for _, r := range p.rank {
		r.Timeout = patience
		r.Ring(1)
	}
	p.fill(t, l, 1)
	must(t, p.rank[0].Start(l))
	for p.rank[0].Begun() == 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("waiting")
	x, _ := newCtx(t, patience)
	finished := make(chan error)
	go func() { finished <- p.rank[0].WaitIn(x) }()
	_, err := os.Stdin.Read(make([]byte, 1))
	must(t, err, p.rank[1].Start(l), <-finished)
	p.wait(t)
	p.check(t, l, 1)
}

// Kernels stop when the host sets the abort flag, long before their deadline.
func TestSendRecvAbort(t *testing.T) {
	for _, l := range shapes {
		for _, resident := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s/%d", name(l), resident), func(t *testing.T) {
				p := newPair(t)
				l.Bytes, l.Iters, l.Window, l.Order = 7000, resident, 2, queuetest.ReceiveFirst
				if l.Kernel == queuetest.LL {
					l.Roles = queuetest.Receive // a kernel that fails to receive lines still sends its own
				}
				for _, r := range p.rank {
					r.Timeout = time.Hour
					must(t, r.Start(l)) // the ranks wait for each other
					r.Ring(3)
					r.CallOff()
				}
				for i, r := range p.rank {
					must(t, r.Wait())
					if s := r.State(); !s.Failed || s.Done != 0 {
						t.Errorf("rank %d: %+v", i, s)
					}
				}
			})
		}
	}
}

// Hundreds of threads work on any number of cores.
func TestSendRecvManyThreads(t *testing.T) {
	p := newPair(t)
	for _, l := range []queuetest.Launch{
		shape(queuetest.WS, 32, 8, 8, 16<<10, 2), shape(queuetest.Stable, 64, 2, 2, 16<<10, 2), shape(queuetest.LL, 32, 4, 4, 0, 0),
	} {
		for _, l.Bytes = range []uint64{1, 500_000} {
			if l.Stride != 0 {
				l.Drain = 32
			}
			p.exchange(t, l)
		}
	}
}

const (
	peerOf   = "P2PBENCH_TEST_PEER" // the rank of a process
	messages = 200
)

// Ranks in two processes, as outside of tests.
func TestSendRecvTwoProcesses(t *testing.T) {
	if os.Getenv(peerOf) != "" {
		mem := [2][]byte{mapped(t, 3), mapped(t, 4)}
		talk(t, 1, mem)
		return
	}
	var mem [2][]byte
	cmd := exec.Command(os.Args[0], "-test.run=^TestSendRecvTwoProcesses$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), peerOf+"=1")
	for i := range mem {
		fd, err := unix.MemfdCreate("p2pbench-test", unix.MFD_CLOEXEC)
		must(t, err)
		f := os.NewFile(uintptr(fd), "rank")
		defer func() { _ = f.Close() }()
		must(t, f.Truncate(queuetest.RankBytes))
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		mem[i] = mapped(t, fd)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	talk(t, 0, mem)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the other process: %v\n%s", err, out.Bytes())
	}
}

func mapped(t *testing.T, fd int) []byte {
	t.Helper()
	mem, err := unix.Mmap(fd, 0, queuetest.RankBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

// talk runs one rank, which exchanges messages of every kind.
func talk(t *testing.T, rank int, mem [2][]byte) {
	t.Helper()
	g := newRig(t, engineCPU)
	q, _ := openQueue(t, time.Minute)
	r := queuetest.NewRank(q, mem[rank], mem[1-rank])
	key := func(rank, m int) uint64 { return abitest.PayloadKey(3, 4, uint64(m), rank) }
	kinds := []queuetest.Launch{
		shape(queuetest.WS, 2, 1, 1, 4096, 2), shape(queuetest.Stable, 4, 1, 1, 4096, 2), shape(queuetest.LL, 3, 1, 1, 0, 0),
	}
	for m := range messages {
		l := kinds[m%len(kinds)]
		l.Bytes, l.Source, l.Inbox = uint64(1+m*97), uint64(m%7), edge+uint64(m%5)
		g.fill(t, r.Source()[l.Source:][:l.Bytes], key(rank, m), 0)
		must(t, r.Start(l), r.Wait())
		if s := r.State(); s.Failed {
			t.Fatalf("rank %d, message %d: %+v", rank, m, s)
		}
		if bad := g.check(t, r.Inbox()[l.Inbox:][:l.Bytes], key(1-rank, m), 0); bad.Count != 0 {
			t.Fatalf("rank %d, message %d: %+v", rank, m, bad)
		}
	}
}
