/* core.h: what the C files of this package share. sendrecv.h is what Go sees. */
#ifndef P2P_SENDRECV_CORE_H
#define P2P_SENDRECV_CORE_H

#include "sendrecv.h"

/* A batch on one rank. */
struct run {
	struct p2p_loop l;
	struct p2p_ctx device_ctx; /* of waits for the own device, which give up before those for other ranks */
	struct sendrecv_end *end;
	const struct sendrecv_plan *p;
	uint32_t sends, receives; /* 1: this rank does, in every iteration */
	uint32_t drain;           /* for the next launch that may write into the staging area */
	uint32_t follows;         /* 1: the latest command of the window is a kernel, whose end the next may overlap */
	uint32_t served;          /* windows that resident kernels have served */
	uint32_t train;           /* windows that the one under way serves at once */
};

static inline uint32_t sendrecv_kernel_of(const struct sendrecv_plan *p) {
	if (!p->bulk)
		return p->variant;
	return p->variant == SENDRECV_WS ? SENDRECV_WS_BULK : SENDRECV_PUT_BULK;
}

/* Its name, or "ce". */
const char *sendrecv_name(const struct sendrecv_plan *p);

/* ---- window.c ---- */

/* Puts this rank's part of one window on the queue. */
int sendrecv_post(struct run *x);

/* Starts a kernel that serves so many iterations, each of them a window, or a train of so many. */
int sendrecv_start_resident(struct run *x, uint32_t iters, uint32_t train);

/* ---- share.c ---- */

/* Whether a kernel of this rank gave up a wait: then *l->e says which, and the code is returned. */
int sendrecv_gave_up(const struct run *x);

/* After a failure, whose code is rc: brings what is on the queue to its end. Returns rc. */
int sendrecv_leave(struct run *x, int rc);

#endif
