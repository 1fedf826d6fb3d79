package verbs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

// States: what may be done in which.
func TestFakeStates(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		a, _ := two(t)
		e := lone(t, a, spec{})
		e.state(t, "INIT")
		e.receive(t, 1)
		says(t, e.qp.PostSend(e.write(e.card(), 0, 8)), "fake0: ibv_post_send: invalid argument (22)")
		says(t, e.qp.Init(1), "fake0: ibv_modify_qp to INIT: invalid argument (22)")
		says(t, e.qp.Init(2), "fake0: ibv_query_port: invalid argument (22)")
		bad := e.card()
		bad.Remote.SGID, bad.Remote.GID = 3, [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 9, 14: 8, 15: 7}
		says(t, e.qp.Connect(bad.Remote), "fake0: ibv_modify_qp to RTR: invalid argument (22): to 10.9.8.7 from GID index 3")
		if err := e.join(e.card()); err != nil {
			t.Fatal(err)
		}
		e.state(t, "RTS")
		says(t, e.join(e.card()), "ibv_modify_qp to RTR: invalid argument (22)")
		qp, err := e.c.NewQP(verbs.QPSpec{CQ: e.cq, SendWRs: 1, RecvWRs: 1})
		if err != nil {
			t.Fatal(err)
		}
		if state, err := qp.State(); err != nil || state != "RESET" {
			t.Errorf("%s, %v", state, err)
		}
		says(t, qp.Connect(e.card().Remote), "fake0: connect: the queue pair was not initialised")
		if err := qp.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What was closed is refused, not followed.
func TestFakeUseAfterClose(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		a, _ := two(t)
		e, err := newEnd(a, spec{})
		if err != nil {
			t.Fatal(err)
		}
		to := e.card()
		if err := e.qp.Close(); err != nil {
			t.Fatal(err)
		}
		_, state := e.qp.State()
		for _, err := range []error{
			e.qp.Init(1), e.qp.Connect(to.Remote), e.qp.Fail(), e.qp.PostRecv(1), e.qp.PostSend(verbs.Send{}), state,
		} {
			says(t, err, "verbs: fake0: ibv_", "the queue pair is closed")
		}
		if err := e.cq.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = e.cq.Poll(1)
		says(t, err, "verbs: fake0: ibv_poll_cq: the completion queue is closed")
		_, err = e.c.NewQP(verbs.QPSpec{CQ: e.cq, SendWRs: 1, RecvWRs: 1})
		says(t, err, "verbs: fake0: a queue pair without an open completion queue")
		if err := errors.Join(e.Close(), e.c.Close()); err != nil {
			t.Fatal(err)
		}
		_, cq := e.c.NewCQ(1)
		_, qp := e.c.NewQP(verbs.QPSpec{})
		_, mr := e.c.Register(0, 1, all)
		_, buf := e.c.RegisterDMABuf(0, 0, 1, 0, all)
		for _, err := range []error{cq, qp, mr, buf} {
			says(t, err, "verbs: fake0: the device was closed")
		}
		if text, ok := e.c.Event(); ok {
			t.Errorf("event %q", text)
		}
	})
}

// Ends whose numbers do not fit together do not hear each other: the retries run out.
func TestFakeMisconnected(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		a, b := two(t)
		for name, spoil := range map[string]func(to, from *card, y *end){
			"number":    func(to, _ *card, _ *end) { to.Remote.Number++ },
			"process":   func(to, _ *card, _ *end) { to.Remote.Number ^= 1 << 20 },
			"elsewhere": func(_, from *card, _ *end) { from.Remote.Number++ },
			"psn":       func(_, from *card, _ *end) { from.Remote.PSN ^= 1 },
			"gid":       func(to, from *card, _ *end) { to.Remote.GID = from.Remote.GID },
			"index":     func(to, _ *card, _ *end) { to.Remote.SGID = 0 },
			"failed":    func(_, _ *card, y *end) { _ = y.qp.Fail() },
			"closed":    func(_, _ *card, y *end) { _ = y.qp.Close() },
		} {
			t.Run(name, func(t *testing.T) {
				x, y := lone(t, a, spec{QPSpec: verbs.QPSpec{AckTimeout: 10}}), lone(t, b, spec{})
				to, from := y.card(), x.card()
				to.Remote.SGID = x.gid.Index
				spoil(&to, &from, y)
				if err := x.qp.Connect(to.Remote); err != nil {
					t.Fatal(err)
				}
				if err := y.join(from); err != nil && name != "failed" && name != "closed" {
					t.Fatal(err)
				}
				x.post(t, x.write(to, 0, 8))
				x.post(t, x.write(to, 0, 8))
				x.ends(t, 2, "retry exceeded", "flushed")
			})
		}
	})
}

