// Package pool shares queue pairs between connections (ROCm ANP #20). It decides which queue pairs and completion
// queues a connection uses, and when they are made and destroyed. It calls no verbs: a Maker makes the objects. It does
// not communicate: the caller sends the Offer of each end to the other end.
//
// The connections to a peer in one direction are distributed over groups. The first connection of a group is its
// primary: it makes a completion queue and queue pairs, and its Finish connects them. The others are secondaries: their
// queue pair q is queue pair q of the group, modulo the group's number of queue pairs, they use the group's completion
// queue, and they connect nothing. An object exists until the last connection that uses it is closed.
//
//	Prepare ──→ prepared ── Finish ──→ finished ── Close ──→ closed
//	               └───────────────── Close ───────────────────↑
//
// Each end computes the assignment by itself. Both ends agree as long as both prepare and close the connections between
// them in the same order; Finish refuses an Offer that shows that they did not. Finish may be called in any order. A
// finished secondary can be used once its primary has finished too: see Ready.
//
// A Pool is not safe for concurrent use.
package pool

import (
	"errors"
	"fmt"
	"time"
)

// MaxComms is the maximum number of connections of a pool. Their ids are 1 to MaxComms.
const MaxComms = 1<<12 - 1

// Maker makes objects on one NIC.
type Maker interface {
	NewCQ(depth int) (CQ, error)
	NewQP(cq CQ, s Sizes) (QP, error) // in INIT
}

// CQ is a completion queue.
type CQ interface{ Close() error }

// QP is a queue pair. The pool closes it before its completion queue.
type QP interface {
	Address() []byte             // for the other end's Connect; it does not change
	Connect(remote []byte) error // to the queue pair with that address, up to state RTS
	Close() error
}

// Peer identifies the other end of a connection, and the NICs on both ends.
type Peer struct {
	NIC       int    // of this process: 0 is the first Maker's
	Process   string // unique name of the process
	RemoteNIC int    // in the peer's numbering
}

// Dir is the direction in which a connection carries data, seen from this end.
type Dir string

// The directions. A connection that is Send at one end is Recv at the other.
const (
	Send Dir = "send"
	Recv Dir = "recv"
)

// A key identifies a queue pair.
type key struct {
	peer  Peer
	dir   Dir
	group int
	slot  int
}

// A slot is a queue pair.
type slot struct {
	key    key
	qp     QP
	refs   int    // connections
	common *group // all slots of a group have the same
	remote []byte // address of the connected queue pair; nil: not connected
}

// A group is the state that its connections share, besides their slots.
type group struct {
	cq        CQ
	users     int     // connections
	primary   uint16  // its id, valid until the group is connected or broken
	connected bool    // all its queue pairs are connected
	broken    error   // why it cannot be connected any more
	waiting   []*Comm // secondaries that finished before the primary
}

// Pool is the connections of a process. Close it after them.
type Pool struct {
	makers []Maker
	spec   Spec
	comms  [MaxComms + 1]*Comm // by id
	free   []uint16            // ids, the longest free first
	slots  map[key]*slot       // shared queue pairs
	counts Counts
	closed bool
}

// Counts are the numbers of a pool's objects.
type Counts struct {
	QPs, CQs, Comms int
	References      int // to queue pairs; one per connection and queue pair that it uses
}

// New makes a pool whose objects are made by m on NIC 0, and by more on the NICs from 1 on.
func New(m Maker, s Spec, more ...Maker) (*Pool, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	p := &Pool{makers: append([]Maker{m}, more...), spec: s, slots: map[key]*slot{}}
	for id := uint16(1); id <= MaxComms; id++ {
		p.free = append(p.free, id)
	}
	return p, nil
}

// Prepare starts a connection of Spec.QPs queue pairs in a group; group -1: in the groups in turn, or without sharing.
// The other end does the same with the other direction. The caller closes the connection.
func (p *Pool) Prepare(peer Peer, dir Dir, group int) (*Comm, error) {
	return p.PrepareQPs(peer, dir, group, p.spec.QPs)
}

