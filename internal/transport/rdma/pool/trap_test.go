package pool_test

import (
	"math/rand/v2"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
)

// closeOrders are permutations of n.
var closeOrders = map[string]func(n int) []int{
	"fifo": func(n int) []int {
		out := make([]int, n)
		for i := range out {
			out[i] = i
		}
		return out
	},
	"lifo": func(n int) []int {
		out := make([]int, n)
		for i := range out {
			out[i] = n - 1 - i
		}
		return out
	},
	"random": func(n int) []int { return rand.New(rand.NewPCG(20, 1)).Perm(n) },
}

// Whatever the order, those that are left can be used, and in the end nothing is.
func TestCloseOrder(t *testing.T) {
	for name, order := range closeOrders {
		for _, spec := range []pool.Spec{with(anp, 0, 2), with(anp, 1, 1), with(anp, 4, 1), with(anp, 4, 3), with(anp, 16, 2)} {
			e := newEnds(t, spec)
			all := e.connects(conns)
			left := map[int]bool{}
			for i := range all {
				left[i] = true
			}
			for _, i := range order(conns) {
				e.close(all[i])
				delete(left, i)
				inUse := map[int]bool{} // groups, or connections where nothing is shared
				for j := range left {
					e.usable(all[j])
					if spec.Groups > 0 {
						j %= spec.Groups
					}
					inUse[j] = true
				}
				e.counts(pool.Counts{
					QPs: len(inUse) * spec.QPs, CQs: len(inUse), Comms: len(left), References: len(left) * spec.QPs,
				})
				if t.Failed() {
					t.Fatalf("%s: groups %d, queue pairs %d, after connection %d of %d was closed", name, spec.Groups, spec.QPs, i, conns)
				}
			}
		}
	}
}

// The shared completion queue is the primary's, and outlives it.
func TestPrimaryClosesFirst(t *testing.T) {
	e := newEnds(t, with(anp, 1, 2))
	primary, secondary := e.connect(), e.connect()
	queue := primary[0].CQ()
	e.close(primary)
	e.usable(secondary)
	late := e.connect()
	for _, c := range []conn{secondary, late} {
		if c[0].CQ() != queue || c[0].Primary() {
			t.Errorf("connection %d: primary %t, or another completion queue", c[0].ID(), c[0].Primary())
		}
	}
	e.close(secondary)
	e.usable(late)
	e.close(late)
	e.counts(pool.Counts{})
	if again := e.connect(); !again[0].Primary() || again[0].CQ() == queue {
		t.Errorf("primary %t, with the completion queue that was destroyed %t", again[0].Primary(), again[0].CQ() == queue)
	}
}

// 10,000 connections in turn: nothing grows, and no id is 0.
func TestTenThousandInTurn(t *testing.T) {
	for _, groups := range []int{0, 4} {
		e := newEnds(t, with(anp, groups, 2))
		stay := e.connect()
		const n = 10_000
		for i := range n {
			c := e.connect()
			for end := range c {
				if id := c[end].ID(); id == 0 || id > pool.MaxComms || e.pool[end].Lookup(id) != c[end] {
					t.Fatalf("connection %d has id %d", i, id)
				}
			}
			e.close(c)
		}
		e.counts(pool.Counts{QPs: 2, CQs: 1, Comms: 1, References: 2})
		if got, want := e.nics[0].made, 2+2*n; got != want {
			t.Errorf("groups %d: %d queue pairs were made, want %d", groups, got, want)
		}
		e.usable(stay)
		e.close(stay)
		e.counts(pool.Counts{})
	}
}

// Two processes behind one address never share: their queue pairs are connected to different ends.
func TestTwoProcessesBehindOneAddress(t *testing.T) {
	w := newWorld()
	here := newPool(t, w.nic("here"), anp)
	own := pool.Peer{Process: "10.88.0.1:4000"}
	procs := []string{"10.88.0.2:4001", "10.88.0.2:4002"}
	pools := map[string]*pool.Pool{}
	for _, p := range procs {
		pools[p] = newPool(t, w.nic(p), anp)
	}
	for i := range 3 * groups {
		for _, proc := range procs {
			c, err := here.Prepare(pool.Peer{Process: proc}, pool.Send, -1)
			if err != nil {
				t.Fatal(err)
			}
			far, err := pools[proc].Prepare(own, pool.Recv, -1)
			if err != nil {
				t.Fatal(err)
			}
			offer := c.Offer()
			for _, err := range []error{c.Finish(far.Offer()), far.Finish(offer), usable(c), usable(far)} {
				if err != nil {
					t.Fatalf("connection %d to %s: %v", i, proc, err)
				}
			}
			if got := c.QPs()[0].(*qp).remote.n.name; got != proc {
				t.Errorf("connection %d to %s goes to %s", i, proc, got)
			}
		}
	}
	if err := w.err(); err != nil {
		t.Error(err)
	}
}

