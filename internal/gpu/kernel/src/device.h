// device.h: what the kernels need of CUDA's headers, in clang's own terms, so that no toolkit is wanted.
#ifndef P2P_DEVICE_H
#define P2P_DEVICE_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u32 u32x4 __attribute__((ext_vector_type(4)));

#define MEMBER inline __attribute__((device, always_inline)) // of a class
#define DEVICE static MEMBER
#define SHARED __attribute__((shared))
// A kernel under its C name, for blocks of at most `threads` threads.
#define KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads))) void
// The same where one block an SM is enough, so that it may have all the registers.
#define KERNEL_ALONE(threads) extern "C" __attribute__((global, launch_bounds(threads, 1))) void

DEVICE u32 thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE u32 block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 blocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }

// This thread's number in the grid, and how many there are.
DEVICE u64 rank() { return (u64)block() * threads() + thread(); }
DEVICE u64 ranks() { return (u64)blocks() * threads(); }

// The address of p as .global instructions want it.
DEVICE u64 global(const void *p) { return (u64)(const __attribute__((address_space(1))) void *)p; }

// How many bytes lie between p and the next multiple of `align`, a power of two; at most n.
DEVICE u64 bytes_to(const void *p, u64 align, u64 n) {
	const u64 gap = -(u64)p & (align - 1);
	return gap < n ? gap : n;
}

#endif
