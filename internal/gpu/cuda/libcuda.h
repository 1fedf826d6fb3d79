/*
 * libcuda.h: the part of the CUDA driver API that is used here, in our own declarations. One list names every
 * function; from it come the table of pointers, the look-up (libcuda.c) and a wrapper of the same name, so that the
 * rest reads as if it were linked. A wrapper of an optional function that the driver lacks returns
 * CUDA_NOT_SUPPORTED.
 */
#ifndef CUDA_LIBCUDA_H
#define CUDA_LIBCUDA_H

#include "gpu/abi/p2p.h"

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
	CUDA_POINTER_BUFFER_ID = 7, /* of the allocation around it; the process never gives it to another one */
};

/* Attributes of a kernel. */
enum {
	CUDA_FUNC_THREADS = 0,    /* of a block, at most */
	CUDA_FUNC_SHARED = 1,     /* bytes of a block, declared */
	CUDA_FUNC_LOCAL = 3,      /* bytes of a thread */
	CUDA_FUNC_REGISTERS = 4,  /* of a thread */
	CUDA_FUNC_MAX_SHARED = 8, /* dynamic shared memory a launch may ask for */
};

/* Flags and options, under the function that takes them. */
enum {
	CUDA_CTX_SPIN = 1,             /* cuDevicePrimaryCtxSetFlags_v2: waits of the driver spin */
	CUDA_HOST_PORTABLE = 1,        /* cuMemHostRegister_v2: pinned for every context of the process */
	CUDA_HOST_MAPPED = 2,          /* cuMemHostAlloc, cuMemHostRegister_v2: kernels may use it */
	CUDA_IPC_LAZY_PEER = 1,        /* cuIpcOpenMemHandle_v2: enable peer access where needed */
	CUDA_RANGE_DMABUF = 1,         /* cuMemGetHandleForAddressRange: a dma-buf descriptor */
	CUDA_STREAM_NON_BLOCKING = 1,  /* cuStreamCreate: independent of the default stream */
	CUDA_LAUNCH_OVERLAP = 6,       /* cuLaunchKernelEx: the kernel waits by itself for the one before it */
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

/* What cuMemCreate shall make. */
struct cuda_mem_prop {
	int type;
	int handle_types;
	struct cuda_location location;
	void *win32_meta;
	unsigned char compression, rdma;
	unsigned short usage;
	unsigned char reserved[4];
};

/* Who may do what with a mapping. */
struct cuda_mem_access {
	struct cuda_location location;
	int flags;
};

/* What cuLaunchKernelEx shall start. */
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

/* X(name, parameters, arguments). Contexts, modules, functions, streams and graphs are opaque pointers. */
#define CUDA_REQUIRED(X)                                                                                               \
	X(cuInit, (unsigned flags), (flags))                                                                           \
	X(cuDriverGetVersion, (int *version), (version))                                                               \
	X(cuGetErrorName, (int code, const char **name), (code, name))                                                 \
	X(cuGetErrorString, (int code, const char **text), (code, text))                                               \
	X(cuDeviceGetCount, (int *n), (n))                                                                             \
	X(cuDeviceGet, (int *dev, int ordinal), (dev, ordinal))                                                        \
	X(cuDeviceGetName, (char *name, int size, int dev), (name, size, dev))                                         \
	X(cuDeviceGetUuid, (struct cuda_uuid * u, int dev), (u, dev))                                                  \
	X(cuDeviceGetPCIBusId, (char *id, int size, int dev), (id, size, dev))                                         \
	X(cuDeviceGetAttribute, (int *value, int attr, int dev), (value, attr, dev))                                   \
	X(cuDeviceTotalMem_v2, (size_t *bytes, int dev), (bytes, dev))                                                 \
	X(cuDeviceCanAccessPeer, (int *can, int dev, int peer), (can, dev, peer))                                      \
	X(cuDevicePrimaryCtxSetFlags_v2, (int dev, unsigned flags), (dev, flags))                                      \
	X(cuDevicePrimaryCtxRetain, (void **ctx, int dev), (ctx, dev))                                                 \
	X(cuDevicePrimaryCtxRelease_v2, (int dev), (dev))                                                              \
	X(cuCtxSetCurrent, (void *ctx), (ctx))                                                                         \
	X(cuCtxEnablePeerAccess, (void *peer, unsigned flags), (peer, flags))                                          \
	X(cuModuleLoadDataEx, (void **mod, const void *image, unsigned n, int *options, void **values),                \
	  (mod, image, n, options, values))                                                                            \
	X(cuModuleUnload, (void *mod), (mod))                                                                          \
	X(cuModuleGetFunction, (void **f, void *mod, const char *name), (f, mod, name))                                \
	X(cuFuncGetAttribute, (int *value, int attr, void *f), (value, attr, f))                                       \
	X(cuFuncSetAttribute, (void *f, int attr, int value), (f, attr, value))                                        \
	X(cuLaunchKernel,                                                                                              \
	  (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,     \
	   void *stream, void **params, void **extra),                                                                 \
	  (f, gx, gy, gz, bx, by, bz, shared, stream, params, extra))                                                  \
	X(cuMemGetInfo_v2, (size_t *unused, size_t *total), (unused, total))                                           \
	X(cuMemAlloc_v2, (uint64_t *p, size_t n), (p, n))                                                              \
	X(cuMemFree_v2, (uint64_t p), (p))                                                                             \
	X(cuMemHostAlloc, (void **p, size_t n, unsigned flags), (p, n, flags))                                         \
	X(cuMemFreeHost, (void *p), (p))                                                                               \
	X(cuMemHostRegister_v2, (void *p, size_t n, unsigned flags), (p, n, flags))                                    \
	X(cuMemHostUnregister, (void *p), (p))                                                                         \
	X(cuMemGetAddressRange_v2, (uint64_t *base, size_t *n, uint64_t p), (base, n, p))                              \
	X(cuPointerGetAttribute, (void *value, int attr, uint64_t p), (value, attr, p))                                \
	X(cuMemcpyAsync, (uint64_t dst, uint64_t src, size_t n, void *stream), (dst, src, n, stream))                  \
	X(cuIpcGetMemHandle, (struct cuda_opaque * h, uint64_t p), (h, p))                                             \
	X(cuIpcOpenMemHandle_v2, (uint64_t *p, struct cuda_opaque h, unsigned flags), (p, h, flags))                   \
	X(cuIpcCloseMemHandle, (uint64_t p), (p))                                                                      \
	X(cuStreamCreate, (void **stream, unsigned flags), (stream, flags))                                            \
	X(cuStreamCreateWithPriority, (void **stream, unsigned flags, int priority), (stream, flags, priority))        \
	X(cuStreamQuery, (void *stream), (stream))                                                                     \
	X(cuStreamWaitEvent, (void *stream, void *event, unsigned flags), (stream, event, flags))                      \
	X(cuStreamDestroy_v2, (void *stream), (stream))                                                                \
	X(cuEventCreate, (void **event, unsigned flags), (event, flags))                                               \
	X(cuEventRecord, (void *event, void *stream), (event, stream))                                                 \
	X(cuEventQuery, (void *event), (event))                                                                        \
	X(cuEventElapsedTime, (float *ms, void *from, void *to), (ms, from, to))                                       \
	X(cuEventDestroy_v2, (void *event), (event))                                                                   \
	X(cuStreamBeginCapture_v2, (void *stream, int mode), (stream, mode))                                           \
	X(cuStreamEndCapture, (void *stream, void **graph), (stream, graph))                                           \
	X(cuGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags), (exec, graph, flags))     \
	X(cuGraphLaunch, (void *exec, void *stream), (exec, stream))                                                   \
	X(cuGraphExecDestroy, (void *exec), (exec))                                                                    \
	X(cuGraphDestroy, (void *graph), (graph))

