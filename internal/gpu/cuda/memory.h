/* memory.h: device memory, allocated here or mapped from another process. */
#ifndef CUDA_MEMORY_H
#define CUDA_MEMORY_H

#include "device.h"

enum {
	CUDA_MEMORY_LEGACY = 0, /* cuMemAlloc, shared as 64 opaque bytes */
	CUDA_MEMORY_VMM = 1,    /* cuMemCreate, shared as a file descriptor */
};

struct cuda_memory {
	struct cuda_device *device;
	int kind;
	int imported;
	uint64_t addr;
	size_t size;
	uint64_t handle; /* VMM: the physical memory */
};

/* Allocates at least n bytes, rounded up to what the kind can share on its own. */
int cuda_memory_alloc(struct cuda_device *d, int kind, size_t n, struct cuda_memory **out, struct p2p_error *e);

/* Makes a handle: 64 bytes for legacy; for VMM a file descriptor, the caller's to close. */
int cuda_memory_export(struct cuda_memory *m, struct cuda_ipc_handle *h, int *fd, struct p2p_error *e);

/* Maps n bytes that another process exported, as h or as fd. fd stays the caller's. */
int cuda_memory_import(struct cuda_device *d, int kind, const struct cuda_ipc_handle *h, int fd, size_t n,
		       struct cuda_memory **out, struct p2p_error *e);

/* Frees or unmaps, and frees m, whatever fails; *e tells the first failure. */
int cuda_memory_close(struct cuda_memory *m, struct p2p_error *e);

#endif
