/*
 * recorder.h: records the work that a library enqueues on a stream, as a unit that is launched as a whole (a CUDA
 * graph). Timed loops of transports that use a vendor's library record its calls through this table. A package under
 * internal/gpu fills the table.
 */
#ifndef P2P_RECORDER_H
#define P2P_RECORDER_H

#include "p2p.h"

/* The kernels that one launch of a recording runs, as reported by the driver. */
struct p2p_launches {
	uint64_t ctas; /* thread blocks of the largest kernel: kernels run one after the other */
	uint32_t kernels;
	uint32_t known; /* 0: unknown, text gives the reason */
	/* The distinct mangled names, one per line; empty if the driver does not report names. */
	char text[512];
};

/* Sets l to unknown, with the reason. */
static inline void p2p_launches_unknown(struct p2p_launches *l, const char *why) {
	memset(l, 0, sizeof *l);
	snprintf(l->text, sizeof l->text, "%s", why);
}

/*
 * Every function except inspect returns P2P_OK or a code with *e set. The calling thread must have bound an engine or a
 * queue of the device that owns the stream. begin and end must be called by the same thread.
 */
struct p2p_recorder {
	uint32_t abi; /* P2P_ABI */
	uint32_t pad;
	/* Starts recording: work that this thread enqueues on the stream is recorded and does not run. */
	int (*begin)(void *stream, struct p2p_error *e);
	/* Ends recording, also after a failure. The caller drops *recording; it is NULL after a failure. */
	int (*end)(void *stream, void **recording, struct p2p_error *e);
	int (*drop)(void *recording, struct p2p_error *e);
	/* Describes the kernels of a recording; if it cannot, l->known is 0 and l->text gives the reason. */
	void (*inspect)(void *recording, struct p2p_launches *l);
	/* NULL if inspect works on this driver, otherwise the reason why it does not. */
	const char *blind;
	/* Instantiates a recording. The caller releases *unit. */
	int (*make)(void *recording, void **unit, struct p2p_error *e);
	int (*start)(void *unit, void *stream, struct p2p_error *e);
	int (*release)(void *unit, struct p2p_error *e);
};

#endif
