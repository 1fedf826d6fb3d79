/* device.h: a GPU opened in this process: its primary context and the kernels loaded into it. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include "libcuda.h"

/* What can be said of a device without opening it. */
struct cuda_info {
	char name[128];
	char pci[32];
	struct cuda_uuid uuid;
	int major, minor;
	int sms;
	int warp; /* threads */
	size_t memory;
};

int cuda_device_info(int ordinal, struct cuda_info *info, struct p2p_error *e);

struct cuda_device {
	int dev;
	int sms;
	int vmm;        /* 1: memory can be shared as a file descriptor */
	int fabric;     /* 1: memory can be shared by fabric handles; whether this process may, only a trial tells */
	int registered; /* 1: kernels and copies take the CPU's address of pinned memory */
	int overlap;    /* 1: a kernel can wait by itself for the one before it on its stream */
	int memops;     /* 1: streams can wait for words of 8 bytes and write them */
	/*
	 * 1: a queue was closed while the GPU was held by it or busy for long. Freeing memory, unloading code and
	 * giving the context back would wait for that too: they are left to the end of the process.
	 */
	int lost;
	const struct p2p_ctx *wait; /* of the rank, for waits whose caller has none; NULL: there is no rank */
	void *ctx;
	void *module;
	void *fill, *check, *copy, *proxy, *bulk; /* kernels; bulk is NULL where the image has none */
};

/*
 * Opens a device and loads the kernels in the PTX text. What the driver's compiler says about the PTX goes to log.
 * On failure nothing stays open.
 */
int cuda_device_open(int ordinal, const char *ptx, int has_bulk, struct cuda_device **out, char *log, size_t log_bytes,
		     struct p2p_error *e);

/* Lets each of two opened devices reach the other's memory, where the machine can. */
int cuda_device_peers(struct cuda_device *a, struct cuda_device *b, struct p2p_error *e);

/* What the driver says of a kernel that it loaded. */
struct cuda_kernel {
	int registers; /* of a thread */
	int local;     /* bytes of a thread */
	int shared;    /* bytes of a block, declared */
	int threads;   /* of a block, at most */
};

/*
 * Finds a kernel and loads it now: drivers may put that off until the first launch, and loading can wait for an idle
 * GPU.
 */
int cuda_device_find(struct cuda_device *d, const char *name, void **f, struct p2p_error *e);

/* The same, and asks how the kernel was compiled. */
int cuda_device_inspect(struct cuda_device *d, const char *name, struct cuda_kernel *k, struct p2p_error *e);

/* Bytes not in use, and in all. */
int cuda_device_memory(struct cuda_device *d, size_t *unused, size_t *total, struct p2p_error *e);

/* Releases everything and frees d, whatever fails; *e tells the first failure. */
int cuda_device_close(struct cuda_device *d, struct p2p_error *e);

/* Makes the device's context the calling thread's. */
static inline int cuda_device_bind(struct cuda_device *d, struct p2p_error *e) {
	return cuda_ok(e, "cuCtxSetCurrent", cuCtxSetCurrent(d->ctx));
}

#endif
