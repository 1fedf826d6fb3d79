/*
 * kernels.h: the kernels of sendrecv.h, emulated by CPU threads, one thread per warp. They compile the same protocol.h
 * as the GPU's kernels.
 */
#ifndef P2P_HOST_KERNELS_H
#define P2P_HOST_KERNELS_H

#include "gpu/abi/sendrecv.h"
#include "pool.h"

enum {
	HOST_CTAS = 64,  /* maximum number of blocks of a grid: 32 pairs for the stable kernel */
	HOST_WARPS = 32, /* maximum number of warps of a block */
};

struct host_kernel;

/* A cell: the blocks that communicate with the same block of the peer. Barriers of each role, and of both roles. */
struct host_cell {
	struct host_barrier role[2], all;
};

/* One launch of a kernel. */
struct host_grid {
	struct sr_args args; /* first: the protocol passes its address, which is cast to the grid */
	const struct host_kernel *kernel;
	uint32_t ctas, warps;     /* warps per block */
	struct host_cell *cell;   /* array of HOST_CTAS */
	_Atomic uint32_t *stop;   /* the queue's: 1 ends all waits */
	_Atomic uint32_t gave_up; /* 1: a wait failed; args.state describes it */
};

/* NULL: there is no such kernel. */
const struct host_kernel *host_kernel_find(const char *name);

/* Rejects arguments with which the kernel would exceed its memory or wait for a thread that does not exist. */
int host_kernel_accepts(const struct p2p_launch *l, struct p2p_error *e);

/* Runs the kernel to completion on g->ctas * g->warps threads of the pool, which must have that many. */
void host_kernel_run(struct host_grid *g, struct host_pool *p);

#endif
