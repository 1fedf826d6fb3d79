/* host.h: engines on CPU memory: payloads and copies. */
#ifndef P2P_HOST_H
#define P2P_HOST_H

#include "gpu/abi/p2p.h"

/* An engine that copies with the CPU, with non-temporal stores from nt_from bytes on. NULL: no memory. */
struct p2p_engine *p2p_host_engine_new(size_t nt_from);
void p2p_host_engine_free(struct p2p_engine *g);

#endif
