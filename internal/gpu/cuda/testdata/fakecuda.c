/*
 * fakecuda.c: a driver library without a GPU. Device memory is host memory behind memfds; streams, events and graphs
 * are in fakestreams.h, the parts for queues in fakequeue.h, and the resident kernel p2p_proxy in fakeproxy.h. Tests build
 * it and load it through P2PBENCH_LIBCUDA.
 *
 * The environment makes it fail:
 *   FAKE_DEVICES=N      number of devices, 2 if unset
 *   FAKE_DRIVER=V       result of cuDriverGetVersion
 *   FAKE_ARCH=MAJOR     compute capability MAJOR.0
 *   FAKE_FAIL=NAME:CODE the function of that name fails, always
 *   FAKE_FAIL_BYTES=N   a copy of N bytes fails
 *   FAKE_HANG_BYTES=N   after a copy of N bytes the stream never ends
 *   FAKE_SPOIL_BYTES=N  a copy of N bytes writes a wrong last byte
 *   FAKE_NO_PEER=1      devices cannot access each other
 *   FAKE_FABRIC=HOW     there are fabric handles: "yes", or "forbidden" to this process
 *   FAKE_NO_REGISTERED=1 pinned memory has another address on the device
 *   FAKE_NO_HINT=1      reserving a requested address fails
 *   FAKE_IPC_OWN=1      a process may open the legacy handles that it made itself
 *   FAKE_IPC_COUNTS=1   a legacy handle may be opened again while it is mapped, and is then counted
 *   FAKE_SHUFFLE=SEED   streams progress only when polled, one operation of one stream at a time
 *   FAKE_LIVE=FILE      FILE holds the number of unreleased objects of each kind, as an array of int
 * Built with -DOMIT_X the function X is missing: OMIT_cuMemAlloc_v2; or a group of functions: OMIT_VMM, OMIT_MEMOPS,
 * OMIT_RECENT.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/abi/p2p.h"
#include "fakeproxy.h"

enum { MAX_BLOCKS = 8192, MAX_PINS = 64, CTX_MAGIC = 0x1000, DEVICE_MEMORY = 1 << 30, FAKE_WARP = 32 };

/* ---- live objects --------------------------------------------------------------------------------------------- */

struct block {
	void *p;
	size_t n;
	int fd;
	char kind; /* 'a' allocated, 'o' opened from another process */
	int opened;
	uint64_t id;
};

static struct block blocks[MAX_BLOCKS];
static int used_blocks;
static int contexts[16];
static __thread uintptr_t current;

enum { BLOCKS, CONTEXTS, STREAMS, GRAPHS, EXECS, MODULES, HOSTS, HANDLES, RANGES, RESIDENT, EVENTS, PINS, KINDS };
static int private_live[KINDS], *live = private_live;

/* Go ends a process without running destructors: the counts live in a file. */
__attribute__((constructor)) static void share_counts(void) {
	const char *path = getenv("FAKE_LIVE");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (fd < 0 || ftruncate(fd, sizeof private_live))
		return;
	void *p = mmap(NULL, sizeof private_live, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p != MAP_FAILED)
		live = p;
}

static int fails(const char *name) {
	const char *f = getenv("FAKE_FAIL");
	size_t n = strlen(name);
	return f && strncmp(f, name, n) == 0 && f[n] == ':' ? atoi(f + n + 1) : 0;
}

static int is_bytes(const char *var, size_t n) {
	const char *v = getenv(var);
	return v && strtoull(v, NULL, 10) == n;
}

static int number(const char *var, int otherwise) {
	const char *v = getenv(var);
	return v ? atoi(v) : otherwise;
}

#define FAIL_IF_ASKED                                                                                                  \
	do {                                                                                                           \
		int code = fails(__func__);                                                                            \
		if (code)                                                                                              \
			return code;                                                                                   \
	} while (0)

/* Most functions need a context. */
#define NEED_CONTEXT                                                                                                   \
	do {                                                                                                           \
		FAIL_IF_ASKED;                                                                                         \
		if (!current)                                                                                          \
			return 201;                                                                                    \
	} while (0)

static void held_gone(const char *who);

/* These functions wait until no kernel is running, as a driver may. */
#define NEED_IDLE_GPU                                                                                                  \
	do {                                                                                                           \
		NEED_CONTEXT;                                                                                          \
		proxies_gone(__func__);                                                                                \
	} while (0)

/* The block that contains p. */
static struct block *find_block(uint64_t p) {
	for (int i = 0; i < used_blocks; i++)
		if (blocks[i].p && p - (uintptr_t)blocks[i].p < blocks[i].n)
			return &blocks[i];
	return NULL;
}

