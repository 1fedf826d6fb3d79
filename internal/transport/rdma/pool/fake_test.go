package pool_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
)

// A world is NICs that reach each other. It notes whatever a device would punish: a use after close, a second close, a
// completion queue closed under its queue pairs, two queue pairs connected to one.
type world struct {
	nics   map[string]*nic
	serial int
	faults []string
}

func newWorld() *world { return &world{nics: map[string]*nic{}} }

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// err is the faults so far.
func (w *world) err() error {
	if len(w.faults) == 0 {
		return nil
	}
	return fmt.Errorf("misuse: %q", w.faults)
}

// A nic is a Maker. Numbers of queue pairs begin at 1 on each, and a closed one is the next to be given again.
type nic struct {
	w        *world
	name     string
	qps      map[int]*qp
	cqs      map[*cq]bool
	made     int // queue pairs, ever
	connects int // that did not fail, ever
	depths   []int
	sizes    []pool.Sizes

	failCQ      error
	failQP      int // which one from now on fails: 1 is the next; 0: none
	failConnect int // likewise
	closeErr    error
	onCall      func() // when a completion queue is made, and when a queue pair connects
}

var (
	errMake    = errors.New("no more queue pairs")
	errConnect = errors.New("no route")
)

func (w *world) nic(name string) *nic {
	n := &nic{w: w, name: name, qps: map[int]*qp{}, cqs: map[*cq]bool{}}
	w.nics[name] = n
	return n
}

type cq struct {
	n      *nic
	closed bool
}

type qp struct {
	n              *nic
	cq             *cq
	number, serial int
	remote         *qp
	closed         bool
}

// fails counts down, and reports whether it is this one's turn.
func fails(left *int) bool {
	if *left == 0 {
		return false
	}
	*left--
	return *left == 0
}

func (n *nic) NewCQ(depth int) (pool.CQ, error) {
	if n.failCQ != nil {
		return nil, n.failCQ
	}
	if n.onCall != nil {
		n.onCall()
	}
	c := &cq{n: n}
	n.cqs[c] = true
	n.depths = append(n.depths, depth)
	return c, nil
}

func (n *nic) NewQP(c pool.CQ, s pool.Sizes) (pool.QP, error) {
	if fails(&n.failQP) {
		return nil, errMake
	}
	on := c.(*cq)
	if on.closed || on.n != n {
		n.w.fault("a queue pair of %s on a completion queue of %s, closed %t", n.name, on.n.name, on.closed)
	}
	n.w.serial++
	n.made++
	n.sizes = append(n.sizes, s)
	number := 1
	for n.qps[number] != nil {
		number++
	}
	q := &qp{n: n, cq: on, number: number, serial: n.w.serial}
	n.qps[number] = q
	return q, nil
}

func (c *cq) Close() error {
	if c.closed {
		c.n.w.fault("%s: a completion queue closed twice", c.n.name)
	}
	for _, q := range c.n.qps {
		if q.cq == c {
			c.n.w.fault("%s: a completion queue closed under queue pair %d", c.n.name, q.number)
		}
	}
	c.closed = true
	delete(c.n.cqs, c)
	return c.n.closeErr
}

func (q *qp) String() string { return fmt.Sprintf("%s/%d.%d", q.n.name, q.number, q.serial) }

func (q *qp) Address() []byte {
	if q.closed {
		q.n.w.fault("address of %v, which is closed", q)
	}
	return []byte(q.String())
}

func (q *qp) Connect(remote []byte) error {
	if q.n.onCall != nil {
		q.n.onCall()
	}
	if fails(&q.n.failConnect) {
		return errConnect
	}
	q.n.connects++
	if q.closed || q.remote != nil {
		q.n.w.fault("connect of %v, closed %t, connected to %v", q, q.closed, q.remote)
	}
	to := q.n.w.find(string(remote))
	if to == nil {
		q.n.w.fault("%v connects to %s, which is not there", q, remote)
		return nil
	}
	if to.n == q.n || to.remote != nil && to.remote != q {
		q.n.w.fault("%v connects to %v, which is %v's", q, to, to.remote)
	}
	q.remote = to
	return nil
}

func (w *world) find(address string) *qp {
	for _, n := range w.nics {
		for _, q := range n.qps {
			if q.String() == address {
				return q
			}
		}
	}
	return nil
}

