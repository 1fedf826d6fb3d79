/*
 * rdma.h: the interface between Go and the timed loops over queue pairs. Go makes and connects queue pairs, completion
 * queues and memory regions; the C code uses them.
 *
 * An end has connections on which it sends and connections on which it receives. Several may share queue pairs; then
 * each completion identifies its connection, by the id that package pool gave it.
 */
#ifndef P2P_RDMA_H
#define P2P_RDMA_H

#include <infiniband/verbs.h>

#include "transport/loop/loop.h"

enum {
	RDMA_REQUESTS = 256, /* maximum number of messages in flight per connection */
	RDMA_IDS = 1 << 12,
	RDMA_POLL = 16,             /* completions per call of ibv_poll_cq */
	RDMA_CHAIN = 16,            /* maximum work requests per call of ibv_post_send … */
	RDMA_CHAIN_BYTES = 1 << 16, /* … and maximum bytes, so that the device starts before all are posted */
	RDMA_BURST = 256,           /* maximum samples of a burst */
};

/* Clear to send: the receiver's permission for one message, written into the sender's FIFO. */
struct rdma_cts {
	uint64_t addr;    /* address for the message */
	uint32_t rkey;    /* of the memory there */
	uint32_t size;    /* bytes there */
	uint32_t request; /* the receiver's number for it, below RDMA_REQUESTS */
	uint32_t tag;     /* number of the sample, as a check */
	uint64_t serial;  /* number of the connection's message, from 1: written last */
};

/* Words in the sender's memory that the receiving rank writes. */
struct rdma_words {
	_Atomic uint64_t go;   /* samples that may begin */
	_Atomic uint64_t done; /* samples whose messages are all received */
	uint64_t pad[6];
};

/* A posted work request. */
struct rdma_sent {
	uint64_t posted; /* ticks, 0: not timed */
	uint32_t conn;   /* RDMA_CONTROL: a control write of no connection */
	uint8_t request;
	uint8_t whole; /* 1: the last work request of its message */
};
#define RDMA_CONTROL UINT32_MAX

/* Work requests that will be posted together. */
struct rdma_chain {
	struct ibv_send_wr wr[RDMA_CHAIN];
	struct ibv_sge sge[RDMA_CHAIN];
};

struct rdma_qp {
	struct ibv_qp *qp;
	struct rdma_chain *chain;
	uint32_t chained;       /* work requests in the chain … */
	uint32_t chained_bytes; /* … and their bytes */
	uint32_t reposts;       /* receives that completed and must be posted again … */
	uint32_t slack;         /* … of which this number may be delayed */
	uint32_t listed;        /* 1: in the end's list of pending queue pairs */
	struct rdma_sent *ring; /* of the send queue */
	uint32_t mask;          /* entries of the ring, a power of two, minus 1 */
	uint32_t room;          /* maximum posted work requests */
	uint32_t head, tail;    /* posted and completed, free-running */
	uint32_t unsignaled;    /* posted since the last signalled one */
	uint32_t inlined;       /* maximum inline bytes of a work request */
	uint32_t owner;         /* without sharing: the connection that receives on it */
	uint64_t taken;         /* receives that completed */
};

/* Bins of the latency histogram, in ns: 32 bins per power of two. */
enum { RDMA_BINS = 32 * 44 };

