/*
 * sendrecv.h: the interface between the kernels that send and receive (kernel/src/sendrecv.cu), their emulation on the
 * host (gpu/host) and the transport that starts them. It is both C and CUDA C++ and includes nothing.
 *
 * A receiving rank has a partition of its memory for the rank that sends to it: words that the sender writes, a staging
 * area, and lines that carry their own flags. Block b of the sender's grid communicates only with block b of the
 * receiver's grid. Both ranks start the same number of blocks for a message and divide it in the same way.
 */
#ifndef P2P_SENDRECV_H
#define P2P_SENDRECV_H

typedef unsigned char sr_u8;
typedef unsigned int sr_u32;
typedef unsigned long long sr_u64;

enum {
	SR_CTAS = 256,          /* maximum number of blocks of a grid */
	SR_GRAIN = 512,         /* granularity of a block's share of a message, bytes; the last share may be shorter */
	SR_STAGING = 16 << 20,  /* size of a staging area, bytes */
	SR_LL_CTAS = 32,        /* ll: maximum number of blocks */
	SR_LL_SLOTS = 8,        /* ll: maximum number of messages in flight */
	SR_LL_BYTES = 16 << 10, /* ll: maximum payload of a block, in lines of 8 bytes of payload and 8 of flags */
	SR_WIDE_LINE = 128,     /* ll128: size of a line, bytes */
	SR_WIDE_PAYLOAD = SR_WIDE_LINE - 8,               /* ll128: payload of a line; the last 8 bytes are the flag */
	SR_WIDE_LINES = 256,                              /* ll128: maximum number of lines of a block */
	SR_LL128_BYTES = SR_WIDE_LINES * SR_WIDE_PAYLOAD, /* ll128: maximum payload of a block */
	SR_LL_AREA = SR_LL_SLOTS * SR_LL_CTAS * 2 * SR_LL_BYTES, /* size of ll's lines; ll128's follow them */
	SR_LINES = SR_LL_AREA + SR_LL_SLOTS * SR_LL_CTAS * SR_WIDE_LINES * SR_WIDE_LINE, /* size of both, bytes */
	SR_BULK_CHUNK = 16 << 10,                            /* bulk: bytes of one bulk copy */
	SR_BULK_STAGES = 6,                                  /* bulk: buffers per role, of one chunk each */
	SR_BULK_SHARED = 2 * SR_BULK_STAGES * SR_BULK_CHUNK, /* bulk: dynamic shared memory of a block */
	SR_BURST = 512, /* resident: maximum window of which every message is a sample */
};

/* The roles of a launch. */
enum { SR_SEND = 1, SR_RECEIVE = 2 };

/* The order of the roles. */
enum { SR_TOGETHER = 0, SR_SEND_FIRST = 1, SR_RECEIVE_FIRST = 2 };

/* A word that another rank writes, in cache lines of its own. */
struct sr_word {
	sr_u64 value;
	sr_u64 pad[15];
};

/* The words of a partition. All but credit and full are sequence numbers, which never decrease, across launches. */
struct sr_words {
	/* Written by the sending rank: steps of block b in the staging area, or messages in the inbox. */
	struct sr_word tail[SR_CTAS];
	/* Written by the receiving rank, in the sender's memory: steps taken, or credits for messages. */
	struct sr_word head[SR_CTAS];
	/* The same for lines: messages of block b taken. */
	struct sr_word ll_head[SR_LL_CTAS];
	/* ce: 0 or 1. credit: the sender may write a window. full: the window is complete. */
	struct sr_word credit, full;
	/* Resident kernels: the iteration that this peer is ready to begin. */
	struct sr_word sync;
};

/*
 * The progress of block b, in the memory of its own rank. The receiving role reads and writes the received counters,
 * the sending role the others. Other blocks read sent, too (drain).
 */
struct sr_count {
	sr_u64 sent, received;       /* steps or messages */
	sr_u64 ll_sent, ll_received; /* messages in lines */
	sr_u64 head, ll_head;        /* last acquired values of the peer's words, which never decrease */
	/* Used while a kernel runs, otherwise 0. */
	sr_u64 offset;    /* position of a resident kernel in its window: bytes from the first message */
	sr_u32 ll_credit; /* 1: the whole group has seen the credit for the next message in lines */
	sr_u32 pad;
};

