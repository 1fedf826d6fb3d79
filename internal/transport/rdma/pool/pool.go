// Package pool shares queue pairs (ROCm ANP #20): it decides which connections use which queue pairs and completion
// queues, and when these are made and destroyed. It knows no verbs, a Maker makes the objects; and it talks to nobody,
// the caller carries the Offer of each end to the other.
//
// The connections to a peer in one direction are dealt over groups. The first of a group is its primary: it makes a
// completion queue and queue pairs, and its Finish connects them. Those that come later are secondaries: their queue
// pair q is the group's q, modulo how many the group has, their completion queue is the group's, and they connect
// nothing. An object lives until the last connection that uses it has closed, the primary or another.
//
//	Prepare ──→ prepared ── Finish ──→ finished ── Close ──→ closed
//	               └───────────────── Close ───────────────────↑
//
// Nothing tells one end what the other decided: both work it out. They agree as long as both prepare and close the
// connections between them in the same order, and Finish refuses an Offer from which it sees that they do not. Finish
// itself may be called in any order. A finished secondary can be used once its primary has finished too: see Ready.
//
// Nothing here is safe for concurrent use.
package pool

import (
	"errors"
	"fmt"
	"time"
)

// MaxComms is how many connections a pool can have. Their ids are 1 to MaxComms.
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
	Address() []byte             // what the other end needs to connect; it does not change
	Connect(remote []byte) error // to the queue pair with that address, as far as RTS
	Close() error
}

// Peer is what is at the other end of a connection, and the NICs between.
type Peer struct {
	NIC       int    // of this process: 0 is the first Maker's
	Process   string // unique: an address without port names all the processes behind it
	RemoteNIC int    // as the peer numbers its own
}

// Dir is the direction in which a connection carries data, seen from this end.
type Dir string

// The directions. A connection has one at one end and the other at the other.
const (
	Send Dir = "send"
	Recv Dir = "recv"
)

// A key says which queue pair.
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
	remote []byte // what it is connected to; nil: nothing
}

// A group is what its connections have in common besides their slots.
type group struct {
	cq        CQ
	users     int     // connections
	primary   uint16  // until it is connected or broken
	connected bool    // all its queue pairs
	broken    error   // why it will never be connected
	waiting   []*Comm // secondaries that finished before the primary
}

// Pool is the connections of a process. Close it when they are closed.
type Pool struct {
	makers []Maker
	spec   Spec
	comms  [MaxComms + 1]*Comm // by id
	free   []uint16            // ids, those that have been free for longest first
	slots  map[key]*slot       // those that may be shared
	counts Counts
	closed bool
}

// Counts is what a pool holds.
type Counts struct {
	QPs, CQs, Comms int
	References      int // to queue pairs; a connection has one to each that it uses
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

// Prepare starts a connection of Spec.QPs queue pairs in a group; -1: in the one whose turn it is, which is also what
// to say where nothing is shared. The other end does the same with the other direction. The connection is the caller's
// to close.
func (p *Pool) Prepare(peer Peer, dir Dir, group int) (*Comm, error) {
	return p.PrepareQPs(peer, dir, group, p.spec.QPs)
}

// PrepareQPs is Prepare for a connection with its own number of queue pairs, the same at both ends. A secondary with
// more of them than its group has uses some several times.
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

// admit refuses what cannot be.
func (p *Pool) admit(peer Peer, dir Dir, group, qps int) error {
	switch {
	case p.closed:
		return errors.New("the pool is closed")
	case peer.Process == "":
		return errors.New("a peer without a name for its process: connections to several would be taken for one's")
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

// sequence is the reference counts of the first slots to a peer in a direction, added up: how many connections there
// are. Each pair of NICs has its own, so that groups fill evenly on each.
func (p *Pool) sequence(peer Peer, dir Dir) int {
	sum := 0
	for g := range p.spec.Groups {
		if s := p.slots[key{peer: peer, dir: dir, group: g}]; s != nil {
			sum += s.refs
		}
	}
	return sum
}

// present are the slots that a group has: 0 and those behind it, without a gap, since every connection uses them from 0
// on. There are none where nothing is shared.
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

// Counts is what the pool holds now.
func (p *Pool) Counts() Counts { return p.counts }

// Close is for a pool without connections; with some it is an error and does nothing. A second Close does nothing.
func (p *Pool) Close() error {
	if n := p.counts.Comms; n > 0 {
		return fmt.Errorf("pool: close: connections left: %d: close them first", n)
	}
	p.closed = true
	return nil
}
