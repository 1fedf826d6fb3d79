/*
 * fakenccl.c: a driver and an NCCL without a GPU, in one library: the fake driver of internal/gpu/cuda with a send and
 * a receive between processes, over a socket, that go on whenever somebody asks whether a stream has ended. Tests build
 * it and load it through P2PBENCH_LIBCUDA and P2PBENCH_LIBNCCL.
 *
 * The environment makes it fail, beside what fakecuda.c knows:
 *   FAKE_NCCL_VERSION=V       what ncclGetVersion says
 *   FAKE_NCCL_FAIL=NAME:CODE  the function of that name fails, always
 *   FAKE_NCCL_FAIL_BYTES=N    a send of N bytes fails
 *   FAKE_NCCL_HANG_BYTES=N    a message of N bytes never arrives
 *   FAKE_NCCL_INIT_HANG=R     rank R never returns from the making of the communicator
 *   FAKE_NCCL_ABORT_HANG=1    ncclCommAbort never returns
 *   FAKE_NCCL_SAME_GPU=1      takes both devices for one
 *   FAKE_NCCL_COMMS=N         a process cannot have more than N communicators
 *   FAKE_NCCL_BY_KERNEL=1     graphs name kernels by library handle, not by function
 *   FAKE_NCCL_LOG=FILE        what was called, a line each
 * Built with -DOMIT_X the function X is missing: OMIT_ncclSend, OMIT_OPTIONAL, OMIT_cuGraphGetNodes, OMIT_NAMES.
 */
#define cuStreamQuery fakecuda_stream_query
#define cuGraphLaunch fakecuda_graph_launch
#define cuGraphInstantiateWithFlags fakecuda_graph_instantiate
#define cuGraphExecDestroy fakecuda_graph_exec_destroy
#define cuGraphDestroy fakecuda_graph_destroy
#include "../../../gpu/cuda/testdata/fakecuda.c"
#undef cuStreamQuery
#undef cuGraphLaunch
#undef cuGraphInstantiateWithFlags
#undef cuGraphExecDestroy
#undef cuGraphDestroy

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { MAX_COMMS = 8, MAX_CALLS = 256, NCCL_GROUP = 100, MAGIC = 0x600d };

/* A send or a receive: eight bytes of length, then the payload. */
struct call {
	int sends;
	char *p;
	uint64_t n, length, done; /* done counts the length's bytes too */
};

/* What one outermost group, or one call outside any, puts on a stream. */
struct group {
	struct comm *comm;
	struct stream *stream;
	struct group *next;
	int n;
	struct call calls[MAX_CALLS];
};

struct comm {
	int magic, fd, rank, dev, async, used;
	int ctas;     /* 0: by size */
	int captured; /* it was recorded with, which the real one pays for ever after; 2: and was used otherwise since */
	int graphs;   /* that hold work of it */
	struct group *pending;
};

static struct comm comms[MAX_COMMS];
static __thread int depth;
static __thread struct group *open_group;
static const char *last_error = "";

static int failing(const char *name) {
	const char *f = getenv("FAKE_NCCL_FAIL");
	size_t n = strlen(name);
	int code = f && strncmp(f, name, n) == 0 && f[n] == ':' ? atoi(f + n + 1) : 0;
	if (code)
		last_error = "the fake was told to";
	return code;
}

#define NCCL_FAIL_IF_ASKED                                                                                             \
	do {                                                                                                           \
		int code = failing(__func__);                                                                          \
		if (code)                                                                                              \
			return code;                                                                                   \
	} while (0)

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
	const char *path = getenv("FAKE_NCCL_LOG");
	char line[256];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	if (fd >= 0 && write(fd, line, (size_t)n) != n)
		abort();
	close(fd);
}

static void hang(void) {
	for (;;)
		pause();
}

/* ---- moving --------------------------------------------------------------------------------------------------- */

