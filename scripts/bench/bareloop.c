/*
 * bareloop: a minimal C loop that sends a message between two processes, as a reference for p2pbench's figures.
 *
 *   bareloop [--cpu] [--op latency|pingpong] [--wait sync|query] [--sizes 1K,4K,16K,64K] [-n 1000] [-w 100]
 *            [--gpus 0,1] [--cpus A,B] [--timeout SECONDS]
 *
 * It forks two processes before it initialises CUDA. The parent sends from one GPU; the child receives on another GPU,
 * or on the same one if there is only one. Every buffer is exported as a legacy IPC handle and opened by the other
 * side. An iteration of `latency`: read the clock; cuMemcpyAsync; wait for the stream (--wait sync:
 * cuStreamSynchronize, query: cuStreamQuery in a loop); release store of `done` in shared memory; the receiver, which
 * spins, stores `ack`; the sender, which spins, loads it; read the clock. `pingpong` sends the message back by the same
 * means and halves the time. --cpu does the same with memcpy between shared memory of the two processes and needs no
 * GPU.
 *
 * Prints a comment line, then size, p50, p99, min (µs, nearest-rank) and n, separated by tabs. The receiver compares
 * every byte of the last message of each size. No wait is longer than --timeout (10 s). Exit codes: 0 success;
 * 1 failure; 2 usage; 4 deadline; 5 wrong bytes received.
 *
 * It shares no code with p2pbench, so that it is an independent reference.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DEADLINE = 4, EXIT_CORRUPT = 5 };
enum { MAX_SIZES = 64 };

/* ---- the functions of the CUDA driver API that are used ------------------------------------------------------- */

typedef int cu_result;
typedef int cu_device;
typedef uint64_t cu_ptr;
typedef struct {
	char bytes[64];
} cu_ipc_handle;

enum { CU_NOT_READY = 600, CU_NON_BLOCKING = 1, CU_LAZY_PEER_ACCESS = 1 };

#define CUDA_CALLS(X)                                                                                                  \
	X(cuInit, (unsigned))                                                                                          \
	X(cuGetErrorName, (cu_result, const char **))                                                                  \
	X(cuDeviceGetCount, (int *))                                                                                   \
	X(cuDeviceGet, (cu_device *, int))                                                                             \
	X(cuDeviceGetName, (char *, int, cu_device))                                                                   \
	X(cuDeviceCanAccessPeer, (int *, cu_device, cu_device))                                                        \
	X(cuDevicePrimaryCtxRetain, (void **, cu_device))                                                              \
	X(cuCtxSetCurrent, (void *))                                                                                   \
	X(cuCtxSynchronize, (void))                                                                                    \
	X(cuMemAlloc_v2, (cu_ptr *, size_t))                                                                           \
	X(cuMemcpyHtoD_v2, (cu_ptr, const void *, size_t))                                                             \
	X(cuMemcpyDtoH_v2, (void *, cu_ptr, size_t))                                                                   \
	X(cuIpcGetMemHandle, (cu_ipc_handle *, cu_ptr))                                                                \
	X(cuIpcOpenMemHandle_v2, (cu_ptr *, cu_ipc_handle, unsigned))                                                  \
	X(cuIpcCloseMemHandle, (cu_ptr))                                                                               \
	X(cuStreamCreate, (void **, unsigned))                                                                         \
	X(cuStreamSynchronize, (void *))                                                                               \
	X(cuStreamQuery, (void *))                                                                                     \
	X(cuMemcpyAsync, (cu_ptr, cu_ptr, size_t, void *))

#define DECLARE(name, args) static cu_result(*name) args;
CUDA_CALLS(DECLARE)

/* ---- memory shared by the two processes ------------------------------------------------------------------------ */

struct word {
	_Atomic uint64_t v;
	char pad[128 - 8];
};

static struct shared {
	struct word done, ack;  /* sequence numbers of the latest message sent, and acknowledged */
	struct word ready[2];   /* number of barriers that each side has entered */
	_Atomic int failed;     /* exit code of the side that failed first; 0: none */
	cu_ipc_handle buf[2];   /* each side's buffer */
	unsigned char bytes[8]; /* with --cpu: start of both buffers, before alignment */
} *sh;

