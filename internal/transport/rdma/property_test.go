package rdma

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/rdmatest"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

const (
	slots   = 24  // messages under way at most
	slot    = 128 // bytes of the largest one
	mostQPs = 64  // of a side
)

// side is one process's half of a joint: a pool on real verbs, or the fake's.
type side struct {
	ep  *endpoint // as far as its maker needs it
	mem *control  // what is sent, and behind it what is received
}

// link is a connection: its two ends, by side.
type link struct {
	comm [2]*pool.Comm
	from int // the side that sends
}

// joint is two pools that are connected with each other.
type joint struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand
	sides   [2]*side
	links   []*link // in the order in which they were made
	pending []*link // of those, not finished
	made    int
	sent    int
}

func (j *joint) fatal(format string, args ...any) {
	j.t.Helper()
	j.t.Fatalf("seed %d, after %d connections and %d messages: %s", j.seed, j.made, j.sent, fmt.Sprintf(format, args...))
}

func (j *joint) must(err error) {
	j.t.Helper()
	if err != nil {
		j.fatal("%v", err)
	}
}

// newJoint makes two sides on these devices.
func newJoint(t *testing.T, names [2]string, groups int, seed uint64) *joint {
	t.Helper()
	j := &joint{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 5))}
	all, err := verbs.Devices()
	j.must(err)
	o, err := Options{Groups: groups, Conns: max(groups, 1), QPs: 2, NICs: names[:]}.settle()
	j.must(err)
	for i := range j.sides {
		s := &side{ep: &endpoint{o: o}}
		s.ep.nic, err = o.choose(all, i, gpu.Info{})
		j.must(err)
		s.ep.context, err = verbs.Open(s.ep.nic.device.Name)
		j.must(err)
		s.mem, err = newControl(s.ep.context, 2*slots*slot)
		j.must(err)
		s.ep.maker = &maker{ep: s.ep}
		s.ep.pool, err = pool.New(s.ep.maker, o.spec(s.ep.context.Limits()))
		j.must(err)
		j.sides[i] = s
	}
	return j
}

// prepare starts a connection at both ends.
func (j *joint) prepare() {
	j.t.Helper()
	l, qps := &link{from: j.r.IntN(2)}, 1+j.r.IntN(4)
	for i, s := range j.sides {
		dir := pool.Send
		if i != l.from {
			dir = pool.Recv
		}
		s.ep.maker.receives = dir == pool.Recv
		var err error
		l.comm[i], err = s.ep.pool.PrepareQPs(pool.Peer{Process: fmt.Sprint("side ", 1-i)}, dir, -1, qps)
		j.must(err)
	}
	j.links, j.pending = append(j.links, l), append(j.pending, l)
	j.made++
}

// finish connects what was prepared, in any order.
func (j *joint) finish() {
	j.t.Helper()
	j.r.Shuffle(len(j.pending), func(a, b int) { j.pending[a], j.pending[b] = j.pending[b], j.pending[a] })
	for _, l := range j.pending {
		for i, c := range l.comm {
			var there pool.Offer
			text, err := json.Marshal(l.comm[1-i].Offer())
			j.must(err)
			j.must(json.Unmarshal(text, &there))
			j.must(c.Finish(there))
		}
	}
	j.pending = nil
	for _, l := range j.links {
		j.must(l.comm[0].Ready())
		j.must(l.comm[1].Ready())
	}
}

// message is one under way.
type message struct {
	link    *link
	request uint32
	qp      int // of the connection's
	payload []byte
	arrived bool
	ended   bool
}

// send sends messages over any connections at once, and holds each completion against what was sent.
func (j *joint) send(n int) {
	j.t.Helper()
	var under []*message
	for k := range n {
		m := &message{link: j.links[j.r.IntN(len(j.links))], request: uint32(k), payload: make([]byte, j.r.IntN(slot+1))}
		for i := range m.payload {
			m.payload[i] = byte(j.r.Uint32())
		}
		under = append(under, m)
		j.post(m, k)
		j.sent++
	}
	for end, left := time.Now().Add(20*time.Second), 2*n; left > 0; {
		if time.Now().After(end) {
			j.fatal("%d completions are missing", left)
		}
		left -= j.poll(under)
	}
	if n := j.poll(under); n != 0 {
		j.fatal("%d completions of nothing", n)
	}
}

