/* host.h: CPU memory as a device: the payload and the copies. */
#ifndef P2P_HOST_H
#define P2P_HOST_H

#include "gpu/abi/p2p.h"

/* An engine that copies with the CPU, messages of nt_from bytes and more with non-temporal stores. NULL: no memory. */
struct p2p_engine *p2p_host_engine_new(size_t nt_from);
void p2p_host_engine_free(struct p2p_engine *g);

#endif
