// Package abitest gives tests access to parts of p2p.h that package abi does not export: payloads, and properties of a
// device's memory.
package abitest

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../../.. -DP2P_SHARED_HEADERS=0x4928d503
#include "gpu/abi/p2p.h"

static uint64_t payload_key(uint64_t seed, uint64_t size, uint64_t iter, uint64_t rank) {
	return p2p_payload_key(seed, size, iter, rank);
}
static uint8_t payload_byte(uint64_t key, uint64_t offset) { return p2p_payload_byte(key, offset); }
static int memory_unused(struct p2p_memory *m, uint64_t *bytes, struct p2p_error *e) {
	return m->unused(m->self, bytes, e);
}
*/
import "C"

import "github.com/p2pbench/p2pbench/internal/gpu/abi"

// SampleBytes is the length of each part that a sampled fill or check covers.
const SampleBytes = C.P2P_SAMPLE_BYTES

// PayloadKey is the key of one message.
func PayloadKey(seed, size, iter uint64, rank int) uint64 {
	return uint64(C.payload_key(C.uint64_t(seed), C.uint64_t(size), C.uint64_t(iter), C.uint64_t(rank)))
}

// PayloadByte is the byte at offset of the message with that key.
func PayloadByte(key, offset uint64) byte {
	return byte(C.payload_byte(C.uint64_t(key), C.uint64_t(offset)))
}

func table(m *abi.Memory) *C.struct_p2p_memory { return (*C.struct_p2p_memory)(m.Pointer()) }

// FDs reports whether handles of the memory come with a descriptor.
func FDs(m *abi.Memory) bool { return table(m).fds != 0 }

// Granule is the granularity of allocations in bytes.
func Granule(m *abi.Memory) uint64 { return uint64(table(m).granule) }

// Unused is the number of free bytes of the device. The calling thread must have bound an engine of the device.
func Unused(m *abi.Memory) (uint64, error) {
	var n C.uint64_t
	err := abi.Call(func(e *C.struct_p2p_error) { C.memory_unused(table(m), &n, e) })
	return uint64(n), err
}
