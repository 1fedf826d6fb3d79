/*
 * queue.h: the host's queue: a thread that executes commands in order, and threads that emulate the thread blocks of
 * its kernels.
 */
#ifndef P2P_HOST_QUEUE_H
#define P2P_HOST_QUEUE_H

#include "gpu/abi/p2p.h"

/* Maximum number of pending commands, and of commands in a recording. */
enum { HOST_QUEUE_ROOM = 32768 };

/* Its threads run on cpus, a bit set that it copies. NULL: *e has the reason. */
struct p2p_queue *p2p_host_queue_new(const void *cpus, size_t cpu_bytes, struct p2p_error *e);
/* Drops commands that have not begun, ends all waits, and returns when all threads have ended. */
void p2p_host_queue_free(struct p2p_queue *q);

#endif
