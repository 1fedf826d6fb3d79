/* core.h: shared by the C files of this package. sendrecv.h is the interface to Go. */
#ifndef P2P_SENDRECV_CORE_H
#define P2P_SENDRECV_CORE_H

#include "sendrecv.h"

/* A batch on one rank. */
struct run {
	struct p2p_loop l;
	struct p2p_ctx device_ctx; /* for waits for the own device: they time out before waits for other ranks */
	struct sendrecv_end *end;
	const struct sendrecv_plan *p;
	uint32_t sends, receives; /* 1: this rank sends, receives, in every iteration */
	uint32_t drain;           /* sr_args.drain of the next launch */
	uint32_t follows; /* 1: the window's latest command is a kernel, whose end the next kernel may overlap */
	uint32_t served;  /* windows that resident kernels have served */
	uint32_t burst;   /* iterations of the burst in progress */
};

static inline uint32_t sendrecv_kernel_of(const struct sendrecv_plan *p) {
	if (!p->bulk)
		return p->variant;
	return p->variant == SENDRECV_WS ? SENDRECV_WS_BULK : SENDRECV_PUT_BULK;
}

/* The name of the kernel, or "ce". */
const char *sendrecv_name(const struct sendrecv_plan *p);

/* ---- window.c ---- */

/* Puts this rank's part of one window on the queue. */
int sendrecv_post(struct run *x);

/* Starts a kernel that serves `iters` bursts of `burst` windows. */
int sendrecv_start_resident(struct run *x, uint32_t iters, uint32_t burst);

/* ---- share.c ---- */

/* P2P_OK, or if a wait of this rank's kernel timed out, the error code; *l->e then describes that wait. */
int sendrecv_gave_up(const struct run *x);

/* After a failure with code rc: makes the commands on the queue end. Returns rc. */
int sendrecv_leave(struct run *x, int rc);

#endif
