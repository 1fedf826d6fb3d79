/*
 * core.h: what the C files of this package share. rdma.h is what Go sees.
 *
 *   post.c    work requests
 *   rdma.c    messages: what a sender posts, what a receiver takes, completions
 *   memory.c  messages that the receiver sees in its memory, and ping-pong by them
 *   sample.c  samples, trains and batches
 */
#ifndef P2P_RDMA_CORE_H
#define P2P_RDMA_CORE_H

#include "rdma.h"

/* A batch under way. */
struct run {
	struct p2p_loop l;
	struct rdma_end *end;
	const struct rdma_ways *w;
	enum p2p_role role;
	uint32_t iter;                  /* number of the sample in the batch; of a train, the first one's … */
	uint32_t train;                 /* … and how many samples that is; 1 where a sample has a window of messages */
	uint64_t first;                 /* number of that sample, counted from 1 over all batches */
	uint64_t tag;                   /* the same of the sample under way */
	uint64_t begun;                 /* ticks, when that was */
	uint32_t sending;               /* messages of the train that this rank has to send by now … */
	uint32_t sent;                  /* … and that are complete */
	uint32_t awaited;               /* messages that it has to receive by now … */
	uint32_t received;              /* … and has */
	uint32_t held;                  /* 1: a connection could not post all that it may have under way */
	uint32_t wide;                  /* 1: any completion queue may hold what is waited for */
	uint64_t ticks[RDMA_TRAIN + 1]; /* where the samples of a train begin and end */
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

/* How many work requests of a queue pair may follow each other without one that reports its completion. */
static inline uint32_t rdma_most_silent(const struct rdma_qp *q) { return (q->room + 3) / 4; }

/* Whether the messages of a batch travel in their work requests. */
static inline int rdma_inlines(const struct run *x, const struct rdma_qp *q) {
	return x->l.b->size <= x->w->inlined && x->l.b->size <= q->inlined;
}

/* Fails with the errno of a call of libibverbs. */
int rdma_fail_verbs(struct p2p_error *e, const char *what, int errnum);
/* Puts a queue pair among those that rdma_flush looks at. */
void rdma_list(struct rdma_end *end, struct rdma_qp *q);
/* Puts a write on the chain of a queue pair that has room, and notes it. Its data must stay until it is flushed. */
int rdma_post_write(struct run *x, struct rdma_qp *q, const struct ibv_send_wr *write, uint32_t id,
		    struct rdma_sent note);
/* Writes n bytes of the control memory to the other end, without a word when it is done. */
int rdma_post_control(struct run *x, struct rdma_qp *q, const void *from, uint32_t n, uint64_t to, uint32_t rkey);
/* Posts all that was put off: sends, and the receives that cannot wait; all of them if there is time. */
int rdma_flush(struct run *x, int leisure);

/* ---- rdma.c ---- */

/*
 * Of n connections from `first` on the one that carries a sample of one message: they take turns. Of several messages
 * each carries some, and what is said once goes by the first.
 */
static inline uint32_t rdma_turn_of(const struct run *x, uint32_t first, uint32_t n) {
	return x->l.b->window == 1 ? first + (uint32_t)((x->tag - 1) % n) : first;
}

/* Which message of a sample, or of a train, is the first that a connection carries; every conns-th follows. */
static inline uint32_t rdma_first_of(const struct run *x, const struct rdma_conn *c, uint32_t conns) {
	const uint32_t turn = x->l.b->window == 1 ? (uint32_t)((x->first - 1) % conns) : 0;
	return c->number < turn ? c->number + conns - turn : c->number - turn;
}

/* Which is its n-th. */
static inline uint32_t rdma_message_of(const struct run *x, const struct rdma_conn *c, uint32_t conns, uint32_t n) {
	return n * conns + rdma_first_of(x, c, conns);
}

/*
 * Where message m of a sample, or of a train, lies from where the first one does. Those of a train are not under way at
 * the same time: they stand as close as they can without sharing a cache line.
 */
static inline uint64_t rdma_place(const struct run *x, uint32_t m) {
	return m * (x->l.b->window == 1 ? (x->l.b->size + 63) / 64 * 64 : x->l.b->stride);
}

/* Posts what a connection may have under way. */
int rdma_post_window(struct run *x, struct rdma_conn *c);
/* Lets as many messages come as a connection may have under way. */
int rdma_grant_window(struct run *x, struct rdma_conn *c);
/* Posts what can be posted, takes what has completed or come, and waits a moment if nothing has. */
int rdma_progress(struct run *x, struct p2p_wait *w, int what, uint64_t want, uint64_t have);

/* ---- memory.c ---- */

/* Makes the last byte of every message that will be looked for another one than will come. */
void rdma_arm(struct run *x);
/* Looks for the messages that this rank awaits; adds those that came to *moved. */
void rdma_look(struct run *x, uint32_t *moved);
/*
 * The round trips of a train, from ticks[0] on; rank 0 writes the end of each to ticks[k + 1]. On return the device has
 * reported everything that was sent.
 */
int rdma_volley(struct run *x, uint64_t *ticks);
#endif
