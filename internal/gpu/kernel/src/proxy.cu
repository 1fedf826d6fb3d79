// proxy.cu: a kernel that stays on the GPU and copies what the host asks for through a ring in the host's memory.
//
// Thread block 0, the front, reads the ring. It copies small messages alone; large ones it also writes into a ring of
// the same shape in device memory, which the other blocks read, and each block copies its share. The front answers
// with the sequence number of the last complete message. internal/gpu/cuda/proxy.h is the host's side of this.
#include "move.h"
#include "sync.h"

// A message as it lies in a ring. It is complete when the seal is right, in whatever order its words arrive.
struct Message {
	u64 dst, src;
	u64 n; // bytes, or stop
	u64 seal;
};

constexpr u64 stop = ~0ull;            // length of the message that ends the kernel
constexpr u32 group = 4;               // messages that one read of a ring takes in: 128 bytes
constexpr u64 warp_bytes = 4 << 10;    // up to here a warp copies alone: no barrier is in the way
constexpr u64 block_bytes = 64 << 10;  // up to here the front does
constexpr u32 look_at_clock = 64;      // reads of a ring between two looks at the clock
constexpr u64 lost_ns = 120000000000u; // a wait for another block that is a mistake here, or the host's end

// What the kernel tells the host. Each word is written by the front only.
struct Answer {
	u64 done;   // sequence number of the last complete message
	u64 exited; // number of the launch that has left
};

// What the blocks share: device memory, zero before the first launch.
struct Work {
	Message ring[group];
	u64 arrived; // shares that the blocks other than the front have ever finished
};

// What a block has last read of its ring, and which of that all its warps shall copy: `number` messages from `first`
// on. Number 0 sends them home.
struct Order {
	u32 first, number;
};
SHARED __attribute__((aligned(16))) Message batch[group];
SHARED Order order;

DEVICE void warp_barrier() { __nvvm_bar_warp_sync(~0u); }

// Makes an answer visible to the host; what it stands for is fenced before.
DEVICE void answer(u64 *word, u64 value) {
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(global(word)), "l"(value) : "memory");
}

DEVICE u64 seal(u64 dst, u64 src, u64 n, u64 seq) {
	return dst * 0x9fb21c651e98df25ull + src * 0xd6e8feb86659fd93ull + n * 0xa0761d6478bd642full +
	       seq * 0xe7037ed1a0b428dbull;
}

DEVICE bool sealed(const Message *m, u64 seq) { return m->seal == seal(m->dst, m->src, m->n, seq); }

// ---- copying --------------------------------------------------------------------------------------------------------

DEVICE void move(Team t, const Message *m) { move(t, (u8 *)m->dst, (const u8 *)m->src, m->n); }

DEVICE bool divided(const Message *m) { return m->n > block_bytes && blocks() > 1; }

// Copies this block's part of what was ordered.
DEVICE void move_ordered() {
#pragma unroll 1
	for (u32 i = order.first; i < order.first + order.number; i++) {
		const bool share = divided(&batch[i]);
		const Team t = {share ? block() : 0, share ? blocks() : 1, thread(), threads()};
		move(t, &batch[i]);
	}
}

// Whether a warp does better alone.
DEVICE bool for_a_warp(u32 from, u32 number) {
	for (u32 i = from; i < from + number; i++)
		if (batch[i].n > warp_bytes || (batch[i].dst ^ batch[i].src) % 16)
			return false;
	return true;
}

// ---- messages -------------------------------------------------------------------------------------------------------

