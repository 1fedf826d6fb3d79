/*
 * fakecuda.c: a driver library without a GPU. Device memory is host memory behind memfds, streams do their work at
 * once, and kernels are their C equivalents, found by name; p2p_proxy, which stays, is in fakeproxy.h. Tests build it
 * and load it through P2PBENCH_LIBCUDA.
 *
 * The environment makes it fail:
 *   FAKE_DEVICES=N      number of devices, 2 if unset
 *   FAKE_DRIVER=V       what cuDriverGetVersion says
 *   FAKE_ARCH=MAJOR     compute capability MAJOR.0
 *   FAKE_FAIL=NAME:CODE the function of that name fails, always
 *   FAKE_FAIL_BYTES=N   a copy of N bytes fails
 *   FAKE_HANG_BYTES=N   after a copy of N bytes the stream never ends
 *   FAKE_SPOIL_BYTES=N  a copy of N bytes gets its last byte wrong
 *   FAKE_NO_PEER=1      no device reaches another
 *   FAKE_LIVE=FILE      FILE holds how many things of each kind are not released, as an array of int
 * Built with -DOMIT_X the function X is missing: OMIT_cuMemAlloc_v2, OMIT_VMM.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../zz_p2p.h"
#include "fakeproxy.h"

enum { MAX_BLOCKS = 256, MAX_OPS = 64, CTX_MAGIC = 0x1000, DEVICE_MEMORY = 1 << 30 };

/* ---- what is alive -------------------------------------------------------------------------------------------- */

struct block {
	void *p;
	size_t n;
	int fd;
	char kind; /* 'a' allocated, 'o' opened from another process, 'm' mapped VMM */
};

static struct block blocks[MAX_BLOCKS];
static int contexts[16];
static __thread uintptr_t current;

enum { BLOCKS, CONTEXTS, STREAMS, GRAPHS, EXECS, MODULES, HOSTS, HANDLES, RANGES, RESIDENT, KINDS };
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

/* These wait until no kernel is running, as a driver may. */
#define NEED_IDLE_GPU                                                                                                  \
	do {                                                                                                           \
		NEED_CONTEXT;                                                                                          \
		proxies_gone(__func__);                                                                                \
	} while (0)

static struct block *find_block(uint64_t p) {
	for (int i = 0; i < MAX_BLOCKS; i++)
		if (blocks[i].p && (uintptr_t)blocks[i].p == p)
			return &blocks[i];
	return NULL;
}

static int add_block(int fd, size_t n, char kind, uint64_t *out) {
	for (int i = 0; i < MAX_BLOCKS; i++)
		if (!blocks[i].p) {
			void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			if (p == MAP_FAILED)
				return 2;
			blocks[i] = (struct block){p, n, fd, kind};
			live[BLOCKS]++;
			*out = (uintptr_t)p;
			return 0;
		}
	return 2;
}

static int drop_block(uint64_t p, char kind) {
	struct block *b = find_block(p);
	if (!b || b->kind != kind)
		return 1;
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
	*v = attr == 75 ? number("FAKE_ARCH", 9) : attr == 16 ? 4 : attr == 102 || attr == 103 ? 1 : 0;
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
	free(p);
	live[HOSTS]--;
	return 0;
}

struct ipc {
	pid_t pid;
	int fd;
	size_t n;
	char pad[64 - 16];
};

int cuIpcGetMemHandle(struct ipc *h, uint64_t p) {
	NEED_CONTEXT;
	struct block *b = find_block(p);
	if (!b || b->kind != 'a')
		return 1;
	memset(h, 0, sizeof *h);
	*h = (struct ipc){.pid = getpid(), .fd = b->fd, .n = b->n};
	return 0;
}

int cuIpcOpenMemHandle_v2(uint64_t *p, struct ipc h, unsigned flags) {
	char path[64];
	NEED_IDLE_GPU;
	if (flags != 1)
		return 1;
	if (h.pid == getpid())
		return 201;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)h.pid, h.fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? 1 : add_block(fd, h.n, 'o', p);
}

int cuIpcCloseMemHandle(uint64_t p) {
	NEED_IDLE_GPU;
	return drop_block(p, 'o');
}

#ifndef OMIT_VMM
int cuMemGetAllocationGranularity(size_t *n, const void *prop, int option) {
	(void)prop;
	(void)option;
	*n = 2 << 20;
	return 0;
}

/* As internal/gpu/cuda/libcuda.h has it: the fake looks at what the driver would. */
int cuMemCreate(uint64_t *h, size_t n, const int *prop, unsigned long long flags) {
	NEED_CONTEXT;
	if (prop[0] != 1 || prop[1] != 1 || prop[2] != 1 || flags || n % (2 << 20))
		return 1;
	int fd = new_memory(n);
	*h = (uint64_t)fd;
	live[HANDLES]++;
	return fd < 0 ? 2 : 0;
}

