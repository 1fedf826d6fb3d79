package verbs

/*
#include "verbs.h"
*/
import "C"

import "fmt"

// Op is the operation of a send.
type Op int

// The operations on the other end's memory.
const (
	Write    Op = C.IBV_WR_RDMA_WRITE
	WriteImm Op = C.IBV_WR_RDMA_WRITE_WITH_IMM // and consumes a receive of the other end
	Read     Op = C.IBV_WR_RDMA_READ
)

// Send is a work request of a send queue. Addr need not be set where Bytes is 0.
type Send struct {
	ID         uint64
	Op         Op
	Imm        uint32
	Addr       uintptr
	LKey       uint32
	Bytes      uint32
	Remote     uint64 // address
	RKey       uint32
	Inline     bool // the bytes are copied when it is posted; LKey need not be set
	Unsignaled bool // no completion, unless it fails
}

// PostSend posts a work request.
func (q *QP) PostSend(s Send) error {
	work := C.struct_p2p_verbs_work{
		id: C.uint64_t(s.ID), op: C.int(s.Op), imm: C.uint32_t(s.Imm), addr: C.uint64_t(s.Addr), bytes: C.uint32_t(s.Bytes),
		lkey: C.uint32_t(s.LKey), remote: C.uint64_t(s.Remote), rkey: C.uint32_t(s.RKey),
	}
	if s.Inline {
		work.flags |= C.IBV_SEND_INLINE
	}
	if !s.Unsignaled {
		work.flags |= C.IBV_SEND_SIGNALED
	}
	return q.do("ibv_post_send", func() C.int { return C.p2p_verbs_post(q.p, &work) })
}

// PostRecv posts a receive without a buffer, which a WriteImm of the other end consumes.
func (q *QP) PostRecv(id uint64) error {
	return q.do("ibv_post_recv", func() C.int { return C.p2p_verbs_post_recv(q.p, C.uint64_t(id)) })
}

// Completion is the result of a work request.
type Completion struct {
	ID     uint64
	QP     uint32 // number of the queue pair
	Err    error  // nil: it succeeded, and the fields below are valid
	Status int    // for WCStatus
	Recv   bool   // of a receive
	Imm    uint32
	Bytes  uint32
}

// Poll takes up to n completions, which is 1 or more, without waiting.
func (q *CQ) Poll(n int) ([]Completion, error) {
	if q.p == nil {
		return nil, fmt.Errorf("verbs: %s: ibv_poll_cq: the completion queue is closed", q.c.name)
	}
	wcs := make([]C.struct_ibv_wc, n)
	got := C.p2p_verbs_poll(q.p, C.int(n), &wcs[0])
	if got < 0 {
		return nil, q.c.fail("ibv_poll_cq", -got)
	}
	out := make([]Completion, got)
	for i := range out {
		wc := &wcs[i]
		out[i] = Completion{ID: uint64(wc.wr_id), QP: uint32(wc.qp_num), Status: int(wc.status)}
		if wc.status != C.IBV_WC_SUCCESS {
			out[i].Err = fmt.Errorf("verbs: %s: queue pair %d: %s (%d, vendor %#x)", q.c.name, out[i].QP,
				WCStatus(out[i].Status), out[i].Status, uint32(wc.vendor_err))
			continue
		}
		out[i].Bytes = uint32(wc.byte_len)
		out[i].Recv = wc.opcode&C.IBV_WC_RECV != 0
		if wc.wc_flags&C.IBV_WC_WITH_IMM != 0 {
			out[i].Imm = uint32(C.p2p_verbs_imm(wc))
		}
	}
	return out, nil
}
