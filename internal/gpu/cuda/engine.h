/* engine.h: one way of copying on a GPU, on streams of its own, behind the table that timed loops call. */
#ifndef CUDA_ENGINE_H
#define CUDA_ENGINE_H

#include "device.h"

enum {
	CUDA_ENGINE_CE = 0,    /* the copy engine: cuMemcpyAsync, on one stream or several, see streams.h */
	CUDA_ENGINE_SM = 1,    /* p2p_copy: loads and stores */
	CUDA_ENGINE_BULK = 2,  /* p2p_copy_bulk: bulk copies through shared memory */
	CUDA_ENGINE_PROXY = 3, /* p2p_proxy: a kernel that stays, see proxy.h; it cannot be recorded */
};

/* Shared memory of a p2p_copy_bulk block: its 8 stages of 16 KiB. */
#define CUDA_BULK_SHARED (128 << 10)

/*
 * Opens an engine and tries it on a few bytes, so that nothing is loaded later. limit bounds the thread blocks of a
 * copy, 0 leaves it to the size; for CUDA_ENGINE_CE it is the number of streams, CUDA_STREAMS at most, 0 is one. On
 * failure nothing stays open.
 */
int cuda_engine_open(struct cuda_device *d, int kind, unsigned limit, struct p2p_engine **out, struct p2p_error *e);

/* How often the engine's resident kernel was launched; 0 for an engine that has none. */
uint64_t cuda_engine_launches(const struct p2p_engine *table);

/* Releases everything and frees the engine, whatever fails; *e tells the first failure. */
int cuda_engine_close(struct p2p_engine *table, struct p2p_error *e);

#endif
