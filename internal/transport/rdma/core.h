/*
 * core.h: shared by the C files of this package. rdma.h is the interface to Go.
 *
 *   post.c    work requests
 *   rdma.c    messages: posts of the sender, receives, completions
 *   memory.c  messages that the receiver polls in its memory, and ping-pong with them
 *   sample.c  samples, bursts and batches
 */
#ifndef P2P_RDMA_CORE_H
#define P2P_RDMA_CORE_H

#include "rdma.h"

/* A batch in progress. */
struct run {
	struct p2p_loop l;
	struct rdma_end *end;
	const struct rdma_config *w;
	enum p2p_role role;
	uint32_t iter;                  /* number of the sample in the batch; burst: of its first sample */
	uint32_t burst;                 /* samples of the burst; 1 if a sample has a window of messages */
	uint64_t first;                 /* number of that sample, counted from 1 over all batches */
	uint64_t tag;                   /* the same of the current sample */
	uint64_t begun;                 /* ticks at which it began */
	uint32_t sending;               /* messages that this rank sends up to the current sample … */
	uint32_t sent;                  /* … and those that are complete */
	uint32_t awaited;               /* messages that it receives up to the current sample … */
	uint32_t received;              /* … and those that have arrived */
	uint32_t held;                  /* 1: a connection could not post all messages of its window */
	uint32_t wide;                  /* 1: poll all completion queues */
	uint64_t ticks[RDMA_BURST + 1]; /* start and end of the samples of a burst */
};

/* ---- post.c ---- */

/*
 * wr_id of a send: the sender's id of the connection (0: a control write), index of the queue pair, position in its
 * ring, request. Of a receive: id 0 as well, index, number.
 */
static inline uint64_t rdma_wr_id(uint32_t id, uint32_t qp, uint32_t position, uint32_t request) {
	return (uint64_t)id << 48 | (uint64_t)qp << 32 | (uint64_t)(position & 0xffffff) << 8 | request;
}

/* Work requests that may still be posted on a queue pair. */
static inline uint32_t rdma_room(const struct rdma_qp *q) { return q->room - (q->head - q->tail); }

/* Maximum number of consecutive work requests of a queue pair of which none is signalled. */
static inline uint32_t rdma_max_unsignaled(const struct rdma_qp *q) { return (q->room + 3) / 4; }

/* Whether the messages of a batch are sent inline. */
static inline int rdma_inlines(const struct run *x, const struct rdma_qp *q) {
	return x->l.b->size <= x->w->inlined && x->l.b->size <= q->inlined;
}

/* Fails with the errno of a call of libibverbs. */
int rdma_fail_verbs(struct p2p_error *e, const char *what, int errnum);
/* Adds a queue pair to the list for rdma_flush. */
void rdma_list(struct rdma_end *end, struct rdma_qp *q);
/* Adds a write to the chain of a queue pair that has room. Its data must stay until the flush. */
int rdma_post_write(struct run *x, struct rdma_qp *q, const struct ibv_send_wr *write, uint32_t id,
		    struct rdma_sent note);
/* Writes n bytes of the control memory to the other end, unsignalled. */
int rdma_post_control(struct run *x, struct rdma_qp *q, const void *from, uint32_t n, uint64_t to, uint32_t rkey);
/* Posts the chained sends, and the receives that cannot be delayed; all receives if `leisure`. */
int rdma_flush(struct run *x, int leisure);

/* ---- rdma.c ---- */

/*
 * Of n connections from `first` on, the one that carries the current sample: connections take turns with samples of one
 * message. With a window, all carry messages, and control writes use the first.
 */
static inline uint32_t rdma_turn_of(const struct run *x, uint32_t first, uint32_t n) {
	return x->l.b->window == 1 ? first + (uint32_t)((x->tag - 1) % n) : first;
}

/* The number, in its sample or burst, of the first message of a connection; its others follow at steps of conns. */
static inline uint32_t rdma_first_of(const struct run *x, const struct rdma_conn *c, uint32_t conns) {
	const uint32_t turn = x->l.b->window == 1 ? (uint32_t)((x->first - 1) % conns) : 0;
	return c->number < turn ? c->number + conns - turn : c->number - turn;
}

/* The number of its n-th message. */
static inline uint32_t rdma_message_of(const struct run *x, const struct rdma_conn *c, uint32_t conns, uint32_t n) {
	return n * conns + rdma_first_of(x, c, conns);
}

/*
 * Offset of message m of a sample, or of a burst, from the first one. Messages of a burst are not in flight at the same
 * time: they are packed without sharing a cache line.
 */
static inline uint64_t rdma_place(const struct run *x, uint32_t m) {
	return m * (x->l.b->window == 1 ? (x->l.b->size + 63) / 64 * 64 : x->l.b->stride);
}

/* Posts messages of a connection up to its window. */
int rdma_post_window(struct run *x, struct rdma_conn *c);
/* Gives credits for messages of a connection up to its window. */
int rdma_cts_window(struct run *x, struct rdma_conn *c);
/* Posts what can be posted, handles completions, and does a step of the wait if there are none. */
int rdma_progress(struct run *x, struct p2p_wait *w, int what, uint64_t want, uint64_t have);

/* ---- memory.c ---- */

/* Overwrites the last byte of every message that will be polled with another value than the expected one. */
void rdma_arm(struct run *x);
/* Polls the messages that this rank awaits; adds those that have arrived to *moved. */
void rdma_poll_memory(struct run *x, uint32_t *moved);
/*
 * The round trips of a burst, from ticks[0] on; rank 0 writes the end of each to ticks[k + 1]. On return all sends are
 * completed.
 */
int rdma_ping_pong(struct run *x, uint64_t *ticks);
#endif
