// device.h: the parts of CUDA's headers that the kernels need, by clang's builtins, so that no CUDA toolkit is needed.
#ifndef P2P_DEVICE_H
#define P2P_DEVICE_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u32 u32x4 __attribute__((ext_vector_type(4)));

#define MEMBER inline __attribute__((device, always_inline)) // a member function
#define DEVICE static MEMBER
#define SHARED __attribute__((shared))
// A kernel with C linkage, for blocks of at most `threads` threads.
#define KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads))) void
// The same for one block per SM, which may use all registers.
#define KERNEL_ALONE(threads) extern "C" __attribute__((global, launch_bounds(threads, 1))) void

DEVICE u32 thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE u32 block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 blocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }

// This thread's index in the grid, and the number of threads in the grid.
DEVICE u64 rank() { return (u64)block() * threads() + thread(); }
DEVICE u64 ranks() { return (u64)blocks() * threads(); }

// The address of p in the global state space.
DEVICE u64 global(const void *p) { return (u64)(const __attribute__((address_space(1))) void *)p; }

// The number of bytes from p to the next multiple of `align`, a power of two; at most n.
DEVICE u64 bytes_to(const void *p, u64 align, u64 n) {
	const u64 gap = -(u64)p & (align - 1);
	return gap < n ? gap : n;
}

#endif
