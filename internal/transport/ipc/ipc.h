/*
 * ipc.h: the timed loops of memory-handle IPC between two ranks.
 *
 * A struct ipc_end is the transport in one rank. Go opens it, sets its fields, calls p2p_ipc_connect once and then
 * p2p_ipc_run for each batch. All work of a path for a message is done by the C loop within the timed part: requests,
 * exports, mappings, caches, copies, completions.
 */
#ifndef P2P_IPC_H
#define P2P_IPC_H

#include "transport/ipc/lru/lru.h"
#include "transport/ipc/ring/ring.h"
#include "transport/loop/loop.h"

enum { IPC_DIRECT = 0, IPC_HANDSHAKE = 1, IPC_RELAY_POOLED = 2, IPC_RELAY_FRESH = 3, IPC_GET = 4, IPC_PATHS = 5 };
/* Settings, in the order of the values in the tags of Options in options.go. */
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
#define IPC_MAX_WINDOW 4096u

/* The settings; see Options in options.go. */
struct ipc_config {
	uint32_t rank;
	uint32_t path, completion, export_cache, open, publish_always, cache, cache_size;
	uint32_t allocations, slices, realloc;
	uint32_t relay_depth;
	uint32_t fault;
	uint32_t threads;     /* 1: both ranks are threads of one process */
	uint64_t relay_chunk; /* bytes */
	uint64_t region;      /* bytes of the largest batch on each rank */
	uint64_t start;       /* first sequence number */
};

/* One direction's control words, each on its own pair of cache lines (adjacent lines are prefetched together). */
struct ipc_direction {
	_Atomic uint64_t ready; /* the receiver stores s: operation s may be sent, the previous one has been checked */
	char pad0[128 - 8];
	_Atomic uint64_t done; /* the sender stores s: the payload of operation s is visible to the receiver */
	char pad1[128 - 8];
	_Atomic uint64_t ack; /* the receiver stores s: it has received operation s */
	char pad2[128 - 8];
	_Atomic uint64_t filled; /* relay: chunks that the sender has copied into the pool since the start */
	char pad3[128 - 8];
	_Atomic uint64_t consumed; /* relay: chunks that the receiver has copied out of the pool */
	char pad4[128 - 8];
};

/* Memory shared by the two ranks. It is followed by the relay's pools, or get's bounce buffers, one for each direction.
 * p2p_ipc_link_bytes is the size of all. */
struct ipc_link {
	struct ipc_direction from[2];  /* by sending rank */
	_Atomic uint64_t opener_ready; /* rank 1 stores 1: it uses the channel of `done` and `ack` */
	_Atomic uint64_t started[2];   /* by rank: its ring may be read */
	char pad[128 - 24];
	struct p2p_ring ring[2]; /* control messages, by sending rank */
	uint8_t pool[] __attribute__((aligned(4096)));
};

/* Counters since connect; docs/json.md documents the names. */
struct ipc_counts {
	uint64_t hits, direct, misses, opens, closes, evictions, overlap_deletes, stale, control_msgs, published,
		exports;
	uint64_t export_ns, open_ns, close_ns;
	uint64_t moved; /* realloc: new allocations at another address than requested */
	uint64_t path[IPC_PATHS];
	uint64_t bounced;      /* get: messages through CPU memory */
	uint64_t triggered;    /* times that the injected fault had an effect */
	uint64_t mapped_bytes; /* of the peer, now */
};

struct ipc_state;

/* The C part of one rank. */
struct ipc_end {
	struct ipc_config cfg;
	struct p2p_engine *engine;
	struct p2p_engine *second; /* relay pooled: copies incoming chunks; otherwise NULL */
	struct p2p_memory *memory; /* of the shared buffers */
	const struct p2p_ctx *ctx;
	struct ipc_link *link;
	int32_t socket;       /* to the peer, for descriptors; -1 between threads */
	uint32_t channel;     /* 1: this rank signals completion by `done` and `ack`, 0: by ring messages */
	uint32_t unconfirmed; /* 1: the peer did not confirm the channel */
	uint32_t pad;
	uint8_t *own;    /* the buffer that is not shared: messages to send; get: received messages */
	uint64_t seq[2]; /* operations so far, by sending rank; both ends count alike */
	struct ipc_counts count;
	uint64_t first_export_ns, first_open_ns; /* time of the first export and open; 0: there was none */
	struct ipc_state *state;
};

/* Bytes of the link including its pools. */
uint64_t p2p_ipc_link_bytes(const struct ipc_config *c);

/* Allocates an end and its shared buffers. The caller sets its other fields before connect. p2p_ipc_close frees it. */
int p2p_ipc_open(const struct ipc_config *c, struct p2p_engine *g, struct p2p_memory *m, const struct p2p_ctx *ctx,
		 struct ipc_end **out, struct p2p_error *e);

/*
 * Waits for the peer, and publishes and maps the buffers that the path maps before its first message. introduce: each
 * rank also maps one buffer of the other with every path, so that autotune can try engines.
 */
int p2p_ipc_connect(struct ipc_end *end, int introduce, struct p2p_error *e);

/* Joins two ends of one process, which use each other's buffers without handles. */
void p2p_ipc_join(struct ipc_end *a, struct ipc_end *b);

/* After connect or join: the address at which the peer's first buffer is mapped; NULL: it is not mapped. */
uint8_t *p2p_ipc_remote(const struct ipc_end *end);

/* After autotune: undoes what `introduce` mapped, and agrees with the peer on how completions are signalled. */
int p2p_ipc_ready(struct ipc_end *end, struct p2p_error *e);

/* This rank's shared buffer. */
uint8_t *p2p_ipc_shared(const struct ipc_end *end);

/* Runs the batch; samples has room for b->iters values in ns. Returns P2P_OK or e->code. */
int p2p_ipc_run(struct ipc_end *end, const struct p2p_batch *b, int64_t *samples, struct p2p_result *r,
		struct p2p_error *e);

/* Aborts the waits of another thread in this end. */
void p2p_ipc_stop(struct ipc_end *end);

/* Free bytes of the device; 0: unknown. */
uint64_t p2p_ipc_unused(struct ipc_end *end);

/* Unmaps, releases and frees everything, even after failures; *e is the first failure. */
int p2p_ipc_close(struct ipc_end *end, struct p2p_error *e);

#endif
