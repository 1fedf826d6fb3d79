/* ipc.h: the timed loops of memory-handle IPC between two ranks. */
#ifndef P2P_IPC_H
#define P2P_IPC_H

#include "zz_loop.h"

/* One direction's control words, each on its own pair of cache lines (adjacent lines are prefetched together). */
struct ipc_direction {
	_Atomic uint64_t ready; /* the receiver stores s: operation s may be sent, the previous one has been checked */
	char pad0[128 - 8];
	_Atomic uint64_t done; /* the sender stores s: the payload of operation s is visible to the receiver */
	char pad1[128 - 8];
	_Atomic uint64_t ack; /* the receiver stores s: it has seen done >= s */
	char pad2[128 - 8];
};

/* Memory shared by the two ranks. */
struct ipc_link {
	struct ipc_direction from[2]; /* by sending rank */
};

/* One rank's end. */
struct ipc_end {
	struct p2p_engine *engine;
	const struct p2p_ctx *ctx;
	struct ipc_link *link;
	uint8_t *source; /* this rank's outgoing messages */
	uint8_t *inbox;  /* this rank's incoming messages */
	uint8_t *peer;   /* the peer's inbox as mapped here */
	uint32_t rank;
	uint32_t pad;
	uint64_t seq[2];   /* operations so far, by sending rank; both ends count alike */
	uint64_t messages; /* sent by this rank */
};

/* Runs the batch; samples has room for b->iters values in ns. Returns P2P_OK or e->code. */
int p2p_ipc_run(struct ipc_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		struct p2p_error *e);

#endif
