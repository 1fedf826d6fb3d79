#include "memory.h"

#include <stdlib.h>

/*
 * Smaller allocations share a block of this size, and a legacy handle maps the whole block: with blocks of its own a
 * buffer can be opened, closed and opened again whatever its neighbours do.
 */
#define LEGACY_BLOCK ((size_t)2 << 20)

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

static struct cuda_mem_prop vmm_prop(const struct cuda_device *d) {
	struct cuda_mem_prop p = {
		.type = CUDA_MEM_PINNED,
		.handle_types = CUDA_MEM_FD,
		.location = {CUDA_MEM_DEVICE, d->dev},
	};
	return p;
}

/* Gives m->handle an address that this device can use. cuda_memory_close undoes what was done, after a failure too. */
static int vmm_map(struct cuda_memory *m, struct p2p_error *e) {
	struct cuda_mem_access access = {{CUDA_MEM_DEVICE, m->device->dev}, CUDA_MEM_READ_WRITE};
	uint64_t addr;
	int rc = cuda_ok(e, "cuMemAddressReserve", cuMemAddressReserve(&addr, m->size, 0, 0, 0));
	if (rc)
		return rc;
	if ((rc = cuda_ok(e, "cuMemMap", cuMemMap(addr, m->size, 0, m->handle, 0)))) {
		cuMemAddressFree(addr, m->size);
		return rc;
	}
	m->addr = addr;
	return cuda_ok(e, "cuMemSetAccess", cuMemSetAccess(addr, m->size, &access, 1));
}

static int vmm_alloc(struct cuda_memory *m, size_t n, struct p2p_error *e) {
	struct cuda_mem_prop prop = vmm_prop(m->device);
	size_t unit;
	int rc = cuda_ok(e, "cuMemGetAllocationGranularity", cuMemGetAllocationGranularity(&unit, &prop, 0));
	if (rc)
		return rc;
	m->size = round_up(n, unit);
	rc = cuda_ok(e, "cuMemCreate", cuMemCreate(&m->handle, m->size, &prop, 0));
	return rc ? rc : vmm_map(m, e);
}

static int legacy_alloc(struct cuda_memory *m, size_t n, struct p2p_error *e) {
	m->size = round_up(n, LEGACY_BLOCK);
	return cuda_ok(e, "cuMemAlloc_v2", cuMemAlloc_v2(&m->addr, m->size));
}

static struct cuda_memory *new_memory(struct cuda_device *d, int kind, struct p2p_error *e) {
	struct cuda_memory *m = calloc(1, sizeof *m);
	if (!m) {
		p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
		return NULL;
	}
	m->device = d;
	m->kind = kind;
	return m;
}

/* Hands m over, or undoes it after a failure. */
static int finish(struct cuda_memory *m, int rc, struct cuda_memory **out) {
	struct p2p_error ignored;
	if (rc)
		cuda_memory_close(m, &ignored);
	else
		*out = m;
	return rc;
}

int cuda_memory_alloc(struct cuda_device *d, int kind, size_t n, struct cuda_memory **out, struct p2p_error *e) {
	struct cuda_memory *m = new_memory(d, kind, e);
	if (!m)
		return P2P_ERR_DEVICE;
	int rc = cuda_device_bind(d, e);
	if (!rc)
		rc = kind == CUDA_MEMORY_VMM ? vmm_alloc(m, n, e) : legacy_alloc(m, n, e);
	return finish(m, rc, out);
}

int cuda_memory_export(struct cuda_memory *m, struct cuda_ipc_handle *h, int *fd, struct p2p_error *e) {
	int rc = cuda_device_bind(m->device, e);
	if (rc)
		return rc;
	if (m->kind == CUDA_MEMORY_VMM)
		return cuda_ok(e, "cuMemExportToShareableHandle",
			       cuMemExportToShareableHandle(fd, m->handle, CUDA_MEM_FD, 0));
	return cuda_ok(e, "cuIpcGetMemHandle", cuIpcGetMemHandle(h, m->addr));
}

static int vmm_import(struct cuda_memory *m, int fd, struct p2p_error *e) {
	int rc = cuda_ok(e, "cuMemImportFromShareableHandle",
			 cuMemImportFromShareableHandle(&m->handle, (void *)(intptr_t)fd, CUDA_MEM_FD));
	return rc ? rc : vmm_map(m, e);
}

static int legacy_import(struct cuda_memory *m, const struct cuda_ipc_handle *h, struct p2p_error *e) {
	int native = cuIpcOpenMemHandle_v2(&m->addr, *h, CUDA_IPC_LAZY_PEER);
	if (native)
		m->addr = 0;
	return cuda_ok(e, "cuIpcOpenMemHandle_v2", native);
}

int cuda_memory_import(struct cuda_device *d, int kind, const struct cuda_ipc_handle *h, int fd, size_t n,
		       struct cuda_memory **out, struct p2p_error *e) {
	struct cuda_memory *m = new_memory(d, kind, e);
	if (!m)
		return P2P_ERR_DEVICE;
	m->imported = 1;
	m->size = n;
	int rc = cuda_device_bind(d, e);
	if (!rc)
		rc = kind == CUDA_MEMORY_VMM ? vmm_import(m, fd, e) : legacy_import(m, h, e);
	return finish(m, rc, out);
}

static int vmm_close(struct cuda_memory *m, struct p2p_error *e) {
	struct p2p_error later;
	int rc = P2P_OK, last;
	if (m->addr) {
		rc = cuda_ok(e, "cuMemUnmap", cuMemUnmap(m->addr, m->size));
		last = cuda_ok(rc ? &later : e, "cuMemAddressFree", cuMemAddressFree(m->addr, m->size));
		rc = rc ? rc : last;
	}
	if (m->handle) {
		last = cuda_ok(rc ? &later : e, "cuMemRelease", cuMemRelease(m->handle));
		rc = rc ? rc : last;
	}
	return rc;
}

int cuda_memory_close(struct cuda_memory *m, struct p2p_error *e) {
	int rc = cuda_device_bind(m->device, e);
	if (rc == P2P_OK) {
		if (m->kind == CUDA_MEMORY_VMM)
			rc = vmm_close(m, e);
		else if (m->addr && m->imported)
			rc = cuda_ok(e, "cuIpcCloseMemHandle", cuIpcCloseMemHandle(m->addr));
		else if (m->addr)
			rc = cuda_ok(e, "cuMemFree_v2", cuMemFree_v2(m->addr));
	}
	free(m);
	return rc;
}