int cuMemRelease(uint64_t h) {
	live[HANDLES]--;
	return close((int)h) ? 1 : 0;
}

int cuMemAddressReserve(uint64_t *p, size_t n, size_t align, uint64_t at, unsigned long long flags) {
	NEED_CONTEXT;
	void *r = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0);
	*p = (uintptr_t)r;
	live[RANGES]++;
	return align || at || flags || r == MAP_FAILED ? 1 : 0;
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
	void *m = mmap((void *)(uintptr_t)p, n, PROT_NONE, MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0);
	return m == MAP_FAILED ? 1 : 0;
}

int cuMemSetAccess(uint64_t p, size_t n, const int *desc, size_t count) {
	NEED_CONTEXT;
	if (count != 1 || desc[0] != 1 || desc[1] != (int)(current - CTX_MAGIC) || desc[2] != 3)
		return 1;
	return mprotect((void *)(uintptr_t)p, n, PROT_READ | PROT_WRITE) ? 1 : 0;
}

int cuMemExportToShareableHandle(int *fd, uint64_t h, int type, unsigned long long flags) {
	NEED_CONTEXT;
	*fd = dup((int)h);
	return type != 1 || flags || *fd < 0 ? 1 : 0;
}

int cuMemImportFromShareableHandle(uint64_t *h, void *fd, int type) {
	NEED_CONTEXT;
	int copy = dup((int)(intptr_t)fd);
	*h = (uint64_t)copy;
	live[HANDLES]++;
	return type != 1 || copy < 0 ? 1 : 0;
}
#endif

/* ---- kernels -------------------------------------------------------------------------------------------------- */

static const char *const kernels[] = {"p2p_fill", "p2p_check", "p2p_copy", "p2p_copy_bulk", "p2p_proxy"};
enum { FILL, CHECK, COPY, COPY_BULK, PROXY, MEMCPY };

/* One piece of work, with its arguments as the device gets them. */
struct op {
	int kind;
	uint64_t args[5];
};

struct graph {
	int n;
	struct op ops[MAX_OPS];
};

struct stream {
	int hung, priority;
	struct proxy_run proxy;
	struct graph *capture;
};

static int covered(uint64_t o, uint64_t n, uint64_t step) {
	return !step || o % step < P2P_SAMPLE_BYTES || o + P2P_SAMPLE_BYTES >= n;
}

static void fill(const uint64_t *a) {
	uint8_t *p = (uint8_t *)(uintptr_t)a[0];
	for (uint64_t o = 0; o < a[1]; o += 4) {
		uint32_t word = p2p_payload_word(a[2], o / 4);
		for (uint64_t i = o; i < o + 4 && i < a[1]; i++, word >>= 8)
			if (covered(i, a[1], a[3]))
				p[i] = (uint8_t)word;
	}
}

static void check(const uint64_t *a) {
	const uint8_t *p = (const uint8_t *)(uintptr_t)a[0];
	uint64_t *found = (uint64_t *)(uintptr_t)a[4];
	for (uint64_t o = 0; o < a[1]; o += 4) {
		uint32_t word = p2p_payload_word(a[2], o / 4);
		for (uint64_t i = o; i < o + 4 && i < a[1]; i++, word >>= 8)
			if (covered(i, a[1], a[3]) && p[i] != (uint8_t)word) {
				found[0]++;
				found[1] = i < found[1] ? i : found[1];
			}
	}
}

static int run(struct stream *s, const struct op *op) {
	const uint64_t *a = op->args;
	if (op->kind == FILL) {
		fill(a);
		return 0;
	}
	if (op->kind == CHECK) {
		check(a);
		return 0;
	}
	if (op->kind == COPY_BULK && (a[0] ^ a[1]) % 16)
		return 716;
	if (is_bytes("FAKE_FAIL_BYTES", a[2]))
		return 700;
	memmove((void *)(uintptr_t)a[0], (const void *)(uintptr_t)a[1], a[2]);
	if (is_bytes("FAKE_SPOIL_BYTES", a[2]))
		((uint8_t *)(uintptr_t)a[0])[a[2] - 1] ^= 1;
	if (is_bytes("FAKE_HANG_BYTES", a[2]))
		s->hung = 1;
	return 0;
}

static int submit(struct stream *s, const struct op *op) {
	if (atomic_load(&s->proxy.alive))
		return 999; /* would wait behind a kernel that stays */
	if (!s->capture)
		return run(s, op);
	if (s->capture->n == MAX_OPS)
		return 2;
	s->capture->ops[s->capture->n++] = *op;
	return 0;
}