/* Memory shared by the blocks of a resident kernel, on their rank's device; zero before the first launch. */
struct sr_team {
	struct sr_word go;      /* written by block 0: the iteration that the other blocks may begin */
	struct sr_word arrived; /* incremented by all: iterations finished, summed over the blocks */
};

/* Communication between a kernel and the host: pinned host memory, zero before the first launch. */
struct sr_state {
	/* Written by the host. */
	sr_u32 abort; /* 1: stop waiting */
	sr_u32 pad0;
	sr_u64 doorbell; /* resident: iterations that may begin */
	sr_u64 pad1[14];
	/* Written by the kernel. */
	sr_u64 done;   /* resident: iterations finished */
	sr_u32 failed; /* 1: a wait failed; the next fields describe it, and later launches do nothing */
	sr_u32 role;   /* SR_SEND or SR_RECEIVE */
	sr_u64 block;
	sr_u64 want, have;
	sr_u64 pad2[11];
};

/*
 * The argument of a kernel: the message and all addresses, valid on this rank's device. "next" is the rank that this
 * rank sends to, "previous" the rank that it receives from.
 */
struct sr_args {
	const sr_u8 *src; /* own: the message to send */
	sr_u8 *dst;       /* own: the buffer to receive into */
	sr_u64 bytes;     /* message size, the same in both directions */

	sr_u8 *peer_dst;     /* put: the inbox of next */
	sr_u8 *peer_staging; /* the staging area of next for this rank */
	sr_u8 *staging;      /* own staging area for previous */
	sr_u8 *peer_lines;   /* ll, ll128: the lines of next for this rank */
	sr_u8 *lines;        /* ll, ll128: own lines for previous */

	struct sr_words *in;       /* own; previous writes tail */
	struct sr_words *out;      /* own; next writes head */
	struct sr_words *peer_in;  /* of next; this rank writes tail */
	struct sr_words *peer_out; /* of previous; this rank writes head */

	struct sr_count *count; /* own, one per block */
	struct sr_team *team;   /* own */
	struct sr_state *state; /* of this process */
	sr_u64 *samples;        /* resident: ns of each iteration, or, if the roles follow each other, of each message
				   of its window; in host memory; NULL: no samples are wanted */

	sr_u64 stride;     /* staged: bytes of a step */
	sr_u64 timeout_ns; /* longest wait for one word */
	sr_u64 first;      /* resident: number of the last iteration of the previous launch */
	sr_u64 spacing;    /* resident: bytes from one message of a window to the next */
	sr_u32 stages;     /* staged: maximum number of steps in flight */
	sr_u32 roles;      /* SR_SEND, SR_RECEIVE or both */
	sr_u32 order;
	sr_u32 sender_warps, receiver_warps;
	sr_u32 drain;   /* staged: blocks that used the staging area with another layout before; wait for their steps */
	sr_u32 credits; /* put: messages that previous may send from now on, this one included; 0: unchanged */
	sr_u32 iters;   /* resident: iterations; 0: the kernel runs one message and ends */
	sr_u32 window;  /* resident: messages per iteration */
	sr_u32 begins;  /* resident: 1: a barrier with the peers before every iteration */
	/* ws: 1: the message is sent in lines instead of through the staging area, each role by its own warps */
	sr_u32 in_lines;
	sr_u32 pad;
};

/*
 * Names of the kernels. Each takes a struct sr_args. A block has sender_warps + receiver_warps warps; a block of the
 * bulk kernels has 2.
 */
#define SR_KERNEL_WS "p2p_sr_ws"             /* staged; each block sends and receives, by different warps */
#define SR_KERNEL_WS_BULK "p2p_sr_ws_bulk"   /* the same by bulk copies, one thread per role */
#define SR_KERNEL_STABLE "p2p_sr_stable"     /* staged; even blocks send, odd blocks receive */
#define SR_KERNEL_PUT "p2p_sr_put"           /* directly into the peer's inbox */
#define SR_KERNEL_PUT_BULK "p2p_sr_put_bulk" /* the same by bulk copies */
#define SR_KERNEL_LL "p2p_sr_ll"             /* in lines of 16 bytes with flags */
#define SR_KERNEL_LL128 "p2p_sr_ll128"       /* in lines of 128 bytes with flags */

#endif
