/*
 * fakeverbs.h: what the parts of fakeverbs.c share: the objects of a process, and the memory in which processes meet.
 */
#ifndef FAKEVERBS_H
#define FAKEVERBS_H

#define _GNU_SOURCE
#include <infiniband/verbs.h>

/* The functions behind these macros are defined here. */
#undef ibv_query_port
#undef ibv_reg_mr

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	DEVICES = 2,
	GIDS = 4,          /* entries of a port's table, of which two are used, or one */
	ETHERNET = 1,      /* the first port */
	INFINIBAND = 2,    /* the second one, where it was asked for */
	LID = 17,          /* of the first device's InfiniBand port */
	MAX_QPS = 1 << 10, /* of a process; a queue pair's number is the process's slot and its place among these */
	MAX_SLOTS = 1 << 14,
	MAX_MRS = 1 << 12, /* of a process; a key is the region's place among these and eight bits of age */
	MAX_WR = 1 << 14,
	MAX_CQE = (1 << 16) - 1,
	MAX_INLINE = 220,
	MAX_MESSAGE = 1 << 30,
	MAX_PEERS = 256,
};

/* ---- between processes ----------------------------------------------------------------------------------------- */

struct fake_received {
	uint32_t imm, bytes; /* imm as on the wire */
};

/*
 * A queue pair as its remote end sees it, in memory that the remote process maps. The owner writes all but busy, done
 * and the ring; the remote end may put ERR into state. A receive that was posted is a number below posted; the
 * remote end takes them in order, writes the ring's entry and then done.
 */
struct fake_wire {
	_Atomic uint32_t number; /* 0: there is none */
	_Atomic uint32_t state;  /* enum ibv_qp_state */
	_Atomic uint32_t busy;   /* the remote end is at the owner's memory, or at the ring */
	uint32_t device, port, pd, access, dest, psn, mtu, rnr_timer, depth;
	_Atomic uint64_t posted, done;
	struct fake_received ring[MAX_WR];
};

/* A memory region as other processes see it. */
struct fake_region {
	_Atomic uint32_t key; /* 0: there is none */
	uint32_t pd, access;
	uint64_t iova, bytes, addr; /* addr is in its process */
};

/* All of a process that others may see: a memfd, mapped by all that are connected to it. */
struct fake_share {
	uint32_t slot;
	pid_t pid;
	struct fake_region regions[MAX_MRS];
	struct fake_wire wires[MAX_QPS];
};

struct fake_peer {
	struct fake_share *share; /* NULL: unused */
	int pidfd;                /* readable when it is dead; -1 for this process */
	int users;
};

/* ---- of a process ---------------------------------------------------------------------------------------------- */

struct fake_faults {
	long no_devices, iwarp, infiniband, port_down, port_down_after, removed_after, no_gid, few_cqe, few_qps, few_wr,
		memlock, bad_rkey, rnr, no_dmabuf, drop_imm, slow;
};

struct fake_device {
	struct ibv_device base;
	struct fake_faults fault;
	struct fake_context *contexts;
	int qps, down, removed;
	long posts, writes, imms, rnrs; /* so far, for faults that count */
};

struct fake_context {
	struct verbs_context v;
	struct fake_device *device;
	struct fake_context *next;
	struct fake_cq *cqs;
	int events; /* the writing end */
};

struct fake_pd {
	struct ibv_pd base;
	int users;
};

struct fake_mr {
	struct ibv_mr base;
	void *mapped; /* of a dma-buf, by this library; MAP_FAILED: not */
	size_t bytes;
};

struct fake_done {
	struct ibv_wc wc;
	struct fake_qp *qp;
	uint64_t retires; /* sends below this number have their slots free */
};

struct fake_cq {
	struct ibv_cq base;
	struct fake_cq *next; /* of the context */
	struct fake_qp *qps;
	struct fake_done *ring;
	uint64_t in, out;
	int dead; /* it overran */
};

struct fake_send {
	uint64_t id, addr, remote;
	uint32_t bytes, lkey, rkey, imm;
	int op, flags;
	int64_t due, first; /* ns: not to be tried before, and tried first; 0: at once, not yet */
	int rnrs;           /* left of the retries; RNR_FOREVER */
	int spoilt;         /* a fault had its way with it */
};

enum { RNR_FOREVER = 7 };

struct fake_qp {
	struct ibv_qp base;
	struct fake_wire *wire;
	struct fake_qp *next; /* of the completion queue */
	struct ibv_qp_cap cap;
	struct ibv_ah_attr way;
	uint32_t psn;
	int timeout, retries, rnr_retries;
	struct fake_peer *peer;
	/* Sends by number: retired <= run <= posted. Receives: seen <= wire->done <= wire->posted. */
	uint64_t posted, run, retired, polled, seen;
	struct fake_send *sends;
	unsigned char *inlined; /* cap.max_inline_data for each send */
	uint64_t *recv_ids;
};

/* Held by every function of the library: what a process does, it does in turn. */
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static inline struct fake_context *context_of(struct ibv_context *c) {
	return (struct fake_context *)((char *)c - offsetof(struct fake_context, v.context));
}

static inline struct fake_device *device_of(struct fake_qp *qp) { return context_of(qp->base.context)->device; }

static inline int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

#endif
