/*
 * proxy_page.h: the pinned host memory through which the host and p2p_proxy communicate.
 * internal/gpu/kernel/src/proxy.cu declares the same layout (a test compares the numbers).
 *
 *	host                                        GPU (block 0)
 *	ring[seq % slots] = {dst, src, n, seal}  →  polls the slot of its next seq until the seal matches,
 *	                                            copies, executes a fence
 *	waits for done >= seq                    ←  done = seq
 *	reads exited == launch: launches again,  ←  exited = launch, at a time limit or after PROXY_STOP;
 *	from done + 1 on                            the kernel reads nothing after that
 */
#ifndef CUDA_PROXY_PAGE_H
#define CUDA_PROXY_PAGE_H

#include "gpu/abi/p2p.h"

enum {
	PROXY_GROUP = 4,  /* slots per read of the kernel */
	PROXY_SLOTS = 64, /* maximum number of messages in flight; a power of two and a multiple of PROXY_GROUP */
};

/* Length of the message that ends the kernel. */
#define PROXY_STOP UINT64_MAX

/* A message. Its words may arrive in any order: it is complete when the seal (a checksum) matches. */
struct proxy_slot {
	_Atomic uint64_t dst, src, n, seal;
};

struct proxy_page {
	_Alignas(128) struct proxy_slot ring[PROXY_SLOTS]; /* written by the host */
	_Alignas(128) _Atomic uint64_t done;               /* written by the kernel: the last complete message */
	_Atomic uint64_t exited;                           /* written by the kernel: the last launch that has ended */
};

/* Device memory shared by the kernel's blocks: a ring of PROXY_GROUP slots and a counter. Zero at first. */
enum { PROXY_WORK_BYTES = 256 };

/* A checksum with odd multipliers: a word that still has its old value does not compensate for another one. */
static inline uint64_t proxy_seal(uint64_t dst, uint64_t src, uint64_t n, uint64_t seq) {
	return dst * 0x9fb21c651e98df25u + src * 0xd6e8feb86659fd93u + n * 0xa0761d6478bd642fu +
	       seq * 0xe7037ed1a0b428dbu;
}

#endif
