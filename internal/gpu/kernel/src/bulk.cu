// bulk.cu: copies with the bulk copy engine of sm_90, through shared memory. One thread of a block starts it all.
#include "device.h"

constexpr u32 stages = 8;             // buffers of a block …
constexpr u32 stage_bytes = 16 << 10; // … and their size; the host gives stages * stage_bytes of shared memory
constexpr u32 ahead = 4;              // loads under way; the other stages drain

extern SHARED __attribute__((aligned(128))) u8 stage[];
SHARED __attribute__((aligned(8))) u64 loaded[stages];

DEVICE u32 shared(const void *p) { return (u32)(u64)(const __attribute__((address_space(3))) void *)p; }

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

DEVICE void init_barriers() {
	for (u32 s = 0; s < stages; s++)
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&loaded[s])) : "memory");
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void start_load(const Share *c, u64 k) {
	const u32 s = k % stages, bytes = chunk_bytes(c, k), barrier = shared(&loaded[s]);
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
			     shared(stage + s * stage_bytes)),
		     "l"(global(c->src + chunk_offset(k))), "r"(bytes), "r"(barrier)
		     : "memory");
}

// Waits for load k. A load ends or faults; the bound only turns a mistake here into a trap instead of a hang.
DEVICE void await_load(u64 k) {
	const u32 barrier = shared(&loaded[k % stages]), parity = k / stages & 1;
#pragma unroll 1
	for (u32 tries = 0; tries < 1u << 24; tries++) {
		u32 done;
		asm volatile("{\n\t.reg .pred p;\n\t"
			     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
			     "selp.u32 %0, 1, 0, p;\n\t}"
			     : "=r"(done)
			     : "r"(barrier), "r"(parity)
			     : "memory");
		if (done)
			return;
	}
	__builtin_trap();
}

DEVICE void start_store(const Share *c, u64 k) {
	asm volatile(
		"cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global(c->dst + chunk_offset(k))),
		"r"(shared(stage + k % stages * stage_bytes)), "r"(chunk_bytes(c, k))
		: "memory");
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

DEVICE void copy_share(const Share *c) {
	const u64 all = (c->n + stage_bytes - 1) / stage_bytes;
	const u64 chunks = block() < all ? (all - block() - 1) / blocks() + 1 : 0;
	if (chunks == 0)
		return;
	init_barriers();
	for (u64 k = 0; k < ahead && k < chunks; k++)
		start_load(c, k);
	for (u64 k = 0; k < chunks; k++) {
		await_load(k);
		start_store(c, k);
		if (k + ahead < chunks) {
			// The stage that load k + ahead goes to was stored from stages - ahead stores ago.
			asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(stages - ahead) : "memory");
			start_load(c, k + ahead);
		}
	}
	asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
	asm volatile("fence.proxy.async;" ::: "memory");
	asm volatile("fence.acq_rel.sys;" ::: "memory");
}

// Copies n bytes with blocks of one warp; dst and src have the same remainder modulo 16 and do not overlap. The
// bytes before the first and after the last multiple of 16 go by the warp's other lanes.
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
