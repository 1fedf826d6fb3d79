// bulkcopy.h: the bulk copy engine of sm_90, which copies between global and shared memory. One thread starts the
// copies and waits for them. Addresses and lengths are multiples of 16.
#ifndef P2P_BULKCOPY_H
#define P2P_BULKCOPY_H

#include "device.h"

DEVICE u32 shared(const void *p) { return (u32)(u64)(const __attribute__((address_space(3))) void *)p; }

// Prepares `count` barriers, each for one load at a time.
DEVICE void bulk_init(u64 *barriers, u32 count) {
	for (u32 s = 0; s < count; s++)
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&barriers[s])) : "memory");
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void bulk_load(u8 *to, const u8 *from, u32 bytes, u64 *barrier) {
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(barrier)), "r"(bytes)
		     : "memory");
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
			     shared(to)),
		     "l"(global(from)), "r"(bytes), "r"(shared(barrier))
		     : "memory");
}

// Waits for a barrier's load; parity is 0 for its first, 1 for its second, and so on alternately. A load always
// completes or faults; the bound only turns a bug here into a trap instead of a hang.
DEVICE void bulk_await(u64 *barrier, u32 parity) {
#pragma unroll 1
	for (u32 tries = 0; tries < 1u << 24; tries++) {
		u32 done;
		asm volatile("{\n\t.reg .pred p;\n\t"
			     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
			     "selp.u32 %0, 1, 0, p;\n\t}"
			     : "=r"(done)
			     : "r"(shared(barrier)), "r"(parity)
			     : "memory");
		if (done)
			return;
	}
	__builtin_trap();
}

// Starts a store, as a separate bulk group.
DEVICE void bulk_store(u8 *to, const u8 *from, u32 bytes) {
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global(to)), "r"(shared(from)),
		     "r"(bytes)
		     : "memory");
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all stores but the last `Pending` have read their shared memory.
template <int Pending> DEVICE void bulk_stores_read() {
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

// Waits until all stores but the last `Pending` are complete.
template <int Pending> DEVICE void bulk_stores_done() {
	asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

// Orders bulk copies and ordinary accesses of this thread to the same memory.
DEVICE void bulk_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }

#endif
