#include "device.h"

#include "engine.h"
#include <stdlib.h>

int cuda_device_info(int ordinal, struct cuda_info *info, struct p2p_error *e) {
	int dev, rc;
	memset(info, 0, sizeof *info);
	if ((rc = cuda_ok(e, "cuDeviceGet", cuDeviceGet(&dev, ordinal))))
		return rc;
	if ((rc = cuda_ok(e, "cuDeviceGetName", cuDeviceGetName(info->name, sizeof info->name, dev))))
		return rc;
	/* The second version distinguishes the instances of one GPU (MIG). */
	if (cuDeviceGetUuid_v2(&info->uuid, dev) != CUDA_OK &&
	    (rc = cuda_ok(e, "cuDeviceGetUuid", cuDeviceGetUuid(&info->uuid, dev))))
		return rc;
	if ((rc = cuda_ok(e, "cuDeviceGetPCIBusId", cuDeviceGetPCIBusId(info->pci, sizeof info->pci, dev))))
		return rc;
	if ((rc = cuda_ok(e, "cuDeviceTotalMem_v2", cuDeviceTotalMem_v2(&info->memory, dev))))
		return rc;
	if ((rc = cuda_ok(e, "cuDeviceGetAttribute", cuDeviceGetAttribute(&info->major, CUDA_ATTR_MAJOR, dev))))
		return rc;
	if ((rc = cuda_ok(e, "cuDeviceGetAttribute", cuDeviceGetAttribute(&info->minor, CUDA_ATTR_MINOR, dev))))
		return rc;
	if ((rc = cuda_ok(e, "cuDeviceGetAttribute", cuDeviceGetAttribute(&info->warp, CUDA_ATTR_WARP, dev))))
		return rc;
	return cuda_ok(e, "cuDeviceGetAttribute", cuDeviceGetAttribute(&info->sms, CUDA_ATTR_SMS, dev));
}

static int attribute(struct cuda_device *d, int attr, int *value, struct p2p_error *e) {
	return cuda_ok(e, "cuDeviceGetAttribute", cuDeviceGetAttribute(value, attr, d->dev));
}

/* Whether the device has the feature; no if an old driver does not know the attribute. */
static int has(const struct cuda_device *d, int attr) {
	int value = 0;
	return cuDeviceGetAttribute(&value, attr, d->dev) == CUDA_OK && value;
}

