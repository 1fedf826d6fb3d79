/* share.h: shareable memory of a GPU as struct p2p_memory. */
#ifndef CUDA_SHARE_H
#define CUDA_SHARE_H

#include "memory.h"

/*
 * Opens the table for one kind of handle, which the device must support. A device may have several tables; each knows
 * only its own regions.
 */
int cuda_share_open(struct cuda_device *d, int kind, struct p2p_memory **out, struct p2p_error *e);

/* Releases, unmaps and unpins all regions and frees the table, also after a failure; *e is the first failure. */
int cuda_share_close(struct p2p_memory *table, struct p2p_error *e);

#endif
