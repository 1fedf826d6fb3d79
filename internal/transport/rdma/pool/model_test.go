package pool_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
)

// A model is what two pools that are joined together should be: no counts, only lists that are searched.
type model struct {
	*world
	groups int
	nics   [2][2]*nic
	pool   [2]*pool.Pool
	live   []*modelConn
	gone   []*modelConn
	clock  int
	freed  [2][pool.MaxComms + 1]int // when an id was given back, by end; 0: never used
	log    []string
}

// A place is where connections share, as end 0 sees it.
type place struct {
	nics  [2]int
	dir   pool.Dir
	group int
}

type modelConn struct {
	place
	own      *modelGroup
	links    []*link // by queue pair of the connection
	primary  bool
	comm     conn
	finished [2]bool
}

type modelGroup struct {
	links             []*link
	connected, broken [2]bool
	cq                [2]pool.CQ
}

// A link is a queue pair at each end.
type link struct {
	slot int
	qp   [2]pool.QP
}

func newModel(groups int) (*model, error) {
	m := &model{world: newWorld(), groups: groups}
	for end := range m.pool {
		for i := range m.nics[end] {
			m.nics[end][i] = m.nic(fmt.Sprintf("end%d.nic%d", end, i))
		}
		var err error
		spec := pool.Spec{Groups: groups, QPs: 1, Depth: 2, Requests: 256}
		if m.pool[end], err = pool.New(m.nics[end][0], spec, m.nics[end][1]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *model) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *model) at(p place) []*modelConn {
	var out []*modelConn
	for _, c := range m.live {
		if c.place == p && p.group >= 0 {
			out = append(out, c)
		}
	}
	return out
}

// plan is what preparing a connection should come to.
func (m *model) plan(p place, qps int) *modelConn {
	if p.group < 0 && m.groups > 0 {
		there := 0
		for _, c := range m.live {
			if c.nics == p.nics && c.dir == p.dir {
				there++
			}
		}
		p.group = there % m.groups
	}
	c := &modelConn{place: p}
	var links []*link
	for _, other := range m.at(p) {
		c.own = other.own
		for _, l := range other.links {
			if !slices.Contains(links, l) {
				links = append(links, l)
			}
		}
	}
	if c.own == nil {
		c.primary, c.own = true, &modelGroup{}
		for q := range qps {
			links = append(links, &link{slot: q})
		}
		c.own.links = links
	}
	slices.SortFunc(links, func(a, b *link) int { return a.slot - b.slot })
	for q := range qps {
		c.links = append(c.links, links[q%len(links)])
	}
	return c
}

// nextID is the one that has been free for longest.
func (m *model) nextID(end int) uint16 {
	used := map[uint16]bool{}
	for _, c := range m.live {
		used[c.comm[end].ID()] = true
	}
	best := uint16(0)
	for id := uint16(1); id <= pool.MaxComms; id++ {
		if !used[id] && (best == 0 || m.freed[end][id] < m.freed[end][best]) {
			best = id
		}
	}
	return best
}

func (m *model) free(end int, c *pool.Comm) {
	m.clock++
	m.freed[end][c.ID()] = m.clock
}

// prepare prepares a connection at both ends; at end failEnd the queue pair failAt (from 1 on) cannot be made.
func (m *model) prepare(p place, qps, failEnd, failAt int) error {
	c := m.plan(p, qps)
	m.note("prepare %+v with %d queue pairs, end %d fails at %d", p, qps, failEnd, failAt)
	var made [2]bool
	for end, dir := range m.dirs(p) {
		n := m.nics[end][p.nics[end]]
		if end == failEnd {
			n.failQP = failAt
		}
		id := m.nextID(end)
		peer := pool.Peer{NIC: p.nics[end], Process: addresses[1-end], RemoteNIC: p.nics[1-end]}
		var err error
		c.comm[end], err = m.pool[end].PrepareQPs(peer, dir, p.group, qps)
		n.failQP = 0
		fails := c.own.broken[end] || c.primary && end == failEnd && failAt >= 1 && failAt <= qps
		if made[end] = err == nil; made[end] == fails {
			return fmt.Errorf("end %d: prepare: %q, want an error: %t", end, message(err), fails)
		}
		if made[end] && c.comm[end].ID() != id {
			return fmt.Errorf("end %d: id %d, want %d", end, c.comm[end].ID(), id)
		}
	}
	if made[0] && made[1] {
		m.live = append(m.live, c)
		return nil
	}
	for end := range made { // the caller's duty: what one end has alone goes at once
		if made[end] {
			m.free(end, c.comm[end])
			if err := c.comm[end].Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *model) dirs(p place) [2]pool.Dir {
	if p.dir == pool.Send {
		return [2]pool.Dir{pool.Send, pool.Recv}
	}
	return [2]pool.Dir{pool.Recv, pool.Send}
}

// finish gives c at an end the offer of another connection, mostly its own; connecting fails at the queue pair failAt.
func (m *model) finish(c, offered *modelConn, end, failAt int) error {
	fits := c.place == offered.place && c.primary == offered.primary && len(c.links) == len(offered.links)
	if fits && c.group < 0 && c != offered {
		return nil // only the caller can tell these apart
	}
	m.note("finish %d at end %d with the offer of %d, fails at %d", c.comm[end].ID(), end, offered.comm[1-end].ID(), failAt)
	g, n := c.own, m.nics[end][c.nics[end]]
	fails := c.finished[end] || g.broken[end] || !fits
	if !fails && c.primary {
		if failAt >= 1 && failAt <= len(c.links) {
			fails, g.broken[end] = true, true
		} else {
			g.connected[end] = true
		}
	}
	n.failConnect = failAt
	err := c.comm[end].Finish(offered.comm[1-end].Offer())
	n.failConnect = 0
	if (err != nil) != fails {
		return fmt.Errorf("end %d: finish: %q, want an error: %t", end, message(err), fails)
	}
	c.finished[end] = c.finished[end] || !fails
	return nil
}

func (m *model) close(i int) error {
	c := m.live[i]
	m.live = slices.Delete(m.live, i, i+1)
	m.gone = append(m.gone, c)
	m.note("close %d", c.comm[0].ID())
	for end := range c.comm {
		if c.primary && !c.own.connected[end] {
			c.own.broken[end] = true
		}
		m.free(end, c.comm[end])
		if err := c.comm[end].Close(); err != nil {
			return err
		}
	}
	return nil
}

// late does to a closed connection what must change nothing.
func (m *model) late(c *modelConn, end int) error {
	m.note("close %d at end %d again", c.comm[end].ID(), end)
	if err := c.comm[end].Close(); err != nil {
		return err
	}
	if c.comm[end].Finish(pool.Offer{}) == nil || c.comm[end].Ready() == nil {
		return errors.New("a closed connection was finished or is ready")
	}
	return nil
}

// compare is what a user of the pools can see.
func (m *model) compare() error {
	var want pool.Counts
	links, owns := map[*link]bool{}, map[*modelGroup]bool{}
	for _, c := range m.live {
		owns[c.own] = true
		mine := map[*link]bool{}
		for _, l := range c.links {
			links[l], mine[l] = true, true
		}
		want.References += len(mine)
	}
	want.QPs, want.CQs, want.Comms = len(links), len(owns), len(m.live)
	for end, p := range m.pool {
		if got := p.Counts(); got != want {
			return fmt.Errorf("end %d counts %+v, want %+v", end, got, want)
		}
		qps, cqs := 0, 0
		for _, n := range m.nics[end] {
			qps, cqs = qps+len(n.qps), cqs+len(n.cqs)
		}
		if qps != want.QPs || cqs != want.CQs {
			return fmt.Errorf("end %d has %d queue pairs and %d completion queues, want %+v", end, qps, cqs, want)
		}
		owner := map[any]any{} // of a queue pair or completion queue: its link or group
		for _, c := range m.live {
			if err := m.compareConn(c, end, owner); err != nil {
				return fmt.Errorf("end %d, connection %d: %w", end, c.comm[end].ID(), err)
			}
		}
	}
	return m.err()
}

func (m *model) compareConn(c *modelConn, end int, owner map[any]any) error {
	comm := c.comm[end]
	if m.pool[end].Lookup(comm.ID()) != comm {
		return errors.New("it is not found by its id")
	}
	if comm.Group() != c.group || comm.Primary() != c.primary || len(comm.QPs()) != len(c.links) {
		return fmt.Errorf("group %d, primary %t, %d queue pairs, want %+v, %t, %d", comm.Group(), comm.Primary(), len(comm.QPs()), c.place, c.primary, len(c.links))
	}
	same := func(what string, had, got, whose any) error {
		if had != got {
			return fmt.Errorf("%s is not the one that it was, or not its primary's", what)
		}
		if other, ok := owner[got]; ok && other != whose {
			return fmt.Errorf("%s is another's", what)
		}
		owner[got] = whose
		return nil
	}
	for q, got := range comm.QPs() {
		l := c.links[q]
		if l.qp[end] == nil {
			l.qp[end] = got
		}
		if err := same(fmt.Sprintf("queue pair %d", q), l.qp[end], got, l); err != nil {
			return err
		}
	}
	if c.own.cq[end] == nil {
		c.own.cq[end] = comm.CQ()
	}
	if err := same("the completion queue", c.own.cq[end], comm.CQ(), c.own); err != nil {
		return err
	}
	ready := c.finished[end] && c.own.connected[end]
	if err := comm.Ready(); (err == nil) != ready {
		return fmt.Errorf("%q, want ready: %t", message(err), ready)
	}
	if !ready {
		return nil
	}
	for q, p := range comm.QPs() {
		if far := c.links[q].qp[1-end]; far != nil && p.(*qp).remote != far.(*qp) {
			return fmt.Errorf("queue pair %d is connected to %v, want %v", q, p.(*qp).remote, far)
		}
	}
	return usable(comm)
}

// stepBytes is how many bytes of a program say what to do next.
const stepBytes = 3

func (m *model) step(op, a, b byte) error {
	pick := func(n byte) *modelConn { return m.live[int(n)%len(m.live)] }
	end := int(a & 1)
	switch op %= 12; {
	case op <= 3 || len(m.live) == 0:
		p := place{nics: [2]int{int(a & 1), int(a >> 1 & 1)}, dir: pool.Send, group: int(b)%(m.groups+1) - 1}
		if a>>2&1 == 1 {
			p.dir = pool.Recv
		}
		failAt := 0
		if op == 3 {
			failAt = int(b>>5) + 1
		}
		return m.prepare(p, 1+int(a>>3)%5, int(b>>4&1), failAt)
	case op <= 7:
		c := pick(b)
		return m.finish(c, c, end, 0)
	case op == 8:
		c := pick(b)
		return m.finish(c, c, end, int(a>>1)%6)
	case op == 9:
		return m.finish(pick(b), pick(a>>1), end, 0)
	case op == 10 && len(m.gone) > 0:
		return m.late(m.gone[int(b)%len(m.gone)], end)
	}
	return m.close(int(b) % len(m.live))
}

// play runs a program and says what is wrong with the pools, and after which steps.
func play(program []byte) (err error) {
	if len(program) == 0 {
		return nil
	}
	m, err := newModel(int(program[0]) % 4)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%d groups\n%s", err, m.groups, strings.Join(m.log, "\n"))
		}
	}()
	for steps := range slices.Chunk(program[1:], stepBytes) {
		if len(steps) < stepBytes {
			break
		}
		if err := errors.Join(m.step(steps[0], steps[1], steps[2]), m.compare()); err != nil {
			return err
		}
	}
	for len(m.live) > 0 {
		if err := errors.Join(m.close(m.clock%len(m.live)), m.compare()); err != nil {
			return err
		}
	}
	return errors.Join(m.pool[0].Close(), m.pool[1].Close())
}

// shrink leaves out what a failing program does not need to fail.
func shrink(program []byte) []byte {
	for size := len(program) / stepBytes / 2; size > 0; size /= 2 {
		for at := 1; at+size*stepBytes <= len(program); {
			if shorter := slices.Concat(program[:at], program[at+size*stepBytes:]); play(shorter) != nil {
				program = shorter
			} else {
				at += size * stepBytes
			}
		}
	}
	return program
}

// Random connections that are prepared, finished, closed and failed, against the model.
func TestModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 20))
		program := make([]byte, 1+stepBytes*(20+r.IntN(200)))
		for i := range program {
			program[i] = byte(r.Uint32())
		}
		if play(program) != nil {
			program = shrink(program)
			t.Fatalf("seed %d, shrunk to %#v:\n%v", seed, program, play(program))
		}
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 4, 0, 0, 4, 1, 0, 11, 0, 0})
	f.Add([]byte{0, 0, 8, 0, 8, 2, 0, 3, 24, 0x35, 9, 2, 1})
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 1+stepBytes*200 {
			program = program[:1+stepBytes*200]
		}
		if err := play(program); err != nil {
			t.Error(err)
		}
	})
}
