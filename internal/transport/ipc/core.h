/*
 * core.h: shared by the C files of this package: the state of a rank, a batch in progress, and the steps that paths
 * consist of. ipc.h is the interface to Go.
 *
 *   talk.c     control messages, descriptors, waits, completions and acknowledgements
 *   buffers.c  the shared buffers of a rank, and the message that uses each
 *   handles.c  cache of exported handles, and mappings of the peer's memory
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
	MSG_PUBLISH = 1, /* receiver → sender: handle, offset and size of buffer `tag`, publication `version` */
	MSG_REQUEST = 2, /* sender → receiver: requests the buffer for message `tag` (IpcCacheReq) */
	MSG_HANDLE = 3,  /* receiver → sender: the reply to it (IpcCache) */
	MSG_DONE = 4,    /* sender → receiver: operation seq is complete (Ack) */
	MSG_ACK = 5,     /* receiver → sender: acknowledges operation seq */
	MSG_SEND = 6,    /* get, relay: message `tag` is ready to be copied, as the flags say */
	MSG_MAPADDR = 7, /* get: receiver → sender: allocation `base`, `version` is mapped at `address` */
	MSG_UNMAP = 8,   /* get: sender → receiver: close the mapping of allocation `version` */
};

/* Flags of messages. */
enum {
	FLAG_FD = 1,      /* a descriptor was sent before the message */
	FLAG_DIRECT = 2,  /* SEND: `address` is where the receiver mapped the allocation */
	FLAG_KEEP = 4,    /* SEND: the receiver may keep the mapping */
	FLAG_REMAP = 8,   /* SEND, dual: close the mapping of this base first */
	FLAG_BOUNCE = 16, /* SEND: the message is in CPU memory at `offset` */
};

/* Maximum number of outstanding requests, so that neither ring can fill up with requests and replies. */
#define MAX_REQUESTS 64u

#define MAX_WINDOW IPC_MAX_WINDOW

/* Capacity of the queue of SEND and UNMAP messages: a SEND and up to three UNMAPs per message of the largest window. */
#define INBOUND (4u * MAX_WINDOW)

/* The peer's allocation as mapped here. */
struct mapping {
	uint64_t id, length;
	uint64_t key; /* get, dual: the allocation's address in the peer's process */
	uint8_t *base;
	uint32_t refs; /* bindings that use it */
	uint32_t live;
};

/* The sender's record of one buffer of the receiver. */
struct binding {
	struct p2p_handle handle;
	uint64_t offset; /* of the buffer in its allocation */
	int32_t mapping; /* index, -1: not mapped */
	uint32_t fresh;  /* 1: published again; the mapping is still of the previous allocation */
	uint8_t *at;     /* same process: the buffer itself */
};

/* An entry of the cache of exported handles. */
struct exported {
	uint8_t *key;    /* base of the allocation, or the pointer */
	uint64_t length; /* bytes for which the handle is reused: the allocation, or 1 */
	uint64_t offset; /* of key in the allocation */
	struct p2p_handle handle;
	uint32_t live;
};

struct ipc_state {
	/* buffers.c */
	uint8_t **base;           /* of each allocation */
	uint64_t *published;      /* id of the allocation that was published last, by buffer */
	uint32_t buffers;         /* allocations or slices, which messages use in turn */
	uint64_t slice;           /* bytes from one slice to the next */
	uint64_t allocated_bytes; /* of an allocation */
	uint8_t *first_base;      /* realloc: address of the first allocation */
	uint32_t turn;            /* realloc-overlap: number of reallocations */
	/* talk.c */
	struct p2p_ring_writer out;
	struct p2p_ring_reader in;
	uint64_t message_done, message_ack; /* latest sequence numbers received as messages */
	struct p2p_message *inbound;        /* queue of SEND and UNMAP; their descriptors are in the handle */
	uint32_t inbound_head, inbound_tail;
	uint32_t sent_fds; /* for FaultStutter */
	/* handles.c */
	struct exported *exports;
	uint32_t exports_len;
	struct mapping *maps;
	uint32_t maps_len, maps_cap;
	struct binding *bindings; /* by buffer */
	uint64_t version;         /* of the latest publication */
	uint32_t introduced;      /* publications received since the start */
	/* direct.c */
	uint32_t answers; /* handshake: replies received for the current window */
	uint32_t answering;
	uint32_t asked_head, asked_tail;
	struct p2p_message asked[MAX_REQUESTS]; /* requests not replied to yet */
	struct p2p_message *answer;
	/* get.c */
	struct p2p_lru *lru;
	int32_t *held; /* cache entries that the current window uses */
	uint32_t held_len;
	const uint8_t **late; /* FaultEvictInFlight: addresses of messages, which are copied after all have come */
	uint64_t *transient;  /* allocations that are mapped for the current window only */
	uint32_t transient_len;
	uint64_t seen[16]; /* allocations that were used recently */
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
	uint32_t acks, dones;      /* so far in this batch, for injected faults */
	const struct ipc_path *path;
	int (*exchange)(struct run *x, uint64_t out, uint64_t in,
			uint32_t i); /* the path's, or send and then receive */
};

