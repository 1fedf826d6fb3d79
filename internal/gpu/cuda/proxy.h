/*
 * proxy.h: the copies of p2p_proxy, a kernel that stays on the GPU and serves a ring of messages in host memory.
 *
 * The kernel is launched by the first copy. It leaves by itself when nothing was asked of it for PROXY_IDLE_NS, and
 * now and then when it is busy: allocating and freeing device memory, opening handles and loading code may wait until
 * the GPU has nothing to do, in this thread or another one, and must not wait forever. The next copy launches it
 * again, which costs some 10 us. So a GPU is never kept busy by a host that hangs, and whoever needs an idle GPU waits
 * for at most PROXY_LIFE_NS, and for PROXY_IDLE_NS where nobody copies.
 */
#ifndef CUDA_PROXY_H
#define CUDA_PROXY_H

#include "device.h"

#define PROXY_IDLE_NS 10000000u
#define PROXY_LIFE_NS 200000000u

struct cuda_proxy;

/*
 * Prepares everything and launches nothing. ctas bounds the thread blocks, 0 leaves it to the proxy; never more than
 * half of the SMs, so that other kernels find room. `own` is for waits whose caller has no context, and must stay.
 */
int cuda_proxy_open(struct cuda_device *d, unsigned ctas, const struct p2p_ctx *own, struct cuda_proxy **out,
		    struct p2p_error *e);

/* Starts a copy of n bytes; waits only while PROXY_SLOTS copies are under way. */
int cuda_proxy_copy(struct cuda_proxy *p, void *dst, const void *src, size_t n, struct p2p_error *e);

/* Waits until all copies are complete, and visible to whoever sees a later release store of this thread. */
int cuda_proxy_wait(struct cuda_proxy *p, const struct p2p_ctx *c, struct p2p_error *e);

/* How many copies were started so far. */
uint64_t cuda_proxy_started(const struct cuda_proxy *p);

/* Says without waiting whether the first `copies` of them are complete, as cuda_proxy_wait means it. */
int cuda_proxy_reached(struct cuda_proxy *p, uint64_t copies, int *yes, struct p2p_error *e);

/* Sends the kernel away and waits until the GPU has ended it. Copies that were not waited for are forgotten. */
int cuda_proxy_stop(struct cuda_proxy *p, struct p2p_error *e);

/* How often the kernel was launched. */
uint64_t cuda_proxy_launches(const struct cuda_proxy *p);

/* Stops, releases everything and frees p, whatever fails; *e tells the first failure. */
int cuda_proxy_close(struct cuda_proxy *p, struct p2p_error *e);

#endif