static int add_block(int fd, size_t n, char kind, uint64_t *out) {
	static uint64_t ids;
	int i = 0;
	while (i < used_blocks && blocks[i].p)
		i++;
	void *p = i < MAX_BLOCKS ? mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (p == MAP_FAILED)
		return 2;
	used_blocks += i == used_blocks;
	blocks[i] = (struct block){p, n, fd, kind, 1, ++ids};
	live[BLOCKS]++;
	*out = (uintptr_t)p;
	return 0;
}

static int drop_block(uint64_t p, char kind) {
	struct block *b = find_block(p);
	if (!b || b->kind != kind || (uintptr_t)b->p != p)
		return 1;
	if (--b->opened)
		return 0;
	munmap(b->p, b->n);
	close(b->fd);
	b->p = NULL;
	live[BLOCKS]--;
	return 0;
}

static int new_memory(size_t n) {
	int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)n)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* ---- driver and devices --------------------------------------------------------------------------------------- */

int cuInit(unsigned flags) {
	FAIL_IF_ASKED;
	return flags ? 1 : number("FAKE_DEVICES", 2) == 0 ? 100 : 0;
}

int cuDriverGetVersion(int *v) {
	*v = number("FAKE_DRIVER", 13000);
	return 0;
}

int cuGetErrorName(int code, const char **name) {
	*name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
	return 0;
}

int cuGetErrorString(int code, const char **text) {
	*text = code == 2 ? "out of memory" : "the fake driver was told to";
	return 0;
}

int cuDeviceGetCount(int *n) {
	FAIL_IF_ASKED;
	*n = number("FAKE_DEVICES", 2);
	return 0;
}

int cuDeviceGet(int *dev, int ordinal) {
	FAIL_IF_ASKED;
	*dev = ordinal;
	return ordinal < number("FAKE_DEVICES", 2) ? 0 : 101;
}

int cuDeviceGetName(char *name, int n, int dev) {
	snprintf(name, (size_t)n, "Fake GPU %d", dev);
	return 0;
}

int cuDeviceGetUuid(unsigned char *u, int dev) {
	for (int i = 0; i < 16; i++)
		u[i] = (unsigned char)(i * 16 + dev);
	return 0;
}

int cuDeviceGetPCIBusId(char *id, int n, int dev) {
	snprintf(id, (size_t)n, "0000:%02X:00.0", 0x3b + dev);
	return 0;
}

int cuDeviceGetAttribute(int *v, int attr, int dev) {
	(void)dev;
	FAIL_IF_ASKED;
	switch (attr) {
	case 10:
		*v = FAKE_WARP;
		break;
	case 16:
		*v = 4;
		break;
	case 75:
		*v = number("FAKE_ARCH", 9);
		break;
	case 91:
		*v = !getenv("FAKE_NO_REGISTERED");
		break;
	case 122:
		*v = !getenv("FAKE_NO_MEMOPS");
		return number("FAKE_DRIVER", 13000) < 11070 ? 1 : 0;
	case 128:
		*v = getenv("FAKE_FABRIC") != NULL;
		return number("FAKE_DRIVER", 13000) < 12030 ? 1 : 0;
	default:
		*v = attr == 102 || attr == 103;
	}
	return 0;
}

int cuDeviceTotalMem_v2(size_t *n, int dev) {
	(void)dev;
	*n = DEVICE_MEMORY;
	return 0;
}

int cuDeviceCanAccessPeer(int *can, int dev, int peer) {
	*can = dev != peer && !getenv("FAKE_NO_PEER");
	return 0;
}

int cuDevicePrimaryCtxSetFlags_v2(int dev, unsigned flags) {
	(void)flags;
	return contexts[dev] ? 708 : 0;
}

int cuDevicePrimaryCtxRetain(void **ctx, int dev) {
	FAIL_IF_ASKED;
	contexts[dev]++;
	live[CONTEXTS]++;
	*ctx = (void *)(uintptr_t)(CTX_MAGIC + dev);
	return 0;
}

int cuDevicePrimaryCtxRelease_v2(int dev) {
	FAIL_IF_ASKED;
	held_gone(__func__);
	live[CONTEXTS]--;
	return contexts[dev]-- > 0 ? 0 : 201;
}

int cuCtxSetCurrent(void *ctx) {
	FAIL_IF_ASKED;
	current = (uintptr_t)ctx;
	return ctx && !contexts[current - CTX_MAGIC] ? 709 : 0;
}

