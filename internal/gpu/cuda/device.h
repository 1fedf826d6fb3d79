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
	size_t memory;
};

int cuda_device_info(int ordinal, struct cuda_info *info, struct p2p_error *e);

struct cuda_device {
	int dev;
	int sms;
	int vmm;        /* 1: memory can be shared as a file descriptor */
	int fabric;     /* 1: memory can be shared by fabric handles; whether this process may, only a trial tells */
	int registered; /* 1: kernels and copies take the CPU's address of pinned memory */
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

/* Bytes not in use, and in all. */
int cuda_device_memory(struct cuda_device *d, size_t *unused, size_t *total, struct p2p_error *e);

/* Releases everything and frees d, whatever fails; *e tells the first failure. */
int cuda_device_close(struct cuda_device *d, struct p2p_error *e);

/* Makes the device's context the calling thread's. */
static inline int cuda_device_bind(struct cuda_device *d, struct p2p_error *e) {
	return cuda_ok(e, "cuCtxSetCurrent", cuCtxSetCurrent(d->ctx));
}

#endif
