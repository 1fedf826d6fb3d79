/* share.h: CPU memory as timed loops allocate, export and map it: memfds. */
#ifndef P2P_HOST_SHARE_H
#define P2P_HOST_SHARE_H

#include "gpu/abi/p2p.h"

/* The only kind of handle of CPU memory, as struct p2p_handle carries it. */
enum { HOST_HANDLE_MEMFD = 1 };

/* NULL: no memory. */
struct p2p_memory *p2p_host_memory_new(void);
/* Releases and unmaps whatever is left. */
void p2p_host_memory_free(struct p2p_memory *m);

#endif
