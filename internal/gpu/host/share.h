/* share.h: shareable CPU memory, memfds, as struct p2p_memory. */
#ifndef P2P_HOST_SHARE_H
#define P2P_HOST_SHARE_H

#include "gpu/abi/p2p.h"

/* The only kind of handle of CPU memory: the value of p2p_handle.kind. */
enum { HOST_HANDLE_MEMFD = 1 };

/* NULL: no memory. */
struct p2p_memory *p2p_host_memory_new(void);
/* Releases and unmaps all remaining memory. */
void p2p_host_memory_free(struct p2p_memory *m);

#endif
