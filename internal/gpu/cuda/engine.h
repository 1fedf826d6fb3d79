/* engine.h: the engines of a GPU. Each has its own streams and implements struct p2p_engine. */
#ifndef CUDA_ENGINE_H
#define CUDA_ENGINE_H

#include "device.h"

enum {
	CUDA_ENGINE_CE = 0,    /* the copy engine: cuMemcpyAsync, on one stream or several, see streams.h */
	CUDA_ENGINE_SM = 1,    /* p2p_copy: loads and stores */
	CUDA_ENGINE_BULK = 2,  /* p2p_copy_bulk: bulk copies through shared memory */
	CUDA_ENGINE_PROXY = 3, /* p2p_proxy: a resident kernel, see proxy.h; it cannot be recorded */
};

/* Shared memory of a p2p_copy_bulk block: its 8 stages of 16 KiB. */
#define CUDA_BULK_SHARED (128 << 10)

/*
 * Opens an engine and tests it on a few bytes, which also loads everything that copies need. limit is the maximum
 * number of thread blocks of a copy, 0: chosen by size. For CUDA_ENGINE_CE limit is the number of streams, at most
 * CUDA_STREAMS, 0: one. On failure everything is released.
 */
int cuda_engine_open(struct cuda_device *d, int kind, unsigned limit, struct p2p_engine **out, struct p2p_error *e);

/* The number of launches of the engine's resident kernel; 0 for an engine that has none. */
uint64_t cuda_engine_launches(const struct p2p_engine *table);

/* Releases everything and frees the engine, also after a failure; *e is the first failure. */
int cuda_engine_close(struct p2p_engine *table, struct p2p_error *e);

#endif
