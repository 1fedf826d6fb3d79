// check.cu: compares a message with its payload.
#include "payload.h"

// The result of a check, in device memory. The host initialises count to 0 and first to ~0.
struct Found {
	u64 count; // bytes that differ
	u64 first; // lowest offset of a byte that differs
};

// The result of one thread.
struct Tally {
	u64 count, first;
};

DEVICE void compare(Tally *t, const u8 *p, u64 key, u64 offset) {
	if (p[offset] == payload_byte(key, offset))
		return;
	t->count++;
	t->first = offset < t->first ? offset : t->first;
}

DEVICE void compare16(Tally *t, const u8 *p, u64 key, u64 offset) {
	const u32x4 d = *(const u32x4 *)(p + offset) ^ payload16(key, offset);
	if (!(d.x | d.y | d.z | d.w))
		return;
#pragma unroll 1
	for (u64 i = offset; i < offset + 16; i++)
		compare(t, p, key, i);
}

DEVICE void report(const Tally *t, Found *found) {
	if (t->count == 0)
		return;
	asm volatile("red.global.add.u64 [%0], %1;" ::"l"(global(&found->count)), "l"(t->count) : "memory");
	asm volatile("red.global.min.u64 [%0], %1;" ::"l"(global(&found->first)), "l"(t->first) : "memory");
}

// Compares n bytes at p, any alignment, with the payload of `key`; step as in p2p.h.
KERNEL(512) p2p_check(const u8 *p, u64 n, u64 key, u64 step, Found *found) {
	if (n == 0)
		return;
	Tally t = {0, ~0ull};
	if (step) {
		const u64 visits = sample_count(n, step);
		u64 o;
		for (u64 i = rank(); i < visits; i += ranks())
			if (sample_offset(i, n, step, &o))
				compare(&t, p, key, o);
	} else {
		const u64 head = bytes_to(p, 16, n), vectors = (n - head) / 16, tail = head + vectors * 16;
		for (u64 i = rank(); i < vectors; i += ranks())
			compare16(&t, p, key, head + i * 16);
		if (rank() < head)
			compare(&t, p, key, rank());
		if (rank() < n - tail)
			compare(&t, p, key, tail + rank());
	}
	report(&t, found);
}
