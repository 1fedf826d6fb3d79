#include "book.h"

#include <stdlib.h>

/* The number of regions that begin at or below p. */
static size_t rank(const struct cuda_book *b, uint64_t p) {
	size_t low = 0, high = b->count;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (b->pieces[mid]->addr <= p)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

int cuda_book_make_room(struct cuda_book *b, struct p2p_error *e) {
	if (b->count < b->room)
		return P2P_OK;
	size_t room = b->room ? 2 * b->room : 64;
	struct cuda_memory **pieces = realloc(b->pieces, room * sizeof *pieces);
	if (!pieces)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	b->pieces = pieces;
	b->room = room;
	return P2P_OK;
}

void cuda_book_add(struct cuda_book *b, struct cuda_memory *m) {
	size_t i = rank(b, m->addr);
	memmove(b->pieces + i + 1, b->pieces + i, (b->count - i) * sizeof *b->pieces);
	b->pieces[i] = m;
	b->count++;
}

struct cuda_memory *cuda_book_around(const struct cuda_book *b, uint64_t p) {
	size_t i = rank(b, p);
	struct cuda_memory *m = i ? b->pieces[i - 1] : NULL;
	return m && p - m->addr < m->size ? m : NULL;
}

struct cuda_memory *cuda_book_at(const struct cuda_book *b, uint64_t base) {
	struct cuda_memory *m = cuda_book_around(b, base);
	return m && m->addr == base ? m : NULL;
}

void cuda_book_drop(struct cuda_book *b, const struct cuda_memory *m) {
	size_t i = rank(b, m->addr) - 1;
	while (b->pieces[i] != m)
		i--;
	memmove(b->pieces + i, b->pieces + i + 1, (b->count - i - 1) * sizeof *b->pieces);
	b->count--;
}

int cuda_book_close(struct cuda_book *b, struct p2p_error *e) {
	struct p2p_error later;
	int rc = P2P_OK;
	while (b->count) {
		int last = cuda_memory_close(b->pieces[--b->count], rc ? &later : e);
		rc = rc ? rc : last;
	}
	free(b->pieces);
	return rc;
}
