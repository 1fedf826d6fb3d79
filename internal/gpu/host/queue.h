/* queue.h: a queue of a host: a thread that does commands in order, and threads that play its kernels. */
#ifndef P2P_HOST_QUEUE_H
#define P2P_HOST_QUEUE_H

#include "gpu/abi/p2p.h"

/* Commands that can wait at once, and that a recording can hold. */
enum { HOST_QUEUE_ROOM = 32768 };

/* Its threads run on cpus, a bit each, of which it keeps a copy. NULL: *e says why. */
struct p2p_queue *p2p_host_queue_new(const void *cpus, size_t cpu_bytes, struct p2p_error *e);
/* Drops what has not begun, ends what waits, and returns when no thread is left. */
void p2p_host_queue_free(struct p2p_queue *q);

#endif
