package verbs

/*
#include "verbs.h"
*/
import "C"

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// CQ is a completion queue.
type CQ struct {
	c     *Context
	p     *C.struct_ibv_cq
	depth int
}

// NewCQ makes a completion queue of at least depth entries.
func (c *Context) NewCQ(depth int) (*CQ, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	if depth < 1 || depth > c.limits.CQE {
		return nil, fmt.Errorf("verbs: %s: a completion queue of %d entries: the device takes 1 to %d", c.name, depth, c.limits.CQE)
	}
	q := &CQ{c: c}
	if err := c.fail("ibv_create_cq", C.p2p_verbs_cq(c.p, C.int(depth), &q.p)); err != nil {
		return nil, fmt.Errorf("%w: %d entries; of %d completion queues that the device can have this process has %d",
			err, depth, c.limits.CQs, c.cqs.Load())
	}
	c.cqs.Add(1)
	q.depth = int(q.p.cqe)
	return q, nil
}

// Pointer is the struct ibv_cq, valid until Close.
func (q *CQ) Pointer() unsafe.Pointer { return unsafe.Pointer(q.p) }

// Depth is the number of completions that the queue can hold, which may be more than requested.
func (q *CQ) Depth() int { return q.depth }

// Close destroys the queue. It is an error while a queue pair uses it. A second Close does nothing.
func (q *CQ) Close() error {
	if q.p == nil {
		return nil
	}
	if err := q.c.fail("ibv_destroy_cq", C.p2p_verbs_destroy_cq(q.p)); err != nil {
		return hint(err, syscall.EBUSY, "a queue pair uses it")
	}
	q.p = nil
	q.c.cqs.Add(-1)
	return nil
}

// RNRForever and RNRNever are values of QPSpec.RNRRetry.
const (
	RNRForever = 7
	RNRNever   = -1
)

// QPSpec specifies a queue pair. A send or a receive has at most one buffer.
type QPSpec struct {
	CQ      *CQ // for sends and receives
	SendWRs int // maximum posted sends
	RecvWRs int // maximum posted receives
	Inline  int // requested maximum bytes of inline data
	// AckTimeout is the acknowledgement timeout, 4.096 µs << AckTimeout, 1 to 31; 0: AckDefault.
	AckTimeout int
	// RNRRetry is the number of retries of a message for which no receive is posted: 1 to 6, RNRNever, or RNRForever,
	// which is also the meaning of 0.
	RNRRetry int
}

// QP is a reliably connected queue pair. Not every work request is signalled: IBV_SEND_SIGNALED asks for a completion.
type QP struct {
	c      *Context
	p      *C.struct_ibv_qp
	number uint32
	psn    uint32
	inline int
	rnr    int
	ack    int
	port   int // since Init
	eth    bool
	lid    uint16
	mtu    int
}

// NewQP makes a queue pair, which must be closed before its completion queue.
func (c *Context) NewQP(s QPSpec) (*QP, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	if s.CQ == nil || s.CQ.p == nil {
		return nil, fmt.Errorf("verbs: %s: a queue pair without an open completion queue", c.name)
	}
	for _, n := range []int{s.SendWRs, s.RecvWRs} {
		if n < 1 || n > c.limits.QPWRs {
			return nil, fmt.Errorf("verbs: %s: a queue pair of %d sends and %d receives: the device takes 1 to %d work requests a queue",
				c.name, s.SendWRs, s.RecvWRs, c.limits.QPWRs)
		}
	}
	if s.Inline < 0 || s.RNRRetry < RNRNever || s.RNRRetry > RNRForever {
		return nil, fmt.Errorf("verbs: %s: a queue pair of %d inline bytes and %d RNR retries: use 0 or more bytes, and -1 to 7 retries",
			c.name, s.Inline, s.RNRRetry)
	}
	if s.AckTimeout < 0 || s.AckTimeout > 31 {
		return nil, fmt.Errorf("verbs: %s: a queue pair with the acknowledgement timeout %d: use 1 to 31, or 0", c.name, s.AckTimeout)
	}
	q := &QP{c: c, rnr: s.RNRRetry, ack: s.AckTimeout}
	if s.AckTimeout == 0 {
		q.ack = AckDefault
	}
	switch s.RNRRetry {
	case 0:
		q.rnr = RNRForever
	case RNRNever:
		q.rnr = 0
	}
	if err := q.create(s); err != nil {
		return nil, fmt.Errorf("%w: %d sends and %d receives; of %d queue pairs that the device can have this process has %d",
			err, s.SendWRs, s.RecvWRs, c.limits.QPs, c.qps.Load())
	}
	c.qps.Add(1)
	return q, nil
}

// create requests less inline data until the device accepts, because no device reports its maximum.
func (q *QP) create(s QPSpec) error {
	for inline := s.Inline; ; inline /= 2 {
		capacity := C.struct_ibv_qp_cap{
			max_send_wr: C.uint32_t(s.SendWRs), max_recv_wr: C.uint32_t(s.RecvWRs), max_send_sge: 1, max_recv_sge: 1,
			max_inline_data: C.uint32_t(inline),
		}
		errno := C.p2p_verbs_qp(q.c.pd, s.CQ.p, &capacity, &q.p)
		if errno == 0 {
			q.number, q.psn, q.inline = uint32(q.p.qp_num), rand.Uint32N(1<<24), int(capacity.max_inline_data)
			return nil
		}
		if inline == 0 {
			return q.c.fail("ibv_create_qp", errno)
		}
	}
}

