/* device.h: a GPU opened in this process: its primary context and the kernels loaded into it. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include "libcuda.h"

/* The properties of a device that can be read without opening it. */
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
	int fabric;     /* 1: memory can be shared by fabric handles; cuda_memory_try tells if this process may */
	int registered; /* 1: kernels and copies can use the CPU's address of pinned memory */
	int overlap;    /* 1: programmatic dependent launch */
	int memops;     /* 1: streams can write words of 8 bytes and wait for them */
	/*
	 * 1: a queue was closed with work that does not complete. Freeing memory, unloading code and releasing the
	 * context would wait for that work: they are left to the end of the process.
	 */
	int lost;
	const struct p2p_ctx *wait; /* the rank's, for waits whose caller has none; NULL: there is no rank */
	void *ctx;
	void *module;
	void *fill, *check, *copy, *proxy, *bulk; /* kernels; bulk is NULL where the image has none */
};

/*
 * Opens a device and loads the kernels in the PTX text. Errors of the driver's PTX compiler are written to log. On
 * failure everything is released.
 */
int cuda_device_open(int ordinal, const char *ptx, int has_bulk, struct cuda_device **out, char *log, size_t log_bytes,
		     struct p2p_error *e);

/* Lets each of two opened devices access the other's memory, if the machine supports it. */
int cuda_device_peers(struct cuda_device *a, struct cuda_device *b, struct p2p_error *e);

/* Attributes of a kernel as loaded by the driver. */
struct cuda_kernel {
	int registers; /* per thread */
	int local;     /* local memory per thread, bytes */
	int shared;    /* static shared memory per block, bytes */
	int threads;   /* maximum per block */
};

/*
 * Finds a kernel and loads it now: otherwise drivers may load it at the first launch, and loading may wait for an idle
 * GPU.
 */
int cuda_device_find(struct cuda_device *d, const char *name, void **f, struct p2p_error *e);

/* Finds and loads a kernel, and reads its attributes. */
int cuda_device_inspect(struct cuda_device *d, const char *name, struct cuda_kernel *k, struct p2p_error *e);

/* Free bytes, and total bytes. */
int cuda_device_memory(struct cuda_device *d, size_t *unused, size_t *total, struct p2p_error *e);

/* Releases everything and frees d, also after a failure; *e is the first failure. */
int cuda_device_close(struct cuda_device *d, struct p2p_error *e);

/* Makes the device's context current in the calling thread. */
static inline int cuda_device_bind(struct cuda_device *d, struct p2p_error *e) {
	return cuda_ok(e, "cuCtxSetCurrent", cuCtxSetCurrent(d->ctx));
}

#endif
