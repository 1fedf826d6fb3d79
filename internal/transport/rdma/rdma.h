/*
 * rdma.h: what the timed loops of queue pairs and the Go side agree on. Queue pairs, completion queues and memory
 * regions are made and connected by Go; here they are used.
 *
 * An end has connections on which it sends and connections on which it receives. Several may share queue pairs: then a
 * completion says whose it is. Ids are those of the pool, by which the other end calls a connection.
 */
#ifndef P2P_RDMA_H
#define P2P_RDMA_H

#include <infiniband/verbs.h>

#include "transport/loop/loop.h"

enum {
	RDMA_REQUESTS = 256, /* messages of a connection under way at most */
	RDMA_IDS = 1 << 12,
	RDMA_POLL = 16,             /* completions taken at a time */
	RDMA_CHAIN = 16,            /* work requests posted at a time … */
	RDMA_CHAIN_BYTES = 1 << 16, /* … or so many bytes of them, so that the device begins before all are posted */
	RDMA_TRAIN = 256,           /* samples of a train at most */
};

/* A receiver's permission for one message, written into the sender's FIFO. */
struct rdma_grant {
	uint64_t addr;    /* where the message goes */
	uint32_t rkey;    /* of the memory there */
	uint32_t size;    /* room */
	uint32_t request; /* the receiver's number for it, below RDMA_REQUESTS */
	uint32_t tag;     /* the sample, as a check */
	uint64_t serial;  /* the connection's message, counted from 1: written last */
};

/* Words in the sender's memory that the rank it sends to writes. */
struct rdma_words {
	_Atomic uint64_t go;   /* samples that may begin */
	_Atomic uint64_t done; /* samples whose messages have all come */
	uint64_t pad[6];
};

/* A work request under way. */
struct rdma_sent {
	uint64_t posted; /* ticks, 0: not timed */
	uint32_t conn;   /* RDMA_CONTROL: it belongs to none */
	uint8_t request;
	uint8_t whole; /* 1: with it the message is complete */
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
	uint32_t chained;       /* in the chain: work requests … */
	uint32_t chained_bytes; /* … and bytes of them */
	uint32_t owed;          /* receives that completed and are to be posted anew … */
	uint32_t slack;         /* … of which so many can wait for a better moment */
	uint32_t listed;        /* 1: among the end's busy ones */
	struct rdma_sent *ring; /* of the send queue */
	uint32_t mask;          /* entries of the ring - 1; they are a power of two */
	uint32_t room;          /* work requests that may be under way */
	uint32_t head, tail;    /* posted and completed, free-running */
	uint32_t silent;        /* posted since the last one that reports its completion */
	uint32_t inlined;       /* bytes that a work request can carry */
	uint32_t owner;         /* where nothing is shared: the connection that receives on it */
	uint64_t taken;         /* receives that completed */
};

/* The latencies of messages in ns: bins as wide as 1/32 of the power of two below them. */
enum { RDMA_BINS = 32 * 44 };

/* One end of a connection. What counts messages of all batches is free-running. */
struct rdma_conn {
	uint32_t id, remote_id;
	uint32_t peer;      /* index into the end's peers */
	uint32_t number;    /* among the connections with that peer in that direction */
	uint32_t qps;       /* of the connection … */
	const uint32_t *qp; /* … and their indices in the end's */
	uint64_t serial;    /* messages posted; by a receiver: granted */
	uint32_t count;     /* messages of the sample */
	uint32_t started;   /* of those: posted, or granted */
	uint32_t finished;  /* of those: complete, or received */
	uint32_t inflight;
	/* Numbers of requests that are free, the last of which is taken next: the receiver gives them out, and where it
	 * grants nothing the sender does. */
	uint32_t unused;
	uint8_t request[RDMA_REQUESTS];
	/* Sender: */
	struct rdma_grant *fifo; /* RDMA_REQUESTS, written by the receiver */
	uint64_t inbox;          /* pre-granted: where message 0 of a sample goes */
	uint32_t inbox_rkey;
	uint64_t messages, busy_ns; /* of the batch */
	uint32_t *bins;             /* RDMA_BINS, of the batch */
	/* Receiver: */
	struct rdma_grant *entry; /* RDMA_REQUESTS, what it writes into the sender's FIFO … */
	uint64_t remote_fifo;     /* … which is there */
	uint32_t remote_fifo_rkey;
	uint64_t expected[RDMA_REQUESTS / 64]; /* requests that were granted and have not come */
	uint8_t request_of[RDMA_REQUESTS];     /* by serial: for receives that are told by their order */
	/* Receiver that looks into its memory: */
	uint32_t seen;       /* of the messages that it looks for: how many have come */
	uint8_t armed;       /* what the last byte of the next one is until that comes … */
	const uint8_t *tail; /* … and where that byte is */
};

/* A rank that this one sends to or receives from. */
struct rdma_peer {
	uint32_t rank;
	uint32_t out, in;             /* connections to it, and from it */
	uint32_t first_out, first_in; /* the first of each, which stand together */
	struct rdma_words *words;     /* it writes them; own memory */
	struct rdma_words *says;      /* what is written into its words; own memory */
	uint64_t remote_words;        /* their address */
	uint32_t remote_words_rkey;
	uint8_t *inbox; /* for what it sends */
};

/* How messages go; fixed when the end is made. */
struct rdma_ways {
	uint32_t window;                /* messages of a connection under way */
	uint32_t signal_every;          /* work requests of a queue pair for one that reports its completion */
	uint32_t inlined;               /* bytes of the largest message that travels in its work request */
	uint32_t pre_granted, by_order; /* --cts, --route */
	uint32_t apart, in_memory;      /* --completion */
	uint32_t train;                 /* samples of latency and pingpong that follow each other */
	uint32_t together;              /* 1: the ranks that send begin a sample together */
	uint32_t soft;                  /* 1: the CPU is the NIC */
	uint32_t yields;                /* looks in vain after which the CPU is given away; 0: never */
};

struct rdma_end {
	const struct p2p_ctx *ctx;
	struct p2p_engine *engine;
	struct rdma_ways ways;
	uint32_t rank, cqs, qps, outs, ins, peers;
	struct ibv_cq **cq;
	struct rdma_qp *qp;
	struct rdma_conn *out, *in;
	struct rdma_peer *peer;
	uint8_t *source;
	uint64_t bytes; /* of the source, and of each inbox */
	uint32_t source_lkey, control_lkey, inbox_rkey;
	uint32_t *busy, busies;                           /* indices of queue pairs with something to post */
	uint64_t samples;                                 /* begun, over all batches */
	uint32_t out_by_id[RDMA_IDS], in_by_id[RDMA_IDS]; /* index + 1, 0: none */
	/* Counted since the end was made. */
	uint64_t messages, misroutes, grants;
	/* Another thread says that the device is in trouble: the loops end. */
	_Atomic uint32_t trouble;
	uint32_t broken; /* 1: a batch failed */
	uint32_t status; /* of the completion that failed */
};

/* Posts n receives without a buffer on queue pair number `index` of the end. */
int p2p_rdma_receives(struct ibv_qp *qp, uint32_t index, uint32_t n, struct p2p_error *e);

/* Runs one batch on this rank. */
int p2p_rdma_run(struct rdma_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		 struct p2p_error *e);

/* The least value in ns of a bin. */
uint64_t p2p_rdma_bin(uint32_t bin);

#endif
