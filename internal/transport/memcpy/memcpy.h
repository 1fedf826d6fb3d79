/* memcpy.h: the timed loops of the one-process baseline. */
#ifndef P2P_MEMCPY_H
#define P2P_MEMCPY_H

#include "transport/loop/loop.h"

/* One direction: `engine` copies, `far` is the engine of the destination device and checks. */
struct memcpy_direction {
	struct p2p_engine *engine, *far;
	uint8_t *source, *inbox;
};

struct memcpy_end {
	const struct p2p_ctx *ctx;
	struct memcpy_direction dir[2]; /* rank 0 → rank 1, and back */
	/* Timing by the device: a queue of each direction's source device. word is NULL: timing by the host. */
	struct p2p_stream_wait stream_wait;
	void *cpus; /* CPU mask of the thread that copies from rank 1 to rank 0 */
	size_t cpu_bytes;
};

/* Runs the batch; samples has room for b->iters values in ns. Returns P2P_OK or e->code. */
int p2p_memcpy_run(struct memcpy_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		   struct p2p_error *e);

#endif
