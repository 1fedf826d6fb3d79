package rdma

/*
#include <stdlib.h>
#include "rdma.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

// endpoint is the transport in one rank.
type endpoint struct {
	o       Options // settled
	env     transport.Env
	nic     nic
	context *verbs.Context
	engine  gpu.Engine
	source  *region
	inbox   *region // the inboxes, one for each rank that sends to this one
	control *control
	maker   *maker
	pool    *pool.Pool
	out, in []*conn
	peers   []*peer // the other ranks with which this one has connections
	end     *C.struct_rdma_end
	memory  arena // of the C structures
	before  map[string]uint64
	path    transport.Path
	ready   bool
	closed  bool
}

// conn is one end of a connection.
type conn struct {
	*pool.Comm
	peer  *peer
	entry uint64 // offset of its credits in the control memory: the sender's FIFO, or the receiver's copy
}

// peer is a rank that this one sends to or receives from.
type peer struct {
	rank    int
	out, in []*conn
	words   uint64 // offset in the control memory of the words that it writes; those for writes to it follow
	inbox   uint64 // offset of the inbox for its messages
}

func (t *rdma) Open(_ context.Context, env transport.Env) (_ transport.Endpoint, err error) {
	if err := t.Probe(env.Devices); err != nil {
		return nil, err
	}
	ep := &endpoint{o: t.o, env: env}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("rdma: open: %w", scarce(err)), ep.Close())
		}
	}()
	begin := time.Now()
	for _, step := range []func() error{ep.openNIC, ep.openDevice, ep.findPeers, ep.allocate, ep.prepare} {
		if err = step(); err != nil {
			return nil, err
		}
	}
	ep.path.OpenUS = transport.Since(begin)
	return ep, nil
}

// scarce marks errors by which this machine lacks a resource or permission as unsupported.
func scarce(err error) error {
	for _, errno := range []error{unix.ENOMEM, unix.EPERM, unix.EACCES, unix.EFAULT, unix.EINVAL} {
		if errors.Is(err, errno) && !errors.Is(err, gpu.ErrUnsupported) {
			return fmt.Errorf("%w: %w", err, gpu.ErrUnsupported)
		}
	}
	return err
}

func (ep *endpoint) openNIC() error {
	all, err := verbs.Devices()
	if err != nil {
		return err
	}
	if ep.nic, err = ep.o.choose(all, ep.env.Rank, ep.env.Device.Info()); err != nil {
		return err
	}
	ep.context, err = verbs.Open(ep.nic.device.Name)
	return err
}

// openDevice opens the engine that fills and checks payloads.
func (ep *endpoint) openDevice() (err error) {
	ep.engine, err = ep.env.Device.Engine(ep.env.Device.Info().CopyEngine)
	return err
}

// findPeers lists the ranks that this one has connections with.
func (ep *endpoint) findPeers() error {
	of := func(rank int) *peer {
		for _, p := range ep.peers {
			if p.rank == rank {
				return p
			}
		}
		ep.peers = append(ep.peers, &peer{rank: rank})
		return ep.peers[len(ep.peers)-1]
	}
	for _, w := range ep.o.rankPairs(len(ep.env.Devices)) {
		for range ep.o.Conns {
			switch ep.env.Rank {
			case w.from:
				p := of(w.to)
				p.out = append(p.out, &conn{peer: p})
			case w.to:
				p := of(w.from)
				p.in = append(p.in, &conn{peer: p})
			}
		}
	}
	for _, p := range ep.peers {
		ep.out, ep.in = append(ep.out, p.out...), append(ep.in, p.in...)
	}
	return nil
}

// allocate allocates and registers all memory.
func (ep *endpoint) allocate() (err error) {
	size := ep.o.region(ep.env.Region)
	if len(ep.out) > 0 {
		if ep.source, err = ep.newRegion(size, 0); err != nil {
			return fmt.Errorf("source: %w", err)
		}
	}
	var inboxes uint64
	for _, p := range ep.peers {
		if len(p.in) > 0 {
			p.inbox = inboxes
			inboxes += ceil(size, align) * align
		}
	}
	if inboxes > 0 {
		if ep.inbox, err = ep.newRegion(inboxes, verbs.LocalWrite|verbs.RemoteWrite); err != nil {
			return fmt.Errorf("inbox: %w", err)
		}
	}
	var at uint64
	for _, p := range ep.peers {
		p.words = at
		at += 2 * C.sizeof_struct_rdma_words
	}
	for _, c := range slices.Concat(ep.out, ep.in) {
		c.entry = at
		at += Requests * C.sizeof_struct_rdma_cts
	}
	ep.control, err = newControl(ep.context, at)
	return err
}

// burstBytes is the maximum number of bytes of a burst, unless a single iteration needs more.
const burstBytes = 16 << 20

// region is the size of the source and of each inbox, in bytes, if the largest batch needs the given bytes.
func (o Options) region(batch uint64) uint64 {
	return max(batch, min(batch*uint64(o.Burst), burstBytes), 1)
}

// prepare makes this rank's half of every connection, in the same order as its peers.
func (ep *endpoint) prepare() (err error) {
	limits := ep.context.Limits()
	ep.maker = &maker{ep: ep}
	ep.pool, err = pool.New(ep.maker, ep.o.spec(limits))
	if err != nil {
		return err
	}
	if err := ep.o.fit(ep.pool.Sizes()); err != nil {
		return err
	}
	ranks := len(ep.env.Devices)
	for _, w := range ep.o.rankPairs(ranks) {
		for k := range ep.o.Conns {
			p := ep.peer(w)
			if p == nil {
				continue
			}
			c, dir := ep.connOf(p, w, k)
			ep.maker.receives = dir == pool.Recv
			name := pool.Peer{Process: fmt.Sprintf("%s/%d", ep.env.Run, p.rank)}
			if c.Comm, err = ep.pool.Prepare(name, dir, -1); err != nil {
				return fmt.Errorf("connection %d of %d: %w", k+1, ep.o.Conns, err)
			}
		}
	}
	return nil
}

// peer is this rank's peer in w; nil: w is a pair of other ranks.
func (ep *endpoint) peer(w rankPair) *peer {
	for _, p := range ep.peers {
		if w == (rankPair{ep.env.Rank, p.rank}) || w == (rankPair{p.rank, ep.env.Rank}) {
			return p
		}
	}
	return nil
}

func (ep *endpoint) connOf(p *peer, w rankPair, k int) (*conn, pool.Dir) {
	if w.from == ep.env.Rank {
		return p.out[k], pool.Send
	}
	return p.in[k], pool.Recv
}

// spec is the pool's specification for a device with limits l. Without sharing, --depth multiplies the requests of a
// connection.
func (o Options) spec(l verbs.Limits) pool.Spec {
	s := pool.Spec{
		Groups: o.Groups, QPs: o.QPs, Depth: o.Depth, Requests: Requests,
		Limits: pool.Limits{CQE: l.CQE, QPWRs: l.QPWRs},
	}
	if o.Groups == 0 {
		s.Depth, s.Requests = 1, Requests*o.Depth
	}
	return s
}

// queues is the maximum number of posted work requests of a queue pair, so that its completion queue can hold all their
// completions.
type queues struct{ sends, receives int }

func (o Options) queues(s pool.Sizing) queues {
	return queues{
		sends:    min(s.SendWRs, s.CQE*2/3/o.QPs),
		receives: min(s.RecvWRs, s.CQE/3/o.QPs),
	}
}

// sharing is the maximum number of connections that share a queue pair.
func (o Options) sharing() int {
	if o.Groups == 0 {
		return 1
	}
	return (o.Conns + o.Groups - 1) / o.Groups
}

// fit refuses settings that exceed the device's limits.
func (o Options) fit(s pool.Sizing) error {
	sharing := o.sharing()
	q, messages := o.queues(s), sharing*o.Window
	if messages <= q.receives && messages*o.posts()+messages/2 < q.sends {
		return nil
	}
	help := "use a smaller --window"
	if o.Groups > 0 {
		help += ", or more --groups"
	}
	return fmt.Errorf("a queue pair would have %d messages in flight, of %d connections with %d each, and the device allows %d sends and %d receives on it (completion queue of %d entries): %s: %w",
		messages, sharing, o.Window, q.sends, q.receives, s.CQE, help, gpu.ErrUnsupported)
}

// maker makes the objects of the pool.
type maker struct {
	ep       *endpoint
	receives bool // the connections being prepared receive
	cqs      []*verbs.CQ
	qps      []*queuePair
}

func (m *maker) NewCQ(depth int) (pool.CQ, error) {
	cq, err := m.ep.context.NewCQ(depth)
	if err != nil {
		return nil, err
	}
	m.cqs = append(m.cqs, cq)
	return cq, nil
}

// queuePair implements pool.QP.
type queuePair struct {
	*verbs.QP
	nic   nic
	index int
	cq    *verbs.CQ
}

// maxQPs is the maximum number of queue pairs of a rank: wr_id contains their index.
const maxQPs = 1 << 16

func (m *maker) NewQP(cq pool.CQ, s pool.Sizes) (pool.QP, error) {
	if len(m.qps) == maxQPs {
		return nil, fmt.Errorf("a rank has at most %d queue pairs: use fewer --qps, or fewer --conns: %w", maxQPs, gpu.ErrUnsupported)
	}
	q := &queuePair{nic: m.ep.nic, index: len(m.qps), cq: cq.(*verbs.CQ)} // from NewCQ
	inline := max(*m.ep.o.Inline, C.sizeof_struct_rdma_cts)
	var err error
	if q.QP, err = m.ep.context.NewQP(verbs.QPSpec{CQ: q.cq, SendWRs: s.SendWRs, RecvWRs: s.RecvWRs, Inline: inline}); err != nil {
		return nil, err
	}
	if err := q.Init(q.nic.port.Number); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	if m.receives && m.ep.o.Completion != InMemory {
		n := C.uint32_t(m.ep.o.queues(m.ep.pool.Sizes()).receives)
		err := abi.Call(func(e *C.struct_p2p_error) {
			C.p2p_rdma_receives((*C.struct_ibv_qp)(q.Pointer()), C.uint32_t(q.index), n, e)
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("receives: %w", err), q.Close())
		}
	}
	m.qps = append(m.qps, q)
	return q, nil
}

func (q *queuePair) Address() []byte {
	b, _ := json.Marshal(q.Local(q.nic.gid)) // cannot fail: a plain struct
	return b
}

func (q *queuePair) Connect(remote []byte) error {
	var r verbs.Remote
	if err := json.Unmarshal(remote, &r); err != nil {
		return fmt.Errorf("address of a queue pair: %w", err)
	}
	r.SGID = q.nic.gid.Index
	return q.QP.Connect(r)
}

func (ep *endpoint) Describe() transport.Path { return ep.path }

// Close releases everything, connections in the order of --close-order.
func (ep *endpoint) Close() error {
	if ep.closed {
		return nil
	}
	ep.closed, ep.ready = true, false
	var errs []error
	conns := slices.Concat(ep.out, ep.in)
	switch ep.o.Close {
	case LIFO:
		slices.Reverse(conns)
	case Random:
		order := rand.New(rand.NewPCG(uint64(len(conns)), 1)) //nolint:gosec // the same order in each run
		order.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	}
	for _, c := range conns {
		if c.Comm != nil {
			errs = append(errs, c.Close())
		}
	}
	if ep.pool != nil {
		errs = append(errs, ep.pool.Close())
	}
	errs = append(errs, ep.control.Close(), ep.inbox.Close(), ep.source.Close())
	if ep.context != nil {
		errs = append(errs, ep.context.Close())
	}
	if ep.engine != nil {
		errs = append(errs, ep.engine.Close())
	}
	ep.memory.Close()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("rdma: close: %w", err)
	}
	return nil
}

func ceil(n, by uint64) uint64 { return (n + by - 1) / by }