// Reads the group of a ring of `slots` messages that number seq is in, with one access of one warp, so that a read of
// the host's memory crosses the bus once. Returns how many messages from seq on are complete; they are in the batch
// from seq % group on. All lanes of the warp call.
DEVICE u32 receive(const Message *ring, u64 slots, u64 seq) {
	const u32 lane = thread(), at = seq % group;
	bool ok = false;
	warp_barrier(); // nobody looks at the last batch any more
	if (lane < 2 * group) {
		const u64 p = global(ring + (seq & (slots - 1)) - at) + 16 * lane;
		u64 *const half = &batch[lane / 2].dst + lane % 2 * 2;
		u64 x, y;
		asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(x), "=l"(y) : "l"(p) : "memory");
		half[0] = x;
		half[1] = y;
	}
	warp_barrier();
	if (lane >= at && lane < group)
		ok = sealed(&batch[lane], seq - at + lane);
	const u32 complete = __nvvm_vote_ballot_sync(~0u, ok) >> at;
	return __builtin_ctz(~complete);
}

DEVICE bool overlap(u64 a, u64 a_bytes, u64 b, u64 b_bytes) { return a < b + b_bytes && b < a + a_bytes; }

// How many of the messages can be copied at the same time: none of them touches what an earlier one writes, none
// writes what an earlier one reads. A stop is alone.
DEVICE u32 independent(u32 from, u32 number) {
	for (u32 j = from; j < from + number; j++) {
		const Message *const b = &batch[j];
		if (b->n == stop)
			return j == from ? 1 : j - from;
		for (u32 i = from; i < j; i++) {
			const Message *const a = &batch[i];
			if (overlap(a->dst, a->n, b->dst, b->n) || overlap(a->dst, a->n, b->src, b->n) ||
			    overlap(a->src, a->n, b->dst, b->n))
				return j - from;
		}
	}
	return number;
}

// Hands a message to the other blocks; one thread calls.
DEVICE void forward(Work *w, const Message *m, u64 seq) {
	Message *const to = &w->ring[seq % group];
	store_fresh(&to->dst, m->dst);
	store_fresh(&to->src, m->src);
	store_fresh(&to->n, m->n);
	asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(global(&to->seal)),
		     "l"(seal(m->dst, m->src, m->n, seq))
		     : "memory");
}

// Adds finished shares; the block's bytes are fenced before.
DEVICE void arrive(Work *w, u64 shares) {
	asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(global(&w->arrived)), "l"(shares) : "memory");
}

DEVICE u64 arrivals(const Work *w) {
	u64 n;
	asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(n) : "l"(global(&w->arrived)) : "memory");
	return n;
}

// Waits until the other blocks have finished `want` shares in all; one thread calls.
DEVICE void await_arrivals(const Work *w, u64 want) {
	u64 since = 0;
#pragma unroll 1
	for (u32 turn = 1; arrivals(w) != want; turn++) {
		if (turn % 4096)
			continue;
		if (since == 0)
			since = now();
		else if (now() - since > lost_ns)
			__builtin_trap();
	}
}

// ---- the blocks -----------------------------------------------------------------------------------------------------
//
// In each block warp 0 reads the ring and gives the order; all warps carry it out; warp 0 reports.

// A block's side of its ring; warp 0 uses it.
struct Side {
	const Message *ring;
	u64 slots;
	u64 seq; // the next message
	Work *work;
	// Of the front:
	Answer *host;
	u64 forwarded; // number of the last message that the other blocks got
	u64 shares;    // that they will have finished by then, in all
	u64 awaited;   // shares that the front has seen finished
};

// When the front leaves by itself.
struct Limits {
	u64 idle_ns, life_ns; // without a message; in all
	u64 began, busy;      // when it came; when it last knew of a message
	u32 turn;             // reads of the ring
	bool worked;          // since the last look at the clock
};

DEVICE u32 give_order(u32 from, u32 number) {
	if (thread() == 0)
		order = {from, number};
	return number;
}

// Tells the host that `number` more messages are complete, and makes it true.
DEVICE void complete(Side *s, u32 number) {
	s->seq += number;
	if (thread() == 0) {
		fence();
		answer(&s->host->done, s->seq - 1);
	}
}

DEVICE void move_by_warp(u32 from, u32 number) {
	const Team warp = {0, 1, thread(), 32};
#pragma unroll 1
	for (u32 i = from; i < from + number; i++)
		move_rows(warp, (u8 *)batch[i].dst, (const u8 *)batch[i].src, batch[i].n);
	warp_barrier();
}