// PrepareQPs is Prepare with the given number of queue pairs, which must be the same at both ends. A secondary with
// more queue pairs than its group uses some of them several times.
func (p *Pool) PrepareQPs(peer Peer, dir Dir, group, qps int) (*Comm, error) {
	start := time.Now()
	c, err := p.prepare(peer, dir, group, qps)
	if err != nil {
		return nil, fmt.Errorf("pool: prepare: %w", err)
	}
	c.setup = time.Since(start)
	return c, nil
}

func (p *Pool) prepare(peer Peer, dir Dir, group, qps int) (*Comm, error) {
	if err := p.admit(peer, dir, group, qps); err != nil {
		return nil, err
	}
	if p.spec.Groups > 0 && group < 0 {
		group = p.sequence(peer, dir) % p.spec.Groups
	}
	c := &Comm{pool: p, id: p.free[0], key: key{peer: peer, dir: dir, group: max(group, unshared)}}
	present := p.present(c.key)
	c.primary = len(present) == 0
	var err error
	if c.primary {
		err = c.create(qps)
	} else {
		err = c.join(present, qps)
	}
	if err != nil {
		return nil, err
	}
	p.free = p.free[1:]
	p.comms[c.id] = c
	p.counts.Comms++
	return c, nil
}

// admit refuses invalid arguments.
func (p *Pool) admit(peer Peer, dir Dir, group, qps int) error {
	switch {
	case p.closed:
		return errors.New("the pool is closed")
	case peer.Process == "":
		return errors.New("a peer without a name of its process")
	case peer.NIC < 0 || peer.NIC >= len(p.makers):
		return fmt.Errorf("NIC %d: there are %d, from 0 on", peer.NIC, len(p.makers))
	case peer.RemoteNIC < 0:
		return fmt.Errorf("NIC %d of the peer: they are numbered from 0 on", peer.RemoteNIC)
	case dir != Send && dir != Recv:
		return fmt.Errorf("direction %q: want %q or %q", dir, Send, Recv)
	case p.spec.Groups == 0 && group >= 0:
		return fmt.Errorf("group %d, but nothing is shared: leave it out, or use --groups %d", group, group+1)
	case group >= max(p.spec.Groups, 1):
		return fmt.Errorf("group %d: there are %d, from 0 on", group, p.spec.Groups)
	case qps < 1 || qps > most:
		return fmt.Errorf("%d queue pairs: want 1 to %d", qps, most)
	case len(p.free) == 0:
		return fmt.Errorf("all %d connections are in use: close some, or start fewer with --conns", MaxComms)
	}
	return nil
}

// sequence is the number of connections to a peer in a direction: the sum of the references to the groups' first slots.
// Each pair of NICs is counted separately, so that groups fill evenly on each.
func (p *Pool) sequence(peer Peer, dir Dir) int {
	sum := 0
	for g := range p.spec.Groups {
		if s := p.slots[key{peer: peer, dir: dir, group: g}]; s != nil {
			sum += s.refs
		}
	}
	return sum
}

// present are the existing slots of a group, which have consecutive numbers from 0 on because every connection uses
// them from 0 on. Without sharing there are none.
func (p *Pool) present(k key) []*slot {
	var out []*slot
	for {
		k.slot = len(out)
		s := p.slots[k]
		if s == nil {
			return out
		}
		out = append(out, s)
	}
}

// Counts returns the current numbers of objects.
func (p *Pool) Counts() Counts { return p.counts }

// Close closes the pool. It fails, and does nothing, while there are connections. A second Close does nothing.
func (p *Pool) Close() error {
	if n := p.counts.Comms; n > 0 {
		return fmt.Errorf("pool: close: connections left: %d: close them first", n)
	}
	p.closed = true
	return nil
}
