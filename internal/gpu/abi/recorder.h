/*
 * recorder.h: recordings of what a library puts on a stream, as units that start at once (CUDA graphs). A timed loop
 * whose messages a vendor's library moves records that library's calls by this table; a package under internal/gpu
 * fills it.
 */
#ifndef P2P_RECORDER_H
#define P2P_RECORDER_H

#include "p2p.h"

/* The kernels that one start of a recording launches, as the driver tells. */
struct p2p_launches {
	uint64_t ctas; /* thread blocks of the largest: they run one after the other */
	uint32_t kernels;
	uint32_t known; /* 0: text says why not */
	/* Their names as the linker has them, each once, a line each; nothing where the driver does not tell. */
	char text[512];
};

/* Says in l why nothing is known. */
static inline void p2p_launches_unknown(struct p2p_launches *l, const char *why) {
	memset(l, 0, sizeof *l);
	snprintf(l->text, sizeof l->text, "%s", why);
}

/*
 * Every function but inspect returns P2P_OK or a code with *e set. The calling thread has bound an engine or a queue of
 * the device, whose stream is meant, and stays the same from begin to end.
 */
struct p2p_recorder {
	uint32_t abi; /* P2P_ABI */
	uint32_t pad;
	/* From here on what this thread puts on the stream is recorded and does not run. */
	int (*begin)(void *stream, struct p2p_error *e);
	/* Ends it, in any case. *recording is the caller's to drop, NULL after a failure. */
	int (*end)(void *stream, void **recording, struct p2p_error *e);
	int (*drop)(void *recording, struct p2p_error *e);
	/* Looks into a recording. What cannot be told is told in l->text. */
	void (*inspect)(void *recording, struct p2p_launches *l);
	/* NULL: inspect can tell. Else the reason why it never does on this driver. */
	const char *blind;
	/* Makes a recording ready to start. *unit is the caller's to release. */
	int (*make)(void *recording, void **unit, struct p2p_error *e);
	int (*start)(void *unit, void *stream, struct p2p_error *e);
	int (*release)(void *unit, struct p2p_error *e);
};

#endif