DEVICE void forward_large(Side *s, u32 from, u32 number) {
#pragma unroll 1
	for (u32 i = from; i < from + number; i++)
		if (divided(&batch[i])) {
			s->forwarded++;
			s->shares += blocks() - 1;
			if (thread() == 0)
				forward(s->work, &batch[i], s->forwarded);
		}
}

// Looks at the clock; the lanes of the warp agree.
DEVICE bool time_to_leave(Limits *l) {
	const u64 t = now();
	l->busy = l->worked ? t : l->busy;
	l->worked = false;
	return __nvvm_vote_any_sync(~0u, t - l->busy > l->idle_ns || t - l->began > l->life_ns);
}

DEVICE void leave(Side *s, u64 launch) {
	if (thread() == 0) {
		const Message end = {0, 0, stop, 0};
		if (blocks() > 1)
			forward(s->work, &end, s->forwarded + 1);
		fence();
		answer(&s->host->exited, launch);
	}
}

// Serves the host until there is something for the whole block: an order, or to leave because the host said so, was
// silent for idle_ns, or life_ns are over, which lets those in who wait for the GPU to be empty. Returns the order.
DEVICE u32 front_order(Side *s, Limits *l, u64 launch) {
#pragma unroll 1
	while (++l->turn % look_at_clock || !time_to_leave(l)) {
		const u32 from = s->seq % group, ready = receive(s->ring, s->slots, s->seq);
		if (ready == 0)
			continue;
		l->worked = true;
		if (batch[from].n == stop) {
			complete(s, 1);
			break;
		}
		const u32 number = independent(from, ready);
		if (!for_a_warp(from, number)) {
			forward_large(s, from, number);
			return give_order(from, number);
		}
		move_by_warp(from, number);
		complete(s, number);
	}
	leave(s, launch);
	return give_order(0, 0);
}

// The same for another block, which serves the front.
DEVICE u32 share_order(const Side *s) {
	const u64 since = now();
#pragma unroll 1
	for (u32 turn = 1;; turn++) {
		const u32 from = s->seq % group, number = receive(s->ring, s->slots, s->seq);
		if (number)
			return batch[from].n == stop ? give_order(0, 0) : give_order(from, number);
		if (turn % look_at_clock == 0 && now() - since > lost_ns)
			__builtin_trap();
	}
}

// Reports a finished share.
DEVICE void share_done(Side *s, u32 number) {
	s->seq += number;
	if (thread() == 0) {
		fence();
		arrive(s->work, number);
	}
}

// Copies what the messages of the ring from number `seq` on ask for; `slots` is a power of two. `launch` counts the
// launches from 1: messages between the blocks are numbered from launch * 2^32 + 1, so that none of an earlier launch
// is taken for one of this.
KERNEL(512)
p2p_proxy(const Message *ring, u64 slots, Answer *host, Work *work, u64 seq, u64 launch, u64 idle_ns, u64 life_ns) {
	const bool front = block() == 0, leads = thread() < 32;
	Side s = {work->ring, group, (launch << 32) + 1, work, host, launch << 32, 0, 0};
	Limits l = {idle_ns, life_ns, now(), now(), 0, false};
	if (front) {
		s.ring = ring;
		s.slots = slots;
		s.seq = seq;
		s.shares = s.awaited = arrivals(work);
	}
#pragma unroll 1
	for (;;) {
		u32 number = 0;
		if (leads) {
			number = front ? front_order(&s, &l, launch) : share_order(&s);
			warp_barrier();
		}
		barrier();
		if (order.number == 0)
			return;
		move_ordered();
		barrier();
		if (!leads)
			continue;
		if (!front) {
			share_done(&s, number);
			continue;
		}
		if (s.shares != s.awaited && thread() == 0)
			await_arrivals(work, s.shares);
		s.awaited = s.shares;
		complete(&s, number);
	}
}