// do calls a verb on the queue pair, which must be open.
func (q *QP) do(what string, verb func() C.int) error {
	if q.p == nil {
		return fmt.Errorf("verbs: %s: %s: the queue pair is closed", q.c.name, what)
	}
	return q.c.fail(what, verb())
}

// Pointer is the struct ibv_qp, valid until Close.
func (q *QP) Pointer() unsafe.Pointer { return unsafe.Pointer(q.p) }

// Number identifies the queue pair on its device.
func (q *QP) Number() uint32 { return q.number }

// PSN is the first packet sequence number of this end.
func (q *QP) PSN() uint32 { return q.psn }

// Inline is the maximum bytes of inline data: more than requested, or less.
func (q *QP) Inline() int { return q.inline }

// Init takes the queue pair to INIT, where receives may be posted: post them before Connect.
func (q *QP) Init(port int) error {
	var attr C.struct_ibv_port_attr
	if err := q.c.fail("ibv_query_port", C.p2p_verbs_port(q.c.p, C.int(port), &attr)); err != nil {
		return err
	}
	access := RemoteWrite | RemoteRead
	if q.c.atomic {
		access |= RemoteAtomic
	}
	if err := q.do("ibv_modify_qp to INIT", func() C.int { return C.p2p_verbs_init(q.p, C.int(port), C.uint(access)) }); err != nil {
		return err
	}
	q.port, q.lid, q.mtu = port, uint16(attr.lid), mtuBytes(attr.active_mtu)
	q.eth = attr.link_layer == C.IBV_LINK_LAYER_ETHERNET
	return nil
}

// Remote is the other end of a connection, and the path to it.
type Remote struct {
	Number uint32   `json:"number"` // of its queue pair
	PSN    uint32   `json:"psn"`    // its first packet sequence number
	LID    uint16   `json:"lid"`
	GID    [16]byte `json:"gid"`
	MTU    int      `json:"mtu"` // of its port, bytes; the smaller one of the two ends is used

	// Chosen by the connecting end.
	SGID         int   `json:"-"` // index of its own GID
	TrafficClass uint8 `json:"-"`
	ServiceLevel uint8 `json:"-"`
}

// Local describes this end for the other end's Connect, with one of its port's GIDs. Call it after Init.
func (q *QP) Local(g GID) Remote {
	return Remote{Number: q.number, PSN: q.psn, LID: q.lid, GID: g.Value, MTU: q.mtu}
}

// AckDefault is 4.3 s, as in NCCL since 2.23. With 67 ms (14), a window of 64 KiB messages can time out in soft-RoCE.
const AckDefault = 20

// Values of ibv_qp_attr: a message without an acknowledgement is retried seven times; a sender for whose message no
// receive is posted waits for 0.64 ms.
const (
	ackRetries = 7
	rnrTimer   = 12
)

// Connect takes the queue pair from INIT to RTS. The other end must do the same with this one's Local.
func (q *QP) Connect(r Remote) error {
	if q.c.transport == "iWARP" {
		return fmt.Errorf("verbs: %s: connect: an iWARP device connects by rdma_cm, which is not used here: %w", q.c.name, gpu.ErrUnsupported)
	}
	if q.port == 0 {
		return fmt.Errorf("verbs: %s: connect: the queue pair was not initialised", q.c.name)
	}
	path := C.struct_p2p_verbs_path{
		number: C.uint32_t(r.Number), psn: C.uint32_t(r.PSN), own_psn: C.uint32_t(q.psn), lid: C.uint16_t(r.LID),
		port: C.uint8_t(q.port), gid_index: C.uint8_t(r.SGID), traffic_class: C.uint8_t(r.TrafficClass),
		service_level: C.uint8_t(r.ServiceLevel), mtu: mtuCode(min(q.mtu, r.MTU)),
		reads: C.uint8_t(min(q.c.limits.ReadAtomic, 16)), timeout: C.uint8_t(q.ack), retry: ackRetries,
		rnr_retry: C.uint8_t(q.rnr), rnr_timer: rnrTimer,
	}
	for i, b := range r.GID {
		path.gid[i] = C.uchar(b)
	}
	if q.eth || r.LID == 0 {
		path.global = 1
	}
	if err := q.do("ibv_modify_qp to RTR", func() C.int { return C.p2p_verbs_rtr(q.p, &path) }); err != nil {
		return fmt.Errorf("%w: to %s from GID index %d", err, GID{Value: r.GID}.Addr(), r.SGID)
	}
	return q.do("ibv_modify_qp to RTS", func() C.int { return C.p2p_verbs_rts(q.p, &path) })
}

// states are the names of enum ibv_qp_state, in its order.
var states = []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "UNKNOWN"}

// State asks the device for the queue pair's state: "RESET", "INIT", "RTR", "RTS", "ERR".
func (q *QP) State() (string, error) {
	var state C.int
	if err := q.do("ibv_query_qp", func() C.int { return C.p2p_verbs_state(q.p, &state) }); err != nil {
		return "", err
	}
	if state < 0 || int(state) >= len(states) {
		return fmt.Sprintf("state %d", int(state)), nil
	}
	return states[state], nil
}

// Fail takes the queue pair to ERR: posted work requests complete as flushed.
func (q *QP) Fail() error {
	return q.do("ibv_modify_qp to ERR", func() C.int { return C.p2p_verbs_err(q.p) })
}

// Close destroys the queue pair. A second Close does nothing.
func (q *QP) Close() error {
	if q.p == nil {
		return nil
	}
	if err := q.c.fail("ibv_destroy_qp", C.p2p_verbs_destroy_qp(q.p)); err != nil {
		return err
	}
	q.p = nil
	q.c.qps.Add(-1)
	return nil
}
