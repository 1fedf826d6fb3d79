/*
 * proxy.h: copies by p2p_proxy, a resident kernel that executes messages from a ring in host memory.
 *
 * The first copy launches the kernel. The kernel exits when it has had no message for PROXY_IDLE_NS, and when it has
 * run for PROXY_LIFE_NS. The next copy launches it again, which takes about 10 us. The limits exist because allocating
 * and freeing device memory, opening handles and loading code may wait, in any thread, until the GPU is idle. Such a
 * call waits at most PROXY_LIFE_NS, or PROXY_IDLE_NS if there are no copies, and a host that hangs does not keep the
 * GPU busy.
 */
#ifndef CUDA_PROXY_H
#define CUDA_PROXY_H

#include "device.h"

#define PROXY_IDLE_NS 10000000u
#define PROXY_LIFE_NS 200000000u

struct cuda_proxy;

/*
 * Opens a proxy without launching the kernel. ctas is the maximum number of thread blocks, 0 selects the default; at
 * most half of the SMs are used, so that other kernels can run. `own` is the context of waits whose caller has none; it
 * must outlive the proxy.
 */
int cuda_proxy_open(struct cuda_device *d, unsigned ctas, const struct p2p_ctx *own, struct cuda_proxy **out,
		    struct p2p_error *e);

/* Starts a copy of n bytes; waits only if PROXY_SLOTS copies are in flight. */
int cuda_proxy_copy(struct cuda_proxy *p, void *dst, const void *src, size_t n, struct p2p_error *e);

/* Waits until all copies are complete. A release store of this thread after it makes the bytes visible to the peer. */
int cuda_proxy_wait(struct cuda_proxy *p, const struct p2p_ctx *c, struct p2p_error *e);

/* The number of copies started so far. */
uint64_t cuda_proxy_started(const struct cuda_proxy *p);

/* Reports without waiting whether the first `copies` copies are complete in the sense of cuda_proxy_wait. */
int cuda_proxy_reached(struct cuda_proxy *p, uint64_t copies, int *yes, struct p2p_error *e);

/* Stops the kernel and waits until it has ended. Copies that were not waited for may be lost. */
int cuda_proxy_stop(struct cuda_proxy *p, struct p2p_error *e);

/* The number of launches of the kernel. */
uint64_t cuda_proxy_launches(const struct cuda_proxy *p);

/* Stops the kernel, releases everything and frees p, also after a failure; *e is the first failure. */
int cuda_proxy_close(struct cuda_proxy *p, struct p2p_error *e);

#endif
