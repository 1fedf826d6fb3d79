package abitest

import "testing"

// The payload's definition is fixed, so that checks of different versions, and of CPU and GPU, are the same.
func TestPayloadIsFixed(t *testing.T) {
	key := PayloadKey(1, 4096, 2, 1)
	var got [8]byte
	for i := range got {
		got[i] = PayloadByte(key, uint64(i))
	}
	word := func(index uint64) uint32 {
		x := uint32(index)*0x9e3779b1 + uint32(key)
		x ^= uint32(index>>32)*0x85ebca6b + uint32(key>>32)
		x ^= x >> 15
		x *= 0x2c1b3c6d
		return x ^ x>>13
	}
	for i, b := range got {
		if want := byte(word(uint64(i)/4) >> (8 * (i % 4))); b != want {
			t.Errorf("byte %d: %#x, want %#x", i, b, want)
		}
	}
	const far = uint64(5) << 34 // words beyond 2^32
	if got, want := PayloadByte(key, far+3), byte(word(far/4)>>24); got != want {
		t.Errorf("byte %d: %#x, want %#x", far+3, got, want)
	}
}
