/* nccl.h: the timed loops over NCCL's send and receive between two ranks, or around a ring of them. */
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

/* A communicator, and both buffers as it knows them. */
struct nccl_comm {
	void *handle; /* NULL before p2p_nccl_connect, and once destroyed or aborted */
	void *registered[2];
};

/* What decides how a window is launched. */
struct nccl_shape {
	uint64_t size, offset;
	uint32_t op, window;
};

/* One rank's end. */
struct nccl_end {
	struct p2p_engine *engine;          /* fills and checks, and lends its stream to NCCL if there is no queue */
	struct p2p_queue *queue;            /* the device times: NCCL's calls go on its stream; NULL: the host does */
	struct p2p_stream_wait stream_wait; /* of the queue */
	const struct p2p_recorder *recorder;
	const struct p2p_ctx *ctx;
	struct nccl_link *link; /* NULL: the ranks wait for each other at barriers, and in no other way */
	struct nccl_comm timed; /* moves the messages */
	/*
	 * Made like the other one, and used only to see what NCCL would launch: a communicator on which something was
	 * once recorded takes longer for every call afterwards, and the timed one must not. No handle: none was made.
	 */
	struct nccl_comm twin;
	uint8_t *source; /* this rank's outgoing messages */
	uint8_t *inbox;  /* this rank's incoming messages */
	size_t bytes;    /* of each */
	uint32_t rank, ranks;
	uint32_t per_message; /* 1: each message of a window is a group of its own */
	uint32_t pad;
	uint32_t next, previous; /* the ranks to which this one sends, and from which it receives; of two, the other */
	uint64_t seq[2];         /* with a link: operations so far, by sending rank; both ends count alike */
	uint64_t messages;       /* sent by this rank */
	void *recorded;          /* the window that a batch with graphs launches; NULL: none */
	struct p2p_launches launch; /* what a window of the last batch launches */
	struct nccl_shape looked;   /* … and that batch, if the twin told */
};

/* Makes the id that all ranks need. */
int p2p_nccl_id(struct p2p_engine *engine, struct nccl_id *id, struct p2p_error *e);

/* Allocates at least n bytes of m, memory of the engine's device. */
int p2p_nccl_alloc(struct p2p_engine *engine, struct p2p_memory *m, size_t n, struct p2p_range *r, struct p2p_error *e);

/*
 * Makes one of end's communicators, which returns once all ranks ask for it; registers both buffers if `with_buffers`;
 * and sends a byte to the next rank, so that the connections, which NCCL makes at their first use, exist. ctas
 * bounds the thread blocks from below and above, 0 leaves them to NCCL.
 */
int p2p_nccl_connect(struct nccl_end *end, struct nccl_comm *comm, struct nccl_id id, int ctas, int with_buffers,
		     struct p2p_error *e);

/* Runs the batch; samples has room for b->iters values in ns. Returns P2P_OK or e->code. */
int p2p_nccl_run(struct nccl_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		 struct p2p_error *e);

/* Releases the recorded window. */
int p2p_nccl_forget(struct nccl_end *end, struct p2p_error *e);

/*
 * Undoes the registrations and ends the communicator, if there is one. Recorded windows must be gone: NCCL waits for
 * them without end.
 */
int p2p_nccl_destroy(struct nccl_end *end, struct nccl_comm *comm, struct p2p_error *e);

/* Ends the communicator, if there is one, and whatever it has under way. */
void p2p_nccl_abort(struct nccl_comm *comm);

#endif
