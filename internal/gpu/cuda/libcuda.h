/*
 * libcuda.h: declarations of the part of the CUDA driver API that this package uses. One list of the functions
 * generates the table of pointers, the look-up (libcuda.c) and a wrapper of the same name for each, so that calls look
 * as if the library were linked. The wrapper of an optional function that the driver lacks returns CUDA_NOT_SUPPORTED.
 */
#ifndef CUDA_LIBCUDA_H
#define CUDA_LIBCUDA_H

#include "gpu/abi/p2p.h"
#include "gpu/dynlib/dynlib.h"

/* Results. */
enum {
	CUDA_OK = 0,
	CUDA_NO_DEVICE = 100,
	CUDA_INVALID_CONTEXT = 201,
	CUDA_ALREADY_MAPPED = 208,
	CUDA_NOT_READY = 600,
	CUDA_PEER_ALREADY_ENABLED = 704,
	CUDA_PRIMARY_CONTEXT_ACTIVE = 708,
	CUDA_NOT_PERMITTED = 800,
	CUDA_NOT_SUPPORTED = 801,
};

/* Device attributes. */
enum {
	CUDA_ATTR_WARP = 10, /* threads per warp */
	CUDA_ATTR_SMS = 16,
	CUDA_ATTR_MAJOR = 75,
	CUDA_ATTR_MINOR = 76,
	CUDA_ATTR_REGISTERED = 91, /* registered host memory has one address for CPU and GPU */
	CUDA_ATTR_VMM = 102,
	CUDA_ATTR_VMM_FD = 103,
	CUDA_ATTR_MEMOPS_64 = 122, /* cuStreamWaitValue64_v2 and cuStreamWriteValue64_v2 */
	CUDA_ATTR_VMM_FABRIC = 128,
};

/* Pointer attributes. */
enum {
	CUDA_POINTER_BUFFER_ID = 7, /* identifies the allocation; the process never reuses it */
};

/* Attributes of a kernel. */
enum {
	CUDA_FUNC_THREADS = 0,    /* maximum threads per block */
	CUDA_FUNC_SHARED = 1,     /* static shared memory per block, bytes */
	CUDA_FUNC_LOCAL = 3,      /* local memory per thread, bytes */
	CUDA_FUNC_REGISTERS = 4,  /* registers per thread */
	CUDA_FUNC_MAX_SHARED = 8, /* maximum dynamic shared memory of a launch, bytes */
};

/* Flags and options, with the function that takes them. */
enum {
	CUDA_CTX_SPIN = 1,             /* cuDevicePrimaryCtxSetFlags_v2: waits of the driver spin */
	CUDA_HOST_PORTABLE = 1,        /* cuMemHostRegister_v2: pinned for every context of the process */
	CUDA_HOST_MAPPED = 2,          /* cuMemHostAlloc, cuMemHostRegister_v2: kernels may use it */
	CUDA_IPC_LAZY_PEER = 1,        /* cuIpcOpenMemHandle_v2: enable peer access if needed */
	CUDA_RANGE_DMABUF = 1,         /* cuMemGetHandleForAddressRange: a dma-buf descriptor */
	CUDA_STREAM_NON_BLOCKING = 1,  /* cuStreamCreate: independent of the default stream */
	CUDA_LAUNCH_OVERLAP = 6,       /* cuLaunchKernelEx: programmatic dependent launch */
	CUDA_STREAM_WAIT_EQUAL = 1,    /* cuStreamWaitValue64_v2 */
	CUDA_EVENT_TIMING = 0,         /* cuEventCreate */
	CUDA_EVENT_NO_TIMING = 2,      /* cuEventCreate */
	CUDA_CAPTURE_THREAD_LOCAL = 1, /* cuStreamBeginCapture_v2 */
	CUDA_JIT_ERROR_LOG = 5,        /* cuModuleLoadDataEx */
	CUDA_JIT_ERROR_LOG_BYTES = 6,
	CUDA_MEM_PINNED = 1,     /* cuMemCreate: the only type there is */
	CUDA_MEM_FD = 1,         /* handle type: POSIX file descriptor */
	CUDA_MEM_FABRIC = 8,     /* handle type: 64 bytes */
	CUDA_MEM_DEVICE = 1,     /* location type: a device, by ordinal */
	CUDA_MEM_READ_WRITE = 3, /* cuMemSetAccess */
	CUDA_NODE_KERNEL = 0,    /* cuGraphNodeGetType */
};

