#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Copies through CPU memory, for devices that cannot access each other's memory. Pooled: a message is copied through a
 * ring of pinned chunks, so that one chunk is copied in while others are copied out. Fresh: for each message a segment
 * of pageable memory is created, filled, sent as a descriptor, copied out and freed.
 */

static uint8_t *pool(const struct ipc_end *end, uint32_t sender) {
	return end->link->pool + sender * end->cfg.relay_depth * end->cfg.relay_chunk;
}

static uint64_t pool_bytes(const struct ipc_config *c) {
	switch (c->path) {
	case IPC_RELAY_POOLED:
		return 2 * (uint64_t)c->relay_depth * c->relay_chunk;
	case IPC_GET:
		return 2u << 20; /* get's bounce buffers */
	}
	return 0;
}

uint64_t p2p_ipc_link_bytes(const struct ipc_config *c) { return sizeof(struct ipc_link) + pool_bytes(c); }

int ipc_pin_pool(struct run *x) {
	struct ipc_end *end = x->end;
	uint64_t n = pool_bytes(&end->cfg);
	if (n == 0)
		return P2P_OK;
	int rc = end->memory->pin(end->memory->self, end->link->pool, n, x->l.e);
	x->s->pinned = rc == P2P_OK;
	return rc;
}

int ipc_unpin_pool(struct ipc_end *end, struct p2p_error *e) {
	return end->state->pinned ? end->memory->unpin(end->memory->self, end->link->pool, e) : P2P_OK;
}

/* ---- pooled --------------------------------------------------------------------------------------------------- */

/* Progress of one direction. */
struct flow {
	struct p2p_engine *engine;
	uint8_t *pool;
	uint64_t begun, ended, total; /* chunks of this window: copies started and completed, and all */
	uint64_t *before;             /* chunks of earlier windows */
	uint32_t i;
};

/* Minimum size of a chunk: for fewer bytes a copy takes longer to start than to run. */
#define MIN_CHUNK (128u << 10)

/* The bytes of a chunk: at least a quarter of the message, and at most a chunk of the pool. */
static uint64_t chunk_bytes(const struct run *x) {
	uint64_t parts = 4, page = 4096, size = x->l.b->size;
	uint64_t part = (size / parts + page - 1) / page * page;
	part = part < MIN_CHUNK ? MIN_CHUNK : part;
	return part < x->end->cfg.relay_chunk ? part : x->end->cfg.relay_chunk;
}

static uint64_t chunks_of(const struct run *x) {
	uint64_t chunk = chunk_bytes(x);
	return (x->l.b->size + chunk - 1) / chunk;
}

static uint32_t pool_slot(const struct run *x, const struct flow *f, uint64_t k) {
	return (uint32_t)((*f->before + k) % x->end->cfg.relay_depth);
}

/* Starts the copy of the next chunk between the message and the pool. */
static int begin(struct run *x, struct flow *f, int out) {
	uint64_t per = chunks_of(x), k = f->begun, chunk = chunk_bytes(x);
	uint32_t w = (uint32_t)(k / per), mark = pool_slot(x, f, k);
	uint64_t off = k % per * chunk, left = x->l.b->size - off, n = left < chunk ? left : chunk;
	uint8_t *here = f->pool + mark * x->end->cfg.relay_chunk;
	int rc = out ? f->engine->copy(f->engine->self, here, ipc_source(x, f->i, w) + off, n, x->l.e)
		     : f->engine->copy(f->engine->self, ipc_inbox(x, f->i, w) + off, here, n, x->l.e);
	f->begun++;
	if (rc || !f->engine->mark)
		return rc;
	return f->engine->mark(f->engine->self, mark, x->l.e);
}

/* Starts the next chunk if it is below `limit`, and publishes completed chunks in *word. *moved: it did either. */
static int advance(struct run *x, struct flow *f, uint64_t limit, _Atomic uint64_t *word, int out, int *moved) {
	int yes = 1, rc;
	if (f->begun < f->total && *f->before + f->begun < limit && f->begun - f->ended < x->end->cfg.relay_depth) {
		if ((rc = begin(x, f, out)))
			return rc;
		*moved = 1;
	}
	if (f->ended == f->begun)
		return P2P_OK;
	if (f->engine->reached && (rc = f->engine->reached(f->engine->self, pool_slot(x, f, f->ended), &yes, x->l.e)))
		return rc;
	if (yes) {
		f->ended++;
		p2p_beat(x->l.ctx);
		atomic_store_explicit(word, *f->before + f->ended, memory_order_release);
		*moved = 1;
	}
	return P2P_OK;
}

/* What a rank waits for when nothing has progressed: its own device, as long as copies are in progress. */
static int awaits(const struct flow *out, const struct flow *in) {
	if (out->begun != out->ended || in->begun != in->ended)
		return P2P_WAIT_COPY;
	return in->ended < in->total ? P2P_WAIT_DONE : P2P_WAIT_READY;
}

