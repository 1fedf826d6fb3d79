/*
 * book.h: an index of memory regions, sorted by address. Timed loops search it inside the timed part: a binary search
 * among thousands takes a dozen steps; an insertion moves a few kilobytes.
 */
#ifndef CUDA_BOOK_H
#define CUDA_BOOK_H

#include "memory.h"

/* Regions do not overlap, but a mapping may occur several times: the driver counts its opens. */
struct cuda_book {
	struct cuda_memory **pieces;
	size_t count, room;
};

/* Reserves space for one more region, so that the next add cannot fail. */
int cuda_book_make_room(struct cuda_book *b, struct p2p_error *e);

void cuda_book_add(struct cuda_book *b, struct cuda_memory *m);

/* The region that contains p, NULL if there is none. */
struct cuda_memory *cuda_book_around(const struct cuda_book *b, uint64_t p);

/* The region that begins at base, NULL if there is none. */
struct cuda_memory *cuda_book_at(const struct cuda_book *b, uint64_t base);

/* Removes m, which must be in the index. */
void cuda_book_drop(struct cuda_book *b, const struct cuda_memory *m);

/* Closes all regions and frees the index, also after a failure; *e is the first failure. */
int cuda_book_close(struct cuda_book *b, struct p2p_error *e);

#endif
