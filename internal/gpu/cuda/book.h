/*
 * book.h: pieces of memory by address. Timed loops look up while the clock runs: a search takes a dozen steps among
 * thousands, and noting one moves a few kilobytes.
 */
#ifndef CUDA_BOOK_H
#define CUDA_BOOK_H

#include "memory.h"

/* Pieces do not overlap, but a mapping may be there twice: the driver counts how often it was opened. */
struct cuda_book {
	struct cuda_memory **pieces;
	size_t count, room;
};

/* Makes sure that one more piece fits, so that adding it cannot fail. */
int cuda_book_make_room(struct cuda_book *b, struct p2p_error *e);

void cuda_book_add(struct cuda_book *b, struct cuda_memory *m);

/* The piece that p lies in, NULL if there is none. */
struct cuda_memory *cuda_book_around(const struct cuda_book *b, uint64_t p);

/* The piece that begins at base, NULL if there is none. */
struct cuda_memory *cuda_book_at(const struct cuda_book *b, uint64_t base);

/* Forgets m, which is in the book. */
void cuda_book_drop(struct cuda_book *b, const struct cuda_memory *m);

/* Closes all pieces and frees the book, whatever fails; *e tells the first failure. */
int cuda_book_close(struct cuda_book *b, struct p2p_error *e);

#endif
