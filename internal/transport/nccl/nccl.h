/* nccl.h: the timed loops over NCCL's send and receive between two ranks, or around a ring of ranks. */
#ifndef P2P_NCCL_H
#define P2P_NCCL_H

#include "gpu/abi/recorder.h"
#include "libnccl.h"
#include "transport/loop/loop.h"

/* One direction's control words, each on its own pair of cache lines (adjacent lines are prefetched together). */
struct nccl_direction {
	_Atomic uint64_t ready; /* the receiver stores s: operation s may be sent, the previous one has been checked */
	char pad0[128 - 8];
	_Atomic uint64_t ack; /* the receiver stores s: it has the payload of operation s */
	char pad1[128 - 8];
};

/* Memory shared by two ranks that the host times. */
struct nccl_link {
	struct nccl_direction from[2]; /* by sending rank */
};

/* A communicator, and its registrations of both buffers. */
struct nccl_comm {
	void *handle; /* NULL before p2p_nccl_connect, and after it is destroyed or aborted */
	void *registered[2];
};

/* The properties on which the launches of a window depend. */
struct nccl_shape {
	uint64_t size, offset;
	uint32_t op, window;
};

/* The C part of an endpoint. */
struct nccl_end {
	struct p2p_engine *engine;          /* fills and checks; without a queue, NCCL uses its stream */
	struct p2p_queue *queue;            /* timing by the device: NCCL uses its stream; NULL: timing by the host */
	struct p2p_stream_wait stream_wait; /* of the queue */
	const struct p2p_recorder *recorder;
	const struct p2p_ctx *ctx;
	struct nccl_link *link; /* NULL: the ranks wait for each other only at barriers */
	struct nccl_comm timed; /* moves the messages */
	/*
	 * Made like `timed`, and used only to find out what NCCL would launch: after a capture on a communicator, every
	 * later call on it takes longer. No handle: none was made.
	 */
	struct nccl_comm twin;
	uint8_t *source; /* this rank's outgoing messages */
	uint8_t *inbox;  /* this rank's incoming messages */
	size_t bytes;    /* of each */
	uint32_t rank, ranks;
	uint32_t per_message; /* 1: each message of a window is its own group */
	uint32_t pad;
	uint32_t next, previous;     /* the ranks that this one sends to and receives from; of two ranks, the other */
	uint64_t seq[2];             /* with a link: operations so far, by sending rank; both ends count alike */
	uint64_t messages;           /* sent by this rank */
	void *recorded;              /* the window that a batch with graphs launches; NULL: none */
	struct p2p_launches launch;  /* the launches of a window of the latest batch */
	struct nccl_shape inspected; /* that batch, if the twin was used; else zero */
};

/* Makes the id of a communicator, which all ranks need. */
int p2p_nccl_id(struct p2p_engine *engine, struct nccl_id *id, struct p2p_error *e);

/* Allocates at least n bytes from m, memory of the engine's device. */
int p2p_nccl_alloc(struct p2p_engine *engine, struct p2p_memory *m, size_t n, struct p2p_range *r, struct p2p_error *e);

/*
 * Makes one of end's communicators and returns when all ranks have done so; registers both buffers if `with_buffers`;
 * and sends a byte to the next rank, because NCCL makes connections at their first use. ctas is the minimum and maximum
 * number of thread blocks; 0: NCCL chooses.
 */
int p2p_nccl_connect(struct nccl_end *end, struct nccl_comm *comm, struct nccl_id id, int ctas, int with_buffers,
		     struct p2p_error *e);

/* Runs the batch; samples has room for b->iters values in ns. Returns P2P_OK or e->code. */
int p2p_nccl_run(struct nccl_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		 struct p2p_error *e);

/* Releases the recorded window. */
int p2p_nccl_forget(struct nccl_end *end, struct p2p_error *e);

/*
 * Undoes the registrations and destroys the communicator, if there is one. Recorded windows must be released before, or
 * NCCL waits for them forever.
 */
int p2p_nccl_destroy(struct nccl_end *end, struct nccl_comm *comm, struct p2p_error *e);

/* Aborts the communicator, if there is one, and its operations in progress. */
void p2p_nccl_abort(struct nccl_comm *comm);

#endif
