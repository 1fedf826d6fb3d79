// bulk.cu: copies with the bulk copy engine of sm_90, through shared memory. One thread of a block starts all copies.
#include "bulkcopy.h"
#include "sync.h"

constexpr u32 stages = 8;             // buffers per block
constexpr u32 stage_bytes = 16 << 10; // size of a buffer; the launch has stages * stage_bytes of shared memory
constexpr u32 ahead = 4;              // loads in flight; the other buffers are being stored from

extern SHARED __attribute__((aligned(128))) u8 stage[];
SHARED __attribute__((aligned(8))) u64 loaded[stages];

// A block's share of n bytes, a multiple of 16: chunks block(), block() + blocks(), …
struct Share {
	u8 *dst;
	const u8 *src;
	u64 n;
};

DEVICE u64 chunk_offset(u64 k) { return (block() + k * blocks()) * stage_bytes; }

DEVICE u32 chunk_bytes(const Share *c, u64 k) {
	const u64 left = c->n - chunk_offset(k);
	return left < stage_bytes ? (u32)left : stage_bytes;
}

DEVICE void start_load(const Share *c, u64 k) {
	const u32 s = k % stages;
	bulk_load(stage + s * stage_bytes, c->src + chunk_offset(k), chunk_bytes(c, k), &loaded[s]);
}

DEVICE void copy_share(const Share *c) {
	const u64 all = (c->n + stage_bytes - 1) / stage_bytes;
	const u64 chunks = block() < all ? (all - block() - 1) / blocks() + 1 : 0;
	if (chunks == 0)
		return;
	bulk_init(loaded, stages);
	for (u64 k = 0; k < ahead && k < chunks; k++)
		start_load(c, k);
	for (u64 k = 0; k < chunks; k++) {
		bulk_await(&loaded[k % stages], k / stages & 1);
		bulk_store(c->dst + chunk_offset(k), stage + k % stages * stage_bytes, chunk_bytes(c, k));
		if (k + ahead < chunks) {
			// The store from the buffer that load k + ahead overwrites was stages - ahead stores ago.
			bulk_stores_read<stages - ahead>();
			start_load(c, k + ahead);
		}
	}
	bulk_stores_done<0>();
	bulk_fence();
	fence();
}

// Copies n bytes with blocks of one warp; dst and src have the same remainder modulo 16 and do not overlap. The warp's
// other lanes copy the bytes before the first and after the last multiple of 16.
KERNEL(32) p2p_copy_bulk(u8 *dst, const u8 *src, u64 n) {
	const u64 head = bytes_to(dst, 16, n), body = (n - head) / 16 * 16, tail = head + body;
	if (thread() == 0) {
		const Share c = {dst + head, src + head, body};
		copy_share(&c);
	} else if (block() == 0) {
		const u64 lane = thread() - 1;
		if (lane < head)
			dst[lane] = src[lane];
		if (lane < n - tail)
			dst[tail + lane] = src[tail + lane];
	}
}
