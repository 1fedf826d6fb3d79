// sync.h: time, fences and barriers.
#ifndef P2P_SYNC_H
#define P2P_SYNC_H

#include "device.h"

DEVICE u64 now() {
	u64 ns;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
	return ns;
}

DEVICE void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
DEVICE void barrier() { asm volatile("bar.sync 0;" ::: "memory"); }

#endif
