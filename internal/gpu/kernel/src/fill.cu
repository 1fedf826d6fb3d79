// fill.cu: writes a message's payload.
#include "payload.h"

// Writes the payload of `key` into n bytes at p, any alignment; step as in p2p.h.
KERNEL(512) p2p_fill(u8 *p, u64 n, u64 key, u64 step) {
	if (n == 0)
		return;
	if (step) {
		const u64 visits = sample_count(n, step);
		u64 o;
		for (u64 i = rank(); i < visits; i += ranks())
			if (sample_offset(i, n, step, &o))
				p[o] = payload_byte(key, o);
		return;
	}
	const u64 head = bytes_to(p, 16, n), vectors = (n - head) / 16, tail = head + vectors * 16;
	for (u64 i = rank(); i < vectors; i += ranks())
		*(u32x4 *)(p + head + i * 16) = payload16(key, head + i * 16);
	if (rank() < head)
		p[rank()] = payload_byte(key, rank());
	if (rank() < n - tail)
		p[tail + rank()] = payload_byte(key, tail + rank());
}