struct cuda_uuid {
	unsigned char bytes[16];
};

/* A legacy handle or a fabric handle. */
struct cuda_opaque {
	unsigned char bytes[64];
};

struct cuda_location {
	int type;
	int id;
};

/* Properties of an allocation of cuMemCreate. */
struct cuda_mem_prop {
	int type;
	int handle_types;
	struct cuda_location location;
	void *win32_meta;
	unsigned char compression, rdma;
	unsigned short usage;
	unsigned char reserved[4];
};

/* Access rights of a device to a mapping. */
struct cuda_mem_access {
	struct cuda_location location;
	int flags;
};

/* Configuration of cuLaunchKernelEx. */
struct cuda_launch_attribute {
	int id;
	int pad;
	int value[16];
};

struct cuda_launch {
	unsigned grid[3], block[3], shared;
	void *stream;
	struct cuda_launch_attribute *attributes;
	unsigned count;
};

/* A kernel node of a graph. Either function or kernel identifies it; the other is NULL. */
struct cuda_kernel_node {
	void *function;
	unsigned grid[3], block[3];
	unsigned shared;
	void **params, **extra;
	void *kernel;
	void *context;
};

/* X(name, type, parameters, arguments). Contexts, modules, functions, streams and graphs are opaque pointers. */
#define CUDA_REQUIRED(X)                                                                                               \
	X(cuInit, int, (unsigned flags), (flags))                                                                      \
	X(cuDriverGetVersion, int, (int *version), (version))                                                          \
	X(cuGetErrorName, int, (int code, const char **name), (code, name))                                            \
	X(cuGetErrorString, int, (int code, const char **text), (code, text))                                          \
	X(cuDeviceGetCount, int, (int *n), (n))                                                                        \
	X(cuDeviceGet, int, (int *dev, int ordinal), (dev, ordinal))                                                   \
	X(cuDeviceGetName, int, (char *name, int size, int dev), (name, size, dev))                                    \
	X(cuDeviceGetUuid, int, (struct cuda_uuid * u, int dev), (u, dev))                                             \
	X(cuDeviceGetPCIBusId, int, (char *id, int size, int dev), (id, size, dev))                                    \
	X(cuDeviceGetAttribute, int, (int *value, int attr, int dev), (value, attr, dev))                              \
	X(cuDeviceTotalMem_v2, int, (size_t *bytes, int dev), (bytes, dev))                                            \
	X(cuDeviceCanAccessPeer, int, (int *can, int dev, int peer), (can, dev, peer))                                 \
	X(cuDevicePrimaryCtxSetFlags_v2, int, (int dev, unsigned flags), (dev, flags))                                 \
	X(cuDevicePrimaryCtxRetain, int, (void **ctx, int dev), (ctx, dev))                                            \
	X(cuDevicePrimaryCtxRelease_v2, int, (int dev), (dev))                                                         \
	X(cuCtxSetCurrent, int, (void *ctx), (ctx))                                                                    \
	X(cuCtxEnablePeerAccess, int, (void *peer, unsigned flags), (peer, flags))                                     \
	X(cuModuleLoadDataEx, int, (void **mod, const void *image, unsigned n, int *options, void **values),           \
	  (mod, image, n, options, values))                                                                            \
	X(cuModuleUnload, int, (void *mod), (mod))                                                                     \
	X(cuModuleGetFunction, int, (void **f, void *mod, const char *name), (f, mod, name))                           \
	X(cuFuncGetAttribute, int, (int *value, int attr, void *f), (value, attr, f))                                  \
	X(cuFuncSetAttribute, int, (void *f, int attr, int value), (f, attr, value))                                   \
	X(cuLaunchKernel, int,                                                                                         \
	  (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,     \
	   void *stream, void **params, void **extra),                                                                 \
	  (f, gx, gy, gz, bx, by, bz, shared, stream, params, extra))                                                  \
	X(cuMemGetInfo_v2, int, (size_t *unused, size_t *total), (unused, total))                                      \
	X(cuMemAlloc_v2, int, (uint64_t *p, size_t n), (p, n))                                                         \
	X(cuMemFree_v2, int, (uint64_t p), (p))                                                                        \
	X(cuMemHostAlloc, int, (void **p, size_t n, unsigned flags), (p, n, flags))                                    \
	X(cuMemFreeHost, int, (void *p), (p))                                                                          \
	X(cuMemHostRegister_v2, int, (void *p, size_t n, unsigned flags), (p, n, flags))                               \
	X(cuMemHostUnregister, int, (void *p), (p))                                                                    \
	X(cuMemGetAddressRange_v2, int, (uint64_t *base, size_t *n, uint64_t p), (base, n, p))                         \
	X(cuPointerGetAttribute, int, (void *value, int attr, uint64_t p), (value, attr, p))                           \
	X(cuMemcpyAsync, int, (uint64_t dst, uint64_t src, size_t n, void *stream), (dst, src, n, stream))             \
	X(cuIpcGetMemHandle, int, (struct cuda_opaque * h, uint64_t p), (h, p))                                        \
	X(cuIpcOpenMemHandle_v2, int, (uint64_t *p, struct cuda_opaque h, unsigned flags), (p, h, flags))              \
	X(cuIpcCloseMemHandle, int, (uint64_t p), (p))                                                                 \
	X(cuStreamCreate, int, (void **stream, unsigned flags), (stream, flags))                                       \
	X(cuStreamCreateWithPriority, int, (void **stream, unsigned flags, int priority), (stream, flags, priority))   \
	X(cuStreamQuery, int, (void *stream), (stream))                                                                \
	X(cuStreamWaitEvent, int, (void *stream, void *event, unsigned flags), (stream, event, flags))                 \
	X(cuStreamDestroy_v2, int, (void *stream), (stream))                                                           \
	X(cuEventCreate, int, (void **event, unsigned flags), (event, flags))                                          \
	X(cuEventRecord, int, (void *event, void *stream), (event, stream))                                            \
	X(cuEventQuery, int, (void *event), (event))                                                                   \
	X(cuEventElapsedTime, int, (float *ms, void *from, void *to), (ms, from, to))                                  \
	X(cuEventDestroy_v2, int, (void *event), (event))                                                              \
	X(cuStreamBeginCapture_v2, int, (void *stream, int mode), (stream, mode))                                      \
	X(cuStreamEndCapture, int, (void *stream, void **graph), (stream, graph))                                      \
	X(cuGraphInstantiateWithFlags, int, (void **exec, void *graph, unsigned long long flags),                      \
	  (exec, graph, flags))                                                                                        \
	X(cuGraphLaunch, int, (void *exec, void *stream), (exec, stream))                                              \
	X(cuGraphExecDestroy, int, (void *exec), (exec))                                                               \
	X(cuGraphDestroy, int, (void *graph), (graph))

