/*
 * streams.h: the streams of an engine, and the marks on them. Kernels and small copies run on the first, which is main;
 * a large copy is cut into a piece for each. Pieces of copies that were started without a wait between them run side
 * by side.
 *
 *	main     fill ─┬─ copy 1, piece 0 ── copy 2, piece 0 ─┬─ check
 *	second         └─ copy 1, piece 1 ── copy 2, piece 1 ─┘
 *	              fork                                   join
 */
#ifndef CUDA_STREAMS_H
#define CUDA_STREAMS_H

#include "device.h"

#define CUDA_STREAMS 8

/* A copy uses one stream more for every so many bytes. */
#define CUDA_STREAM_BYTES ((size_t)1 << 20)

struct cuda_streams {
	unsigned count;
	unsigned busy;   /* bit i: stream i has work that main does not wait for */
	unsigned behind; /* bit i: stream i must wait for main before it starts something */
	void *stream[CUDA_STREAMS];
	void *forked;               /* events */
	void *joined[CUDA_STREAMS]; /* [0] is not used */
	void *marks[P2P_MARKS][CUDA_STREAMS];
	unsigned open_marks[P2P_MARKS]; /* bit i: the mark's event of stream i was not seen to be reached */
};

/* Makes `count` streams. After a failure too, cuda_streams_close releases what was made. */
int cuda_streams_open(struct cuda_streams *s, unsigned count, struct p2p_error *e);

/* Starts a copy, cut into as many pieces as are worth it. */
int cuda_streams_copy(struct cuda_streams *s, void *dst, const void *src, size_t n, struct p2p_error *e);

/*
 * Puts what main starts next behind all that was started so far, and what the others start later behind that: before
 * anything but a copy, before a recording, which begins on main alone, and before its end, which must.
 */
int cuda_streams_barrier(struct cuda_streams *s, struct p2p_error *e);

/* The driver's word on all streams: CUDA_NOT_READY while one of them has work. */
int cuda_streams_query(struct cuda_streams *s);

/* See mark and reached in p2p.h. */
int cuda_streams_mark(struct cuda_streams *s, uint32_t i, struct p2p_error *e);
int cuda_streams_reached(struct cuda_streams *s, uint32_t i, int *yes, struct p2p_error *e);

/* Releases everything, whatever fails; *e tells the first failure. */
int cuda_streams_close(struct cuda_streams *s, struct p2p_error *e);

#endif