func (j *joint) post(m *message, k int) {
	j.t.Helper()
	from, to := m.link.from, 1-m.link.from
	here, there := j.sides[from].mem, j.sides[to].mem
	copy(here.mem[k*slot:(k+1)*slot], m.payload)
	comm := m.link.comm[from]
	m.qp = j.r.IntN(len(comm.QPs()))
	q := comm.QPs()[m.qp].(*queuePair)
	id := uint64(comm.ID())<<48 | uint64(m.request)
	j.must(q.PostSend(verbs.Send{
		ID: id, Op: verbs.WriteImm, Imm: m.request<<16 | uint32(m.link.comm[to].ID()), Addr: uintptr(here.at(uint64(k * slot))),
		LKey: here.mr.LKey, Bytes: uint32(len(m.payload)), Remote: there.addr(uint64((slots + k) * slot)), RKey: there.mr.RKey,
		Inline: len(m.payload) <= q.Inline() && j.r.IntN(2) == 0,
	}))
}

// poll takes the completions of all queues, and returns how many there were.
func (j *joint) poll(under []*message) int {
	j.t.Helper()
	n := 0
	for i, s := range j.sides {
		var cqs []pool.CQ
		for _, l := range j.links {
			if cq := l.comm[i].CQ(); !slices.Contains(cqs, cq) {
				cqs = append(cqs, cq)
			}
		}
		for _, cq := range cqs {
			got, err := cq.(*verbs.CQ).Poll(16)
			j.must(err)
			for _, c := range got {
				j.must(c.Err)
				if c.Recv {
					j.arrive(s, i, cq, c, under)
				} else {
					j.end(s, cq, c, under)
				}
			}
			n += len(got)
		}
	}
	return n
}

// owner is the connection of a side that has an id; nil: none.
func (j *joint) owner(s *side, id uint16) *pool.Comm {
	at := slices.Index(j.sides[:], s)
	for _, l := range j.links {
		if l.comm[at].ID() == id {
			return l.comm[at]
		}
	}
	return nil
}

// end routes a send's completion by wr_id.
func (j *joint) end(s *side, cq pool.CQ, c verbs.Completion, under []*message) {
	j.t.Helper()
	owner, request := j.owner(s, uint16(c.ID>>48)), c.ID&0xff
	if owner == nil || request >= uint64(len(under)) {
		j.fatal("%+v is nobody's", c)
	}
	m := under[request]
	comm := m.link.comm[m.link.from]
	if comm != owner || m.ended || owner.CQ() != cq || comm.QPs()[m.qp].(*queuePair).Number() != c.QP {
		j.fatal("%+v went to connection %d", c, owner.ID())
	}
	m.ended = true
}

// arrive routes a receive's completion by the immediate, and posts another receive.
func (j *joint) arrive(s *side, i int, cq pool.CQ, c verbs.Completion, under []*message) {
	j.t.Helper()
	owner, request := j.owner(s, uint16(c.Imm)), c.Imm>>16
	if owner == nil || request >= uint32(len(under)) {
		j.fatal("%+v is nobody's", c)
	}
	m := under[request]
	q := s.ep.maker.qps[c.ID>>32&0xffff]
	if m.link.comm[i] != owner || i == m.link.from || m.arrived || owner.CQ() != cq || q.Number() != c.QP ||
		owner.QPs()[m.qp].(*queuePair) != q {
		j.fatal("%+v went to connection %d", c, owner.ID())
	}
	at := (slots + int(request)) * slot
	if got := s.mem.mem[at : at+len(m.payload)]; int(c.Bytes) != len(m.payload) || !bytes.Equal(got, m.payload) {
		j.fatal("connection %d: %d bytes %x, want %x", owner.ID(), c.Bytes, got, m.payload)
	}
	m.arrived = true
	j.must(q.PostRecv(c.ID))
}

// close closes the n-th connection at both ends.
func (j *joint) close(n int) {
	j.t.Helper()
	l := j.links[n]
	for _, i := range j.r.Perm(2) {
		j.must(l.comm[i].Close())
	}
	j.links = slices.Delete(j.links, n, n+1)
	j.count()
}

