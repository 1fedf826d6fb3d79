/*
 * core.h: what the C files of this package share: the state of an end, a batch under way, and the steps that paths are
 * made of. ipc.h is what Go sees.
 *
 *   talk.c     messages, descriptors, waits, and how one rank tells the other that something is done
 *   buffers.c  the shared buffers of a rank and which message uses which
 *   handles.c  export cache on one side, mappings on the other
 *   direct.c   paths direct and handshake: the sender writes into the receiver's buffer
 *   get.c      path get: the receiver reads from the sender's buffer
 *   relay.c    path relay, through CPU memory
 *   ipc.c      operations and batches
 */
#ifndef P2P_IPC_CORE_H
#define P2P_IPC_CORE_H

#include "ipc.h"

/* Ring messages. The names in brackets are UCCL's and MPICH's. */
enum {
	MSG_PUBLISH = 1, /* receiver → sender: buffer `tag` is `version`: handle, offset, size */
	MSG_REQUEST = 2, /* sender → receiver: where shall message `tag` go? (IpcCacheReq) */
	MSG_HANDLE = 3,  /* receiver → sender: the answer (IpcCache) */
	MSG_DONE = 4,    /* sender → receiver: operation seq is complete (Ack) */
	MSG_ACK = 5,     /* receiver → sender: it has operation seq */
	MSG_SEND = 6,    /* get, relay: message `tag` is to be fetched; flags say how */
	MSG_MAPADDR = 7, /* get: receiver → sender: allocation `base`, `version` is mapped at `address` */
	MSG_UNMAP = 8,   /* get: sender → receiver: close the mapping of allocation `version` */
};

/* Flags of messages. */
enum {
	FLAG_FD = 1,      /* a descriptor was sent before the message */
	FLAG_DIRECT = 2,  /* SEND: `address` is where the receiver mapped the allocation */
	FLAG_KEEP = 4,    /* SEND: the receiver may keep the mapping */
	FLAG_REMAP = 8,   /* SEND, dual: forget what was mapped for this base */
	FLAG_BOUNCE = 16, /* SEND: the message lies in CPU memory at `offset` */
};

/* Requests that may be unanswered, so that neither ring can fill up with requests and answers. */
#define MOST_REQUESTS 64u

#define MOST_WINDOW IPC_MOST_WINDOW

/* Messages set aside: each message of the largest window, and an UNMAP or two before each. */
#define INBOUND (4u * MOST_WINDOW)

/* The peer's allocation as mapped here. */
struct mapping {
	uint64_t id, length;
	uint64_t key; /* get, dual: the allocation's address at the peer */
	uint8_t *base;
	uint32_t refs; /* bindings that use it */
	uint32_t live;
};

/* What the sender knows of one buffer of the receiver. */
struct binding {
	struct p2p_handle handle;
	uint64_t offset; /* of the buffer in its allocation */
	int32_t mapping; /* index, -1: not mapped */
	uint32_t fresh;  /* 1: published anew; what is mapped is the old one */
	uint8_t *at;     /* between threads: the buffer itself */
};

/* A handle that was exported already. */
struct exported {
	uint8_t *key;    /* base of the allocation, or the pointer */
	uint64_t length; /* that it is good for: the allocation's, or 1 */
	uint64_t offset; /* of key in the allocation */
	struct p2p_handle handle;
	uint32_t live;
};

