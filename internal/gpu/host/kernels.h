/*
 * kernels.h: the kernels of sendrecv.h, played by threads of the CPU: each is a warp. The protocol that they follow is
 * protocol.h, line by line the one of the GPU's kernels.
 */
#ifndef P2P_HOST_KERNELS_H
#define P2P_HOST_KERNELS_H

#include "gpu/abi/sendrecv.h"
#include "pool.h"

enum {
	HOST_CTAS = 64,  /* most blocks of a grid: stable needs two for each of 32 */
	HOST_WARPS = 32, /* most warps of a block */
};

struct host_kernel;

/* The barriers of the blocks that talk to one block of the peer: of each role, and of both. */
struct host_cell {
	struct host_barrier role[2], all;
};

/* One start of a kernel. */
struct host_grid {
	struct sr_args args; /* first: the protocol hands back its address */
	const struct host_kernel *kernel;
	uint32_t ctas, warps;     /* warps of a block */
	struct host_cell *cell;   /* HOST_CTAS */
	_Atomic uint32_t *stop;   /* the queue's: 1 ends all waits */
	_Atomic uint32_t gave_up; /* 1: somebody did, and says so in args.state */
};

/* NULL: there is no such kernel. */
const struct host_kernel *host_kernel_find(const char *name);

/* Refuses what would make the kernel run over memory, or wait for nobody. */
int host_kernel_accepts(const struct p2p_launch *l, struct p2p_error *e);

/* Runs the kernel to its end on g->ctas * g->warps threads of the pool, which must be there. */
void host_kernel_run(struct host_grid *g, struct host_pool *p);

#endif
