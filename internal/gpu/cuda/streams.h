/*
 * streams.h: the streams of an engine, and the marks on them. Kernels and small copies run on the first stream, called
 * main. A large copy is divided into parts, one for each stream. Parts of copies that are started without a wait
 * between them run concurrently.
 *
 *	main     fill ─┬─ copy 1, part 0 ── copy 2, part 0 ─┬─ check
 *	second         └─ copy 1, part 1 ── copy 2, part 1 ─┘
 *	              fork                                   join
 */
#ifndef CUDA_STREAMS_H
#define CUDA_STREAMS_H

#include "device.h"

#define CUDA_STREAMS 8

/* A copy uses one more stream per CUDA_STREAM_BYTES. */
#define CUDA_STREAM_BYTES ((size_t)1 << 20)

struct cuda_streams {
	unsigned count;
	unsigned busy;   /* bit i: stream i has work that main does not wait for */
	unsigned behind; /* bit i: stream i must wait for main before its next copy */
	void *stream[CUDA_STREAMS];
	void *forked;               /* events */
	void *joined[CUDA_STREAMS]; /* [0] is not used */
	void *marks[P2P_MARKS][CUDA_STREAMS];
	unsigned open_marks[P2P_MARKS]; /* bit i: the mark's event of stream i is not known to be complete */
};

/* Creates `count` streams. After a failure, the caller calls cuda_streams_close to release what was created. */
int cuda_streams_open(struct cuda_streams *s, unsigned count, struct p2p_error *e);

/* Starts a copy on a number of streams that depends on its size. */
int cuda_streams_copy(struct cuda_streams *s, void *dst, const void *src, size_t n, struct p2p_error *e);

/*
 * Orders the next work on main after all work started so far, and later work on the other streams after that. It is
 * called before all work except copies, before a recording, which must begin on main alone, and before the end of a
 * recording, which must join main.
 */
int cuda_streams_barrier(struct cuda_streams *s, struct p2p_error *e);

/* The state of all streams: CUDA_NOT_READY while one of them has work. */
int cuda_streams_query(struct cuda_streams *s);

/* See mark and reached in p2p.h. */
int cuda_streams_mark(struct cuda_streams *s, uint32_t i, struct p2p_error *e);
int cuda_streams_reached(struct cuda_streams *s, uint32_t i, int *yes, struct p2p_error *e);

/* Releases everything, also after a failure; *e is the first failure. */
int cuda_streams_close(struct cuda_streams *s, struct p2p_error *e);

#endif