func (q *qp) Close() error {
	if q.closed {
		q.n.w.fault("%v closed twice", q)
		return nil
	}
	q.closed = true
	if q.n.qps[q.number] != q {
		q.n.w.fault("%v closed, but its number is another's", q)
	}
	delete(q.n.qps, q.number)
	return q.n.closeErr
}

// usable says why a finished connection could not carry data.
func usable(c *pool.Comm) error {
	if err := c.Ready(); err != nil {
		return err
	}
	on := c.CQ().(*cq)
	if on.closed {
		return fmt.Errorf("connection %d: its completion queue is closed", c.ID())
	}
	for i, p := range c.QPs() {
		q := p.(*qp)
		switch {
		case q.closed:
			return fmt.Errorf("connection %d: queue pair %d, %v, is closed", c.ID(), i, q)
		case q.cq != on:
			return fmt.Errorf("connection %d: queue pair %d, %v, completes elsewhere", c.ID(), i, q)
		case q.remote == nil:
			return fmt.Errorf("connection %d: queue pair %d, %v, is not connected", c.ID(), i, q)
		}
	}
	return nil
}

// ends are two processes with one NIC each, which are peers.
type ends struct {
	*world
	t    *testing.T
	nics [2]*nic
	pool [2]*pool.Pool
}

var addresses = [2]string{"10.88.0.1:4000", "10.88.0.2:4000"}

// peerOf names the other end to each.
func peerOf(end int) pool.Peer { return pool.Peer{Process: addresses[1-end]} }

func newEnds(t *testing.T, s pool.Spec) *ends {
	t.Helper()
	e := &ends{world: newWorld(), t: t}
	for i := range e.pool {
		e.nics[i] = e.nic(fmt.Sprintf("nic%d", i))
		e.pool[i] = newPool(t, e.nics[i], s)
	}
	t.Cleanup(func() {
		if err := e.err(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func newPool(t *testing.T, m pool.Maker, s pool.Spec, more ...pool.Maker) *pool.Pool {
	t.Helper()
	p, err := pool.New(m, s, more...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A conn is both ends of a connection; end 0 sends.
type conn [2]*pool.Comm

func (e *ends) prepare(group int) conn {
	e.t.Helper()
	return e.prepareQPs(group, 0)
}

// prepareQPs prepares a connection of so many queue pairs; 0: as many as the pool says.
func (e *ends) prepareQPs(group, qps int) conn {
	e.t.Helper()
	var c conn
	for i, dir := range []pool.Dir{pool.Send, pool.Recv} {
		var err error
		if qps == 0 {
			c[i], err = e.pool[i].Prepare(peerOf(i), dir, group)
		} else {
			c[i], err = e.pool[i].PrepareQPs(peerOf(i), dir, group, qps)
		}
		if err != nil {
			e.t.Fatal(err)
		}
	}
	return c
}

func (e *ends) finish(c conn) {
	e.t.Helper()
	offers := [2]pool.Offer{c[0].Offer(), c[1].Offer()}
	for i := range c {
		if err := c[i].Finish(offers[1-i]); err != nil {
			e.t.Fatal(err)
		}
	}
}

func (e *ends) connect() conn {
	e.t.Helper()
	c := e.prepare(-1)
	e.finish(c)
	e.usable(c)
	return c
}

func (e *ends) connects(n int) []conn {
	e.t.Helper()
	var out []conn
	for range n {
		out = append(out, e.connect())
	}
	return out
}

func (e *ends) close(c conn) {
	e.t.Helper()
	for i := range c {
		if err := c[i].Close(); err != nil {
			e.t.Fatal(err)
		}
	}
}

func (e *ends) usable(conns ...conn) {
	e.t.Helper()
	for _, c := range conns {
		for i := range c {
			if err := usable(c[i]); err != nil {
				e.t.Fatalf("end %d: %v", i, err)
			}
		}
	}
}

// counts compares what both pools count, and what is really there.
func (e *ends) counts(want pool.Counts) {
	e.t.Helper()
	for i, p := range e.pool {
		if got := p.Counts(); got != want {
			e.t.Errorf("end %d counts %+v, want %+v", i, got, want)
		}
		if qps, cqs := len(e.nics[i].qps), len(e.nics[i].cqs); qps != want.QPs || cqs != want.CQs {
			e.t.Errorf("end %d has %d queue pairs and %d completion queues, want %d and %d", i, qps, cqs, want.QPs, want.CQs)
		}
	}
}
