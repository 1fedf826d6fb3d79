/* memcpy.h: the timed loops of the one-process baseline. */
#ifndef P2P_MEMCPY_H
#define P2P_MEMCPY_H

#include "transport/loop/loop.h"

/* One direction: `engine` copies, `far` is the engine of the device on which the bytes arrive and are checked. */
struct memcpy_way {
	struct p2p_engine *engine, *far;
	uint8_t *source, *inbox;
};

struct memcpy_end {
	const struct p2p_ctx *ctx;
	struct memcpy_way way[2]; /* rank 0 → rank 1, and back */
	/* The device times: the queue of each way's source device copies. No word: the host times. */
	struct p2p_stream_wait stream_wait;
	void *cpus; /* where the thread that copies back runs, a bit each */
	size_t cpu_bytes;
};

/* Runs the batch; samples has room for b->iters values in ns. Returns P2P_OK or e->code. */
int p2p_memcpy_run(struct memcpy_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		   struct p2p_error *e);

#endif
