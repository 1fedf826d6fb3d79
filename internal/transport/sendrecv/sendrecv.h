/*
 * sendrecv.h: the timed loops over kernels that send and receive. It is the interface between Go and the loops;
 * gpu/abi/sendrecv.h is the interface between the loops and the kernels.
 *
 *   window.c    the commands of one window on a rank's queue
 *   sendrecv.c  batches, launched window by window or resident
 *   share.c     allreduce between the ranks, and clean-up after a failure
 */
#ifndef P2P_SENDRECV_TRANSPORT_H
#define P2P_SENDRECV_TRANSPORT_H

#include "gpu/abi/sendrecv.h"
#include "transport/loop/loop.h"

enum { SENDRECV_WS = 0, SENDRECV_STABLE = 1, SENDRECV_PUT = 2, SENDRECV_LL = 3, SENDRECV_LL128 = 4, SENDRECV_CE = 5 };

/* The kernels: the variants except ce, then the variants with bulk copies. */
enum { SENDRECV_WS_BULK = 5, SENDRECV_PUT_BULK = 6, SENDRECV_KERNELS = 7 };

/* How a batch is run. */
struct sendrecv_plan {
	uint32_t variant;
	uint32_t bulk; /* 1: by bulk copies */
	uint32_t ctas; /* blocks that send; as many receive: in stable further blocks, else the same */
	uint32_t sender_warps, receiver_warps;
	uint32_t stages;       /* staged: steps in flight */
	uint64_t stride;       /* staged: bytes of a step */
	uint64_t launch_bytes; /* maximum bytes of one launch; longer messages take several. 0: no limit */
	uint32_t resident;
	uint32_t host_timed;
	uint32_t trial;    /* 1: payloads are neither written nor compared */
	uint32_t in_lines; /* ws: 1: messages go in lines */
	uint32_t overlap;  /* 1: a launch may overlap the end of the previous one */
	uint32_t burst;    /* resident ping-pong: back-to-back round trips between two barriers; else 1 */
};

/* One direction between two neighbours of the channel for allreduce, which runs outside of timed parts. */
#define SENDRECV_MAX_VALUES 1024
struct sendrecv_channel {
	_Atomic uint64_t sent; /* sequence number of the latest values, by the sender */
	char pad0[128 - 8];
	_Atomic uint64_t taken; /* and of the latest values read, by the receiver */
	char pad1[128 - 8];
	uint64_t value[SENDRECV_MAX_VALUES];
};

/* Memory that two neighbours share. */
struct sendrecv_link {
	struct sendrecv_channel from[2]; /* by the smaller and the larger rank */
};

/* How the latest batch divided the staging area of the next rank. */
struct sendrecv_staged {
	uint32_t ctas, stages;
	uint64_t stride;
};

/* The C part of an endpoint. */
struct sendrecv_end {
	struct p2p_engine *engine; /* fills and checks */
	struct p2p_queue *queue;
	const struct p2p_ctx *ctx;
	struct p2p_stream_wait stream_wait;
	/* All addresses. src, dst and peer_dst: the buffers. samples: room for the longest resident batch. */
	struct sr_args at;
	void *kernel[SENDRECV_KERNELS]; /* NULL: not needed, or not available on the device */
	struct sendrecv_channel *to_next, *from_previous;
	uint64_t tx_seq, rx_seq; /* sequence numbers of the values sent and received last */
	uint32_t rank, ranks;
	uint32_t previous;   /* the rank that sends to this one */
	uint32_t warp;       /* threads of a warp of this rank's device */
	uint32_t cpu;        /* 1: CPU threads emulate the kernels, so waits must yield the CPU */
	uint32_t broken;     /* 1: a batch failed; no further one is run */
	uint32_t stuck;      /* 1: a command on the queue has not ended */
	uint32_t barriers;   /* barriers before iterations since the barrier of the batch in progress */
	uint64_t barrier;    /* number of the barrier of the batch in progress */
	int64_t entered;     /* when this rank left that barrier */
	uint64_t iterations; /* of resident kernels so far */
	struct sendrecv_staged staged;
};

/* Prepares the calling thread for the functions below and for those of the memory's table. */
int p2p_sendrecv_bind(struct sendrecv_end *end, struct p2p_error *e);

/* Finds a kernel by its number. */
int p2p_sendrecv_find(struct sendrecv_end *end, uint32_t kernel, struct p2p_error *e);

/* Call it once `at` is set. Starts every kernel that was found, so that none is loaded behind a stream wait. */
int p2p_sendrecv_warm_up(struct sendrecv_end *end, struct p2p_error *e);

/* Whether a graph can contain writes of words and waits for words. Messages of ce need both. */
int p2p_sendrecv_records_words(struct sendrecv_end *end);

/* Allreduce (max) of n values, at most SENDRECV_MAX_VALUES. All ranks call it. */
int p2p_sendrecv_allreduce_max(struct sendrecv_end *end, uint64_t *value, uint32_t n, struct p2p_error *e);

/*
 * Runs the batch; samples has room for b->iters values in ns. A batch may be run several times after one barrier: all
 * runs but the last are trials. Returns P2P_OK or e->code.
 */
int p2p_sendrecv_run(struct sendrecv_end *end, const struct p2p_batch *b, const struct sendrecv_plan *p,
		     int64_t *samples, struct p2p_result *r, struct p2p_error *e);

#endif
