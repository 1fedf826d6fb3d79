// access.h: loads and stores of global memory for the copy kernels.
#ifndef P2P_ACCESS_H
#define P2P_ACCESS_H

#include "device.h"

// Source bytes are read once and need not be kept in L1.
DEVICE u32x4 load(const u32x4 *p) {
	u32x4 v;
	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(global(p)));
	return v;
}

DEVICE void store(u32x4 *p, u32x4 v) {
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(global(p)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
		     : "memory");
}

template <class V> DEVICE V load(const V *p) { return *(const volatile V *)p; }
template <class V> DEVICE void store(V *p, V v) { *(volatile V *)p = v; }

#endif
