/*
 * plan.h: what both ways of running the protocols are given, and what they answer: the explorer of schedules
 * (explore.c) and the run with real threads (stress.c).
 */
#ifndef P2P_PROTOCOLTEST_PLAN_H
#define P2P_PROTOCOLTEST_PLAN_H

#include <stdint.h>

enum { PT_STAGED = 0, PT_PUT = 1, PT_LL = 2, PT_LL128 = 3 };

enum { PT_TEXT = 320, PT_TRACE = 12000 };

/* What one rank does of a message. */
struct pt_side {
	uint32_t roles; /* SR_SEND, SR_RECEIVE, both or 0 */
	uint32_t order;
	uint32_t drain;
	uint32_t grant;
};

/* One message: both ranks start a kernel for it, each when its own kernel before has ended. */
struct pt_launch {
	uint32_t variant, bytes, ctas, stride, stages;
	uint32_t slot; /* of the window: where in the source and the inbox it lies */
	struct pt_side side[2];
};

struct pt_plan {
	uint64_t start;   /* what all counters begin with */
	uint32_t threads; /* of a role in a block */
	/* 1: one kernel runs all messages; src is filled before, dst is checked after all of them */
	uint32_t resident;
	/* explorer: switches of thread that no wait forces, at most */
	uint32_t preemptions;
	/* explorer: pieces that a thread's part of a copy is made in, each at its own time; 0: at once */
	uint32_t pieces;
	uint32_t abort;                  /* explorer: 1: at some time all waits are given up */
	uint32_t skew;                   /* stress: bytes by which src and dst are off the alignment */
	uint64_t executions, timeout_ns; /* explorer: most executions; stress: longest wait */
};

struct pt_work {
	const struct pt_plan *plan;
	const struct pt_launch *launch;
	uint32_t launches, blocks; /* blocks: most of a message */
};

struct pt_result {
	uint64_t executions, branches, messages;
	uint32_t failed;
	uint32_t complete;    /* explorer: 1: there is no other schedule */
	char text[PT_TEXT];   /* what went wrong */
	char trace[PT_TRACE]; /* explorer: what the threads did until then, a line each */
};

void pt_explore(const struct pt_plan *p, const struct pt_launch *l, uint32_t launches, struct pt_result *r);
void pt_stress(const struct pt_plan *p, const struct pt_launch *l, uint32_t launches, struct pt_result *r);

#endif
