/* queue.h: work of a GPU that is done in order while the host goes on, behind the table that timed loops call. */
#ifndef CUDA_QUEUE_H
#define CUDA_QUEUE_H

#include "device.h"

/*
 * Opens a queue on a stream of its own and tries it on a few bytes. The device must have memops and registered. On
 * failure nothing stays open.
 */
int cuda_queue_open(struct cuda_device *d, struct p2p_queue **out, struct p2p_error *e);

/*
 * Releases everything and frees the queue, whatever fails; *e tells the first failure. Work that is still to be done
 * is waited for, but not for long: a queue that does not end, since what it waits for never comes, is left to the end
 * of the process (P2P_ERR_TIMEOUT), and so is whatever cannot be given back beside it, see `lost` in device.h.
 */
int cuda_queue_close(struct p2p_queue *table, struct p2p_error *e);

#endif
