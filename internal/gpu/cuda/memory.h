/* memory.h: memory regions of this process: allocated on a device, mapped from another process, or pinned. */
#ifndef CUDA_MEMORY_H
#define CUDA_MEMORY_H

#include "device.h"

/* Kinds of handle: values of p2p_handle.kind. */
enum {
	CUDA_MEMORY_LEGACY = 1, /* cuMemAlloc, shared as 64 opaque bytes */
	CUDA_MEMORY_VMM = 2,    /* cuMemCreate, shared as a file descriptor */
	CUDA_MEMORY_FABRIC = 3, /* cuMemCreate, shared as 64 opaque bytes, also with other nodes */
};

/* The origin of a region. */
enum {
	CUDA_ALLOCATED = 0,
	CUDA_IMPORTED = 1, /* another process allocated it */
	CUDA_PINNED = 2,   /* CPU memory that belongs to the caller */
};

struct cuda_memory {
	struct cuda_device *device;
	int kind;
	int origin;
	uint64_t addr;
	size_t size;
	uint64_t handle; /* VMM, fabric: the physical memory */
	uint64_t id;     /* VMM, fabric: identifies the allocation; the process never reuses it */
};

/*
 * Allocates at least n bytes, rounded up to the granularity of the kind, at the address `at` if possible (never for
 * legacy memory); 0: at any address.
 */
int cuda_memory_alloc(struct cuda_device *d, int kind, size_t n, uint64_t at, struct cuda_memory **out,
		      struct p2p_error *e);

/* Makes a handle: 64 bytes for legacy and fabric, a close-on-exec file descriptor for VMM, which the caller closes. */
int cuda_memory_export(struct cuda_memory *m, struct cuda_opaque *h, int *fd, struct p2p_error *e);

/* Maps n bytes that another process exported as h or as fd. The caller keeps ownership of fd. */
int cuda_memory_import(struct cuda_device *d, int kind, const struct cuda_opaque *h, int fd, size_t n,
		       struct cuda_memory **out, struct p2p_error *e);

/* Page-locks n bytes of CPU memory at p, whole pages, and lets every GPU of the process access them at that address. */
int cuda_memory_pin(struct cuda_device *d, void *p, size_t n, struct cuda_memory **out, struct p2p_error *e);

/* Exports the whole region as a dma-buf descriptor, which the caller closes. */
int cuda_memory_dmabuf(struct cuda_memory *m, int *fd, struct p2p_error *e);

/* Frees, unmaps or unpins the memory, and frees m, also after a failure; *e is the first failure. */
int cuda_memory_close(struct cuda_memory *m, struct p2p_error *e);

/* The granularity of allocations of that kind. */
int cuda_memory_granule(struct cuda_device *d, int kind, size_t *bytes, struct p2p_error *e);

/* Allocates, exports and frees the smallest region: fails if this process may not share memory of that kind. */
int cuda_memory_try(struct cuda_device *d, int kind, struct p2p_error *e);

#endif