/* The steps of a path. A step that is NULL does nothing. */
struct ipc_path {
	int (*supply)(struct run *x);                            /* sender, before it writes the payload; not timed */
	int (*leave)(struct run *x, uint32_t i);                 /* sender, after it wrote the payload; not timed */
	int (*prepare)(struct run *x, uint32_t i);               /* receiver, before it gives the credit; not timed */
	int (*arm)(struct run *x, uint32_t i);                   /* sender, after it has the credit; not timed */
	int (*send)(struct run *x, uint64_t seq, uint32_t i);    /* until only the acknowledgement is missing */
	int (*receive)(struct run *x, uint64_t seq, uint32_t i); /* until the payload is complete */
	/* Sends and receives at the same time; NULL: one after the other. */
	int (*exchange)(struct run *x, uint64_t out, uint64_t in, uint32_t i);
	int (*cleanup)(struct run *x); /* sender, after the acknowledgement; not timed */
};

extern const struct ipc_path ipc_direct_path, ipc_handshake_path, ipc_pooled_path, ipc_fresh_path, ipc_get_path;

/* ---- talk.c ---- */

int ipc_talk_open(struct ipc_end *end, struct p2p_error *e);
/* Sends a control message, after the descriptor of its handle if it has one, and counts it. */
int ipc_send(struct run *x, struct p2p_message *m);
/* Handles all received messages. Never waits. */
int ipc_progress(struct run *x);
/* One step of a wait, during which messages are handled. */
int ipc_wait_step(struct run *x, struct p2p_wait *w, int what, uint64_t want, uint64_t have);
/* Ends a wait: reports that this rank does not wait any more. */
static inline void ipc_waited(const struct run *x, const struct p2p_wait *w) {
	if (w->steps)
		atomic_store_explicit(&x->l.ctx->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
}
int ipc_publish_done(struct run *x, uint64_t seq);
int ipc_await_done(struct run *x, uint64_t seq);
int ipc_acknowledge(struct run *x, uint64_t seq);
int ipc_await_ack(struct run *x, uint64_t seq);
/* Rank 0 waits until rank 1 confirms the channel of `done` and `ack`, or falls back to messages. */
int ipc_confirm(struct run *x);
/* Sends a descriptor through the socket; receives one. */
int ipc_send_fd(struct run *x, int fd);
int ipc_take_fd(struct run *x, int32_t *fd);

static inline int ipc_before(uint64_t have, uint64_t want) { return (int64_t)(have - want) < 0; }

/* ---- buffers.c ---- */

int ipc_buffers_open(struct ipc_end *end, struct p2p_error *e);
int ipc_buffers_close(struct ipc_end *end, struct p2p_error *e);
/* Frees the allocation and allocates it again, if the settings ask for that. *changed: it did. */
int ipc_renew(struct run *x, int *changed);

/* The number of a message, which determines its payload and its buffer. */
static inline uint64_t ipc_number(const struct run *x, uint32_t i, uint32_t w) {
	return (x->l.b->first + i) * x->l.b->window + w;
}

/* The buffer that message n uses: its number and its address. */
static inline uint32_t ipc_turn(const struct ipc_state *s, uint64_t n) {
	return s->buffers == 1 ? 0 : (uint32_t)(n % s->buffers);
}
static inline uint8_t *ipc_buffer(const struct ipc_end *end, uint32_t buffer) {
	const struct ipc_state *s = end->state;
	return end->cfg.slices > 1 ? s->base[0] + buffer * s->slice : s->base[buffer];
}

/* The place of message w of iteration i in the shared buffers. */
static inline uint64_t ipc_slot(const struct run *x, uint32_t w) { return x->l.b->offset + x->l.b->stride * w; }
static inline uint8_t *ipc_shared_slot(const struct run *x, uint32_t i, uint32_t w) {
	return ipc_buffer(x->end, ipc_turn(x->s, ipc_number(x, i, w))) + ipc_slot(x, w);
}

static inline uint8_t *ipc_own_slot(const struct run *x, uint32_t w) { return x->end->own + ipc_slot(x, w); }

/* The source and the destination of a message. */
static inline uint8_t *ipc_source(const struct run *x, uint32_t i, uint32_t w) {
	return x->end->cfg.path == IPC_GET ? ipc_shared_slot(x, i, w) : ipc_own_slot(x, w);
}

static inline uint8_t *ipc_inbox(const struct run *x, uint32_t i, uint32_t w) {
	return x->end->cfg.path == IPC_GET ? ipc_own_slot(x, w) : ipc_shared_slot(x, i, w);
}

/* ---- handles.c ---- */

int ipc_handles_open(struct ipc_end *end, struct p2p_error *e);
int ipc_handles_close(struct ipc_end *end, struct p2p_error *e);
/* Exports the allocation that contains p, through the cache. If *owned, the caller closes h->fd. */
int ipc_export(struct run *x, uint8_t *p, struct p2p_handle *h, uint64_t *offset, int *owned);
/* Exports without the cache. The caller closes h->fd. */
int ipc_export_now(struct run *x, uint8_t *base, struct p2p_handle *h);
/* Removes the allocation at base from the cache of exported handles. */
void ipc_forget_exports(struct ipc_end *end, uint8_t *base);
/* ipc_find_mapping: its index, or -1. ipc_map: finds or makes it; *out is its index. */
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
/* Closes its mapping. The binding can be opened again as long as its handle is kept. */
int ipc_close_binding(struct run *x, struct binding *b);

/* ---- get.c ---- */

int ipc_get_open(struct ipc_end *end, struct p2p_error *e);
void ipc_take_address(struct run *x, const struct p2p_message *m);
/* Waits for the next SEND or UNMAP. *m is valid until the next call of ipc_progress. */
int ipc_next(struct run *x, struct p2p_message **m);

/* ---- relay.c ---- */

int ipc_pin_pool(struct run *x);
int ipc_unpin_pool(struct ipc_end *end, struct p2p_error *e);

#endif