/* Sends a window, receives one, or both at the same time. */
static int move(struct run *x, int sends, int receives, uint32_t i) {
	struct ipc_end *end = x->end;
	uint64_t total = chunks_of(x) * x->l.b->window;
	uint32_t me = end->cfg.rank;
	struct flow out = {end->engine, pool(end, me), 0, 0, sends ? total : 0, &x->s->sent_chunks, i};
	struct flow in = {end->second, pool(end, 1 - me), 0, 0, receives ? total : 0, &x->s->taken_chunks, i};
	struct p2p_wait w = {0};
	while (out.ended < out.total || in.ended < in.total) {
		uint64_t room = atomic_load_explicit(&x->out->consumed, memory_order_acquire) + end->cfg.relay_depth;
		uint64_t there = atomic_load_explicit(&x->in->filled, memory_order_acquire);
		int moved = 0;
		int rc = advance(x, &out, room, &x->out->filled, 1, &moved);
		if (rc || (rc = advance(x, &in, there, &x->in->consumed, 0, &moved)))
			return rc;
		if (moved)
			w = (struct p2p_wait){0};
		else if ((rc = ipc_wait_step(x, &w, awaits(&out, &in), total, out.ended + in.ended)))
			return rc;
	}
	atomic_store_explicit(&x->l.ctx->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
	x->s->sent_chunks += out.total;
	x->s->taken_chunks += in.total;
	return P2P_OK;
}

static int send_pooled(struct run *x, uint64_t seq, uint32_t i) {
	int rc = move(x, 1, 0, i);
	return rc ? rc : ipc_publish_done(x, seq);
}

static int receive_pooled(struct run *x, uint64_t seq, uint32_t i) {
	int rc = move(x, 0, 1, i);
	return rc ? rc : ipc_await_done(x, seq);
}

static int exchange_pooled(struct run *x, uint64_t out, uint64_t in, uint32_t i) {
	int rc = move(x, 1, 1, i);
	if (rc || (rc = ipc_publish_done(x, out)))
		return rc;
	return ipc_await_done(x, in);
}

const struct ipc_path ipc_pooled_path = {
	.send = send_pooled,
	.receive = receive_pooled,
	.exchange = exchange_pooled,
};

/* ---- fresh ---------------------------------------------------------------------------------------------------- */

static int system_error(struct run *x, const char *what) {
	snprintf(x->l.e->text, sizeof x->l.e->text, "relay: %s of a segment of %llu bytes: %s%s", what,
		 (unsigned long long)x->l.b->size, strerror(errno),
		 errno == EMFILE || errno == ENFILE ? ": raise the limit of open files (ulimit -n)" : "");
	return x->l.e->code = P2P_ERR_DEVICE;
}

static uint64_t segment_bytes(const struct run *x) { return x->l.b->size ? x->l.b->size : 1; }

/* Maps a segment; if *fd is -1, creates it. */
static int map_segment(struct run *x, int32_t *fd, uint8_t **p) {
	if (*fd < 0) {
		if (x->end->cfg.fault == IPC_NO_SEGMENT) {
			errno = ENOSPC;
			return system_error(x, "memfd_create");
		}
		if ((*fd = memfd_create("p2pbench-relay", MFD_CLOEXEC)) < 0)
			return system_error(x, "memfd_create");
		if (ftruncate(*fd, (off_t)segment_bytes(x)))
			return system_error(x, "ftruncate");
	}
	void *m = mmap(NULL, segment_bytes(x), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (m == MAP_FAILED)
		return system_error(x, "mmap");
	*p = m;
	return P2P_OK;
}

static int copy_now(struct run *x, uint8_t *dst, const uint8_t *src) {
	struct p2p_engine *g = x->end->engine;
	int rc = g->copy(g->self, dst, src, x->l.b->size, x->l.e);
	return rc ? rc : g->wait(g->self, x->l.ctx, x->l.e);
}

static int send_segment(struct run *x, uint64_t seq, uint32_t i, uint32_t w) {
	struct p2p_message m = {.type = MSG_SEND,
				.flags = FLAG_FD,
				.tag = ipc_number(x, i, w),
				.seq = seq << 1 | x->end->cfg.rank,
				.size = x->l.b->size};
	uint8_t *p = NULL;
	m.handle.fd = -1;
	int rc = map_segment(x, &m.handle.fd, &p);
	if (rc == P2P_OK)
		rc = copy_now(x, p, ipc_source(x, i, w));
	if (rc == P2P_OK)
		rc = ipc_send(x, &m);
	if (p)
		munmap(p, segment_bytes(x));
	ipc_close_fd(&m.handle.fd);
	return rc;
}

static int send_fresh(struct run *x, uint64_t seq, uint32_t i) {
	int rc = P2P_OK;
	for (uint32_t w = 0; rc == P2P_OK && w < x->l.b->window; w++)
		rc = send_segment(x, seq, i, w);
	return rc;
}

static int take_segment(struct run *x, struct p2p_message *m, uint32_t i) {
	uint8_t *p = NULL;
	int rc = map_segment(x, &m->handle.fd, &p);
	if (rc == P2P_OK)
		rc = copy_now(x, ipc_inbox(x, i, (uint32_t)(m->tag % x->l.b->window)), p);
	if (p)
		munmap(p, segment_bytes(x));
	ipc_close_fd(&m->handle.fd);
	return rc;
}

static int receive_fresh(struct run *x, uint64_t seq, uint32_t i) {
	(void)seq;
	int rc = P2P_OK;
	for (uint32_t w = 0; rc == P2P_OK && w < x->l.b->window; w++) {
		struct p2p_message *m;
		if ((rc = ipc_next(x, &m)) == P2P_OK)
			rc = take_segment(x, m, i);
	}
	return rc;
}

const struct ipc_path ipc_fresh_path = {
	.send = send_fresh,
	.receive = receive_fresh,
};