// A free id waits until all that were free before it have been used.
func TestIDsAreRecycledLate(t *testing.T) {
	e := newEnds(t, with(anp, 1, 1))
	e.connect() // keeps the queue pair
	last := map[uint16]int{}
	for i := range 3 * pool.MaxComms {
		c := e.connect()
		id := c[0].ID()
		if at, ok := last[id]; ok && i-at < pool.MaxComms-1 {
			t.Fatalf("id %d was given again after %d connections, want %d", id, i-at, pool.MaxComms-1)
		}
		last[id] = i
		e.close(c)
	}
	if len(last) != pool.MaxComms-1 {
		t.Errorf("%d ids were used, want %d", len(last), pool.MaxComms-1)
	}
}

// Ids that were closed out of order come again in the order in which they were closed.
func TestFullTable(t *testing.T) {
	n := newWorld().nic("nic")
	p := newPool(t, n, with(anp, 1, 1))
	var all []*pool.Comm
	for range pool.MaxComms {
		c, err := p.Prepare(peerOf(0), pool.Send, 0)
		if err != nil {
			t.Fatalf("connection %d: %v", len(all)+1, err)
		}
		if int(c.ID()) != len(all)+1 {
			t.Fatalf("connection %d has id %d", len(all)+1, c.ID())
		}
		all = append(all, c)
	}
	for range 2 {
		_, err := p.Prepare(peerOf(0), pool.Send, 0)
		if got, want := message(err), "pool: prepare: all 4095 connections are in use: close some, or start fewer with --conns"; got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	if got := p.Counts(); got.Comms != pool.MaxComms || got.References != pool.MaxComms || got.QPs != 1 {
		t.Errorf("counts %+v after the refusal", got)
	}
	closed := []uint16{4000, 2, 17}
	for _, id := range closed {
		if err := p.Lookup(id).Close(); err != nil {
			t.Fatal(err)
		}
		if p.Lookup(id) != nil {
			t.Errorf("connection %d is found after its close", id)
		}
	}
	for _, want := range closed {
		c, err := p.Prepare(peerOf(0), pool.Send, 0)
		if err != nil {
			t.Fatal(err)
		}
		if c.ID() != want || p.Lookup(want) != c {
			t.Errorf("id %d, want %d", c.ID(), want)
		}
	}
	for _, id := range []uint16{0, pool.MaxComms + 1, 65535} {
		if p.Lookup(id) != nil {
			t.Errorf("id %d is found", id)
		}
	}
}

// A second close of a connection whose id has a new owner takes nothing from that one.
func TestSecondCloseAfterItsIDIsGivenAgain(t *testing.T) {
	p := newPool(t, newWorld().nic("nic"), with(anp, 1, 1))
	prepare := func() *pool.Comm {
		c, err := p.Prepare(peerOf(0), pool.Send, 0)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range pool.MaxComms - 1 {
		prepare()
	}
	old := prepare()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	owner := prepare()
	if owner.ID() != old.ID() {
		t.Fatalf("id %d, want %d", owner.ID(), old.ID())
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if p.Lookup(owner.ID()) != owner || p.Counts().Comms != pool.MaxComms {
		t.Errorf("connection %d is gone, counts %+v", owner.ID(), p.Counts())
	}
}

// Queue pairs are given up by what they are for: their numbers are given again at once, and are the same on every NIC.
func TestSlotsAreRecycled(t *testing.T) {
	e := newEnds(t, with(anp, 2, 2))
	zero, one := e.prepare(0), e.prepare(1)
	e.finish(zero)
	e.finish(one)
	old := zero[0].QPs()[0].(*qp).number
	e.close(zero)
	elsewhere := e.prepare(1) // shares, makes none
	fresh := e.prepare(0)     // has the numbers of the one before
	e.finish(elsewhere)
	e.finish(fresh)
	if got := fresh[0].QPs()[0].(*qp).number; got != old || !fresh[0].Primary() {
		t.Errorf("queue pair number %d, primary %t: want a primary with number %d again", got, fresh[0].Primary(), old)
	}
	e.usable(one, elsewhere, fresh)
	e.close(one)
	e.usable(elsewhere, fresh)
	e.close(fresh)
	e.usable(elsewhere)
	e.close(elsewhere)
	e.counts(pool.Counts{})
}
