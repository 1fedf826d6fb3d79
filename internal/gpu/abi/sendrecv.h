/*
 * sendrecv.h: what the kernels that send and receive (kernel/src/sendrecv.cu), their double on a host (gpu/host) and
 * the transport that starts them agree on. It is C and CUDA C++ at once and includes nothing.
 *
 * A rank that receives has, for the rank that sends to it, a partition of its memory: words that the other side
 * writes, a staging area, and lines that carry their own flags. Block b of the sender's grid talks to block b of the
 * receiver's only. Both start the same number of blocks for a message, and cut it alike.
 */
#ifndef P2P_SENDRECV_H
#define P2P_SENDRECV_H

typedef unsigned char sr_u8;
typedef unsigned int sr_u32;
typedef unsigned long long sr_u64;

enum {
	SR_CTAS = 256,          /* most blocks of a grid */
	SR_GRAIN = 512,         /* a block's share of a message is a multiple of so many bytes, but for the last */
	SR_STAGING = 16 << 20,  /* bytes of a staging area */
	SR_LL_CTAS = 32,        /* ll: most blocks */
	SR_LL_SLOTS = 8,        /* ll: messages under way at most */
	SR_LL_BYTES = 16 << 10, /* ll: payload of a block at most, in lines of 8 bytes of payload and 8 of flags */
	SR_WIDE_LINE = 128,     /* ll128: bytes of a line … */
	SR_WIDE_PAYLOAD = SR_WIDE_LINE - 8,                      /* … of which the last 8 are the flag … */
	SR_WIDE_LINES = 256,                                     /* … and lines of a block at most … */
	SR_LL128_BYTES = SR_WIDE_LINES * SR_WIDE_PAYLOAD,        /* … and so payload */
	SR_LL_AREA = SR_LL_SLOTS * SR_LL_CTAS * 2 * SR_LL_BYTES, /* bytes of ll's lines; ll128's are behind them … */
	SR_LINES = SR_LL_AREA + SR_LL_SLOTS * SR_LL_CTAS * SR_WIDE_LINES * SR_WIDE_LINE, /* … and bytes of both */
	SR_BULK_CHUNK = 16 << 10,                            /* bulk: bytes that one bulk copy moves … */
	SR_BULK_STAGES = 6,                                  /* … and buffers of a role for them */
	SR_BULK_SHARED = 2 * SR_BULK_STAGES * SR_BULK_CHUNK, /* bulk: dynamic shared memory of a block */
	SR_TRAIN = 512, /* resident: messages of a window at most that are samples of their own */
};

/* What a launch does. */
enum { SR_SEND = 1, SR_RECEIVE = 2 };

/* In which order. */
enum { SR_TOGETHER = 0, SR_SEND_FIRST = 1, SR_RECEIVE_FIRST = 2 };

/* A word that another rank writes, alone in its cache lines. */
struct sr_word {
	sr_u64 value;
	sr_u64 pad[15];
};

/* The words of a partition. All count up and never back, over all launches. */
struct sr_words {
	/* The sending rank writes: steps of block b that are in staging, or messages that are in the inbox. */
	struct sr_word tail[SR_CTAS];
	/* The receiving rank writes, in the sender's memory: steps that it has taken, or messages it waits for. */
	struct sr_word head[SR_CTAS];
	/* The same for lines: messages of block b that it has taken. */
	struct sr_word ll_head[SR_LL_CTAS];
	/* ce: 0 or 1. Credit: a window may be written. Full: it is there. */
	struct sr_word credit, full;
	/* Resident kernels begin an iteration together: its number. */
	struct sr_word sync;
};

/*
 * How far block b has come, in the memory of its own rank. What was received is the receiving role's to read and write,
 * the rest the sending one's; sent is read by the other blocks too (drain).
 */
struct sr_count {
	sr_u64 sent, received;       /* steps or messages */
	sr_u64 ll_sent, ll_received; /* messages in lines */
	sr_u64 head, ll_head;        /* the peer's words as last acquired: what they were, they still are at least */
	/* Of a kernel that runs; 0 at rest. */
	sr_u64 offset;  /* where a resident kernel is in its window: bytes from its first message */
	sr_u32 ll_room; /* 1: there is room for the next message in lines, and the whole group knows */
	sr_u32 pad;
};