/* X(name, type, parameters, arguments, first CUDA version whose driver has it). */
#define CUDA_OPTIONAL(X)                                                                                               \
	X(cuDeviceGetUuid_v2, int, (struct cuda_uuid * u, int dev), (u, dev), "11.4")                                  \
	X(cuMemGetAllocationGranularity, int, (size_t *n, const struct cuda_mem_prop *prop, int option),               \
	  (n, prop, option), "10.2")                                                                                   \
	X(cuMemCreate, int, (uint64_t *h, size_t n, const struct cuda_mem_prop *prop, unsigned long long flags),       \
	  (h, n, prop, flags), "10.2")                                                                                 \
	X(cuMemRelease, int, (uint64_t h), (h), "10.2")                                                                \
	X(cuMemAddressReserve, int, (uint64_t *p, size_t n, size_t align, uint64_t at, unsigned long long flags),      \
	  (p, n, align, at, flags), "10.2")                                                                            \
	X(cuMemAddressFree, int, (uint64_t p, size_t n), (p, n), "10.2")                                               \
	X(cuMemMap, int, (uint64_t p, size_t n, size_t offset, uint64_t h, unsigned long long flags),                  \
	  (p, n, offset, h, flags), "10.2")                                                                            \
	X(cuMemUnmap, int, (uint64_t p, size_t n), (p, n), "10.2")                                                     \
	X(cuMemSetAccess, int, (uint64_t p, size_t n, const struct cuda_mem_access *desc, size_t count),               \
	  (p, n, desc, count), "10.2")                                                                                 \
	X(cuMemExportToShareableHandle, int, (void *out, uint64_t h, int type, unsigned long long flags),              \
	  (out, h, type, flags), "10.2")                                                                               \
	X(cuMemImportFromShareableHandle, int, (uint64_t *h, void *os_handle, int type), (h, os_handle, type), "10.2") \
	X(cuMemGetHandleForAddressRange, int,                                                                          \
	  (void *handle, uint64_t p, size_t n, int type, unsigned long long flags), (handle, p, n, type, flags),       \
	  "11.7")                                                                                                      \
	X(cuGraphUpload, int, (void *exec, void *stream), (exec, stream), "11.1")                                      \
	X(cuStreamWaitValue64_v2, int, (void *stream, uint64_t word, uint64_t value, unsigned flags),                  \
	  (stream, word, value, flags), "11.7")                                                                        \
	X(cuStreamWriteValue64_v2, int, (void *stream, uint64_t word, uint64_t value, unsigned flags),                 \
	  (stream, word, value, flags), "11.7")                                                                        \
	X(cuLaunchKernelEx, int, (const struct cuda_launch *l, void *f, void **params, void **extra),                  \
	  (l, f, params, extra), "11.8")                                                                               \
	X(cuFuncLoad, int, (void *f), (f), "12.4")                                                                     \
	X(cuEventElapsedTime_v2, int, (float *ms, void *from, void *to), (ms, from, to), "12.8")                       \
	X(cuGraphGetNodes, int, (void *graph, void **nodes, size_t *n), (graph, nodes, n), "10.0")                     \
	X(cuGraphNodeGetType, int, (void *node, int *type), (node, type), "10.0")                                      \
	X(cuGraphKernelNodeGetParams_v2, int, (void *node, struct cuda_kernel_node *k), (node, k), "12.0")             \
	X(cuFuncGetName, int, (const char **name, void *function), (name, function), "12.3")                           \
	X(cuKernelGetName, int, (const char **name, void *kernel), (name, kernel), "12.3")

struct cuda_functions {
	CUDA_REQUIRED(P2P_POINTER)
	CUDA_OPTIONAL(P2P_POINTER)
};

/* Filled once cuda_library is loaded; read-only afterwards. */
extern struct cuda_functions cuda_functions;
extern const struct p2p_library cuda_library;

#define X(name, type, params, args)                                                                                    \
	static inline type name params { return cuda_functions.name args; }
CUDA_REQUIRED(X)
#undef X
#define X(name, type, params, args, since)                                                                             \
	static inline type name params { return cuda_functions.name ? cuda_functions.name args : CUDA_NOT_SUPPORTED; }
CUDA_OPTIONAL(X)
#undef X

/* If the driver lacks that optional function: the first CUDA version whose driver has it. Otherwise NULL. */
const char *cuda_lacks(const char *function);

/*
 * Sets *e to "what: CUDA_ERROR_NAME (code): text", or for a function that the driver lacks to the version that has it,
 * and returns P2P_ERR_DEVICE.
 */
int cuda_fail(struct p2p_error *e, const char *what, int native);

static inline int cuda_ok(struct p2p_error *e, const char *what, int native) {
	return native == CUDA_OK ? P2P_OK : cuda_fail(e, what, native);
}

#endif