#define CUDA_OPTIONAL(X)                                                                                               \
	X(cuDeviceGetUuid_v2, (struct cuda_uuid * u, int dev), (u, dev))                                               \
	X(cuMemGetAllocationGranularity, (size_t *n, const struct cuda_mem_prop *prop, int option), (n, prop, option)) \
	X(cuMemCreate, (uint64_t *h, size_t n, const struct cuda_mem_prop *prop, unsigned long long flags),            \
	  (h, n, prop, flags))                                                                                         \
	X(cuMemRelease, (uint64_t h), (h))                                                                             \
	X(cuMemAddressReserve, (uint64_t *p, size_t n, size_t align, uint64_t at, unsigned long long flags),           \
	  (p, n, align, at, flags))                                                                                    \
	X(cuMemAddressFree, (uint64_t p, size_t n), (p, n))                                                            \
	X(cuMemMap, (uint64_t p, size_t n, size_t offset, uint64_t h, unsigned long long flags),                       \
	  (p, n, offset, h, flags))                                                                                    \
	X(cuMemUnmap, (uint64_t p, size_t n), (p, n))                                                                  \
	X(cuMemSetAccess, (uint64_t p, size_t n, const struct cuda_mem_access *desc, size_t count),                    \
	  (p, n, desc, count))                                                                                         \
	X(cuMemExportToShareableHandle, (void *out, uint64_t h, int type, unsigned long long flags),                   \
	  (out, h, type, flags))                                                                                       \
	X(cuMemImportFromShareableHandle, (uint64_t *h, void *os_handle, int type), (h, os_handle, type))              \
	X(cuMemGetHandleForAddressRange, (void *handle, uint64_t p, size_t n, int type, unsigned long long flags),     \
	  (handle, p, n, type, flags))                                                                                 \
	X(cuGraphUpload, (void *exec, void *stream), (exec, stream))                                                   \
	X(cuStreamWaitValue64_v2, (void *stream, uint64_t word, uint64_t value, unsigned flags),                       \
	  (stream, word, value, flags))                                                                                \
	X(cuStreamWriteValue64_v2, (void *stream, uint64_t word, uint64_t value, unsigned flags),                      \
	  (stream, word, value, flags))                                                                                \
	X(cuLaunchKernelEx, (const struct cuda_launch *l, void *f, void **params, void **extra),                       \
	  (l, f, params, extra))                                                                                       \
	X(cuFuncLoad, (void *f), (f))                                                                                  \
	X(cuEventElapsedTime_v2, (float *ms, void *from, void *to), (ms, from, to))

#define X(name, params, args) int(*name) params;
struct cuda_functions {
	CUDA_REQUIRED(X)
	CUDA_OPTIONAL(X)
};
#undef X

/* Filled by cuda_load; read-only afterwards. */
extern struct cuda_functions cuda_functions;

#define X(name, params, args)                                                                                          \
	static inline int name params { return cuda_functions.name args; }
CUDA_REQUIRED(X)
#undef X
#define X(name, params, args)                                                                                          \
	static inline int name params { return cuda_functions.name ? cuda_functions.name args : CUDA_NOT_SUPPORTED; }
CUDA_OPTIONAL(X)
#undef X

/* Finds libcuda.so.1, or what P2PBENCH_LIBCUDA names. Returns 0, or -1 with the reason in why. */
int cuda_load(char *why, size_t size);

/* Sets *e to "what: CUDA_ERROR_NAME (code): text" and returns P2P_ERR_DEVICE. */
int cuda_fail(struct p2p_error *e, const char *what, int native);

static inline int cuda_ok(struct p2p_error *e, const char *what, int native) {
	return native == CUDA_OK ? P2P_OK : cuda_fail(e, what, native);
}

#endif
