/*
 * sendrecv.h: the timed loops over kernels that send and receive. gpu/abi/sendrecv.h is what those loops and the
 * kernels agree on; here is what Go and the loops do.
 *
 *   window.c    what one window puts on a rank's queue
 *   sendrecv.c  batches, launched window by window or resident
 *   share.c     how ranks agree, and how a rank that failed leaves
 */
#ifndef P2P_SENDRECV_TRANSPORT_H
#define P2P_SENDRECV_TRANSPORT_H

#include "gpu/abi/sendrecv.h"
#include "transport/loop/loop.h"

enum { SENDRECV_WS = 0, SENDRECV_STABLE = 1, SENDRECV_PUT = 2, SENDRECV_LL = 3, SENDRECV_LL128 = 4, SENDRECV_CE = 5 };

/* The kernels; those of the variants that copy in bulk follow the others. */
enum { SENDRECV_WS_BULK = 5, SENDRECV_PUT_BULK = 6, SENDRECV_KERNELS = 7 };

/* How a batch is run. */
struct sendrecv_plan {
	uint32_t variant;
	uint32_t bulk; /* 1: by bulk copies */
	uint32_t ctas; /* blocks that send; as many receive, in stable other ones */
	uint32_t sender_warps, receiver_warps;
	uint32_t stages; /* staged: steps under way */
	uint64_t stride; /* staged: bytes of a step */
	uint64_t piece;  /* bytes that one launch moves at most; longer messages take several. 0: any number */
	uint32_t resident;
	uint32_t host_timed;
	uint32_t trial;    /* 1: payloads are of no interest */
	uint32_t in_lines; /* ws: 1: messages go in lines */
	uint32_t overlap;  /* 1: a launch may overlap the end of the one before */
	uint32_t train;    /* resident ping-pong: back-to-back round trips between two barriers; else 1 */
};

/* One direction of what two neighbours have to say to each other outside of batches. */
#define SENDRECV_MAIL 1024
struct sendrecv_mail {
	_Atomic uint64_t sent; /* letters so far */
	char pad0[128 - 8];
	_Atomic uint64_t taken;
	char pad1[128 - 8];
	uint64_t value[SENDRECV_MAIL];
};

/* Memory that two neighbours share. */
struct sendrecv_link {
	struct sendrecv_mail from[2]; /* by the smaller and the larger rank */
};

/* What used the staging area of the rank that is sent to. */
struct sendrecv_staged {
	uint32_t ctas, stages;
	uint64_t stride;
};

/* One rank's end. */
struct sendrecv_end {
	struct p2p_engine *engine; /* fills and checks */
	struct p2p_queue *queue;
	const struct p2p_ctx *ctx;
	struct p2p_stream_wait stream_wait;
	/* Where everything is: src, dst and peer_dst are the buffers, samples has room for the longest resident batch.
	 */
	struct sr_args at;
	void *kernel[SENDRECV_KERNELS]; /* NULL: not looked for, or the device has none */
	struct sendrecv_mail *to_next, *from_previous;
	uint64_t told, heard; /* letters so far */
	uint32_t rank, ranks;
	uint32_t previous;   /* the rank that sends here */
	uint32_t warp;       /* threads of a warp of this rank's device */
	uint32_t cpu;        /* 1: threads of the CPU play the kernels, and need it */
	uint32_t broken;     /* 1: a batch failed; no other one is run */
	uint32_t stuck;      /* 1: and something on the queue does not end */
	uint32_t barriers;   /* before iterations, since that of the batch in progress */
	uint64_t barrier;    /* that one's number */
	int64_t entered;     /* when this rank left it */
	uint64_t iterations; /* of resident kernels so far */
	struct sendrecv_staged staged;
};

/* Prepares the calling thread for everything below, and for the memory's table. */
int p2p_sendrecv_bind(struct sendrecv_end *end, struct p2p_error *e);

/* Finds a kernel by its number. */
int p2p_sendrecv_find(struct sendrecv_end *end, uint32_t kernel, struct p2p_error *e);

/* Once everything has its place: starts every kernel that was found, so that none is loaded while a queue is held. */
int p2p_sendrecv_warm_up(struct sendrecv_end *end, struct p2p_error *e);

/* Whether words that are written and waited for can be recorded: a message of ce is such words and a copy. */
int p2p_sendrecv_records_words(struct sendrecv_end *end);

/* Makes each of n values, at most SENDRECV_MAIL, the largest that any rank has. All ranks call it. */
int p2p_sendrecv_share(struct sendrecv_end *end, uint64_t *value, uint32_t n, struct p2p_error *e);

/*
 * Runs the batch; samples has room for b->iters values in ns. A batch may be run several times under one barrier: what
 * comes before its last run is a trial. Returns P2P_OK or e->code.
 */
int p2p_sendrecv_run(struct sendrecv_end *end, const struct p2p_batch *b, const struct sendrecv_plan *p,
		     int64_t *samples, struct p2p_result *r, struct p2p_error *e);

#endif
