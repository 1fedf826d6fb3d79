package queuetest

/*
#include "gpu/abi/p2p.h"
#include "gpu/abi/sendrecv.h"

static void start(struct p2p_queue *q, void *kernel, uint32_t ctas, uint32_t threads, uint32_t bytes,
		  const struct sr_args *a, struct p2p_error *e) {
	struct p2p_launch l = {.kernel = kernel, .ctas = ctas, .threads = threads, .bytes = bytes, .args = a};
	if (q->bind(q->self, e) == P2P_OK)
		q->start(q->self, &l, e);
}

static struct sr_state look(struct sr_state *s) {
	struct sr_state copy = {0};
	copy.done = __atomic_load_n(&s->done, __ATOMIC_ACQUIRE);
	copy.failed = __atomic_load_n(&s->failed, __ATOMIC_ACQUIRE);
	if (copy.failed) {
		copy.role = s->role;
		copy.block = s->block;
		copy.want = s->want;
		copy.have = s->have;
	}
	return copy;
}

static uint64_t begun(struct sr_team *t) { return __atomic_load_n(&t->go.value, __ATOMIC_ACQUIRE); }
static uint64_t met(struct sr_words *w) { return __atomic_load_n(&w->sync.value, __ATOMIC_ACQUIRE); }
static void ring(struct sr_state *s, uint64_t n) { __atomic_store_n(&s->doorbell, n, __ATOMIC_RELEASE); }
static void call_off(struct sr_state *s) { __atomic_store_n(&s->abort, 1, __ATOMIC_RELEASE); }
*/
import "C"

import (
	"time"
	"unsafe"
)

// The kernels.
const (
	WS      = C.SR_KERNEL_WS
	WSBulk  = C.SR_KERNEL_WS_BULK
	Stable  = C.SR_KERNEL_STABLE
	Put     = C.SR_KERNEL_PUT
	PutBulk = C.SR_KERNEL_PUT_BULK
	LL      = C.SR_KERNEL_LL
)

// The roles of a launch, and their order.
const (
	Send         = C.SR_SEND
	Receive      = C.SR_RECEIVE
	SendFirst    = C.SR_SEND_FIRST
	ReceiveFirst = C.SR_RECEIVE_FIRST
)

// Limits of the protocols.
const (
	Staging = C.SR_STAGING
	LLBytes = C.SR_LL_BYTES
	LLCTAs  = C.SR_LL_CTAS
)

// Layout of a rank's memory: the parts that the peer writes, the parts that the rank writes, the source and the inbox.
const (
	wordsAt   = 0
	stagingAt = wordsAt + (C.sizeof_struct_sr_words+4095)/4096*4096
	linesAt   = stagingAt + C.SR_STAGING
	countAt   = linesAt + 2*C.SR_LL_SLOTS*C.SR_LL_CTAS*C.SR_LL_BYTES
	teamAt    = countAt + C.SR_CTAS*C.sizeof_struct_sr_count
	stateAt   = teamAt + C.sizeof_struct_sr_team
	samplesAt = stateAt + C.sizeof_struct_sr_state
	sourceAt  = samplesAt + 8*Samples
	inboxAt   = sourceAt + BufferBytes
	RankBytes = inboxAt + BufferBytes // of the memory of a rank

	BufferBytes = 8 << 20 // size of the source and of the inbox
	Samples     = 4096    // maximum number of samples of a resident kernel
)

// Rank is one of two ranks that send to each other.
type Rank struct {
	*Queue
	Timeout   time.Duration // deadline of a wait in a kernel
	own, peer []byte
}

// NewRank returns a rank with its own memory and its peer's, as mapped in this process: RankBytes each, zeroed.
func NewRank(q *Queue, own, peer []byte) *Rank {
	return &Rank{Queue: q, Timeout: 20 * time.Second, own: own, peer: peer}
}

// Launch is one launch of a kernel.
type Launch struct {
	Kernel             string
	CTAs               int // blocks of the grid
	Senders, Receivers int // warps
	Roles, Order       int
	Bytes              uint64
	Source, Inbox      uint64 // offset of the message in Source and in both ranks' Inbox
	Echo               bool   // sends from the rank's own inbox
	Stride             uint64
	Stages             int
	Drain, Grant       int
	Threads            int // 0: one per warp
	Argument           int // size of the argument in bytes; 0: the correct size
	Resident
}

// Resident are the parameters of a resident kernel.
type Resident struct {
	Iters   int // 0: the kernel is not resident
	First   uint64
	Window  int
	Spacing uint64
	Begins  bool
}

