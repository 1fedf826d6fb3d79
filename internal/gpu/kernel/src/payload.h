// payload.h: the payload function of internal/gpu/abi/p2p.h, and the bytes that a sampled pass covers.
#ifndef P2P_PAYLOAD_H
#define P2P_PAYLOAD_H

#include "device.h"

constexpr u64 sample_bytes = 64; // P2P_SAMPLE_BYTES

DEVICE u32 payload_word(u64 key, u64 index) {
	u32 x = (u32)index * 0x9e3779b1u + (u32)key;
	x ^= (u32)(index >> 32) * 0x85ebca6bu + (u32)(key >> 32);
	x ^= x >> 15;
	x *= 0x2c1b3c6du;
	return x ^ (x >> 13);
}

DEVICE u8 payload_byte(u64 key, u64 offset) { return (u8)(payload_word(key, offset >> 2) >> (8 * (offset & 3))); }

// The 16 bytes from `offset` on, which may have any alignment.
DEVICE u32x4 payload16(u64 key, u64 offset) {
	const u64 i = offset >> 2;
	const u32 shift = 8 * (u32)(offset & 3);
	u32x4 v = {payload_word(key, i), payload_word(key, i + 1), payload_word(key, i + 2), payload_word(key, i + 3)};
	if (shift) {
		const u32 next = payload_word(key, i + 4), up = 32 - shift;
		v.x = v.x >> shift | v.y << up;
		v.y = v.y >> shift | v.z << up;
		v.z = v.z >> shift | v.w << up;
		v.w = v.w >> shift | next << up;
	}
	return v;
}

// A sampled pass over n > 0 bytes visits sample_offset(i) for i below sample_count. No byte is visited twice: the last
// part skips the bytes that it shares with the part before.
DEVICE u64 sample_count(u64 n, u64 step) { return ((n - 1) / step + 2) * sample_bytes; }

// Computes the offset of visit i; false if there is no byte to visit.
DEVICE bool sample_offset(u64 i, u64 n, u64 step, u64 *offset) {
	const u64 piece = i / sample_bytes, at = i % sample_bytes;
	if (piece <= (n - 1) / step) {
		*offset = piece * step + at;
		return *offset < n;
	}
	if (n < sample_bytes)
		return false;
	*offset = n - sample_bytes + at;
	return *offset % step >= sample_bytes;
}

#endif
