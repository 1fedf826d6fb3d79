// Package lrutest gives Go tests and benchmarks access to lru.h, the sender's cache of memory handles. Package ipc
// calls the C functions directly.
package lrutest

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../../../.. -DP2P_SHARED_HEADERS=0x1653db33
#include "transport/ipc/lru/lru.h"

// A message that hits, n times; the bases take turns, and nothing else is in flight. Each search begins only when the
// one before it has ended: the base takes in a count that is 0 but that the CPU has to load first. Returns how many
// were found.
static uint64_t hits(struct p2p_lru *l, const uint64_t *bases, uint64_t len, uint64_t n) {
	uint64_t found = 0, in_flight = 0;
	for (uint64_t k = 0, at = 0; k < n; k++, at = at + 1 == len ? 0 : at + 1) {
		int i = p2p_lru_find(l, bases[at] + in_flight);
		if (i < 0)
			continue;
		p2p_lru_touch(l, i);
		p2p_lru_hold(l, i);
		p2p_lru_drop(l, i);
		in_flight = l->in_use[i];
		found++;
	}
	return found;
}

// A message that misses in a full cache, n times; each takes the place of the least recently used entry. Returns how
// many did.
static uint64_t misses(struct p2p_lru *l, uint64_t base, uint64_t length, uint64_t n) {
	uint64_t evicted = 0;
	for (uint64_t k = 0; k < n; k++, base += length) {
		if (p2p_lru_find(l, base) >= 0 || p2p_lru_overlap(l, base, length) >= 0)
			continue;
		int i = p2p_lru_victim(l);
		if (i < 0)
			continue;
		p2p_lru_remove(l, i);
		evicted += p2p_lru_insert(l, base, length, k) >= 0;
	}
	return evicted;
}
*/
import "C"

import "unsafe"

// Max is the largest limit.
const Max = C.P2P_LRU_MAX

// Cache is a struct p2p_lru. Its methods are the functions of lru.h, which says what they do.
type Cache struct{ c C.struct_p2p_lru }

// Entry is what a cache holds of an allocation.
type Entry struct {
	Base, Length, ID, Mapped uint64
	InUse                    int
	Handle                   Handle
}

// Handle is the part of a struct p2p_handle that tells one from another.
type Handle struct {
	Length uint64
	Last   byte // of its opaque bytes
}

// New is p2p_lru_init.
func New(limit int) *Cache {
	l := new(Cache)
	C.p2p_lru_init(&l.c, C.uint32_t(limit))
	return l
}

// Limit is how many entries are allowed.
func (l *Cache) Limit() int { return int(l.c.limit) }

// Count is how many entries are present.
func (l *Cache) Count() int { return int(l.c.count) }

// Entry reads entry i.
func (l *Cache) Entry(i int) Entry {
	h := &l.c.handle[i]
	return Entry{
		Base: uint64(l.c.base[i]), Length: uint64(l.c.length[i]), ID: uint64(l.c.id[i]),
		Mapped: uint64(l.c.mapped[i]), InUse: int(l.c.in_use[i]),
		Handle: Handle{Length: uint64(h.length), Last: byte(h.opaque[len(h.opaque)-1])},
	}
}

// Fill writes the fields that a caller sets after an insertion, or when the peer has sent the mapped address.
func (l *Cache) Fill(i int, mapped uint64, h Handle) {
	c := &l.c.handle[i]
	l.c.mapped[i] = C.uint64_t(mapped)
	c.length = C.uint64_t(h.Length)
	c.opaque[len(c.opaque)-1] = C.uint8_t(h.Last)
}

// Find is p2p_lru_find.
func (l *Cache) Find(base uint64) int { return int(C.p2p_lru_find(&l.c, C.uint64_t(base))) }

// Overlap is p2p_lru_overlap.
func (l *Cache) Overlap(base, length uint64) int {
	return int(C.p2p_lru_overlap(&l.c, C.uint64_t(base), C.uint64_t(length)))
}

// Victim is p2p_lru_victim.
func (l *Cache) Victim() int { return int(C.p2p_lru_victim(&l.c)) }

// Insert is p2p_lru_insert.
func (l *Cache) Insert(base, length, id uint64) int {
	return int(C.p2p_lru_insert(&l.c, C.uint64_t(base), C.uint64_t(length), C.uint64_t(id)))
}

// Remove is p2p_lru_remove.
func (l *Cache) Remove(i int) { C.p2p_lru_remove(&l.c, C.int(i)) }

// Touch is p2p_lru_touch.
func (l *Cache) Touch(i int) { C.p2p_lru_touch(&l.c, C.int(i)) }

// Hold is p2p_lru_hold.
func (l *Cache) Hold(i int) { C.p2p_lru_hold(&l.c, C.int(i)) }

// Drop is p2p_lru_drop.
func (l *Cache) Drop(i int) { C.p2p_lru_drop(&l.c, C.int(i)) }

// Hits sends n messages from the bases in turn, without leaving C, and says how many hit.
func (l *Cache) Hits(bases []uint64, n int) int {
	p := (*C.uint64_t)(unsafe.Pointer(&bases[0]))
	return int(C.hits(&l.c, p, C.uint64_t(len(bases)), C.uint64_t(n)))
}

// Misses sends n messages from neighbouring allocations of length bytes, the first at base, without leaving C, and
// says how many missed and evicted.
func (l *Cache) Misses(base, length uint64, n int) int {
	return int(C.misses(&l.c, C.uint64_t(base), C.uint64_t(length), C.uint64_t(n)))
}
