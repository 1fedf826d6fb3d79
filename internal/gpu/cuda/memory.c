#include "memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * The driver places smaller allocations together in blocks of this size, and a legacy handle maps a whole block.
 * Allocations that occupy whole blocks can be opened and closed independently of each other.
 */
#define LEGACY_BLOCK ((size_t)2 << 20)

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

/* IDs are unique in the process, over all devices. */
static uint64_t next_id(void) {
	static _Atomic uint64_t last;
	return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/* ---- allocating ----------------------------------------------------------------------------------------------- */

static int handle_type(int kind) { return kind == CUDA_MEMORY_FABRIC ? CUDA_MEM_FABRIC : CUDA_MEM_FD; }

static struct cuda_mem_prop vmm_prop(const struct cuda_device *d, int kind) {
	struct cuda_mem_prop p = {
		.type = CUDA_MEM_PINNED,
		.handle_types = handle_type(kind),
		.location = {CUDA_MEM_DEVICE, d->dev},
	};
	return p;
}

int cuda_memory_granule(struct cuda_device *d, int kind, size_t *bytes, struct p2p_error *e) {
	struct cuda_mem_prop prop = vmm_prop(d, kind);
	*bytes = LEGACY_BLOCK;
	if (kind == CUDA_MEMORY_LEGACY)
		return P2P_OK;
	int rc = cuda_device_bind(d, e);
	return rc ? rc : cuda_ok(e, "cuMemGetAllocationGranularity", cuMemGetAllocationGranularity(bytes, &prop, 0));
}

/* Some drivers fail if the requested address is not available, others choose another one. */
static int reserve(uint64_t *addr, size_t n, uint64_t at) {
	if (at && cuMemAddressReserve(addr, n, 0, at, 0) == CUDA_OK)
		return CUDA_OK;
	return cuMemAddressReserve(addr, n, 0, 0, 0);
}

/* Maps m->handle and lets this device access it. After a failure cuda_memory_close undoes the completed steps. */
static int vmm_map(struct cuda_memory *m, uint64_t at, struct p2p_error *e) {
	struct cuda_mem_access access = {{CUDA_MEM_DEVICE, m->device->dev}, CUDA_MEM_READ_WRITE};
	uint64_t addr;
	int rc = cuda_ok(e, "cuMemAddressReserve", reserve(&addr, m->size, at));
	if (rc)
		return rc;
	if ((rc = cuda_ok(e, "cuMemMap", cuMemMap(addr, m->size, 0, m->handle, 0)))) {
		cuMemAddressFree(addr, m->size);
		return rc;
	}
	m->addr = addr;
	return cuda_ok(e, "cuMemSetAccess", cuMemSetAccess(addr, m->size, &access, 1));
}

static int vmm_alloc(struct cuda_memory *m, size_t n, uint64_t at, struct p2p_error *e) {
	struct cuda_mem_prop prop = vmm_prop(m->device, m->kind);
	size_t unit;
	int rc = cuda_memory_granule(m->device, m->kind, &unit, e);
	if (rc)
		return rc;
	m->size = round_up(n, unit);
	m->id = next_id();
	rc = cuda_ok(e, "cuMemCreate", cuMemCreate(&m->handle, m->size, &prop, 0));
	return rc ? rc : vmm_map(m, at, e);
}

static int legacy_alloc(struct cuda_memory *m, size_t n, struct p2p_error *e) {
	m->size = round_up(n, LEGACY_BLOCK);
	return cuda_ok(e, "cuMemAlloc_v2", cuMemAlloc_v2(&m->addr, m->size));
}

static struct cuda_memory *new_memory(struct cuda_device *d, int kind, int origin, struct p2p_error *e) {
	struct cuda_memory *m = calloc(1, sizeof *m);
	if (!m) {
		p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
		return NULL;
	}
	m->device = d;
	m->kind = kind;
	m->origin = origin;
	return m;
}

/* Returns m in *out, or closes it after a failure. */
static int finish(struct cuda_memory *m, int rc, struct cuda_memory **out) {
	struct p2p_error ignored;
	if (rc)
		cuda_memory_close(m, &ignored);
	else
		*out = m;
	return rc;
}

int cuda_memory_alloc(struct cuda_device *d, int kind, size_t n, uint64_t at, struct cuda_memory **out,
		      struct p2p_error *e) {
	struct cuda_memory *m = new_memory(d, kind, CUDA_ALLOCATED, e);
	if (!m)
		return P2P_ERR_DEVICE;
	int rc = cuda_device_bind(d, e);
	if (!rc)
		rc = kind == CUDA_MEMORY_LEGACY ? legacy_alloc(m, n, e) : vmm_alloc(m, n, at, e);
	return finish(m, rc, out);
}

/* ---- sharing -------------------------------------------------------------------------------------------------- */

static int vmm_export(struct cuda_memory *m, int *fd, struct p2p_error *e) {
	int rc =
		cuda_ok(e, "cuMemExportToShareableHandle", cuMemExportToShareableHandle(fd, m->handle, CUDA_MEM_FD, 0));
	if (rc == P2P_OK)
		fcntl(*fd, F_SETFD, FD_CLOEXEC);
	return rc;
}

int cuda_memory_export(struct cuda_memory *m, struct cuda_opaque *h, int *fd, struct p2p_error *e) {
	int rc = cuda_device_bind(m->device, e);
	if (rc)
		return rc;
	switch (m->kind) {
	case CUDA_MEMORY_VMM:
		return vmm_export(m, fd, e);
	case CUDA_MEMORY_FABRIC:
		return cuda_ok(e, "cuMemExportToShareableHandle",
			       cuMemExportToShareableHandle(h, m->handle, CUDA_MEM_FABRIC, 0));
	default:
		return cuda_ok(e, "cuIpcGetMemHandle", cuIpcGetMemHandle(h, m->addr));
	}
}

static int vmm_import(struct cuda_memory *m, const struct cuda_opaque *h, int fd, struct p2p_error *e) {
	void *os = m->kind == CUDA_MEMORY_FABRIC ? (void *)(uintptr_t)h : (void *)(intptr_t)fd;
	int native = cuMemImportFromShareableHandle(&m->handle, os, handle_type(m->kind));
	if (native)
		m->handle = 0;
	int rc = cuda_ok(e, "cuMemImportFromShareableHandle", native);
	return rc ? rc : vmm_map(m, 0, e);
}

static int legacy_import(struct cuda_memory *m, const struct cuda_opaque *h, struct p2p_error *e) {
	static const char advice[] = ": did this process export it, or has it already mapped it? A legacy handle can "
				     "only be opened in other processes";
	int native = cuIpcOpenMemHandle_v2(&m->addr, *h, CUDA_IPC_LAZY_PEER);
	if (native == CUDA_OK)
		return P2P_OK;
	m->addr = 0;
	cuda_fail(e, "cuIpcOpenMemHandle_v2", native);
	size_t said = strlen(e->text);
	if (native == CUDA_INVALID_CONTEXT || native == CUDA_ALREADY_MAPPED)
		snprintf(e->text + said, sizeof e->text - said, "%s", advice);
	return P2P_ERR_DEVICE;
}

int cuda_memory_import(struct cuda_device *d, int kind, const struct cuda_opaque *h, int fd, size_t n,
		       struct cuda_memory **out, struct p2p_error *e) {
	struct cuda_memory *m = new_memory(d, kind, CUDA_IMPORTED, e);
	if (!m)
		return P2P_ERR_DEVICE;
	m->size = n;
	int rc = cuda_device_bind(d, e);
	if (!rc)
		rc = kind == CUDA_MEMORY_LEGACY ? legacy_import(m, h, e) : vmm_import(m, h, fd, e);
	return finish(m, rc, out);
}

int cuda_memory_try(struct cuda_device *d, int kind, struct p2p_error *e) {
	struct cuda_memory *m;
	struct cuda_opaque h;
	struct p2p_error later;
	int fd = -1, rc = cuda_memory_alloc(d, kind, 1, 0, &m, e);
	if (rc)
		return rc;
	rc = cuda_memory_export(m, &h, &fd, e);
	if (fd >= 0)
		close(fd);
	int last = cuda_memory_close(m, rc ? &later : e);
	return rc ? rc : last;
}

/* ---- CPU memory ----------------------------------------------------------------------------------------------- */

int cuda_memory_pin(struct cuda_device *d, void *p, size_t n, struct cuda_memory **out, struct p2p_error *e) {
	if (!d->registered)
		return p2p_fail(e, P2P_ERR_DEVICE, CUDA_NOT_SUPPORTED,
				"pin: this GPU cannot access pinned memory at the CPU's address");
	struct cuda_memory *m = new_memory(d, 0, CUDA_PINNED, e);
	if (!m)
		return P2P_ERR_DEVICE;
	int rc = cuda_device_bind(d, e);
	if (!rc)
		rc = cuda_ok(e, "cuMemHostRegister_v2",
			     cuMemHostRegister_v2(p, n, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED));
	if (!rc) {
		m->addr = (uintptr_t)p;
		m->size = n;
	}
	return finish(m, rc, out);
}

/* ---- closing -------------------------------------------------------------------------------------------------- */

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

static int legacy_close(struct cuda_memory *m, struct p2p_error *e) {
	if (!m->addr)
		return P2P_OK;
	if (m->origin == CUDA_IMPORTED)
		return cuda_ok(e, "cuIpcCloseMemHandle", cuIpcCloseMemHandle(m->addr));
	return cuda_ok(e, "cuMemFree_v2", cuMemFree_v2(m->addr));
}

static int unpin(struct cuda_memory *m, struct p2p_error *e) {
	return m->addr ? cuda_ok(e, "cuMemHostUnregister", cuMemHostUnregister((void *)(uintptr_t)m->addr)) : P2P_OK;
}

int cuda_memory_dmabuf(struct cuda_memory *m, int *fd, struct p2p_error *e) {
	int rc = cuda_device_bind(m->device, e);
	return rc ? rc
		  : cuda_ok(e, "cuMemGetHandleForAddressRange",
			    cuMemGetHandleForAddressRange(fd, m->addr, m->size, CUDA_RANGE_DMABUF, 0));
}

int cuda_memory_close(struct cuda_memory *m, struct p2p_error *e) {
	int rc = cuda_device_bind(m->device, e);
	if (rc == P2P_OK && !m->device->lost)
		rc = m->origin == CUDA_PINNED        ? unpin(m, e)
		     : m->kind == CUDA_MEMORY_LEGACY ? legacy_close(m, e)
						     : vmm_close(m, e);
	free(m);
	return rc;
}