int cuModuleLoadDataEx(const char **mod, const char *image, unsigned n, int *options, void **values) {
	NEED_IDLE_GPU;
	if (n != 2 || options[0] != 5 || options[1] != 6)
		return 1;
	if (getenv("FAKE_JIT_LOG")) {
		snprintf(values[0], (size_t)values[1], "%s", getenv("FAKE_JIT_LOG"));
		return 218;
	}
	live[MODULES]++;
	*mod = strdup(image);
	return 0;
}

int cuModuleUnload(char *mod) {
	free(mod);
	live[MODULES]--;
	return 0;
}

int cuModuleGetFunction(uintptr_t *f, const char *mod, const char *name) {
	char entry[64];
	FAIL_IF_ASKED;
	snprintf(entry, sizeof entry, ".visible .entry %s(", name);
	for (uintptr_t i = 0; i < PROXY + 1; i++)
		if (strcmp(name, kernels[i]) == 0 && strstr(mod, entry)) {
			*f = i + 1;
			return 0;
		}
	return 500;
}

int cuFuncSetAttribute(uintptr_t f, int attr, int value) {
	FAIL_IF_ASKED;
	return f == COPY_BULK + 1 && attr == 8 && value == 128 << 10 ? 0 : 1;
}

int cuLaunchKernel(uintptr_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned shared, struct stream *s, uint64_t **params, void **extra) {
	static const int counts[] = {[FILL] = 4, [CHECK] = 5, [COPY] = 3, [COPY_BULK] = 3};
	NEED_CONTEXT;
	struct op op = {.kind = (int)f - 1};
	if (!gx || gy != 1 || gz != 1 || by != 1 || bz != 1 || extra)
		return 1;
	if (bx > (op.kind == COPY_BULK ? 32 : 512) || shared != (op.kind == COPY_BULK ? 128 << 10 : 0))
		return 701;
	if (op.kind == PROXY) {
		live[RESIDENT] += 1 - proxy_join(&s->proxy);
		return s->capture || s->priority >= 0 || gx > 2 ? 1 : proxy_launch(&s->proxy, gx, params);
	}
	for (int i = 0; i < counts[op.kind]; i++)
		op.args[i] = *params[i];
	return submit(s, &op);
}

/* ---- streams and graphs --------------------------------------------------------------------------------------- */

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t n, struct stream *s) {
	NEED_CONTEXT;
	struct op op = {MEMCPY, {dst, src, n}};
	return submit(s, &op);
}

int cuStreamCreate(struct stream **s, unsigned flags) {
	NEED_CONTEXT;
	*s = calloc(1, sizeof **s);
	live[STREAMS]++;
	return flags == 1 ? 0 : 1;
}

int cuStreamCreateWithPriority(struct stream **s, unsigned flags, int priority) {
	FAIL_IF_ASKED;
	int rc = cuStreamCreate(s, flags);
	if (rc == 0)
		(*s)->priority = priority;
	return rc;
}

int cuStreamQuery(struct stream *s) {
	NEED_CONTEXT;
	if (s->proxy.failed)
		return s->proxy.failed;
	if (s->proxy.alive)
		return 600;
	return s->capture ? 900 : s->hung ? 600 : 0;
}

int cuStreamDestroy_v2(struct stream *s) {
	if (s->proxy.alive)
		return 999;
	live[RESIDENT] -= proxy_join(&s->proxy);
	free(s);
	live[STREAMS]--;
	return 0;
}

int cuStreamBeginCapture_v2(struct stream *s, int mode) {
	NEED_CONTEXT;
	s->capture = calloc(1, sizeof *s->capture);
	live[GRAPHS]++;
	return mode == 1 ? 0 : 1;
}

int cuStreamEndCapture(struct stream *s, struct graph **g) {
	FAIL_IF_ASKED;
	*g = s->capture;
	s->capture = NULL;
	return *g ? 0 : 901;
}

int cuGraphInstantiateWithFlags(struct graph **exec, const struct graph *g, unsigned long long flags) {
	FAIL_IF_ASKED;
	*exec = malloc(sizeof **exec);
	**exec = *g;
	live[EXECS]++;
	return flags ? 1 : 0;
}

int cuGraphLaunch(const struct graph *exec, struct stream *s) {
	NEED_CONTEXT;
	for (int i = 0; i < exec->n; i++) {
		int rc = run(s, &exec->ops[i]);
		if (rc)
			return rc;
	}
	return 0;
}

int cuGraphExecDestroy(struct graph *exec) {
	free(exec);
	live[EXECS]--;
	return 0;
}

int cuGraphDestroy(struct graph *g) {
	free(g);
	live[GRAPHS]--;
	return 0;
}
