package pool

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// unshared is the group of a connection that shares nothing.
const unshared = -1

// Comm is one end of a connection.
type Comm struct {
	pool     *Pool
	id       uint16
	key      key // of slot 0 of its group
	primary  bool
	common   *group
	slots    []*slot // of the group, from 0 on, that it references
	qps      int
	remote   [][]byte // the addresses that Finish was given; nil: not finished
	setup    time.Duration
	released bool
}

// create makes a primary's objects; after an error it has made none.
func (c *Comm) create(qps int) error {
	p := c.pool
	maker, size := p.makers[c.key.peer.NIC], p.spec.sizes(qps)
	cq, err := maker.NewCQ(size.CQE)
	if err != nil {
		return fmt.Errorf("completion queue of %d entries: %w", size.CQE, err)
	}
	p.counts.CQs++
	c.qps, c.common = qps, &group{cq: cq, users: 1, primary: c.id}
	for q := range qps {
		qp, err := maker.NewQP(cq, size.Sizes)
		if err != nil {
			return errors.Join(fmt.Errorf("queue pair %d of %d: %w", q+1, qps, err), c.release())
		}
		s := &slot{key: c.key, qp: qp, refs: 1, common: c.common}
		s.key.slot = q
		if p.spec.Groups > 0 {
			p.slots[s.key] = s
		}
		c.slots = append(c.slots, s)
		p.counts.QPs++
		p.counts.References++
	}
	return nil
}

// join makes c a secondary in the group with these slots.
func (c *Comm) join(present []*slot, qps int) error {
	c.common = present[0].common
	if err := c.common.broken; err != nil {
		return fmt.Errorf("group %d: %w: close its other connections first, %d are left", c.key.group, err, c.common.users)
	}
	c.qps, c.slots = qps, present[:min(qps, len(present))]
	c.common.users++
	for _, s := range c.slots {
		s.refs++
		c.pool.counts.References++
	}
	return nil
}

// ID is the connection's id at this end, from 1 on; the other end has its own.
func (c *Comm) ID() uint16 { return c.id }

// Primary reports whether the connection made its queue pairs.
func (c *Comm) Primary() bool { return c.primary }

// Group is the connection's group; -1: it shares nothing.
func (c *Comm) Group() int { return c.key.group }

// QPs are its queue pairs, which the pool owns; none after Close. One may occur several times.
func (c *Comm) QPs() []QP {
	var out []QP
	for q := range c.qps {
		out = append(out, c.at(q).qp)
	}
	return out
}

// CQ is the completion queue of all its queue pairs, which the pool owns; nil after Close.
func (c *Comm) CQ() CQ {
	if c.released {
		return nil
	}
	return c.common.cq
}

// SetupNS is the time of Prepare plus that of Finish, in ns.
func (c *Comm) SetupNS() int64 { return c.setup.Nanoseconds() }

func (c *Comm) at(q int) *slot { return c.slots[q%len(c.slots)] }

// Offer is the argument for the other end's Finish. It is invalid after Close.
func (c *Comm) Offer() Offer {
	o := Offer{
		ID: c.id, Group: c.key.group, Dir: c.key.dir, Primary: c.primary,
		NIC: c.key.peer.NIC, RemoteNIC: c.key.peer.RemoteNIC,
	}
	for _, qp := range c.QPs() {
		o.QPs = append(o.QPs, qp.Address())
	}
	return o
}

// Finish takes the other end's Offer; a primary connects. If Finish refuses the Offer, nothing has changed, and another
// one can be tried. If a primary cannot connect, it and its secondaries can only be closed.
func (c *Comm) Finish(remote Offer) error {
	start := time.Now()
	err := c.finish(remote)
	c.setup += time.Since(start)
	if err != nil {
		return fmt.Errorf("pool: finish connection %d: %w", c.id, err)
	}
	return nil
}

func (c *Comm) finish(remote Offer) error {
	switch {
	case c.released:
		return errors.New("it is closed")
	case c.remote != nil:
		return errors.New("it is finished already")
	case c.common.broken != nil:
		return c.common.broken
	}
	if err := remote.check(); err != nil {
		return err
	}
	if err := c.compare(remote); err != nil {
		return err
	}
	addresses := make([][]byte, len(remote.QPs))
	for q, a := range remote.QPs {
		addresses[q] = slices.Clone(a)
	}
	var err error
	if c.primary {
		err = c.connect(addresses)
	} else {
		err = c.follow(addresses)
	}
	if err == nil {
		c.remote = addresses
	}
	return err
}