static struct {
	int cpu, pingpong, query;
	uint64_t sizes[MAX_SIZES];
	int nsizes, iters, warmup;
	int gpus[2], cpus[2];
	double timeout;
} opt = {
	.sizes = {1024, 4096, 16384, 65536},
	.nsizes = 4,
	.iters = 1000,
	.warmup = 100,
	.gpus = {0, -1},
	.cpus = {-1, -1},
	.timeout = 10,
};

static int side; /* 0: sender, 1: receiver */
static pid_t child;

/* State of this process's device. */
static struct {
	cu_ptr mine, theirs; /* own buffer; mapping of the other side's buffer */
	void *stream;
} dev;

/* Ends both processes. Only the side that fails first prints its error. */
static void die(int code, const char *format, ...) {
	int none = 0;
	char text[512];
	if (!sh || atomic_compare_exchange_strong(&sh->failed, &none, code)) {
		va_list args;
		va_start(args, format);
		vsnprintf(text, sizeof text, format, args);
		va_end(args);
		fprintf(stderr, "bareloop: %s: %s\n", side ? "receiver" : "sender", text);
	}
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	_exit(none ? none : code);
}

static void check_cuda(cu_result r, const char *call) {
	const char *name = "unknown error";
	if (r == 0)
		return;
	cuGetErrorName(r, &name);
	die(EXIT_FAILED, "%s: %s (%d)", call, name, r);
}

#define CU(name, ...) check_cuda(name(__VA_ARGS__), #name)

static uint64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

/* Called every 1,024 steps of a wait: ends the process if the other side has failed or the deadline has passed. */
static void check_wait(uint64_t *since, const char *what) {
	uint64_t now = now_ns();
	int code = atomic_load(&sh->failed);
	if (code)
		_exit(code); /* the other side has printed the error */
	if (*since == 0)
		*since = now;
	if ((double)(now - *since) > opt.timeout * 1e9)
		die(EXIT_DEADLINE, "waited %.1f s for %s", opt.timeout, what);
	if (now - *since > 1000000 && child > 0 && waitpid(child, NULL, WNOHANG) != 0) {
		child = 0;
		die(EXIT_FAILED, "the receiver died");
	}
	if (opt.cpus[0] == opt.cpus[1] || now - *since > 1000000)
		sched_yield();
}

static void wait_for(struct word *w, uint64_t want, const char *what) {
	uint64_t since = 0;
	for (unsigned step = 1; atomic_load_explicit(&w->v, memory_order_acquire) < want; step++) {
		relax();
		if (step % 1024 == 0)
			check_wait(&since, what);
	}
}

static void post(struct word *w, uint64_t v) { atomic_store_explicit(&w->v, v, memory_order_release); }

/* A barrier of both sides. */
static void barrier(const char *where) {
	uint64_t n = atomic_load_explicit(&sh->ready[side].v, memory_order_relaxed) + 1;
	post(&sh->ready[side], n);
	wait_for(&sh->ready[1 - side], n, where);
}

/* ---- the device ----------------------------------------------------------------------------------------------- */

