/*
 * plan.h: input and result of both ways to run the protocols: the explorer of schedules (explore.c) and the run with
 * real threads (stress.c).
 */
#ifndef P2P_PROTOCOLTEST_PLAN_H
#define P2P_PROTOCOLTEST_PLAN_H

#include <stdint.h>

enum { PT_STAGED = 0, PT_PUT = 1, PT_LL = 2, PT_LL128 = 3 };

enum { PT_TEXT = 320, PT_TRACE = 12000 };

/* One rank's part of a message; see struct sr_args. */
struct pt_side {
	uint32_t roles; /* SR_SEND, SR_RECEIVE, both or 0 */
	uint32_t order;
	uint32_t drain;
	uint32_t credits;
};

/* One message. Each rank starts a kernel for it when its previous kernel has ended. */
struct pt_launch {
	uint32_t variant, bytes, ctas, stride, stages;
	uint32_t slot; /* index in its window, which determines its place in the source and the inbox */
	struct pt_side side[2];
};

struct pt_plan {
	uint64_t start;   /* initial value of all counters */
	uint32_t threads; /* per role and block */
	/* 1: one kernel runs all messages; src is filled before, dst is checked after all of them */
	uint32_t resident;
	/* explorer: maximum number of preemptions, which are thread switches that no wait forces */
	uint32_t preemptions;
	/* explorer: separately scheduled parts of a thread's copy; 0: it copies at once */
	uint32_t pieces;
	uint32_t abort;                  /* explorer: 1: all waits are aborted at some point */
	uint32_t skew;                   /* stress: misalignment of src and dst, in bytes */
	uint64_t executions, timeout_ns; /* explorer: maximum executions; stress: timeout of waits */
};

struct pt_work {
	const struct pt_plan *plan;
	const struct pt_launch *launch;
	uint32_t launches, blocks; /* blocks: maximum of a message */
};

struct pt_result {
	uint64_t executions, branches, messages;
	uint32_t failed;
	uint32_t complete;    /* explorer: 1: all schedules were tried */
	char text[PT_TEXT];   /* what went wrong */
	char trace[PT_TRACE]; /* explorer: the steps of the threads up to the failure, one per line */
};

void pt_explore(const struct pt_plan *p, const struct pt_launch *l, uint32_t launches, struct pt_result *r);
void pt_stress(const struct pt_plan *p, const struct pt_launch *l, uint32_t launches, struct pt_result *r);

#endif
