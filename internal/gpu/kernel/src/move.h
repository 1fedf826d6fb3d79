// move.h: copies by some threads of a running kernel, from memory that other processors may have written since the
// kernel started.
#ifndef P2P_MOVE_H
#define P2P_MOVE_H

#include "access.h"

// The threads that copy a message together, as this thread sees them.
struct Team {
	u32 block, blocks, thread, threads;
};

// Not the read-only path of p2p_copy, because the source may have changed since the kernel started. After the block's
// acquire of the message, L1 holds no stale bytes of it.
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
// issued before its first store, so that the rest after the whole rounds costs one memory latency, not several.
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

// A row is 16 bytes per lane of a warp. A warp copies chunks of chunk_rows rows at distances known at compile time:
// their addresses need no registers, which the data in flight needs. A team that copies rows has whole warps.
constexpr u32 warp_lanes = 32, chunk_rows = 8;
constexpr u64 row_bytes = warp_lanes * sizeof(u32x4), warp_chunk = chunk_rows * row_bytes;

// The position of a lane, and the number of bytes from its warp's first lane to the end.
struct Place {
	u8 *to;
	const u8 *from;
	u64 left;
};

// Copies Rows rows at a distance of `apart` bytes and advances by `step`; all loads are issued before the first store.
template <u32 Rows> DEVICE void move_row(Place *p, u64 apart, u64 step) {
	u32x4 v[Rows];
#pragma unroll
	for (u32 k = 0; k < Rows; k++)
		v[k] = load_fresh((const u32x4 *)(p->from + k * apart));
#pragma unroll
	for (u32 k = 0; k < Rows; k++)
		store_fresh((u32x4 *)(p->to + k * apart), v[k]);
	p->to += step;
	p->from += step;
	p->left = p->left > step ? p->left - step : 0;
}

DEVICE Place place_of(u64 warp, u64 width, u64 lane, u8 *dst, const u8 *src, u64 n) {
	const u64 first = warp * width;
	return {dst + first + lane, src + first + lane, n > first ? n - first : 0};
}

// Distributes chunks round-robin over the warps. The rest, less than a chunk for each warp, is distributed by rows, so
// that all warps take part in a short copy, too.
DEVICE void move_vectors(Team t, u8 *dst, const u8 *src, u64 n) {
	const u64 warps = t.threads / warp_lanes, all = t.blocks * warps,
		  warp = t.block * warps + t.thread / warp_lanes;
	const u64 lane = t.thread % warp_lanes * sizeof(u32x4), round = all * warp_chunk;
	u64 whole = 0;
	Place p = place_of(warp, warp_chunk, lane, dst, src, n);
#pragma unroll 1
	for (; whole + round <= n; whole += round)
		move_row<chunk_rows>(&p, row_bytes, round);
	const u64 step = all * row_bytes;
	p = place_of(warp, row_bytes, lane, dst + whole, src + whole, n - whole);
#pragma unroll 1
	while (p.left >= step + row_bytes)
		move_row<2>(&p, step, 2 * step);
#pragma unroll 1
	while (p.left > lane)
		move_row<1>(&p, step, step);
}

DEVICE void move_bytes(Team t, u8 *dst, const u8 *src, u64 from, u64 to) {
	const u64 ranks = (u64)t.blocks * t.threads;
#pragma unroll 1
	for (u64 i = from + (u64)t.block * t.threads + t.thread; i < to; i += ranks)
		store_fresh(dst + i, load_fresh(src + i));
}

// Copies n bytes; dst and src have the same remainder modulo 16.
DEVICE void move_rows(Team t, u8 *dst, const u8 *src, u64 n) {
	const u64 head = bytes_to(dst, 16, n), body = (n - head) / 16 * 16;
	move_vectors(t, dst + head, src + head, body);
	if (body != n) {
		move_bytes(t, dst, src, 0, head);
		move_bytes(t, dst, src, head + body, n);
	}
}

// Copies n bytes between buffers that do not overlap, with the widest access that the alignment of both addresses
// permits.
DEVICE void move(Team t, u8 *dst, const u8 *src, u64 n) {
	const u64 apart = (u64)dst ^ (u64)src;
	if (apart % 16 == 0)
		move_rows(t, dst, src, n);
	else if (apart % 8 == 0)
		move_as<u64>(t, dst, src, n);
	else if (apart % 4 == 0)
		move_as<u32>(t, dst, src, n);
	else
		move_as<u8>(t, dst, src, n);
}

#endif
