/* share.h: a GPU's memory as timed loops allocate, export and map it, behind the table that they call. */
#ifndef CUDA_SHARE_H
#define CUDA_SHARE_H

#include "memory.h"

/*
 * Opens the table for one kind of handle, which the device must have. Several may be open on a device; each knows
 * its own pieces only.
 */
int cuda_share_open(struct cuda_device *d, int kind, struct p2p_memory **out, struct p2p_error *e);

/* Releases, unmaps and unpins whatever is left and frees the table, whatever fails; *e tells the first failure. */
int cuda_share_close(struct p2p_memory *table, struct p2p_error *e);

#endif