/* What the blocks of a resident kernel share, in the memory of their rank; zero before the first launch. */
struct sr_team {
	struct sr_word go;      /* block 0 writes: the iteration that the others may begin */
	struct sr_word arrived; /* all add: iterations finished, over all blocks */
};

/* Where a kernel and the host meet: pinned memory of the host, zero before the first launch. */
struct sr_state {
	/* The host writes. */
	sr_u32 abort; /* 1: stop waiting */
	sr_u32 pad0;
	sr_u64 doorbell; /* resident: iterations that may begin */
	sr_u64 pad1[14];
	/* The kernel writes. */
	sr_u64 done;   /* resident: iterations finished */
	sr_u32 failed; /* 1: a wait was given up; what follows says which, and later launches do nothing */
	sr_u32 role;   /* SR_SEND or SR_RECEIVE */
	sr_u64 block;
	sr_u64 want, have;
	sr_u64 pad2[11];
};

/* One start of a kernel: the message, and where everything is, as this rank's device addresses it. */
struct sr_args {
	const sr_u8 *src; /* own: what is sent */
	sr_u8 *dst;       /* own: where it shall arrive */
	sr_u64 bytes;     /* of the message, the same both ways */

	sr_u8 *peer_dst;     /* put: the inbox of the rank that is sent to */
	sr_u8 *peer_staging; /* that rank's staging area for this rank */
	sr_u8 *staging;      /* own, for the rank that sends here */
	sr_u8 *peer_lines;   /* ll, ll128: that rank's lines for this one */
	sr_u8 *lines;        /* ll, ll128: own */

	struct sr_words *in;       /* own, from the rank that sends here: it writes tail */
	struct sr_words *out;      /* own, from the rank that is sent to: it writes head */
	struct sr_words *peer_in;  /* that rank's words from this one: tail is written there */
	struct sr_words *peer_out; /* the words of the rank that sends here: head is written there */

	struct sr_count *count; /* own, one a block */
	struct sr_team *team;   /* own */
	struct sr_state *state; /* of this process */
	sr_u64 *samples; /* resident: ns of each iteration, or, where one role comes after the other, of each message
			    of its window; in the memory of the host; NULL: nobody wants them */

	sr_u64 stride;     /* staged: bytes of a step */
	sr_u64 timeout_ns; /* longest wait for one word */
	sr_u64 first;      /* resident: number of the last iteration of the kernel before this one */
	sr_u64 spacing;    /* resident: bytes from a message of a window to the next */
	sr_u32 stages;     /* staged: steps under way at most */
	sr_u32 roles;      /* SR_SEND, SR_RECEIVE or both */
	sr_u32 order;
	sr_u32 sender_warps, receiver_warps;
	sr_u32 drain;  /* staged: blocks that used the staging area in another way before; they must have finished */
	sr_u32 grant;  /* put: messages that the rank that sends here may send from now on, this one included; 0: as
			  before */
	sr_u32 iters;  /* resident: iterations; 0: the kernel runs one message and ends */
	sr_u32 window; /* resident: messages of an iteration */
	sr_u32 begins; /* resident: 1: iterations begin together with the peers' */
	/* ws: 1: the message goes in lines, each role by its own warps, instead of through the staging area */
	sr_u32 in_lines;
	sr_u32 pad;
};

/* Names of the kernels. Each takes a struct sr_args; blocks are of sender_warps + receiver_warps warps but for those of
 * bulk, which have 2. */
#define SR_KERNEL_WS "p2p_sr_ws"             /* staged; each block sends and receives, by different warps */
#define SR_KERNEL_WS_BULK "p2p_sr_ws_bulk"   /* the same by bulk copies, a thread a role */
#define SR_KERNEL_STABLE "p2p_sr_stable"     /* staged; even blocks send, odd ones receive */
#define SR_KERNEL_PUT "p2p_sr_put"           /* into the peer's inbox */
#define SR_KERNEL_PUT_BULK "p2p_sr_put_bulk" /* the same by bulk copies */
#define SR_KERNEL_LL "p2p_sr_ll"             /* in lines that carry their flags, of 16 bytes … */
#define SR_KERNEL_LL128 "p2p_sr_ll128"       /* … and of 128 */

#endif