// The path's MTU is the smaller one of both ends: the device refuses a larger one.
func TestFakeMTU(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		a, b := two(t)
		if a.Ports[0].MTU != 4096 || b.Ports[0].MTU != 1024 {
			t.Fatalf("%+v, %+v", a, b)
		}
		x, y := pair(t, a, b, spec{})
		y.receive(t, 1)
		x.post(t, x.imm(y.card(), 0, 5000, 1))
		y.succeed(t, 1)
	})
}

// An InfiniBand port is reached by its LID, and its GIDs are not the Ethernet port's.
func TestFakeInfiniBand(t *testing.T) {
	for _, flags := range [][]string{nil, {"-DOLD"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			fake{flags: flags, faults: []string{"infiniband"}}.on(t, func(t *testing.T) {
				a, b := two(t)
				p, err := b.Port(2)
				if err != nil || p.LinkLayer != "InfiniBand" || p.LID != 18 || len(p.GIDs) != 1 || len(b.Ports[0].GIDs) != 2 {
					t.Fatalf("%+v, %v", b, err)
				}
				if g, err := b.DefaultGID(2); err != nil || g.Type != verbs.TypeIB || g.Index != 0 {
					t.Errorf("%v, %v", g, err)
				}
				x, y := pair(t, a, b, spec{port: 2})
				y.receive(t, 1)
				x.post(t, x.imm(y.card(), 0, 8, 1))
				y.succeed(t, 1)
				x, y = lone(t, a, spec{port: 2}), lone(t, b, spec{port: 2})
				to := y.card()
				to.Remote.LID++
				if err := errors.Join(x.join(to), y.join(x.card())); err != nil {
					t.Fatal(err)
				}
				x.post(t, x.write(y.card(), 0, 8))
				x.ends(t, 1, "retry exceeded")
			})
		})
	}
}

// A send's place in the queue is free when a completion at or behind it was polled; a receive's when its own was.
func TestFakeQueuesFill(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		a, _ := two(t)
		x, y := pair(t, a, a, spec{QPSpec: verbs.QPSpec{SendWRs: 4, RecvWRs: 4}})
		full := "(12)"
		y.receive(t, 1, 2, 3, 4)
		says(t, y.qp.PostRecv(5), "ibv_post_recv: cannot allocate memory", full)
		for i := range uint32(4) {
			s := x.imm(y.card(), 0, 0, i)
			s.Unsignaled = i != 2
			x.post(t, s)
		}
		says(t, x.qp.PostSend(x.write(y.card(), 0, 8)), "ibv_post_send: cannot allocate memory", full)
		x.succeed(t, 1)
		for range 3 {
			s := x.write(y.card(), 0, 8)
			s.Unsignaled = true
			x.post(t, s)
		}
		says(t, x.qp.PostSend(x.write(y.card(), 0, 8)), full)
		x.nothing(t)
		says(t, y.qp.PostRecv(5), full)
		y.succeed(t, 1)
		y.receive(t, 5)
		says(t, y.qp.PostRecv(6), full)
		y.succeed(t, 3)
	})
}

// A completion queue that overruns is dead, and says so by an event.
func TestFakeOverrun(t *testing.T) {
	fake{faults: []string{"few-cqe=8"}}.on(t, func(t *testing.T) {
		a, _ := two(t)
		x, y := pair(t, a, a, spec{depth: 8})
		for i := range 9 {
			x.post(t, x.write(y.card(), 0, 8))
			if text, ok := x.c.Event(); ok != (i == 8) || ok && text != "completion queue error: it overran" {
				t.Errorf("after %d: event %q, %v", i+1, text, ok)
			}
		}
		x.nothing(t)
		x.state(t, "ERR")
		y.receive(t, 1)
		y.state(t, "RTS")
	})
}

// The same by receives, which the other end fills.
func TestFakeOverrunOfReceives(t *testing.T) {
	fake{faults: []string{"fake1/few-cqe=8"}}.on(t, func(t *testing.T) {
		a, b := two(t)
		x, y := pair(t, a, b, spec{depth: 8})
		for i := range uint64(9) {
			y.receive(t, i)
			x.post(t, x.imm(y.card(), 0, 0, 1))
		}
		if text, ok := y.c.Event(); !ok || text != "completion queue error: it overran" {
			t.Errorf("event %q, %v", text, ok)
		}
		y.nothing(t)
		x.succeed(t, 9)
	})
}