/* One end of a connection. serial is free-running over all batches. */
struct rdma_conn {
	uint32_t id, remote_id;
	uint32_t peer;      /* index in the end's peers */
	uint32_t number;    /* of the connection, among those with the peer in this direction */
	uint32_t qps;       /* number of queue pairs … */
	const uint32_t *qp; /* … and their indices in the end's qp */
	uint64_t serial;    /* messages posted; receiver: credits given */
	uint32_t count;     /* messages of the sample */
	uint32_t started;   /* of those: posted; receiver: credits given */
	uint32_t finished;  /* of those: complete; receiver: received */
	uint32_t inflight;
	/* Numbers of free requests, of which the last is taken next. The receiver assigns them; pre-granted: the
	 * sender. */
	uint32_t unused;
	uint8_t request[RDMA_REQUESTS];
	/* Sender: */
	struct rdma_cts *fifo; /* RDMA_REQUESTS, written by the receiver */
	uint64_t inbox;        /* pre-granted: address for message 0 of a sample */
	uint32_t inbox_rkey;
	uint64_t messages, busy_ns; /* of the batch */
	uint32_t *bins;             /* RDMA_BINS, of the batch */
	/* Receiver: */
	struct rdma_cts *entry; /* RDMA_REQUESTS, the source of writes into the sender's FIFO … */
	uint64_t remote_fifo;   /* … at this address */
	uint32_t remote_fifo_rkey;
	uint64_t expected[RDMA_REQUESTS / 64]; /* requests with a credit that have not been received */
	uint8_t request_of[RDMA_REQUESTS];     /* by serial: for receives that are identified by their order */
	/* Receiver that polls its memory: */
	uint32_t seen;       /* messages received, of those that are polled */
	uint8_t armed;       /* value of the last byte of the next message before it arrives … */
	const uint8_t *tail; /* … and the address of that byte */
};

/* A rank that this one sends to or receives from. */
struct rdma_peer {
	uint32_t rank;
	uint32_t out, in;             /* connections to it, and from it */
	uint32_t first_out, first_in; /* the first of each; the others follow */
	struct rdma_words *words;     /* own memory, written by the peer */
	struct rdma_words *outgoing;  /* own memory, the source of writes to the peer's words */
	uint64_t remote_words;        /* address of the peer's words */
	uint32_t remote_words_rkey;
	uint8_t *inbox; /* for messages of the peer */
};

/* The settings; fixed when the end is made. */
struct rdma_config {
	uint32_t window;                  /* messages in flight per connection */
	uint32_t signal_every;            /* one of this number of work requests of a queue pair is signalled */
	uint32_t inlined;                 /* bytes of the largest inline message */
	uint32_t pre_granted, by_order;   /* --cts, --route */
	uint32_t separate_imm, in_memory; /* --completion */
	uint32_t burst;                   /* back-to-back samples of latency and pingpong */
	uint32_t together;                /* 1: the sending ranks begin a sample at a barrier */
	uint32_t soft;                    /* 1: the CPU emulates the NIC */
	uint32_t yields;                  /* polls without progress after which the CPU is yielded; 0: never */
};

struct rdma_end {
	const struct p2p_ctx *ctx;
	struct p2p_engine *engine;
	struct rdma_config config;
	uint32_t rank, cqs, qps, outs, ins, peers;
	struct ibv_cq **cq;
	struct rdma_qp *qp;
	struct rdma_conn *out, *in;
	struct rdma_peer *peer;
	uint8_t *source;
	uint64_t bytes; /* of the source, and of each inbox */
	uint32_t source_lkey, control_lkey, inbox_rkey;
	uint32_t *pending, pendings;                      /* indices of queue pairs with something to post */
	uint64_t samples;                                 /* started, over all batches */
	uint32_t out_by_id[RDMA_IDS], in_by_id[RDMA_IDS]; /* index + 1, 0: none */
	/* Counted since the end was made. */
	uint64_t messages, misroutes, grants;
	/* Set by another thread after an asynchronous error of the device: the loops end. */
	_Atomic uint32_t trouble;
	uint32_t broken; /* 1: a batch failed */
	uint32_t status; /* of the completion that failed */
};

/* Posts n receives without a buffer on queue pair number `index` of the end. */
int p2p_rdma_receives(struct ibv_qp *qp, uint32_t index, uint32_t n, struct p2p_error *e);

/* Runs one batch on this rank. */
int p2p_rdma_run(struct rdma_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		 struct p2p_error *e);

/* The smallest value of a bin, in ns. */
uint64_t p2p_rdma_bin(uint32_t bin);

#endif