// next is which connection is closed next.
func (j *joint) next(order Order) int {
	switch order {
	case FIFO:
		return 0
	case LIFO:
		return len(j.links) - 1
	}
	return j.r.IntN(len(j.links))
}

// count holds what is open of the devices against what the pools say.
func (j *joint) count() {
	j.t.Helper()
	for i, s := range j.sides {
		qps, cqs, mrs := s.ep.context.Objects()
		if c := s.ep.pool.Counts(); c.Comms != len(j.links) || qps != c.QPs || cqs != c.CQs || mrs != 1 {
			j.fatal("side %d: %d connections: the pool has %+v, the device %d queue pairs, %d completion queues, %d regions",
				i, len(j.links), c, qps, cqs, mrs)
		}
	}
}

// end closes all that is left, in that order.
func (j *joint) endAll(order Order) {
	j.t.Helper()
	for len(j.links) > 0 {
		j.close(j.next(order))
	}
	for _, s := range j.sides {
		j.must(s.ep.pool.Close())
		j.must(s.mem.Close())
		if qps, cqs, mrs := s.ep.context.Objects(); qps+cqs+mrs != 0 {
			j.fatal("left: %d queue pairs, %d completion queues, %d regions", qps, cqs, mrs)
		}
		j.must(s.ep.context.Close())
	}
}

// full reports whether a side may not have more queue pairs.
func (j *joint) full() bool {
	qps, _, _ := j.sides[0].ep.context.Objects()
	return qps > mostQPs-4
}

// walk makes, uses and closes connections at random.
func (j *joint) walk(steps int, order Order) {
	j.t.Helper()
	for range steps {
		switch j.r.IntN(5) {
		case 0, 1: // several at once, as at set-up
			for n := 1 + j.r.IntN(5); n > 0 && !j.full() && len(j.links) < 100; n-- {
				j.prepare()
			}
			j.finish()
		case 2, 3:
			if len(j.links) > 0 {
				j.send(1 + j.r.IntN(slots))
			}
		default:
			for n := 1 + j.r.IntN(5); n > 0 && len(j.links) > 0; n-- {
				j.close(j.next(order))
			}
		}
	}
	j.endAll(order)
}

// inTurn makes and closes so many connections, of which few are there at a time, and sends over each.
func (j *joint) inTurn(n int, order Order) {
	j.t.Helper()
	for j.made < n {
		j.prepare()
		j.finish()
		j.send(2)
		if len(j.links) > 6 {
			j.close(j.next(order))
		}
	}
	j.endAll(order)
}

// walks is a random walk for each number of groups, order and way between devices.
func walks(t *testing.T, names []string, steps int) {
	t.Helper()
	seed := uint64(0)
	for _, groups := range []int{0, 1, 3, 4} {
		for _, order := range []Order{LIFO, FIFO, Random} {
			for _, ends := range [][2]string{{names[0], names[len(names)-1]}, {names[0], names[0]}} {
				seed++
				t.Run(fmt.Sprintf("groups %d, %s, %s to %s", groups, order, ends[0], ends[1]), func(t *testing.T) {
					newJoint(t, ends, groups, seed).walk(steps, order)
				})
			}
		}
	}
}

// TestProperty: whatever is made, used and closed in whatever order, every message arrives, every completion goes to
// its connection, and nothing is left.
func TestProperty(t *testing.T) {
	rdmatest.OnFake(t, "", func(t *testing.T) { walks(t, []string{"fake0", "fake1"}, 300) })
}

// TestHWProperty is the same on real verbs.
func TestHWProperty(t *testing.T) { walks(t, rdmatest.Ports(t), 25) }

// TestManyInTurn: ids, of which there are 4096, and queue pairs come round.
func TestManyInTurn(t *testing.T) {
	many := 10000
	if testing.Short() {
		many = 5000
	}
	for name, groups := range map[string]int{"unshared": 0, "shared": 3} {
		t.Run(name, func(t *testing.T) {
			rdmatest.OnFake(t, "", func(t *testing.T) {
				newJoint(t, [2]string{"fake0", "fake1"}, groups, 1).inTurn(many, Random)
			})
		})
	}
}
