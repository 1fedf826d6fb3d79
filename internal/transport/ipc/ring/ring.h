/*
 * ring.h: control messages from one process to another, through memory that both map: one end puts, the other gets,
 * in order, and neither ever waits here.
 *
 * Messages are counted with 32 bits, which wrap. Message n lies in slot n % P2P_RING_ENTRIES, whose turn word becomes
 * n + 1 once the message is there; until then it holds what the message one lap earlier left, n + 1 - P2P_RING_ENTRIES,
 * or 0 in new memory. So a message moves the cache lines of its slot and no other: the reader's count has a line of its
 * own, which the writer looks at only when the ring would be full by what it last saw there.
 */
#ifndef P2P_RING_H
#define P2P_RING_H

#include "gpu/abi/p2p.h"

#define P2P_RING_ENTRIES 1024u /* divides 2^32, so that slots stay in turn when the count wraps */
#define P2P_RING_SLOT 192      /* bytes of a slot, whole cache lines */

/* What the fields mean is for the two ends to agree on. */
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

/* The part that both ends map, at a multiple of 64 bytes. Zeroed memory is an empty ring whose first message is 0. */
struct p2p_ring {
	_Atomic uint32_t read; /* messages that the reader has taken out */
	char pad[128 - 4];
	struct p2p_slot slots[P2P_RING_ENTRIES];
};

_Static_assert(sizeof(struct p2p_slot) == P2P_RING_SLOT && P2P_RING_SLOT % 64 == 0, "slots share no cache line");
_Static_assert(offsetof(struct p2p_ring, slots) % 64 == 0, "slots begin on a cache line");

/* The end that puts. */
struct p2p_ring_writer {
	struct p2p_ring *ring;
	uint32_t next; /* message */
	uint32_t read; /* by the reader, when last looked at */
};

/* The end that gets. */
struct p2p_ring_reader {
	struct p2p_ring *ring;
	uint32_t next; /* message */
};

static inline struct p2p_slot *p2p_ring_slot(struct p2p_ring *r, uint32_t n) { return &r->slots[n % P2P_RING_ENTRIES]; }

/* Makes an empty ring whose first message is number `at`. For one side to call before either end is initialised. */
static inline void p2p_ring_start(struct p2p_ring *r, uint32_t at) {
	for (uint32_t n = at; n != at + P2P_RING_ENTRIES; n++)
		atomic_store_explicit(&p2p_ring_slot(r, n)->turn, n + 1 - P2P_RING_ENTRIES, memory_order_relaxed);
	atomic_store_explicit(&r->read, at, memory_order_release);
}

/* The ring is empty, and its start, if it had one, is visible to this process. */
static inline void p2p_ring_writer_init(struct p2p_ring_writer *w, struct p2p_ring *r) {
	w->ring = r;
	w->next = w->read = atomic_load_explicit(&r->read, memory_order_acquire);
}

/* As p2p_ring_writer_init, but messages may have been put meanwhile. */
static inline void p2p_ring_reader_init(struct p2p_ring_reader *d, struct p2p_ring *r) {
	d->ring = r;
	d->next = atomic_load_explicit(&r->read, memory_order_acquire);
}

/* Puts a message; what this process wrote before is visible to whoever gets it. Returns 1, or 0 when full. */
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

/* Whether a message waits: one load where none does. */
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
