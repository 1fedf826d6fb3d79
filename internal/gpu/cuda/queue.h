/* queue.h: a stream of a GPU as struct p2p_queue. */
#ifndef CUDA_QUEUE_H
#define CUDA_QUEUE_H

#include "device.h"

/*
 * Opens a queue with a new stream and tests it on a few bytes. The device must have memops and registered. On failure
 * everything is released.
 */
int cuda_queue_open(struct cuda_device *d, struct p2p_queue **out, struct p2p_error *e);

/*
 * Waits for the queue's work, releases everything and frees the queue, also after a failure; *e is the first failure.
 * If the work does not complete within a deadline, it returns P2P_ERR_TIMEOUT and sets `lost`, see device.h: the stream
 * then stays until the process ends.
 */
int cuda_queue_close(struct p2p_queue *table, struct p2p_error *e);

#endif