struct ipc_state {
	/* buffers.c */
	uint8_t **base;         /* of each allocation */
	uint64_t *published;    /* id of the allocation that the peer knows, by buffer */
	uint32_t buffers;       /* that messages take turns in: allocations or slices */
	uint64_t slice;         /* bytes from one slice to the next */
	uint64_t granted_bytes; /* of an allocation */
	uint8_t *home;          /* realloc: where the first one came */
	uint32_t turn;          /* realloc-overlap: how often */
	/* talk.c */
	struct p2p_ring_writer out;
	struct p2p_ring_reader in;
	uint64_t rung_done, rung_ack; /* latest sequence numbers that came as messages */
	struct p2p_message *inbound;  /* SEND and UNMAP, in order; fds are in the handle */
	uint32_t inbound_head, inbound_tail;
	uint32_t sent_fds; /* for a fault */
	/* handles.c */
	struct exported *exports;
	uint32_t exports_len;
	struct mapping *maps;
	uint32_t maps_len, maps_cap;
	struct binding *bindings; /* by buffer */
	uint64_t version;         /* of the latest publication */
	uint32_t introduced;      /* publications of the peer since the start */
	/* direct.c */
	uint32_t answers; /* handshake: of the window under way */
	uint32_t answering;
	uint32_t asked_head, asked_tail;
	struct p2p_message asked[MOST_REQUESTS]; /* requests that wait for their turn */
	struct p2p_message *answer;
	/* get.c */
	struct p2p_lru *lru;
	int32_t *held; /* entries that the window under way uses */
	uint32_t held_len;
	const uint8_t **late; /* where messages lie that are fetched when all have come, for a fault */
	uint64_t *transient;  /* allocations that are mapped for the window under way only */
	uint32_t transient_len;
	uint64_t seen[16]; /* bases that were used lately */
	uint32_t seen_next;
	/* relay.c */
	uint64_t sent_chunks, taken_chunks;
	uint32_t pinned;
};

/* A batch on one rank. */
struct run {
	struct p2p_loop l;
	struct ipc_end *end;
	struct ipc_state *s;
	struct ipc_direction *out, *in;
	uint64_t *sent, *received; /* sequence numbers of the two directions */
	uint32_t acks, dones;      /* so far in this batch, for faults */
	const struct ipc_path *path;
	int (*exchange)(struct run *x, uint64_t out, uint64_t in, uint32_t i); /* the path's, or both ways in turn */
};

/* The steps of a path. Those that are NULL do nothing. */
struct ipc_path {
	int (*supply)(struct run *x);                         /* sender, before it writes a payload: not timed */
	int (*leave)(struct run *x, uint32_t i);              /* sender, after it wrote it: not timed */
	int (*prepare)(struct run *x, uint32_t i);            /* receiver, before it grants: not timed */
	int (*arm)(struct run *x, uint32_t i);                /* sender, once granted: not timed */
	int (*send)(struct run *x, uint64_t seq, uint32_t i); /* until nothing is left for the sender to do but wait */
	int (*receive)(struct run *x, uint64_t seq, uint32_t i); /* until the payload is there */
	/* Both at the same time; NULL: one after the other. */
	int (*exchange)(struct run *x, uint64_t out, uint64_t in, uint32_t i);
	int (*cleanup)(struct run *x); /* sender, once acknowledged: not timed */
};

extern const struct ipc_path ipc_direct_path, ipc_handshake_path, ipc_pooled_path, ipc_fresh_path, ipc_get_path;

/* ---- talk.c ---- */