int cuCtxEnablePeerAccess(void *peer, unsigned flags) {
	static char enabled[16][16];
	NEED_CONTEXT;
	char *e = &enabled[current - CTX_MAGIC][(uintptr_t)peer - CTX_MAGIC];
	if (getenv("FAKE_NO_PEER") || flags)
		return 217;
	return (*e)++ ? 704 : 0;
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

int cuMemGetInfo_v2(size_t *unused, size_t *total) {
	NEED_CONTEXT;
	*total = DEVICE_MEMORY;
	*unused = DEVICE_MEMORY / 4 * 3;
	return 0;
}

#ifndef OMIT_cuMemAlloc_v2
int cuMemAlloc_v2(uint64_t *p, size_t n) {
	NEED_IDLE_GPU;
	int fd = new_memory(n);
	return fd < 0 ? 2 : add_block(fd, n, 'a', p);
}
#endif

int cuMemFree_v2(uint64_t p) {
	NEED_IDLE_GPU;
	held_gone(__func__);
	return drop_block(p, 'a');
}

int cuMemHostAlloc(void **p, size_t n, unsigned flags) {
	(void)flags;
	NEED_IDLE_GPU;
	*p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
	memset(*p, 0x55, n);
	live[HOSTS]++;
	return 0;
}

int cuMemFreeHost(void *p) {
	proxies_gone(__func__);
	held_gone(__func__);
	free(p);
	live[HOSTS]--;
	return 0;
}

static void *pins[MAX_PINS];

static void **pin_of(void *p) {
	for (int i = 0; i < MAX_PINS; i++)
		if (pins[i] == p)
			return &pins[i];
	return NULL;
}

int cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
	NEED_IDLE_GPU;
	if (!p || !n || (uintptr_t)p % 4096 || n % 4096 || flags != 3)
		return 1;
	if (pin_of(p))
		return 712;
	*pin_of(NULL) = p;
	live[PINS]++;
	return 0;
}

int cuMemHostUnregister(void *p) {
	NEED_IDLE_GPU;
	held_gone(__func__);
	void **pin = pin_of(p);
	if (!p || !pin)
		return 713;
	*pin = NULL;
	live[PINS]--;
	return 0;
}

int cuMemGetAddressRange_v2(uint64_t *base, size_t *n, uint64_t p) {
	NEED_CONTEXT;
	struct block *b = find_block(p);
	if (!b)
		return 1;
	*base = (uintptr_t)b->p;
	*n = b->n;
	return 0;
}

int cuPointerGetAttribute(uint64_t *value, int attr, uint64_t p) {
	NEED_CONTEXT;
	struct block *b = find_block(p);
	if (!b || attr != 7)
		return 1;
	*value = b->id;
	return 0;
}

/* The contents of a handle's 64 bytes, legacy or fabric. */
struct ipc {
	pid_t pid;
	int fd;
	size_t n;
	char pad[64 - 16];
};

int cuIpcGetMemHandle(struct ipc *h, uint64_t p) {
	NEED_CONTEXT;
	struct block *b = find_block(p);
	if (!b || b->kind != 'a' || (uintptr_t)b->p != p)
		return 1;
	memset(h, 0, sizeof *h);
	*h = (struct ipc){.pid = getpid(), .fd = b->fd, .n = b->n};
	return 0;
}

static int open_ipc(const struct ipc *h) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)h->pid, h->fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* Another mapping of the same memory. */
static struct block *opened_before(int fd) {
	struct stat want, have;
	for (int i = 0; i < used_blocks; i++)
		if (blocks[i].p && blocks[i].kind == 'o' && fstat(fd, &want) == 0 && fstat(blocks[i].fd, &have) == 0 &&
		    want.st_dev == have.st_dev && want.st_ino == have.st_ino)
			return &blocks[i];
	return NULL;
}

int cuIpcOpenMemHandle_v2(uint64_t *p, struct ipc h, unsigned flags) {
	NEED_IDLE_GPU;
	if (flags != 1)
		return 1;
	if (h.pid == getpid() && !getenv("FAKE_IPC_OWN"))
		return 201;
	int fd = open_ipc(&h);
	if (fd < 0)
		return 1;
	struct block *b = opened_before(fd);
	if (!b)
		return add_block(fd, h.n, 'o', p);
	close(fd);
	if (!getenv("FAKE_IPC_COUNTS"))
		return 208;
	b->opened++;
	*p = (uintptr_t)b->p;
	return 0;
}

int cuIpcCloseMemHandle(uint64_t p) {
	NEED_IDLE_GPU;
	return drop_block(p, 'o');
}

