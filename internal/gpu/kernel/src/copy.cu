// copy.cu: copies with loads and stores, on all SMs or some of them.
#include "access.h"

// Copies whole rounds from vector `done` on and returns the number of the next vector. In a round every thread of the
// grid copies Unroll vectors, with all loads issued before the first store.
template <int Unroll, class V> DEVICE u64 copy_rounds(V *dst, const V *src, u64 done, u64 count) {
	const u64 width = threads(), round = ranks() * Unroll;
	for (u64 i = done + (u64)block() * width * Unroll + thread(); done + round <= count;
	     done += round, i += round) {
		V v[Unroll];
#pragma unroll
		for (int k = 0; k < Unroll; k++)
			v[k] = load(src + i + k * width);
#pragma unroll
		for (int k = 0; k < Unroll; k++)
			store(dst + i + k * width, v[k]);
	}
	return done;
}

// Copies n bytes as vectors of type V; dst and src have the same remainder modulo its size.
template <class V> DEVICE void copy_as(u8 *dst, const u8 *src, u64 n) {
	const u64 head = bytes_to(dst, sizeof(V), n), count = (n - head) / sizeof(V), tail = head + count * sizeof(V);
	V *const to = (V *)(dst + head);
	const V *const from = (const V *)(src + head);
	u64 done = copy_rounds<8>(to, from, 0, count);
	done = copy_rounds<4>(to, from, done, count);
	done = copy_rounds<2>(to, from, done, count);
	for (u64 i = done + rank(); i < count; i += ranks())
		store(to + i, load(from + i));
	if (rank() < head)
		dst[rank()] = src[rank()];
	if (rank() < n - tail)
		dst[tail + rank()] = src[tail + rank()];
}

// Copies n bytes between buffers that do not overlap, with the widest access that the alignment of both addresses
// permits.
KERNEL(512) p2p_copy(u8 *dst, const u8 *src, u64 n) {
	const u64 apart = (u64)dst ^ (u64)src;
	if (apart % 16 == 0)
		copy_as<u32x4>(dst, src, n);
	else if (apart % 8 == 0)
		copy_as<u64>(dst, src, n);
	else if (apart % 4 == 0)
		copy_as<u32>(dst, src, n);
	else
		copy_as<u8>(dst, src, n);
}