static void load_cuda(void) {
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		die(EXIT_FAILED, "no CUDA driver (%s); --cpu needs none", dlerror());
#define RESOLVE(name, args)                                                                                            \
	*(void **)&name = dlsym(lib, #name);                                                                           \
	if (!name)                                                                                                     \
		die(EXIT_FAILED, "libcuda.so.1 lacks %s", #name);
	CUDA_CALLS(RESOLVE)
}

static void open_cuda(uint64_t bytes) {
	int count, peer = 1;
	cu_device mine, theirs;
	void *context;
	load_cuda();
	CU(cuInit, 0);
	CU(cuDeviceGetCount, &count);
	if (count == 0)
		die(EXIT_FAILED, "the CUDA driver sees no GPU");
	if (opt.gpus[1] < 0)
		opt.gpus[1] = count > 1 ? 1 : 0;
	CU(cuDeviceGet, &mine, opt.gpus[side]);
	CU(cuDeviceGet, &theirs, opt.gpus[1 - side]);
	if (mine != theirs)
		CU(cuDeviceCanAccessPeer, &peer, mine, theirs);
	if (!peer)
		die(EXIT_FAILED, "GPU %d cannot reach GPU %d", opt.gpus[side], opt.gpus[1 - side]);
	CU(cuDevicePrimaryCtxRetain, &context, mine);
	CU(cuCtxSetCurrent, context);
	CU(cuStreamCreate, &dev.stream, CU_NON_BLOCKING);
	CU(cuMemAlloc_v2, &dev.mine, 2 * bytes);
	CU(cuIpcGetMemHandle, &sh->buf[side], dev.mine);
	barrier("the other side's handle");
	CU(cuIpcOpenMemHandle_v2, &dev.theirs, sh->buf[1 - side], CU_LAZY_PEER_ACCESS);
}

static void open_cpu(uint64_t bytes) {
	uintptr_t base = ((uintptr_t)sh->bytes + 4095) & ~(uintptr_t)4095;
	dev.mine = base + (uint64_t)side * 2 * bytes;
	dev.theirs = base + (uint64_t)(1 - side) * 2 * bytes;
	memset((void *)(uintptr_t)dev.mine, 0, 2 * bytes); /* first touch by the owner, which is pinned */
}

static void wait_stream(void) {
	uint64_t since = 0;
	if (!opt.query) {
		CU(cuStreamSynchronize, dev.stream);
		return;
	}
	for (unsigned step = 1;; step++) {
		cu_result r = cuStreamQuery(dev.stream);
		if (r == 0)
			return;
		if (r != CU_NOT_READY)
			check_cuda(r, "cuStreamQuery");
		if (step % 1024 == 0)
			check_wait(&since, "its stream");
	}
}

/* The first half of a buffer receives messages, the second half holds the message to send. */
static void move(uint64_t half, uint64_t size) {
	if (opt.cpu) {
		memcpy((void *)(uintptr_t)dev.theirs, (const void *)(uintptr_t)(dev.mine + half), size);
		return;
	}
	CU(cuMemcpyAsync, dev.theirs, dev.mine + half, size, dev.stream);
	wait_stream();
}

static unsigned char pattern(uint64_t size, uint64_t offset, int from) {
	return (unsigned char)((offset * 131 + (offset >> 8) * 29 + size * 7) ^ (from ? 0x5a : 0xa5));
}

static void *scratch(uint64_t size) {
	void *p = malloc(size);
	if (!p)
		die(EXIT_FAILED, "out of memory");
	return p;
}

static void fill(uint64_t half, uint64_t size) {
	unsigned char *p = scratch(size);
	for (uint64_t i = 0; i < size; i++)
		p[i] = pattern(size, i, side);
	if (opt.cpu) {
		memcpy((void *)(uintptr_t)(dev.mine + half), p, size);
	} else {
		CU(cuMemcpyHtoD_v2, dev.mine + half, p, size);
		CU(cuCtxSynchronize);
	}
	free(p);
}

static void verify(uint64_t size) {
	unsigned char *p = scratch(size);
	if (opt.cpu)
		memcpy(p, (const void *)(uintptr_t)dev.mine, size);
	else
		CU(cuMemcpyDtoH_v2, p, dev.mine, size);
	for (uint64_t i = 0; i < size; i++)
		if (p[i] != pattern(size, i, 1 - side))
			die(EXIT_CORRUPT, "size %llu: byte %llu is 0x%02x, expected 0x%02x", (unsigned long long)size,
			    (unsigned long long)i, p[i], pattern(size, i, 1 - side));
	free(p);
}

/* ---- the loop ------------------------------------------------------------------------------------------------- */

static uint64_t sequence;

static void send_all(uint64_t half, uint64_t size, int64_t *ns) {
	int total = opt.warmup + opt.iters;
	for (int i = 0; i < total; i++) {
		uint64_t n = ++sequence, t0 = now_ns();
		move(half, size);
		post(&sh->done, n);
		wait_for(&sh->ack, n, opt.pingpong ? "the reply" : "the acknowledgement");
		uint64_t t1 = now_ns();
		if (i >= opt.warmup)
			ns[i - opt.warmup] = (int64_t)(t1 - t0);
	}
}

static void receive_all(uint64_t half, uint64_t size) {
	int total = opt.warmup + opt.iters;
	for (int i = 0; i < total; i++) {
		uint64_t n = ++sequence;
		wait_for(&sh->done, n, "the message");
		if (opt.pingpong)
			move(half, size);
		post(&sh->ack, n);
	}
}

static int by_value(const void *a, const void *b) {
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static double rank_us(const int64_t *sorted, int n, double percent) {
	int rank = (int)((double)n * percent / 100.0 + 0.999999);
	rank = rank < 1 ? 1 : rank > n ? n : rank;
	return (double)sorted[rank - 1] / 1e3 / (opt.pingpong ? 2 : 1);
}

static void report(uint64_t size, int64_t *ns) {
	qsort(ns, (size_t)opt.iters, sizeof *ns, by_value);
	printf("%llu\t%.3f\t%.3f\t%.3f\t%d\n", (unsigned long long)size, rank_us(ns, opt.iters, 50),
	       rank_us(ns, opt.iters, 99), rank_us(ns, opt.iters, 0), opt.iters);
	fflush(stdout);
}

static void print_header(void) {
	char where[64] = "CPU memory", wait[32] = "";
	if (!opt.cpu) {
		snprintf(where, sizeof where, "GPU %d to GPU %d", opt.gpus[0], opt.gpus[1]);
		snprintf(wait, sizeof wait, ", stream wait: %s", opt.query ? "query" : "sync");
	}
	printf("# bare loop, %s, %s%s, CPUs %d and %d, µs\nsize\tp50\tp99\tmin\tn\n",
	       opt.pingpong ? "pingpong (half round trip)" : "latency (until acknowledged)", where, wait, opt.cpus[0],
	       opt.cpus[1]);
	fflush(stdout);
}

static void run_side(uint64_t largest) {
	int64_t *ns = scratch((size_t)opt.iters * sizeof *ns);
	memset(ns, 0, (size_t)opt.iters * sizeof *ns);
	if (opt.cpu)
		open_cpu(largest);
	else
		open_cuda(largest);
	barrier("the other side's set-up");
	if (side == 0)
		print_header();
	for (int s = 0; s < opt.nsizes; s++) {
		uint64_t size = opt.sizes[s];
		fill(largest, size);
		barrier("the other side's payload");
		if (side == 0)
			send_all(largest, size, ns);
		else
			receive_all(largest, size);
		if (side == 1 || opt.pingpong)
			verify(size);
		barrier("the other side's check");
		if (side == 0)
			report(size, ns);
	}
	if (!opt.cpu)
		CU(cuIpcCloseMemHandle, dev.theirs);
	barrier("the other side's end"); /* a buffer must not be freed while the other side has it mapped */
	free(ns);
}

/* ---- the command line ----------------------------------------------------------------------------------------- */

static void usage(const char *wrong) {
	fprintf(stderr,
		"bareloop: %s\nusage: bareloop [--cpu] [--op latency|pingpong] [--wait sync|query] [--sizes LIST]"
		" [-n N] [-w N]\n                [--gpus A,B] [--cpus A,B] [--timeout SECONDS]\n",
		wrong);
	exit(EXIT_USAGE);
}

static uint64_t parse_size(const char *text) {
	char *end;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
	if (errno || end == text || end[shift > 0] || n == 0 || n > (1ull << 36) >> shift)
		usage("want a size: a number, optionally followed by K, M or G");
	return (uint64_t)n << shift;
}

static void parse_sizes(char *list) {
	opt.nsizes = 0;
	for (char *next, *s = strtok_r(list, ",", &next); s; s = strtok_r(NULL, ",", &next)) {
		if (opt.nsizes == MAX_SIZES)
			usage("too many sizes");
		opt.sizes[opt.nsizes++] = parse_size(s);
	}
	if (opt.nsizes == 0)
		usage("no sizes");
}

static int parse_count(const char *text, int least) {
	char *end;
	long n = strtol(text, &end, 10);
	if (end == text || *end || n < least || n > 100000000)
		usage("want a whole number of at most 100000000");
	return (int)n;
}

static void parse_pair(const char *text, int pair[2]) {
	char rest;
	if (sscanf(text, "%d,%d%c", &pair[0], &pair[1], &rest) != 2 || pair[0] < 0 || pair[1] < 0)
		usage("want a pair A,B");
}

static int one_of(const char *text, const char *first, const char *second) {
	if (strcmp(text, first) && strcmp(text, second))
		usage("unknown choice");
	return strcmp(text, first) != 0;
}

static void parse(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		const char *flag = argv[i];
		if (!strcmp(flag, "--cpu")) {
			opt.cpu = 1;
			continue;
		}
		char *value = ++i < argc ? argv[i] : NULL;
		if (!value)
			usage("unknown flag, or its value is missing");
		if (!strcmp(flag, "--op"))
			opt.pingpong = one_of(value, "latency", "pingpong");
		else if (!strcmp(flag, "--wait"))
			opt.query = one_of(value, "sync", "query");
		else if (!strcmp(flag, "--sizes"))
			parse_sizes(value);
		else if (!strcmp(flag, "-n"))
			opt.iters = parse_count(value, 1);
		else if (!strcmp(flag, "-w"))
			opt.warmup = parse_count(value, 0);
		else if (!strcmp(flag, "--gpus"))
			parse_pair(value, opt.gpus);
		else if (!strcmp(flag, "--cpus"))
			parse_pair(value, opt.cpus);
		else if (!strcmp(flag, "--timeout"))
			opt.timeout = parse_count(value, 1);
		else
			usage("unknown flag");
	}
}

/* Without --cpus: the first two CPUs that this process may use. If there is only one, both share it and waits yield. */
static void choose_cpus(void) {
	cpu_set_t set;
	if (opt.cpus[0] >= 0)
		return;
	if (sched_getaffinity(0, sizeof set, &set))
		die(EXIT_FAILED, "sched_getaffinity: %s", strerror(errno));
	for (int c = 0, found = 0; c < CPU_SETSIZE && found < 2; c++)
		if (CPU_ISSET(c, &set))
			opt.cpus[found++] = c;
	if (opt.cpus[1] < 0)
		opt.cpus[1] = opt.cpus[0];
}

static void pin(int cpu) {
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		die(EXIT_FAILED, "cannot run on CPU %d: %s", cpu, strerror(errno));
}

static void share(uint64_t largest) {
	size_t bytes = sizeof *sh + 4096 + (opt.cpu ? 4 * (size_t)largest : 0);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die(EXIT_FAILED, "mmap of %zu bytes: %s", bytes, strerror(errno));
	sh = p;
}

static void run_child(pid_t parent, uint64_t largest) {
	side = 1;
	child = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_FAILED);
	pin(opt.cpus[1]);
	run_side(largest);
	_exit(0);
}

/* Returns the receiver's exit code, after at most --timeout. */
static int reap(void) {
	uint64_t since = now_ns();
	int status;
	while (waitpid(child, &status, WNOHANG) == 0) {
		if ((double)(now_ns() - since) > opt.timeout * 1e9)
			die(EXIT_DEADLINE, "the receiver did not end");
		usleep(1000);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
}

int main(int argc, char **argv) {
	uint64_t largest = 0;
	parse(argc, argv);
	choose_cpus();
	for (int s = 0; s < opt.nsizes; s++)
		largest = opt.sizes[s] > largest ? opt.sizes[s] : largest;
	largest = (largest + 4095) & ~(uint64_t)4095;
	share(largest);
	pid_t parent = getpid();
	child = fork();
	if (child < 0)
		die(EXIT_FAILED, "fork: %s", strerror(errno));
	if (child == 0)
		run_child(parent, largest);
	pin(opt.cpus[0]);
	run_side(largest);
	return reap();
}
