// p2p.cu: one module of all kernels that a target can run.
#include "check.cu"
#include "copy.cu"
#include "fill.cu"
#include "proxy.cu"
#include "sendrecv.cu"
#if __CUDA_ARCH__ >= 900
#include "bulk.cu"
#include "sendrecv_bulk.cu"
#endif