/* Moves what can be moved now of the call's bytes from `done` on. Returns 1 when all are. */
static int move(struct comm *c, struct call *k) {
	if (is_bytes("FAKE_NCCL_HANG_BYTES", k->n))
		return 0;
	while (k->done < sizeof k->length + k->n) {
		int header = k->done < sizeof k->length;
		char *p = header ? (char *)&k->length + k->done : k->p + (k->done - sizeof k->length);
		size_t n = header ? sizeof k->length - k->done : k->n + sizeof k->length - k->done;
		ssize_t m = k->sends ? send(c->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(c->fd, p, n, MSG_DONTWAIT);
		if (m == 0 || (m < 0 && errno != EAGAIN && errno != EINTR))
			c->async = 6;
		if (m <= 0)
			return 0;
		k->done += (uint64_t)m;
		if (!k->sends && k->done == sizeof k->length && k->length != k->n) {
			c->async = 5;
			return 0;
		}
	}
	return 1;
}

/* Sends are in order among themselves, and so are receives. */
static int move_group(struct group *g) {
	int blocked[2] = {0, 0};
	for (int i = 0; i < g->n; i++) {
		struct call *k = &g->calls[i];
		if (!blocked[k->sends])
			blocked[k->sends] = !move(g->comm, k);
	}
	return !blocked[0] && !blocked[1];
}

static void go_on(struct comm *c) {
	while (c->used && !c->async && c->pending && move_group(c->pending)) {
		struct group *g = c->pending;
		c->pending = g->next;
		free(g);
	}
}

static int submit_group(const struct group *g) {
	struct group *copy = malloc(sizeof *copy), **at = &g->comm->pending;
	*copy = *g;
	copy->next = NULL;
	while (*at)
		at = &(*at)->next;
	*at = copy;
	go_on(g->comm);
	return 0;
}

int cuStreamQuery(struct stream *s) {
	int rc = fakecuda_stream_query(s);
	for (int i = 0; i < MAX_COMMS && !rc; i++) {
		go_on(&comms[i]);
		for (struct group *g = comms[i].pending; g && !rc; g = g->next)
			if (g->stream == s)
				rc = 600;
	}
	return rc;
}

/* ---- graphs --------------------------------------------------------------------------------------------------- */

static struct group *group_of(const struct op *op) {
	return op->kind == NCCL_GROUP ? (struct group *)op->args[0] : NULL;
}

/* Notes that a graph with these operations comes or goes. */
static void hold(const struct graph *g, int by) {
	for (int i = 0; i < g->n; i++)
		if (group_of(&g->ops[i]))
			group_of(&g->ops[i])->comm->graphs += by;
}

int cuGraphInstantiateWithFlags(struct graph **exec, const struct graph *g, unsigned long long flags) {
	int rc = fakecuda_graph_instantiate(exec, g, flags);
	if (!rc)
		hold(*exec, 1);
	return rc;
}

int cuGraphExecDestroy(struct graph *exec) {
	hold(exec, -1);
	return fakecuda_graph_exec_destroy(exec);
}

int cuGraphDestroy(struct graph *g) {
	hold(g, -1);
	return fakecuda_graph_destroy(g);
}

int cuGraphLaunch(const struct graph *exec, struct stream *s) {
	NEED_CONTEXT;
	int rc = 0;
	for (int i = 0; i < exec->n && !rc; i++)
		rc = group_of(&exec->ops[i]) ? submit_group(group_of(&exec->ops[i])) : run(s, &exec->ops[i]);
	return rc;
}

/* A graph's nodes are its operations and, as NCCL makes some, the record of an event. */
static struct op event_record = {.kind = -1};

#ifndef OMIT_cuGraphGetNodes
int cuGraphGetNodes(struct graph *g, struct op **nodes, size_t *n) {
	FAIL_IF_ASKED;
	if (nodes && *n < (size_t)g->n + 1)
		return 1;
	*n = (size_t)g->n + 1;
	for (int i = 0; i < g->n && nodes; i++)
		nodes[i] = &g->ops[i];
	if (nodes)
		nodes[g->n] = &event_record;
	return 0;
}
#endif

int cuGraphNodeGetType(const struct op *node, int *type) {
	FAIL_IF_ASKED;
	*type = node == &event_record ? 7 : node->kind == MEMCPY ? 1 : 0;
	return 0;
}

/* As internal/transport/nccl/graph.h has it. */
struct kernel_params {
	const char *function;
	unsigned grid[3], block[3], shared;
	void **params, **extra;
	const char *kernel;
	void *context;
};

static const char send_recv[] = "_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE";

/* Two blocks for short messages, sixteen for long ones, or what was asked for. */
int cuGraphKernelNodeGetParams_v2(const struct op *node, struct kernel_params *p) {
	FAIL_IF_ASKED;
	const struct group *g = group_of(node);
	if (!g)
		return 1;
	unsigned ctas = g->calls[0].n > 65536 ? 16 : 2;
	*p = (struct kernel_params){.grid = {g->comm->ctas ? (unsigned)g->comm->ctas : ctas, 1, 1}, .block = {512, 1, 1}};
	*(number("FAKE_NCCL_BY_KERNEL", 0) ? &p->kernel : &p->function) = send_recv;
	return 0;
}

#ifndef OMIT_NAMES
int cuFuncGetName(const char **name, const char *function) {
	*name = function;
	return function == send_recv ? 0 : 400;
}

int cuKernelGetName(const char **name, const char *kernel) {
	*name = kernel;
	return kernel == send_recv ? 0 : 400;
}
#endif

/* ---- NCCL ----------------------------------------------------------------------------------------------------- */

struct id {
	char bytes[128];
};

/* As internal/transport/nccl/libnccl.h has it: the fake looks at what NCCL would. */
struct config {
	size_t size;
	unsigned magic, version;
	int blocking, cga, min, max;
	const char *net;
	int split;
};

int ncclGetVersion(int *v) {
	*v = number("FAKE_NCCL_VERSION", 22809);
	return failing(__func__);
}

const char *ncclGetErrorString(int code) {
	static const char *const texts[] = {"no error",		"unhandled cuda error",
					    "unhandled system error", "internal error",
					    "invalid argument",	"invalid usage",
					    "remote process exited or there was a network error"};
	return code >= 0 && code <= 6 ? texts[code] : "unknown result code";
}

static struct sockaddr_un where(const struct id *id, socklen_t *n) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%.100s", id->bytes);
	*n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(id->bytes));
	return a;
}

