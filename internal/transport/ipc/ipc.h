/*
 * ipc.h: the timed loops of memory-handle IPC between two ranks.
 *
 * One struct ipc_end is one rank's end. Go opens it, hands it what it needs, and calls p2p_ipc_connect once and then
 * p2p_ipc_run for each batch. Everything that a path does for a message — asking, exporting, opening, caching,
 * copying, telling — happens in here, while the clock runs.
 */
#ifndef P2P_IPC_H
#define P2P_IPC_H

#include "transport/ipc/lru/lru.h"
#include "transport/ipc/ring/ring.h"
#include "transport/loop/loop.h"

enum { IPC_DIRECT = 0, IPC_HANDSHAKE = 1, IPC_RELAY_POOLED = 2, IPC_RELAY_FRESH = 3, IPC_GET = 4, IPC_PATHS = 5 };
/* Settings: in the order of the values that Options in options.go names. */
enum { IPC_DONE_SEQ = 0, IPC_RING_ACK = 1 };
enum { IPC_EXPORT_ALLOCATION = 0, IPC_EXPORT_POINTER = 1, IPC_EXPORT_OFF = 2 };
enum { IPC_OPEN_EAGER = 0, IPC_OPEN_LAZY = 1, IPC_OPEN_PER_CALL = 2 };
enum { IPC_CACHE_SENDER = 0, IPC_CACHE_OFF = 1, IPC_CACHE_DUAL = 2 };
enum { IPC_KEEP = 0, IPC_REALLOC_SAME = 1, IPC_REALLOC_OVERLAP = 2 };
enum {
	IPC_SOUND = 0,
	IPC_MUTE = 1,
	IPC_NO_VALIDATION = 2,
	IPC_EVICT_IN_FLIGHT = 3,
	IPC_DIE_BEFORE_ACK = 4,
	IPC_DIE_BEFORE_DONE = 5,
	IPC_NO_SEGMENT = 6,
	IPC_STUTTER = 7,
};

/* Messages of the largest window. */
#define IPC_MOST_WINDOW 4096u

/* The knobs; see Options in options.go. */
struct ipc_config {
	uint32_t rank;
	uint32_t path, completion, export_cache, open, publish_always, cache, cache_size;
	uint32_t allocations, slices, realloc;
	uint32_t relay_depth;
	uint32_t fault;
	uint32_t threads;     /* 1: both ranks are threads of one process */
	uint64_t relay_chunk; /* bytes */
	uint64_t region;      /* bytes of the largest batch at each end */
	uint64_t start;       /* where sequence numbers begin */
};

/* One direction's control words, each on its own pair of cache lines (adjacent lines are prefetched together). */
struct ipc_direction {
	_Atomic uint64_t ready; /* the receiver stores s: operation s may be sent, the previous one has been checked */
	char pad0[128 - 8];
	_Atomic uint64_t done; /* the sender stores s: the payload of operation s is visible to the receiver */
	char pad1[128 - 8];
	_Atomic uint64_t ack; /* the receiver stores s: it has operation s */
	char pad2[128 - 8];
	_Atomic uint64_t filled; /* relay: chunks that the sender has put into the pool since the start */
	char pad3[128 - 8];
	_Atomic uint64_t consumed; /* relay: chunks that the receiver has taken out */
	char pad4[128 - 8];
};

/* Memory shared by the two ranks. p2p_ipc_link_bytes says how much room it takes with what follows it: the relay's
 * pools, or get's bounce buffers, one for each direction. */
struct ipc_link {
	struct ipc_direction from[2];  /* by sending rank */
	_Atomic uint64_t opener_ready; /* rank 1 stores 1: it has mapped the channel of `done` and `ack` */
	_Atomic uint64_t started[2];   /* by rank: its ring may be read */
	char pad[128 - 24];
	struct p2p_ring ring[2]; /* control messages, by sending rank */
	uint8_t pool[] __attribute__((aligned(4096)));
};

/* What was counted since connect; names are those of docs/json.md. */
struct ipc_counts {
	uint64_t hits, direct, misses, opens, closes, evictions, overlap_deletes, stale, control_msgs, published,
		exports;
	uint64_t export_ns, open_ns, close_ns;
	uint64_t moved; /* realloc: new allocations that did not come where they were wanted */
	uint64_t path[IPC_PATHS];
	uint64_t bounced;      /* get: messages through CPU memory */
	uint64_t struck;       /* times that the fault which was asked for did something */
	uint64_t mapped_bytes; /* of the peer, now */
};

struct ipc_state;

/* One rank's end. */
struct ipc_end {
	struct ipc_config cfg;
	struct p2p_engine *engine;
	struct p2p_engine *second; /* relay pooled: for what arrives, beside what leaves; NULL else */
	struct p2p_memory *memory; /* of the buffers that are shared */
	const struct p2p_ctx *ctx;
	struct ipc_link *link;
	int32_t socket;       /* to the peer, for descriptors; -1 between threads */
	uint32_t channel;     /* 1: this rank tells the peer by `done` and `ack`, 0: by ring messages */
	uint32_t unconfirmed; /* 1: the peer never said that it has the channel */
	uint32_t pad;
	uint8_t *own;    /* what is not shared: messages to send, in get those that arrived */
	uint64_t seq[2]; /* operations so far, by sending rank; both ends count alike */
	struct ipc_counts count;
	uint64_t first_export_ns, first_open_ns; /* cold costs, 0: there was none */
	struct ipc_state *state;
};

/* Bytes of the link with its pools. */
uint64_t p2p_ipc_link_bytes(const struct ipc_config *c);

/* Makes the shared buffers. *out is what p2p_ipc_close frees. The fields above are set by the caller before connect. */
int p2p_ipc_open(const struct ipc_config *c, struct p2p_engine *g, struct p2p_memory *m, const struct p2p_ctx *ctx,
		 struct ipc_end **out, struct p2p_error *e);

/*
 * Lets the ranks find each other and publish what the path publishes beforehand. introduce: each maps a buffer of the
 * other, whatever the path, so that engines can be tried out; without it a path that maps as it goes has mapped nothing
 * when its first message leaves.
 */
int p2p_ipc_connect(struct ipc_end *end, int introduce, struct p2p_error *e);

/* Joins two ends of one process instead: each gets the other's buffers as they are. */
void p2p_ipc_join(struct ipc_end *a, struct ipc_end *b);

/* Once connected or joined: the peer's first buffer as mapped here, for trying engines out. NULL: there is none. */
uint8_t *p2p_ipc_remote(const struct ipc_end *end);

/* After that: leaves mapped what the path has mapped beforehand, and agrees on how to tell that something is done. */
int p2p_ipc_ready(struct ipc_end *end, struct p2p_error *e);

/* The buffer of this rank that is shared. */
uint8_t *p2p_ipc_shared(const struct ipc_end *end);

/* Runs the batch; samples has room for b->iters values in ns. Returns P2P_OK or e->code. */
int p2p_ipc_run(struct ipc_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		struct p2p_error *e);

/* Ends the waits of an end that another thread is in. */
void p2p_ipc_stop(struct ipc_end *end);

/* Bytes of the device that nobody uses; 0 if the device does not say. */
uint64_t p2p_ipc_unused(struct ipc_end *end);

/* Unmaps, releases and frees all that the end made; *e tells the first failure. */
int p2p_ipc_close(struct ipc_end *end, struct p2p_error *e);

#endif
