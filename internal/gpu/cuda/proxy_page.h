/*
 * proxy_page.h: the pinned host memory through which the host and p2p_proxy talk, as internal/gpu/kernel/src/proxy.cu
 * has it too (a test compares the numbers).
 *
 *	host                                        GPU (block 0)
 *	ring[seq % slots] = {dst, src, n, seal}  →  reads the slot of its next seq until the seal is right
 *	                                            copies, fences
 *	waits for done >= seq                    ←  done = seq
 *	sees exited == launch: launches again,   ←  exited = launch, after it was idle for a while or found
 *	from done + 1 on                            PROXY_STOP; it reads nothing after that
 */
#ifndef CUDA_PROXY_PAGE_H
#define CUDA_PROXY_PAGE_H

#include "gpu/abi/p2p.h"

enum {
	PROXY_GROUP = 4,  /* slots that the kernel reads at once */
	PROXY_SLOTS = 64, /* messages under way at most; a power of two and a multiple of PROXY_GROUP */
};

/* Length of the message that ends the kernel. */
#define PROXY_STOP UINT64_MAX

/* A message. Its words may arrive in any order: it is complete when the seal is right. */
struct proxy_slot {
	_Atomic uint64_t dst, src, n, seal;
};

struct proxy_page {
	_Alignas(128) struct proxy_slot ring[PROXY_SLOTS]; /* the host writes */
	_Alignas(128) _Atomic uint64_t done;               /* the kernel writes: number of the last complete message */
	_Atomic uint64_t exited;                           /* the kernel writes: number of the launch that has left */
};

/* What the kernel's blocks share in device memory: a ring of PROXY_GROUP slots and a counter. Zero at first. */
enum { PROXY_WORK_BYTES = 256 };

/* Odd multipliers without structure: no word can make up for another that is still an old one. */
static inline uint64_t proxy_seal(uint64_t dst, uint64_t src, uint64_t n, uint64_t seq) {
	return dst * 0x9fb21c651e98df25u + src * 0xd6e8feb86659fd93u + n * 0xa0761d6478bd642fu +
	       seq * 0xe7037ed1a0b428dbu;
}

#endif