static int listening[MAX_COMMS];

int ncclGetUniqueId(struct id *id) {
	static int count;
	socklen_t n;
	NCCL_FAIL_IF_ASKED;
	if (!current)
		return 1;
	snprintf(id->bytes, sizeof id->bytes, "fakenccl-%d-%d", (int)getpid(), count);
	struct sockaddr_un a = where(id, &n);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(fd, (struct sockaddr *)&a, n) || listen(fd, 1))
		return 2;
	listening[count++] = fd;
	return 0;
}

static int meet(const struct id *id, int rank) {
	socklen_t n;
	struct sockaddr_un a = where(id, &n);
	if (rank == 0) {
		int fd = listening[atoi(strrchr(id->bytes, '-') + 1)];
		int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		close(fd);
		return c;
	}
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return connect(fd, (struct sockaddr *)&a, n) ? -1 : fd;
}

int ncclCommInitRankConfig(struct comm **out, int ranks, struct id id, int rank, const struct config *f) {
	NCCL_FAIL_IF_ASKED;
	if (f->size != sizeof *f || f->magic != 0xcafebeef || f->version != 21800 || f->blocking != 1 ||
	    f->cga != INT_MIN || f->net || f->split != INT_MIN || ranks != 2)
		return 4;
	if (getenv("FAKE_NCCL_INIT_HANG") && number("FAKE_NCCL_INIT_HANG", -1) == rank)
		hang();
	if (!current)
		return 1;
	struct comm *c = comms;
	while (c < comms + MAX_COMMS && c->used)
		c++;
	if (c - comms >= number("FAKE_NCCL_COMMS", MAX_COMMS))
		return 1;
	*c = (struct comm){.magic = MAGIC, .rank = rank, .dev = (int)(current - CTX_MAGIC), .fd = meet(&id, rank)};
	c->ctas = f->max == INT_MIN ? 0 : f->max;
	int theirs = -1;
	if (c->fd < 0 || write(c->fd, &c->dev, sizeof c->dev) < 0 ||
	    recv(c->fd, &theirs, sizeof theirs, MSG_WAITALL) < 0)
		return 2;
	if (theirs == c->dev || getenv("FAKE_NCCL_SAME_GPU"))
		return 5;
	note("rank %d init %d %d nvls %s\n", rank, f->min == INT_MIN ? 0 : f->min, f->max == INT_MIN ? 0 : f->max,
	     getenv("NCCL_NVLS_ENABLE"));
	c->used = 1;
	*out = c;
	return 0;
}

