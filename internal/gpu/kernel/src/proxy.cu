// proxy.cu: a resident kernel that executes copies, which the host posts to a ring in host memory.
//
// Thread block 0, the front, reads the ring. It copies small messages alone. Large ones it also writes into a ring in
// device memory, which the other blocks read, and each block copies its share. The front publishes the sequence number
// of the last complete message. internal/gpu/cuda/proxy.h is the host side.
#include "move.h"
#include "sync.h"

// A message in a ring. Its words may arrive in any order: it is complete when the seal (a checksum) matches.
struct Message {
	u64 dst, src;
	u64 n; // bytes, or stop
	u64 seal;
};

constexpr u64 stop = ~0ull;            // length of the message that ends the kernel
constexpr u32 group = 4;               // messages per read of a ring: 128 bytes
constexpr u64 warp_bytes = 4 << 10;    // largest message that one warp copies alone, without a barrier
constexpr u64 block_bytes = 64 << 10;  // largest message that the front copies alone
constexpr u32 look_at_clock = 64;      // reads of a ring between two reads of the clock
constexpr u64 lost_ns = 120000000000u; // longest wait for another block; longer means a bug here, or that the host died

// Results for the host, written by the front only.
struct Answer {
	u64 done;   // sequence number of the last complete message
	u64 exited; // number of the last launch that has ended
};

// Device memory shared by the blocks, zero before the first launch.
struct Work {
	Message ring[group];
	u64 arrived; // shares finished by all blocks but the front, over all launches
};

// `batch` holds the messages that the block has last read from its ring. `order` selects those that all its warps copy:
// `number` messages from `first` on; number 0: exit.
struct Order {
	u32 first, number;
};
SHARED __attribute__((aligned(16))) Message batch[group];
SHARED Order order;

DEVICE void warp_barrier() { __nvvm_bar_warp_sync(~0u); }

// Stores a word for the host. The caller has executed a fence after the work that the word announces.
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

// Copies this block's share of the messages in `order`.
DEVICE void move_ordered() {
#pragma unroll 1
	for (u32 i = order.first; i < order.first + order.number; i++) {
		const bool share = divided(&batch[i]);
		const Team t = {share ? block() : 0, share ? blocks() : 1, thread(), threads()};
		move(t, &batch[i]);
	}
}

// Whether one warp should copy the messages alone.
DEVICE bool for_a_warp(u32 from, u32 number) {
	for (u32 i = from; i < from + number; i++)
		if (batch[i].n > warp_bytes || (batch[i].dst ^ batch[i].src) % 16)
			return false;
	return true;
}

// ---- messages -------------------------------------------------------------------------------------------------------

// Reads the group that contains message seq from a ring of `slots` messages. One warp reads it with one access, so that
// a read of host memory crosses the bus once. Returns the number of complete messages from seq on; they are in `batch`
// from seq % group on. All lanes of the warp call it.
DEVICE u32 receive(const Message *ring, u64 slots, u64 seq) {
	const u32 lane = thread(), at = seq % group;
	bool ok = false;
	warp_barrier(); // all lanes have finished with the previous batch
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

// The number of messages that can be copied concurrently: none reads or writes memory that an earlier one writes, and
// none writes memory that an earlier one reads. A stop message is always alone.
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

// Posts a message to the other blocks; one thread calls it.
DEVICE void forward(Work *w, const Message *m, u64 seq) {
	Message *const to = &w->ring[seq % group];
	store_fresh(&to->dst, m->dst);
	store_fresh(&to->src, m->src);
	store_fresh(&to->n, m->n);
	asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(global(&to->seal)),
		     "l"(seal(m->dst, m->src, m->n, seq))
		     : "memory");
}

// Adds finished shares. The caller has executed a fence after the block's copies.
DEVICE void arrive(Work *w, u64 shares) {
	asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(global(&w->arrived)), "l"(shares) : "memory");
}

DEVICE u64 arrivals(const Work *w) {
	u64 n;
	asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(n) : "l"(global(&w->arrived)) : "memory");
	return n;
}

// Waits until the other blocks have finished `want` shares in total; one thread calls it.
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
// In each block warp 0 reads the ring and writes `order`; all warps copy; warp 0 reports completion.

// A block's view of its ring, used by warp 0.
struct Side {
	const Message *ring;
	u64 slots;
	u64 seq; // the next message
	Work *work;
	// The front only:
	Answer *host;
	u64 forwarded; // number of the last message posted to the other blocks
	u64 shares;    // total shares of all messages posted to them
	u64 awaited;   // shares that are known to be finished
};

// Limits on the run time of the front.
struct Limits {
	u64 idle_ns, life_ns; // maximum time without a message; maximum total time
	u64 began, busy;      // start of the kernel; last time at which it had a message
	u32 turn;             // reads of the ring
	bool worked;          // it had a message since the clock was last read
};

DEVICE u32 give_order(u32 from, u32 number) {
	if (thread() == 0)
		order = {from, number};
	return number;
}

// Publishes to the host, after a fence, that `number` more messages are complete.
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

// Whether a limit is reached; the same result in all lanes of the warp.
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

// Serves the host with warp 0 until there are messages for the whole block, which it returns as order, or until the
// kernel must exit (order 0): the host posted a stop, posted nothing for idle_ns, or life_ns have passed. The limit
// life_ns lets operations proceed that wait for an idle GPU.
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

// The same for the other blocks, whose messages the front posts.
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

// Executes the copies that the messages of the ring from number `seq` on describe; `slots` is a power of two. `launch`
// counts the launches from 1: messages between the blocks are numbered from launch * 2^32 + 1, so that no message of an
// earlier launch is taken for one of this launch.
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
