/*
 * ring.h: control messages from one process to another, in order, through memory that both map. One process puts, the
 * other gets; neither function waits.
 *
 * Message numbers are 32 bits and wrap around. Message n is in slot n % P2P_RING_ENTRIES, whose turn word becomes n + 1
 * when the message is complete; until then it has the value of the previous message in the slot,
 * n + 1 - P2P_RING_ENTRIES, or 0 in new memory. So a message transfers only the cache lines of its slot: the reader's
 * count has its own line, which the writer reads only if the ring is full by its latest reading.
 */
#ifndef P2P_RING_H
#define P2P_RING_H

#include "gpu/abi/p2p.h"

#define P2P_RING_ENTRIES 1024u /* divides 2^32, so that slots stay in turn when the count wraps */
#define P2P_RING_SLOT 192      /* bytes of a slot, whole cache lines */

/* The meaning of the fields is defined by the caller. */
struct p2p_message {
	uint32_t type, flags;
	uint64_t seq, tag, size, base, offset, address, version;
	struct p2p_handle handle;
};

struct p2p_slot {
	_Atomic uint32_t turn;
	uint32_t pad;
	struct p2p_message message;
	char pad1[P2P_RING_SLOT - 8 - sizeof(struct p2p_message)];
};

/* The shared memory, at a multiple of 64 bytes. Zeroed memory is an empty ring whose first message is 0. */
struct p2p_ring {
	_Atomic uint32_t read; /* messages that the reader has taken out */
	char pad[128 - 4];
	struct p2p_slot slots[P2P_RING_ENTRIES];
};

_Static_assert(sizeof(struct p2p_slot) == P2P_RING_SLOT && P2P_RING_SLOT % 64 == 0, "slots share no cache line");
_Static_assert(offsetof(struct p2p_ring, slots) % 64 == 0, "slots begin on a cache line");

/* The process that puts. */
struct p2p_ring_writer {
	struct p2p_ring *ring;
	uint32_t next; /* message */
	uint32_t read; /* by the reader, at the latest reading */
};

/* The process that gets. */
struct p2p_ring_reader {
	struct p2p_ring *ring;
	uint32_t next; /* message */
};

static inline struct p2p_slot *p2p_ring_slot(struct p2p_ring *r, uint32_t n) { return &r->slots[n % P2P_RING_ENTRIES]; }

/* Makes an empty ring whose first message is number `at`. One process calls it before either is initialised. */
static inline void p2p_ring_start(struct p2p_ring *r, uint32_t at) {
	for (uint32_t n = at; n != at + P2P_RING_ENTRIES; n++)
		atomic_store_explicit(&p2p_ring_slot(r, n)->turn, n + 1 - P2P_RING_ENTRIES, memory_order_relaxed);
	atomic_store_explicit(&r->read, at, memory_order_release);
}

/* The ring must be empty, and p2p_ring_start, if called, visible to this process. */
static inline void p2p_ring_writer_init(struct p2p_ring_writer *w, struct p2p_ring *r) {
	w->ring = r;
	w->next = w->read = atomic_load_explicit(&r->read, memory_order_acquire);
}

/* As p2p_ring_writer_init, but the ring may contain messages already. */
static inline void p2p_ring_reader_init(struct p2p_ring_reader *d, struct p2p_ring *r) {
	d->ring = r;
	d->next = atomic_load_explicit(&r->read, memory_order_acquire);
}

/* Puts a message; earlier writes of this process are visible to the process that gets it. Returns 1, or 0 when full. */
static inline int p2p_ring_put(struct p2p_ring_writer *w, const struct p2p_message *m) {
	if (w->next - w->read == P2P_RING_ENTRIES) {
		w->read = atomic_load_explicit(&w->ring->read, memory_order_acquire);
		if (w->next - w->read == P2P_RING_ENTRIES)
			return 0;
	}
	struct p2p_slot *s = p2p_ring_slot(w->ring, w->next);
	s->message = *m;
	atomic_store_explicit(&s->turn, ++w->next, memory_order_release);
	return 1;
}

/* Whether there is a message: one load if there is none. */
static inline int p2p_ring_peek(const struct p2p_ring_reader *d) {
	return atomic_load_explicit(&p2p_ring_slot(d->ring, d->next)->turn, memory_order_acquire) == d->next + 1;
}

/* Gets the next message. Returns 1, or 0 when empty. */
static inline int p2p_ring_get(struct p2p_ring_reader *d, struct p2p_message *m) {
	if (!p2p_ring_peek(d))
		return 0;
	*m = p2p_ring_slot(d->ring, d->next)->message;
	atomic_store_explicit(&d->ring->read, ++d->next, memory_order_release);
	return 1;
}

#endif