static int gone(struct comm *c) {
	while (c->pending) {
		struct group *g = c->pending;
		c->pending = g->next;
		free(g);
	}
	close(c->fd);
	c->used = c->magic = 0;
	return 0;
}

/* The real one waits for recorded windows without end. */
int ncclCommDestroy(struct comm *c) {
	NCCL_FAIL_IF_ASKED;
	if (c->magic != MAGIC || c->pending)
		return 4;
	if (c->graphs)
		hang();
	note("rank %d destroy\n", c->rank);
	return gone(c);
}

int ncclCommAbort(struct comm *c) {
	if (c->magic != MAGIC)
		return 4;
	note("rank %d abort\n", c->rank);
	if (getenv("FAKE_NCCL_ABORT_HANG"))
		hang();
	return gone(c);
}

int ncclCommGetAsyncError(struct comm *c, int *code) {
	*code = c->async;
	return c->magic == MAGIC ? 0 : 4;
}

int ncclGroupStart(void) {
	NCCL_FAIL_IF_ASKED;
	depth++;
	return 0;
}

int ncclGroupEnd(void) {
	struct group *g = open_group;
	if (depth == 0)
		return 5;
	if (--depth || !g)
		return failing(__func__);
	open_group = NULL;
	if (!g->stream->capture) {
		if (g->comm->captured == 1)
			note("rank %d goes on after a capture\n", g->comm->rank);
		if (g->comm->captured)
			g->comm->captured = 2;
		int rc = submit_group(g);
		free(g);
		return rc ? rc : failing(__func__);
	}
	g->comm->captured = 1;
	g->comm->graphs++;
	struct op op = {.kind = NCCL_GROUP, .args = {(uintptr_t)g}};
	return submit(g->stream, &op) ? 1 : 0;
}

static int add(int sends, void *p, size_t n, int type, int peer, struct comm *c, struct stream *s) {
	if (c->magic != MAGIC || type != 1 || peer != 1 - c->rank || !s)
		return 4;
	if ((int)(current - CTX_MAGIC) != c->dev)
		return 5;
	depth++;
	if (!open_group) {
		open_group = calloc(1, sizeof *open_group);
		open_group->comm = c;
		open_group->stream = s;
	}
	if (open_group->n == MAX_CALLS)
		return 3;
	open_group->calls[open_group->n++] = (struct call){.sends = sends, .p = p, .n = n, .length = sends ? n : 0};
	return ncclGroupEnd();
}

#ifndef OMIT_ncclSend
int ncclSend(const void *p, size_t n, int type, int peer, struct comm *c, struct stream *s) {
	NCCL_FAIL_IF_ASKED;
	if (is_bytes("FAKE_NCCL_FAIL_BYTES", n)) {
		last_error = "the fake was told to";
		return 1;
	}
	return add(1, (void *)(uintptr_t)p, n, type, peer, c, s);
}
#endif

int ncclRecv(void *p, size_t n, int type, int peer, struct comm *c, struct stream *s) {
	NCCL_FAIL_IF_ASKED;
	return add(0, p, n, type, peer, c, s);
}

#ifndef OMIT_OPTIONAL
const char *ncclGetLastError(const struct comm *c) {
	(void)c;
	return last_error;
}

int ncclCommRegister(struct comm *c, void *p, size_t n, void **handle) {
	NCCL_FAIL_IF_ASKED;
	note("rank %d register %zu of %s\n", c->rank, n, find_block((uintptr_t)p) ? "cuMemAlloc" : "cuMemCreate");
	*handle = p;
	return p && n ? 0 : 4;
}

int ncclCommDeregister(struct comm *c, void *handle) {
	NCCL_FAIL_IF_ASKED;
	note("rank %d deregister\n", c->rank);
	return handle ? 0 : 4;
}
#endif