func TestFakePortDown(t *testing.T) {
	t.Run("from the start", func(t *testing.T) {
		fake{faults: []string{"port-down"}}.on(t, func(t *testing.T) {
			a, _ := two(t)
			if p, err := a.Port(1); err != nil || p.State != "DOWN" {
				t.Errorf("%+v, %v", p, err)
			}
		})
	})
	t.Run("later", func(t *testing.T) {
		fake{faults: []string{"fake0/port-down-after=3"}}.on(t, func(t *testing.T) {
			a, b := two(t)
			x, y := pair(t, a, b, spec{})
			for range 3 {
				x.post(t, x.write(y.card(), 0, 8))
			}
			x.succeed(t, 3)
			if text, ok := x.c.Event(); ok {
				t.Errorf("event %q", text)
			}
			x.receive(t, 7)
			x.post(t, x.write(y.card(), 0, 8))
			x.post(t, x.write(y.card(), 0, 8))
			x.ends(t, 3, "retry exceeded", "flushed")
			if text, ok := x.c.Event(); !ok || text != "port error: port 1 is down" {
				t.Errorf("event %q, %v", text, ok)
			}
			if text, ok := y.c.Event(); ok {
				t.Errorf("event %q on the other device", text)
			}
			a, _ = two(t)
			if a.Ports[0].State != "DOWN" {
				t.Errorf("%+v", a)
			}
		})
	})
}

func TestFakeRemoved(t *testing.T) {
	fake{faults: []string{"fake0/removed-after=2"}}.on(t, func(t *testing.T) {
		a, b := two(t)
		x, y := pair(t, a, b, spec{})
		x.receive(t, 8)
		for range 2 {
			x.post(t, x.write(y.card(), 0, 8))
		}
		x.succeed(t, 2)
		x.post(t, x.write(y.card(), 0, 8))
		x.ends(t, 2, "flushed")
		if text, ok := x.c.Event(); !ok || text != "device removed or failed" {
			t.Errorf("event %q, %v", text, ok)
		}
		says(t, x.qp.PostSend(x.write(y.card(), 0, 8)), "fake0: ibv_post_send: input/output error (5)")
		says(t, x.qp.PostRecv(1), "fake0: ibv_post_recv: input/output error (5)")
	})
}

func TestFakeBadKey(t *testing.T) {
	fake{faults: []string{"bad-rkey=3"}}.on(t, func(t *testing.T) {
		a, b := two(t)
		x, y := pair(t, a, b, spec{})
		for range 3 {
			x.post(t, x.write(y.card(), 0, 8))
		}
		x.ends(t, 3, "success", "success", "remote access error")
		y.state(t, "ERR")
		want := fmt.Sprintf("queue pair %d: the remote end accessed memory without permission", y.qp.Number())
		if text, ok := y.c.Event(); !ok || text != want {
			t.Errorf("event %q, %v, want %q", text, ok, want)
		}
		if text, ok := y.c.Event(); ok {
			t.Errorf("again %q", text)
		}
	})
}

// A receiver that is not ready, once for each message, is met by retries only.
func TestFakeReceiverNotReady(t *testing.T) {
	for retries, want := range map[int]string{verbs.RNRForever: "success", 0: "success", 1: "success", verbs.RNRNever: "RNR retry exceeded"} {
		t.Run(fmt.Sprint(retries), func(t *testing.T) {
			fake{faults: []string{"rnr=2"}}.on(t, func(t *testing.T) {
				a, b := two(t)
				x, y := pair(t, a, b, spec{QPSpec: verbs.QPSpec{RNRRetry: retries}})
				y.receive(t, 1, 2)
				x.post(t, x.imm(y.card(), 0, 8, 1))
				x.ends(t, 1, want)
			})
		})
	}
}

func TestFakeDropsImmediate(t *testing.T) {
	fake{faults: []string{"drop-imm=2"}}.on(t, func(t *testing.T) {
		a, b := two(t)
		x, y := pair(t, a, b, spec{})
		y.receive(t, 1, 2, 3)
		for _, want := range []uint32{6, 7, 6} {
			x.post(t, x.imm(y.card(), 0, 8, 6))
			if c := y.succeed(t, 1)[0]; c.Imm != want {
				t.Errorf("immediate %d, want %d", c.Imm, want)
			}
		}
	})
}

// A slow send takes its bytes at its end: who changes them before the completion sends something else.
func TestFakeSlow(t *testing.T) {
	fake{faults: []string{"slow=2000"}}.on(t, func(t *testing.T) {
		a, b := two(t)
		x, y := pair(t, a, b, spec{QPSpec: verbs.QPSpec{Inline: 8}})
		copy(x.mem, "before")
		start := time.Now()
		x.post(t, x.write(y.card(), 0, 6))
		inline := x.write(card{Addr: y.card().Addr + 16, RKey: y.mr.RKey}, 0, 6)
		inline.Inline = true
		x.post(t, inline)
		copy(x.mem, "after!")
		x.succeed(t, 2)
		if took := time.Since(start); took < 2*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if got := string(y.mem[:6]) + string(y.mem[16:22]); got != "after!before" {
			t.Errorf("arrived: %q", got)
		}
	})
}