// compare refuses an Offer that is not from the other end of c, and lists all differences.
func (c *Comm) compare(remote Offer) error {
	var differ []string
	note := func(same bool, what string, here, there any) {
		if !same {
			differ = append(differ, fmt.Sprintf("%s %v here, %v there", what, here, there))
		}
	}
	own := c.key.peer
	note(remote.Group == c.key.group, "group", groupName(c.key.group), groupName(remote.Group))
	note(remote.Dir != c.key.dir, "direction", c.key.dir, remote.Dir)
	note(remote.RemoteNIC == own.NIC, "NIC of this end", own.NIC, remote.RemoteNIC)
	note(remote.NIC == own.RemoteNIC, "NIC of the other end", own.RemoteNIC, remote.NIC)
	note(remote.Primary == c.primary, "role", role(c.primary), role(remote.Primary))
	note(len(remote.QPs) == c.qps, "queue pairs", c.qps, len(remote.QPs))
	if len(differ) == 0 {
		return nil
	}
	return fmt.Errorf("the ends differ: %s: both must prepare and close the same connections in the same order", strings.Join(differ, "; "))
}

func groupName(g int) string {
	if g == unshared {
		return "none"
	}
	return fmt.Sprint(g)
}

func role(primary bool) string {
	if primary {
		return "primary"
	}
	return "secondary"
}

// checkRemote refuses remote queue pairs of a secondary other than those to which its primary is connected.
func checkRemote(secondary, primary [][]byte) error {
	for q, a := range secondary {
		if want := primary[q%len(primary)]; !bytes.Equal(a, want) {
			return fmt.Errorf("queue pair %d there is %x, but its primary's is connected to %x: both ends must prepare and close the same connections in the same order",
				q, a, want)
		}
	}
	return nil
}

// connect is a primary's part of Finish.
func (c *Comm) connect(remote [][]byte) error {
	for _, w := range c.common.waiting {
		if err := checkRemote(w.remote, remote); err != nil {
			return fmt.Errorf("its secondary, connection %d, was given other addresses: %w", w.id, err)
		}
	}
	for q, s := range c.slots {
		if err := s.qp.Connect(remote[q]); err != nil {
			err = fmt.Errorf("connect queue pair %d: %w", q, err)
			c.common.broken = fmt.Errorf("the primary, connection %d, failed: %w", c.id, err)
			return err
		}
		s.remote = remote[q]
	}
	c.common.connected, c.common.waiting = true, nil
	return nil
}

// follow is a secondary's part of Finish. If its primary is not connected yet, the primary's connect compares the
// addresses.
func (c *Comm) follow(remote [][]byte) error {
	if !c.common.connected {
		c.common.waiting = append(c.common.waiting, c)
		return nil
	}
	var connected [][]byte
	for _, s := range c.slots {
		connected = append(connected, s.remote)
	}
	return checkRemote(remote, connected)
}

// Ready returns nil once the queue pairs are connected, else why they are not.
func (c *Comm) Ready() error {
	var err error
	switch {
	case c.released:
		err = errors.New("it is closed")
	case c.common.broken != nil:
		err = c.common.broken
	case c.remote == nil:
		err = errors.New("it is not finished")
	case !c.common.connected:
		err = fmt.Errorf("its primary, connection %d, is not finished", c.common.primary)
	default:
		return nil
	}
	return fmt.Errorf("pool: connection %d is not ready: %w", c.id, err)
}

// Close closes the connection and destroys the objects that no other connection uses, even after errors. A second Close
// does nothing. After it, secondaries of a primary that was never connected can only be closed.
func (c *Comm) Close() error {
	if c.released {
		return nil
	}
	g, p := c.common, c.pool
	if c.primary && !g.connected && g.broken == nil {
		g.broken = fmt.Errorf("the primary, connection %d, was closed before it was connected", c.id)
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(w *Comm) bool { return w == c })
	p.comms[c.id] = nil
	p.free = append(p.free, c.id)
	p.counts.Comms--
	if err := c.release(); err != nil {
		return fmt.Errorf("pool: close connection %d: %w", c.id, err)
	}
	return nil
}

// release drops the references and destroys unreferenced objects, queue pairs before their completion queue.
func (c *Comm) release() error {
	var errs []error
	p := c.pool
	for _, s := range c.slots {
		p.counts.References--
		if s.refs--; s.refs > 0 {
			continue
		}
		delete(p.slots, s.key)
		p.counts.QPs--
		if err := s.qp.Close(); err != nil {
			errs = append(errs, fmt.Errorf("queue pair %d: %w", s.key.slot, err))
		}
	}
	if c.common.users--; c.common.users == 0 {
		p.counts.CQs--
		if err := c.common.cq.Close(); err != nil {
			errs = append(errs, fmt.Errorf("completion queue: %w", err))
		}
	}
	c.slots, c.qps, c.released = nil, 0, true
	return errors.Join(errs...)
}