// Start enqueues the launch on the rank's queue.
func (r *Rank) Start(l Launch) error {
	kernel, err := r.find(l.Kernel)
	if err != nil {
		return err
	}
	a, bytes, threads := r.args(l), C.uint32_t(C.sizeof_struct_sr_args), l.Threads
	if l.Argument != 0 {
		bytes = C.uint32_t(l.Argument)
	}
	if threads == 0 {
		threads = l.Senders + l.Receivers // a warp of a CPU is one thread
	}
	return r.call(func(e *C.struct_p2p_error) {
		C.start(r.c, kernel, C.uint32_t(l.CTAs), C.uint32_t(threads), bytes, &a, e)
	})
}

// cells is a part of a rank's memory.
func cells[T any](mem []byte, at uint64) *T { return (*T)(unsafe.Pointer(&mem[at])) }

func (r *Rank) args(l Launch) C.struct_sr_args {
	source := sourceAt + l.Source
	if l.Echo {
		source = inboxAt + l.Source
	}
	a := C.struct_sr_args{
		src: cells[C.sr_u8](r.own, source), dst: cells[C.sr_u8](r.own, inboxAt+l.Inbox), bytes: C.sr_u64(l.Bytes),
		peer_dst:     cells[C.sr_u8](r.peer, inboxAt+l.Inbox),
		peer_staging: cells[C.sr_u8](r.peer, stagingAt), staging: cells[C.sr_u8](r.own, stagingAt),
		peer_lines: cells[C.sr_u8](r.peer, linesAt), lines: cells[C.sr_u8](r.own, linesAt),
		in: cells[C.struct_sr_words](r.own, wordsAt), out: cells[C.struct_sr_words](r.own, wordsAt),
		peer_in: cells[C.struct_sr_words](r.peer, wordsAt), peer_out: cells[C.struct_sr_words](r.peer, wordsAt),
		count: cells[C.struct_sr_count](r.own, countAt), team: cells[C.struct_sr_team](r.own, teamAt),
		state: r.state(), samples: cells[C.sr_u64](r.own, samplesAt),
		stride: C.sr_u64(l.Stride), timeout_ns: C.sr_u64(r.Timeout), first: C.sr_u64(l.First),
		spacing: C.sr_u64(l.Spacing), stages: C.sr_u32(l.Stages), roles: C.sr_u32(l.Roles), order: C.sr_u32(l.Order),
		sender_warps: C.sr_u32(l.Senders), receiver_warps: C.sr_u32(l.Receivers), drain: C.sr_u32(l.Drain),
		credits: C.sr_u32(l.Grant), iters: C.sr_u32(l.Iters), window: C.sr_u32(l.Window),
	}
	if l.Begins {
		a.begins = 1
	}
	return a
}

// Source is the buffer that the rank sends from.
func (r *Rank) Source() []byte { return r.own[sourceAt : sourceAt+BufferBytes] }

// Inbox is the buffer that the rank receives into.
func (r *Rank) Inbox() []byte { return r.own[inboxAt:] }

// Samples are the times that a resident kernel measured, in ns.
func (r *Rank) Samples() []uint64 { return unsafe.Slice(cells[uint64](r.own, samplesAt), Samples) }

// State is the state that a kernel reports.
type State struct {
	Done              uint64
	Failed            bool
	Role              int
	Block, Want, Have uint64
}

func (r *Rank) state() *C.struct_sr_state { return cells[C.struct_sr_state](r.own, stateAt) }

// State reads the kernel's state; it may be called at any time.
func (r *Rank) State() State {
	s := C.look(r.state())
	return State{uint64(s.done), s.failed != 0, int(s.role), uint64(s.block), uint64(s.want), uint64(s.have)}
}

// Ring rings the doorbell: the iterations up to number n may begin.
func (r *Rank) Ring(n uint64) { C.ring(r.state(), C.uint64_t(n)) }

// Begun is the last iteration that a resident kernel has begun.
func (r *Rank) Begun() uint64 { return uint64(C.begun(cells[C.struct_sr_team](r.own, teamAt))) }

// Invited is the last iteration that the peer's resident kernel is ready to begin.
func (r *Rank) Invited() uint64 { return uint64(C.met(cells[C.struct_sr_words](r.own, wordsAt))) }

// CallOff sets the abort flag, which ends the kernels' waits.
func (r *Rank) CallOff() { C.call_off(r.state()) }
