// move.h: copies by part of a block while its kernel goes on, from memory that others write meanwhile.
#ifndef P2P_MOVE_H
#define P2P_MOVE_H

#include "access.h"

// The threads that copy a message together.
struct Team {
	u32 block, blocks, thread, threads;
};

// The source may have changed since the kernel started, which forbids the read-only path that p2p_copy takes. What
// the block's acquire of the message precedes is not stale in L1.
DEVICE u32x4 load_fresh(const u32x4 *p) {
	u32x4 v;
	asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(global(p))
		     : "memory");
	return v;
}

template <class V> using Global = __attribute__((address_space(1))) V;
template <class V> DEVICE V load_fresh(const V *p) { return *(const volatile Global<V> *)p; }
template <class V> DEVICE void store_fresh(V *p, V v) { *(volatile Global<V> *)p = v; }
DEVICE void store_fresh(u32x4 *p, u32x4 v) { store(p, v); }

// Copies n bytes as vectors of type V; dst and src have the same remainder modulo its size. All loads of a round are
// under way before its first store: what is left after the whole rounds takes one more memory latency, not several.
template <class V> DEVICE void move_as(Team t, u8 *dst, const u8 *src, u64 n) {
	constexpr int unroll = 8;
	const u64 head = bytes_to(dst, sizeof(V), n), vectors = (n - head) / sizeof(V),
		  tail = head + vectors * sizeof(V);
	const u64 ranks = (u64)t.blocks * t.threads, rank = (u64)t.block * t.threads + t.thread, round = ranks * unroll;
	V *const to = (V *)(dst + head);
	const V *const from = (const V *)(src + head);
	u64 done = 0;
#pragma unroll 1
	for (u64 i = (u64)t.block * t.threads * unroll + t.thread; done + round <= vectors; done += round, i += round) {
		V v[unroll];
#pragma unroll
		for (int k = 0; k < unroll; k++)
			v[k] = load_fresh(from + i + (u64)k * t.threads);
#pragma unroll
		for (int k = 0; k < unroll; k++)
			store_fresh(to + i + (u64)k * t.threads, v[k]);
	}
	if (done < vectors) {
		V v[unroll];
#pragma unroll
		for (int k = 0; k < unroll; k++)
			if (done + rank + k * ranks < vectors)
				v[k] = load_fresh(from + done + rank + k * ranks);
#pragma unroll
		for (int k = 0; k < unroll; k++)
			if (done + rank + k * ranks < vectors)
				store_fresh(to + done + rank + k * ranks, v[k]);
	}
	if (rank < head)
		store_fresh(dst + rank, load_fresh(src + rank));
	if (rank < n - tail)
		store_fresh(dst + tail + rank, load_fresh(src + tail + rank));
}

// Copies n bytes with the widest access that suits both addresses; the two must not overlap.
DEVICE void move(Team t, u8 *dst, const u8 *src, u64 n) {
	const u64 apart = (u64)dst ^ (u64)src;
	if (apart % 16 == 0)
		move_as<u32x4>(t, dst, src, n);
	else if (apart % 8 == 0)
		move_as<u64>(t, dst, src, n);
	else if (apart % 4 == 0)
		move_as<u32>(t, dst, src, n);
	else
		move_as<u8>(t, dst, src, n);
}

#endif
