/* recorder.h: recordings of the work that libraries enqueue on a GPU's streams. */
#ifndef CUDA_RECORDER_H
#define CUDA_RECORDER_H

#include "gpu/abi/recorder.h"
#include "libcuda.h"

/* The table for all GPUs; libcuda must be loaded. */
const struct p2p_recorder *cuda_recorder(void);

#endif
