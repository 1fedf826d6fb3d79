/*
 * lru.h: the sender's cache of memory handles: which allocations it has exported, and where the peer mapped them. An
 * entry's index stays the same until the entry is removed, because messages in flight name entries by index.
 *
 * This is only the table: the caller validates hits, exports handles, and notifies the peer of evictions. Finding an
 * entry takes a few ns at any size. Overlap and victim scan all entries; they run on a miss, where the export takes
 * longer.
 */
#ifndef P2P_LRU_H
#define P2P_LRU_H

#include "gpu/abi/p2p.h"

#define P2P_LRU_MAX 1024
#define P2P_LRU_BUCKET_BITS 11 /* twice as many buckets as entries */

/* One array per field, so that a search reads only the fields that it compares. Ranges never overlap. */
struct p2p_lru {
	uint32_t limit; /* entries allowed, at most P2P_LRU_MAX; 0: none */
	uint32_t count; /* entries present, at most limit */
	uint32_t top;   /* entries from this one on are free */
	uint32_t pad;
	uint64_t clock;                                  /* grows with every use */
	uint64_t present[P2P_LRU_MAX / 64];              /* a bit per entry */
	uint16_t bucket[1 << P2P_LRU_BUCKET_BITS];       /* by base: 1 + the first entry, 0: none */
	uint16_t next[P2P_LRU_MAX];                      /* 1 + the next entry of the bucket, 0: the last one */
	uint64_t base[P2P_LRU_MAX], length[P2P_LRU_MAX]; /* a freed entry has length 0 at 0, which overlaps nothing */
	uint64_t id[P2P_LRU_MAX];                        /* of the allocation, as in the handle */
	uint64_t stamp[P2P_LRU_MAX];                     /* the clock at the last use; a freed entry: UINT64_MAX */
	uint32_t in_use[P2P_LRU_MAX];                    /* messages in flight that name the entry */
	uint64_t mapped[P2P_LRU_MAX];                    /* address of the peer's mapping, 0: unknown */
	struct p2p_handle handle[P2P_LRU_MAX];
};

static inline uint32_t p2p_lru_bucket(uint64_t base) { /* multiplicative hashing, by 2^64 over the golden ratio */
	return (uint32_t)((base * 0x9e3779b97f4a7c15u) >> (64 - P2P_LRU_BUCKET_BITS));
}

static inline uint32_t p2p_lru_bounded(uint32_t limit) { return limit < P2P_LRU_MAX ? limit : P2P_LRU_MAX; }

/* Makes an empty cache of `limit` entries, or of P2P_LRU_MAX where that is less. */
static inline void p2p_lru_init(struct p2p_lru *l, uint32_t limit) {
	memset(l, 0, sizeof *l);
	l->limit = p2p_lru_bounded(limit);
}

/* The entry of the allocation that begins at base, or -1. */
static inline int p2p_lru_find(const struct p2p_lru *l, uint64_t base) {
	int i = l->bucket[p2p_lru_bucket(base)];
	while (i != 0 && l->base[i - 1] != base)
		i = l->next[i - 1];
	return i - 1;
}

/* Some entry with a byte in common with `length` bytes at base, or -1. */
static inline int p2p_lru_overlap(const struct p2p_lru *l, uint64_t base, uint64_t length) {
	uint64_t end = base + length;
	for (uint32_t i = 0; i < l->top; i++)
		if (l->base[i] < end && base < l->base[i] + l->length[i])
			return (int)i;
	return -1;
}

/* The least recently used entry that no message in flight names, or -1. */
static inline int p2p_lru_victim(const struct p2p_lru *l) {
	uint64_t oldest = UINT64_MAX;
	int victim = -1;
	for (uint32_t i = 0; i < l->top; i++)
		if (l->stamp[i] < oldest && l->in_use[i] == 0) {
			oldest = l->stamp[i];
			victim = (int)i;
		}
	return victim;
}

/* Makes the entry the most recently used one. */
static inline void p2p_lru_touch(struct p2p_lru *l, int i) { l->stamp[i] = l->clock++; }

/* A message that names the entry is sent; the entry must stay until the message is complete. */
static inline void p2p_lru_hold(struct p2p_lru *l, int i) { l->in_use[i]++; }

/* A message that named the entry is complete. */
static inline void p2p_lru_drop(struct p2p_lru *l, int i) { l->in_use[i]--; }

static inline int p2p_lru_first_free(const struct p2p_lru *l) { /* there is one */
	int w = 0;
	while (l->present[w] == UINT64_MAX)
		w++;
	return w * 64 + __builtin_ctzll(~l->present[w]);
}

/*
 * Adds an allocation of at least one byte that overlaps no entry, as the most recently used one. Its mapped address is
 * unknown and its handle is zero until the caller fills them in. Returns its entry, or -1 when count equals limit.
 */
static inline int p2p_lru_insert(struct p2p_lru *l, uint64_t base, uint64_t length, uint64_t id) {
	if (l->count == l->limit)
		return -1;
	int i = p2p_lru_first_free(l);
	uint16_t *bucket = &l->bucket[p2p_lru_bucket(base)];
	l->present[i / 64] |= UINT64_C(1) << (i % 64);
	l->next[i] = *bucket;
	*bucket = (uint16_t)(i + 1);
	l->base[i] = base;
	l->length[i] = length;
	l->id[i] = id;
	l->mapped[i] = 0;
	memset(&l->handle[i], 0, sizeof l->handle[i]);
	p2p_lru_touch(l, i);
	l->count++;
	if ((uint32_t)i >= l->top)
		l->top = (uint32_t)i + 1;
	return i;
}

/* Removes an entry that no message in flight names. */
static inline void p2p_lru_remove(struct p2p_lru *l, int i) {
	uint16_t *link = &l->bucket[p2p_lru_bucket(l->base[i])];
	while (*link != i + 1)
		link = &l->next[*link - 1];
	*link = l->next[i];
	l->present[i / 64] &= ~(UINT64_C(1) << (i % 64));
	l->base[i] = l->length[i] = 0;
	l->stamp[i] = UINT64_MAX;
	l->count--;
	while (l->top > 0 && l->stamp[l->top - 1] == UINT64_MAX)
		l->top--;
}

#endif
