package rdma

/*
#include "rdma.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

// address is what other ranks need to connect to this one.
type address struct {
	Rank       int        `json:"rank"`
	NIC        string     `json:"nic"`
	ControlKey uint32     `json:"control_key"`
	InboxKey   uint32     `json:"inbox_key"`
	Peers      []halfPath `json:"peers"`
}

// halfPath is a rank's half of the connections with another rank.
type halfPath struct {
	Rank  int        `json:"rank"` // the other rank
	Words uint64     `json:"words"`
	Inbox uint64     `json:"inbox"`
	Out   []halfConn `json:"out"`
	In    []halfConn `json:"in"`
}

type halfConn struct {
	Offer pool.Offer `json:"offer"`
	FIFO  uint64     `json:"fifo,omitempty"` // address; senders only
}

func (ep *endpoint) Address() []byte {
	a := address{Rank: ep.env.Rank, NIC: ep.nic.String(), ControlKey: ep.control.mr.RKey}
	if ep.inbox != nil {
		a.InboxKey = ep.inbox.mr.RKey
	}
	for _, p := range ep.peers {
		h := halfPath{Rank: p.rank, Words: ep.control.addr(p.words)}
		if len(p.in) > 0 {
			h.Inbox = ep.inbox.base + p.inbox
		}
		for _, c := range p.out {
			h.Out = append(h.Out, halfConn{Offer: c.Offer(), FIFO: ep.control.addr(c.entry)})
		}
		for _, c := range p.in {
			h.In = append(h.In, halfConn{Offer: c.Offer()})
		}
		a.Peers = append(a.Peers, h)
	}
	b, _ := json.Marshal(a) // cannot fail: plain structs
	return b
}

func (ep *endpoint) Connect(_ context.Context, addresses [][]byte) error {
	begin := time.Now()
	ep.makeEnd()
	var nics []string
	for rank, text := range addresses {
		var a address
		if err := json.Unmarshal(text, &a); err != nil {
			return fmt.Errorf("rdma: connect: address of rank %d: %w", rank, err)
		}
		nics = append(nics, a.NIC)
		if err := ep.connect(a); err != nil {
			return fmt.Errorf("rdma: connect: to rank %d: %w", rank, err)
		}
	}
	for _, c := range slices.Concat(ep.out, ep.in) {
		if err := c.Ready(); err != nil {
			return fmt.Errorf("rdma: connect: %w", err)
		}
	}
	ep.before = verbs.HardwareCounters(ep.nic.device.Name, ep.nic.port.Number)
	ep.describe(nics)
	ep.path.ConnectUS = transport.Since(begin)
	ep.ready = true
	return nil
}

// connect connects to a rank, if it is a peer.
func (ep *endpoint) connect(a address) error {
	mine := slices.IndexFunc(a.Peers, func(h halfPath) bool { return h.Rank == ep.env.Rank })
	index := slices.IndexFunc(ep.peers, func(p *peer) bool { return p.rank == a.Rank })
	if index < 0 {
		return nil
	}
	p := ep.peers[index]
	if mine < 0 || len(a.Peers[mine].In) != len(p.out) || len(a.Peers[mine].Out) != len(p.in) {
		return fmt.Errorf("its connections differ from this rank's: start both with the same options")
	}
	there := a.Peers[mine]
	x := &ep.cPeers()[index]
	x.remote_words, x.remote_words_rkey = C.uint64_t(there.Words), C.uint32_t(a.ControlKey)
	for k, c := range p.out {
		if err := c.Finish(there.In[k].Offer); err != nil {
			return err
		}
		y := &ep.cOut()[int(x.first_out)+k]
		y.remote_id, y.inbox, y.inbox_rkey = C.uint32_t(there.In[k].Offer.ID), C.uint64_t(there.Inbox), C.uint32_t(a.InboxKey)
	}
	for k, c := range p.in {
		if err := c.Finish(there.Out[k].Offer); err != nil {
			return err
		}
		y := &ep.cIn()[int(x.first_in)+k]
		y.remote_id = C.uint32_t(there.Out[k].Offer.ID)
		y.remote_fifo, y.remote_fifo_rkey = C.uint64_t(there.Out[k].FIFO), C.uint32_t(a.ControlKey)
	}
	return nil
}

func (ep *endpoint) cPeers() []C.struct_rdma_peer { return sliceOf(ep.end.peer, ep.end.peers) }
func (ep *endpoint) cOut() []C.struct_rdma_conn   { return sliceOf(ep.end.out, ep.end.outs) }
func (ep *endpoint) cIn() []C.struct_rdma_conn    { return sliceOf(ep.end.in, ep.end.ins) }

// softYields is the number of polls without progress after which a rank yields its CPU, if the CPU emulates the NIC. In
// a VM with two CPUs, smaller and larger values were slower.
const softYields = 16

var flag = map[bool]C.uint32_t{true: 1}

// makeEnd makes the C part, except for what the peers' addresses contain.
func (ep *endpoint) makeEnd() {
	m := &ep.memory
	end := &array[C.struct_rdma_end](m, 1)[0]
	ep.end = end
	end.ctx = (*C.struct_p2p_ctx)(ep.env.Wait.Pointer())
	end.engine = (*C.struct_p2p_engine)(ep.engine.Table().Pointer())
	end.rank, end.bytes = C.uint32_t(ep.env.Rank), C.uint64_t(ep.o.region(ep.env.Region))
	end.config = C.struct_rdma_config{
		window: C.uint32_t(ep.o.Window), signal_every: C.uint32_t(ep.o.SignalEvery), inlined: C.uint32_t(ep.inlined()),
		pre_granted: flag[ep.o.CTS == CTSPreGranted], by_order: flag[ep.o.Route == RouteFIFO],
		separate_imm: flag[ep.o.Completion == WriteThenImm], in_memory: flag[ep.o.Completion == InMemory], burst: C.uint32_t(ep.o.Burst),
		together: flag[ep.o.Fan == FanIn],
	}
	if ep.nic.soft() {
		end.config.soft, end.config.yields = 1, softYields
	}
	if ep.source != nil {
		end.source, end.source_lkey = ep.source.at(), C.uint32_t(ep.source.mr.LKey)
	}
	if ep.inbox != nil {
		end.inbox_rkey = C.uint32_t(ep.inbox.mr.RKey)
	}
	end.control_lkey = C.uint32_t(ep.control.mr.LKey)
	ep.makeQueues()
	ep.makeConns()
}

func (ep *endpoint) makeQueues() {
	m, end := &ep.memory, ep.end
	cqs := array[*C.struct_ibv_cq](m, len(ep.maker.cqs))
	for i, cq := range ep.maker.cqs {
		cqs[i] = (*C.struct_ibv_cq)(cq.Pointer())
	}
	end.cq, end.cqs = &cqs[0], C.uint32_t(len(cqs))
	limits := ep.o.queues(ep.pool.Sizes())
	qps := array[C.struct_rdma_qp](m, len(ep.maker.qps))
	for i, q := range ep.maker.qps {
		ring := 1 << bits.Len(uint(limits.sends-1))
		qps[i] = C.struct_rdma_qp{
			qp: (*C.struct_ibv_qp)(q.Pointer()), ring: &array[C.struct_rdma_sent](m, ring)[0], mask: C.uint32_t(ring - 1),
			room: C.uint32_t(limits.sends), inlined: C.uint32_t(q.Inline()),
			chain: &array[C.struct_rdma_chain](m, 1)[0],
			slack: C.uint32_t(min(limits.receives-ep.o.sharing()*ep.o.Window, C.RDMA_CHAIN)),
		}
	}
	end.pending = unsafe.SliceData(array[C.uint32_t](m, len(qps)))
	end.qp, end.qps = &qps[0], C.uint32_t(len(qps))
}

func (ep *endpoint) makeConns() {
	m, end := &ep.memory, ep.end
	out, in := array[C.struct_rdma_conn](m, len(ep.out)), array[C.struct_rdma_conn](m, len(ep.in))
	end.out, end.outs = unsafe.SliceData(out), C.uint32_t(len(out))
	end.in, end.ins = unsafe.SliceData(in), C.uint32_t(len(in))
	peers := array[C.struct_rdma_peer](m, len(ep.peers))
	end.peer, end.peers = &peers[0], C.uint32_t(len(peers))
	nextOut, nextIn := 0, 0
	for i, p := range ep.peers {
		x := &peers[i]
		x.rank, x.out, x.in = C.uint32_t(p.rank), C.uint32_t(len(p.out)), C.uint32_t(len(p.in))
		x.first_out, x.first_in = C.uint32_t(nextOut), C.uint32_t(nextIn)
		x.words = (*C.struct_rdma_words)(ep.control.at(p.words))
		x.outgoing = (*C.struct_rdma_words)(ep.control.at(p.words + C.sizeof_struct_rdma_words))
		if len(p.in) > 0 {
			x.inbox = (*C.uint8_t)(abi.Pointer(ep.inbox.buffer.Addr() + uintptr(p.inbox)))
		}
		for k, c := range p.out {
			y := &out[nextOut]
			ep.fillConn(y, c, i, k)
			y.fifo = (*C.struct_rdma_cts)(ep.control.at(c.entry))
			y.bins = &array[C.uint32_t](m, C.RDMA_BINS)[0]
			nextOut++
			end.out_by_id[c.ID()] = C.uint32_t(nextOut)
		}
		for k, c := range p.in {
			y := &in[nextIn]
			ep.fillConn(y, c, i, k)
			y.entry = (*C.struct_rdma_cts)(ep.control.at(c.entry))
			for _, q := range sliceOf(y.qp, y.qps) {
				sliceOf(end.qp, end.qps)[q].owner = C.uint32_t(nextIn)
			}
			nextIn++
			end.in_by_id[c.ID()] = C.uint32_t(nextIn)
		}
	}
}

func (ep *endpoint) fillConn(y *C.struct_rdma_conn, c *conn, peer, number int) {
	qps := c.QPs()
	index := array[C.uint32_t](&ep.memory, len(qps))
	for i, q := range qps {
		index[i] = C.uint32_t(q.(*queuePair).index) // maker makes only these
	}
	y.id, y.peer, y.number = C.uint32_t(c.ID()), C.uint32_t(peer), C.uint32_t(number)
	y.qps, y.qp = C.uint32_t(len(qps)), &index[0]
	y.unused = C.uint32_t(ep.o.Window)
	for i := range ep.o.Window {
		y.request[i] = C.uint8_t(ep.o.Window - 1 - i) // the last one is taken first
	}
}

// inlined is the largest message that is sent inline. The CPU copies inline data, so GPU memory cannot be.
func (ep *endpoint) inlined() int {
	if !ep.env.Device.Info().OnCPU() {
		return 0
	}
	n := *ep.o.Inline
	for _, q := range ep.maker.qps {
		n = min(n, q.Inline())
	}
	return n
}

// vendorOnly lists the features of ROCm ANP that need a vendor's NIC.
const vendorOnly = "not available: UDMA mask (binds queue pairs to halves of the NIC: AMD's driver only), CTS offload (the NIC gives " +
	"credits itself: vendor firmware; --cts pre-granted emulates it)"

func (ep *endpoint) describe(nics []string) {
	o, p := ep.o, &ep.path
	p.Path, p.Engine, p.Completion, p.ThroughHost = string(o.Completion), "rdma", "receiver", true
	if o.Fan != Pair {
		p.Ways = len(o.rankPairs(len(ep.env.Devices)))
	}
	mtu := ep.nic.port.MTU
	how := MRReg
	for _, r := range []*region{ep.source, ep.inbox} {
		if r != nil {
			how = r.how
		}
	}
	p.Knobs = knob.Settings(&o)
	maps.Copy(p.Knobs, map[string]string{ // choices made at run time
		"groups": strconv.Itoa(o.Groups), "nics": strings.Join(nics, ","),
		"gid": ep.nic.gid.String(), "mtu": strconv.Itoa(mtu), "inline": strconv.Itoa(ep.inlined()), "mr": string(how),
		"soft": strconv.FormatBool(ep.nic.soft()),
	})
	p.Counters = counters
	p.Over = []string{"NIC " + p.Knobs["nics"], "GID " + p.Knobs["gid"], "MTU " + p.Knobs["mtu"]}
	p.Notes = []transport.Note{{Label: "vendor", Text: vendorOnly}}
	if ep.nic.soft() {
		p.Over = append(p.Over, "soft-RoCE")
		p.OnlyRatios = "the CPU emulates the NIC (soft-RoCE)"
	}
	for _, c := range ep.pool.Sizes().Clamped {
		p.Warnings = append(p.Warnings, c.String())
	}
	if n := ep.inlined(); n < *o.Inline && *o.Inline != defaultInline && ep.env.Device.Info().OnCPU() {
		p.Warnings = append(p.Warnings, fmt.Sprintf("--inline %d: the device supports %d inline bytes", *o.Inline, n))
	}
}

var _ transport.Endpoint = (*endpoint)(nil)