#ifndef OMIT_VMM
int cuMemGetAllocationGranularity(size_t *n, const void *prop, int option) {
	(void)prop;
	(void)option;
	FAIL_IF_ASKED;
	*n = 2 << 20;
	return 0;
}

/* A handle is a file descriptor and the handle type that it can be exported as. */
static uint64_t new_handle(int fd, int type) {
	live[HANDLES] += fd >= 0;
	return (uint64_t)type << 32 | (unsigned)fd;
}

/* As declared in internal/gpu/cuda/libcuda.h: the fields that the fake checks. */
int cuMemCreate(uint64_t *h, size_t n, const int *prop, unsigned long long flags) {
	NEED_CONTEXT;
	const char *fabric = getenv("FAKE_FABRIC");
	int type = prop[1];
	if (prop[0] != 1 || (type != 1 && type != 8) || prop[2] != 1 || prop[3] != (int)(current - CTX_MAGIC) || flags ||
	    n % (2 << 20))
		return 1;
	if (type == 8 && (!fabric || strcmp(fabric, "yes")))
		return fabric ? 800 : 801;
	int fd = new_memory(n);
	*h = new_handle(fd, type);
	return fd < 0 ? 2 : 0;
}

int cuMemRelease(uint64_t h) {
	live[HANDLES]--;
	return close((int)h) ? 1 : 0;
}

int cuMemAddressReserve(uint64_t *p, size_t n, size_t align, uint64_t at, unsigned long long flags) {
	NEED_CONTEXT;
	if (align || flags || at % (2 << 20) || (at && getenv("FAKE_NO_HINT")))
		return 1;
	const int how = MAP_PRIVATE | MAP_ANON | MAP_NORESERVE;
	void *r = at ? mmap((void *)(uintptr_t)at, n, PROT_NONE, how | MAP_FIXED_NOREPLACE, -1, 0) : MAP_FAILED;
	if (r == MAP_FAILED) { /* like the driver's, a multiple of 2 MiB */
		uint8_t *wide = mmap(NULL, n + (2 << 20), PROT_NONE, how, -1, 0);
		if (wide == MAP_FAILED)
			return 2;
		size_t skip = -(uintptr_t)wide % (2 << 20);
		if (skip)
			munmap(wide, skip);
		munmap(wide + skip + n, (2 << 20) - skip);
		r = wide + skip;
	}
	*p = (uintptr_t)r;
	live[RANGES]++;
	return 0;
}

int cuMemAddressFree(uint64_t p, size_t n) {
	live[RANGES]--;
	return munmap((void *)(uintptr_t)p, n) ? 1 : 0;
}

int cuMemMap(uint64_t p, size_t n, size_t offset, uint64_t h, unsigned long long flags) {
	NEED_CONTEXT;
	struct stat s;
	if (offset || flags || fstat((int)h, &s) || (size_t)s.st_size != n)
		return 1;
	void *m = mmap((void *)(uintptr_t)p, n, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)h, 0);
	return m == MAP_FAILED ? 2 : 0;
}

int cuMemUnmap(uint64_t p, size_t n) {
	FAIL_IF_ASKED;
	void *m = mmap((void *)(uintptr_t)p, n, PROT_NONE, MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0);
	return m == MAP_FAILED ? 1 : 0;
}

int cuMemSetAccess(uint64_t p, size_t n, const int *desc, size_t count) {
	NEED_CONTEXT;
	if (count != 1 || desc[0] != 1 || desc[1] != (int)(current - CTX_MAGIC) || desc[2] != 3)
		return 1;
	return mprotect((void *)(uintptr_t)p, n, PROT_READ | PROT_WRITE) ? 1 : 0;
}

int cuMemExportToShareableHandle(void *out, uint64_t h, int type, unsigned long long flags) {
	struct stat s;
	NEED_CONTEXT;
	if (type != (int)(h >> 32) || flags || fstat((int)h, &s))
		return 1;
	if (type == 8)
		*(struct ipc *)out = (struct ipc){.pid = getpid(), .fd = (int)h, .n = (size_t)s.st_size};
	else
		*(int *)out = dup((int)h);
	return 0;
}

int cuMemImportFromShareableHandle(uint64_t *h, void *os, int type) {
	NEED_CONTEXT;
	int fd = type == 1 ? dup((int)(intptr_t)os) : type == 8 ? open_ipc(os) : -1;
	*h = new_handle(fd, type);
	return fd < 0 ? 1 : 0;
}
#endif

#include "fakequeue.h"