int ipc_talk_open(struct ipc_end *end, struct p2p_error *e);
/* Sends a message, and before it the descriptor of its handle if that has one. Counts it. */
int ipc_tell(struct run *x, struct p2p_message *m);
/* Takes in what has come. Never waits. */
int ipc_progress(struct run *x);
/* One step of a wait in which messages are taken in. */
int ipc_wait_step(struct run *x, struct p2p_wait *w, int what, uint64_t want, uint64_t have);
/* After the last step of a wait that took any: this rank waits for nothing now. */
static inline void ipc_waited(const struct run *x, const struct p2p_wait *w) {
	if (w->steps)
		atomic_store_explicit(&x->l.ctx->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
}
int ipc_publish_done(struct run *x, uint64_t seq);
int ipc_await_done(struct run *x, uint64_t seq);
int ipc_acknowledge(struct run *x, uint64_t seq);
int ipc_await_ack(struct run *x, uint64_t seq);
/* Rank 0 waits until rank 1 confirms the channel, or gives it up. */
int ipc_confirm(struct run *x);
/* Sends a descriptor beside the ring; takes the one that came. */
int ipc_send_fd(struct run *x, int fd);
int ipc_take_fd(struct run *x, int32_t *fd);

static inline int ipc_before(uint64_t have, uint64_t want) { return (int64_t)(have - want) < 0; }

/* ---- buffers.c ---- */

int ipc_buffers_open(struct ipc_end *end, struct p2p_error *e);
int ipc_buffers_close(struct ipc_end *end, struct p2p_error *e);
/* Frees the allocation and makes it anew, where the batch asks for that. *changed: it did. */
int ipc_renew(struct run *x, int *changed);

/* The number of a message: the payload's, and what decides which buffer it uses. */
static inline uint64_t ipc_number(const struct run *x, uint32_t i, uint32_t w) {
	return (x->l.b->first + i) * x->l.b->window + w;
}

/* The buffer that message n uses, by number and by address. */
static inline uint32_t ipc_turn(const struct ipc_state *s, uint64_t n) {
	return s->buffers == 1 ? 0 : (uint32_t)(n % s->buffers);
}
static inline uint8_t *ipc_buffer(const struct ipc_end *end, uint32_t buffer) {
	const struct ipc_state *s = end->state;
	return end->cfg.slices > 1 ? s->base[0] + buffer * s->slice : s->base[buffer];
}

/* Where message w of iteration i lies in the shared buffers. */
static inline uint64_t ipc_slot(const struct run *x, uint32_t w) { return x->l.b->offset + x->l.b->stride * w; }
static inline uint8_t *ipc_shared_slot(const struct run *x, uint32_t i, uint32_t w) {
	return ipc_buffer(x->end, ipc_turn(x->s, ipc_number(x, i, w))) + ipc_slot(x, w);
}

static inline uint8_t *ipc_own_slot(const struct run *x, uint32_t w) { return x->end->own + ipc_slot(x, w); }

/* Where messages are sent from, and where they arrive. */
static inline uint8_t *ipc_source(const struct run *x, uint32_t i, uint32_t w) {
	return x->end->cfg.path == IPC_GET ? ipc_shared_slot(x, i, w) : ipc_own_slot(x, w);
}

static inline uint8_t *ipc_inbox(const struct run *x, uint32_t i, uint32_t w) {
	return x->end->cfg.path == IPC_GET ? ipc_own_slot(x, w) : ipc_shared_slot(x, i, w);
}

/* ---- handles.c ---- */

int ipc_handles_open(struct ipc_end *end, struct p2p_error *e);
int ipc_handles_close(struct ipc_end *end, struct p2p_error *e);
/* Exports the allocation around p through the cache; *h is borrowed unless *owned, then h->fd is the caller's. */
int ipc_export(struct run *x, uint8_t *p, struct p2p_handle *h, uint64_t *offset, int *owned);
/* Exports past every cache. h->fd is the caller's. */
int ipc_export_now(struct run *x, uint8_t *base, struct p2p_handle *h);
/* Forgets what was exported of the allocation at base. */
void ipc_forget_exports(struct ipc_end *end, uint8_t *base);
/* Finds a mapping, or makes one. Its index is in *out. */
int ipc_find_mapping(const struct ipc_end *end, uint64_t id);
int ipc_map(struct run *x, const struct p2p_handle *h, int *out);
int ipc_unmap(struct run *x, int i);
void ipc_close_fd(int32_t *fd);

/* ---- direct.c ---- */

/* Publishes the first n buffers. */
int ipc_publish(struct run *x, uint32_t n);
/* Waits until the peer has published its first n buffers. */
int ipc_await_publications(struct run *x, uint32_t n);
void ipc_take_publication(struct run *x, const struct p2p_message *m);
int ipc_take_request(struct run *x, const struct p2p_message *m);
void ipc_take_answer(struct run *x, const struct p2p_message *m);
/* Maps the buffer behind a binding unless it is mapped. */
int ipc_open_binding(struct run *x, struct binding *b);
/* Undoes it. The binding can be opened again as long as its handle is kept. */
int ipc_close_binding(struct run *x, struct binding *b);

/* ---- get.c ---- */

int ipc_get_open(struct ipc_end *end, struct p2p_error *e);
void ipc_take_address(struct run *x, const struct p2p_message *m);
/* Waits for the next message that was set aside; it stays where it is until the next call of ipc_progress. */
int ipc_next(struct run *x, struct p2p_message **m);

/* ---- relay.c ---- */

int ipc_pin_pool(struct run *x);
int ipc_unpin_pool(struct ipc_end *end, struct p2p_error *e);

#endif