static int open_context(struct cuda_device *d, int ordinal, struct p2p_error *e) {
	int rc;
	if ((rc = cuda_ok(e, "cuDeviceGet", cuDeviceGet(&d->dev, ordinal))))
		return rc;
	int native = cuDevicePrimaryCtxSetFlags_v2(d->dev, CUDA_CTX_SPIN);
	if (native != CUDA_PRIMARY_CONTEXT_ACTIVE && (rc = cuda_ok(e, "cuDevicePrimaryCtxSetFlags_v2", native)))
		return rc;
	if ((rc = cuda_ok(e, "cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&d->ctx, d->dev))))
		return rc;
	if ((rc = cuda_device_bind(d, e)) || (rc = attribute(d, CUDA_ATTR_SMS, &d->sms, e)))
		return rc;
	int vmm = cuda_functions.cuMemCreate && has(d, CUDA_ATTR_VMM);
	d->vmm = vmm && has(d, CUDA_ATTR_VMM_FD);
	d->fabric = vmm && has(d, CUDA_ATTR_VMM_FABRIC);
	d->registered = has(d, CUDA_ATTR_REGISTERED);
	int major = 0;
	d->overlap = cuda_functions.cuLaunchKernelEx &&
		     cuDeviceGetAttribute(&major, CUDA_ATTR_MAJOR, d->dev) == CUDA_OK && major >= 9;
	d->memops = cuda_functions.cuStreamWaitValue64_v2 && cuda_functions.cuStreamWriteValue64_v2 &&
		    has(d, CUDA_ATTR_MEMOPS_64);
	return P2P_OK;
}

/* Like cuda_ok; the error names the call and the kernel. */
static int kernel_ok(struct p2p_error *e, const char *call, const char *name, int native) {
	char what[96];
	snprintf(what, sizeof what, "%s %s", call, name);
	return cuda_ok(e, what, native);
}

static int get_kernel(struct cuda_device *d, const char *name, void **f, struct p2p_error *e) {
	return kernel_ok(e, "cuModuleGetFunction", name, cuModuleGetFunction(f, d->module, name));
}

static int load_kernels(struct cuda_device *d, const char *ptx, int has_bulk, char *log, size_t log_bytes,
			struct p2p_error *e) {
	int options[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES};
	void *values[] = {log, (void *)log_bytes};
	int rc = cuda_ok(e, "cuModuleLoadDataEx", cuModuleLoadDataEx(&d->module, ptx, 2, options, values));
	if (rc || (rc = get_kernel(d, "p2p_fill", &d->fill, e)) || (rc = get_kernel(d, "p2p_check", &d->check, e)) ||
	    (rc = get_kernel(d, "p2p_copy", &d->copy, e)) || (rc = get_kernel(d, "p2p_proxy", &d->proxy, e)) ||
	    !has_bulk)
		return rc;
	if ((rc = get_kernel(d, "p2p_copy_bulk", &d->bulk, e)))
		return rc;
	return cuda_ok(e, "cuFuncSetAttribute p2p_copy_bulk",
		       cuFuncSetAttribute(d->bulk, CUDA_FUNC_MAX_SHARED, CUDA_BULK_SHARED));
}

int cuda_device_open(int ordinal, const char *ptx, int has_bulk, struct cuda_device **out, char *log, size_t log_bytes,
		     struct p2p_error *e) {
	struct cuda_device *d = calloc(1, sizeof *d);
	struct p2p_error ignored;
	if (!d)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	int rc = open_context(d, ordinal, e);
	if (!rc)
		rc = load_kernels(d, ptx, has_bulk, log, log_bytes, e);
	if (rc) {
		cuda_device_close(d, &ignored);
		return rc;
	}
	*out = d;
	return P2P_OK;
}

int cuda_device_find(struct cuda_device *d, const char *name, void **f, struct p2p_error *e) {
	int registers, rc = cuda_device_bind(d, e);
	if (rc || (rc = get_kernel(d, name, f, e)))
		return rc;
	if (cuda_functions.cuFuncLoad)
		return kernel_ok(e, "cuFuncLoad", name, cuFuncLoad(*f));
	/* Drivers without cuFuncLoad load a kernel when an attribute is queried. */
	return kernel_ok(e, "cuFuncGetAttribute", name, cuFuncGetAttribute(&registers, CUDA_FUNC_REGISTERS, *f));
}

int cuda_device_inspect(struct cuda_device *d, const char *name, struct cuda_kernel *k, struct p2p_error *e) {
	const struct {
		int attr, *value;
	} asked[] = {{CUDA_FUNC_REGISTERS, &k->registers},
		     {CUDA_FUNC_LOCAL, &k->local},
		     {CUDA_FUNC_SHARED, &k->shared},
		     {CUDA_FUNC_THREADS, &k->threads}};
	void *f;
	int rc = cuda_device_find(d, name, &f, e);
	for (unsigned i = 0; i < sizeof asked / sizeof *asked && !rc; i++)
		rc = kernel_ok(e, "cuFuncGetAttribute", name, cuFuncGetAttribute(asked[i].value, asked[i].attr, f));
	return rc;
}

/* Lets a access b's memory. */
static int reach(struct cuda_device *a, struct cuda_device *b, struct p2p_error *e) {
	int can = 0, rc;
	if ((rc = cuda_ok(e, "cuDeviceCanAccessPeer", cuDeviceCanAccessPeer(&can, a->dev, b->dev))) || !can)
		return rc;
	if ((rc = cuda_device_bind(a, e)))
		return rc;
	int native = cuCtxEnablePeerAccess(b->ctx, 0);
	return native == CUDA_PEER_ALREADY_ENABLED ? P2P_OK : cuda_ok(e, "cuCtxEnablePeerAccess", native);
}

int cuda_device_peers(struct cuda_device *a, struct cuda_device *b, struct p2p_error *e) {
	if (a->dev == b->dev)
		return P2P_OK;
	int rc = reach(a, b, e);
	return rc ? rc : reach(b, a, e);
}

int cuda_device_memory(struct cuda_device *d, size_t *unused, size_t *total, struct p2p_error *e) {
	int rc = cuda_device_bind(d, e);
	return rc ? rc : cuda_ok(e, "cuMemGetInfo_v2", cuMemGetInfo_v2(unused, total));
}

int cuda_device_close(struct cuda_device *d, struct p2p_error *e) {
	struct p2p_error later;
	int rc = P2P_OK;
	if (d->ctx && !d->lost) {
		if (d->module && !(rc = cuda_device_bind(d, e)))
			rc = cuda_ok(e, "cuModuleUnload", cuModuleUnload(d->module));
		cuCtxSetCurrent(NULL);
		int last =
			cuda_ok(rc ? &later : e, "cuDevicePrimaryCtxRelease_v2", cuDevicePrimaryCtxRelease_v2(d->dev));
		rc = rc ? rc : last;
	}
	free(d);
	return rc;
}
