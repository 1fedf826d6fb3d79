/*
 * fakenccl.c: a driver and an NCCL without a GPU, in one library: the fake driver of internal/gpu/cuda with sends and
 * receives between processes, over a socket for each pair, that go on whenever somebody asks whether a stream has
 * ended. They keep their place among what else is on their stream. Tests build it and load it through P2PBENCH_LIBCUDA
 * and P2PBENCH_LIBNCCL.
 *
 * The environment makes it fail, beside what fakecuda.c knows:
 *   FAKE_NCCL_VERSION=V       what ncclGetVersion says
 *   FAKE_NCCL_FAIL=NAME:CODE  the function of that name fails, always
 *   FAKE_NCCL_FAIL_BYTES=N    a send of N bytes fails
 *   FAKE_NCCL_FAIL_END_BYTES=N a group that begins with N bytes fails once it is posted
 *   FAKE_NCCL_SPOIL_BYTES=N   a message of N bytes arrives with its last byte wrong
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

enum { MAX_COMMS = 8, MAX_RANKS = 8, MAX_CALLS = 256, NCCL_GROUP = 100, MAGIC = 0x600d };

/* A send or a receive: eight bytes of length, then the payload. */
struct call {
	int sends, peer;
	char *p;
	uint64_t n, length, done; /* done counts the length's bytes too */
};

/* The place of a group on its stream, which sets reached there and awaits done. Never freed: streams outlive groups. */
struct place {
	_Atomic uint64_t reached, done;
};

/* What one outermost group, or one call outside any, puts on a stream. */
struct group {
	struct comm *comm;
	struct stream *stream;
	struct place *place;
	struct group *next;
	int n;
	struct call calls[MAX_CALLS];
};

struct comm {
	int magic, rank, ranks, dev, async, used;
	int fd[MAX_RANKS]; /* to each other rank */
	int ctas;          /* 0: by size */
	int captured; /* it was recorded with, which the real one pays for ever after; 2: and was used otherwise since
		       */
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
		int fd = c->fd[k->peer];
		ssize_t m = k->sends ? send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, p, n, MSG_DONTWAIT);
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
	if (!k->sends && is_bytes("FAKE_NCCL_SPOIL_BYTES", k->n))
		k->p[k->n - 1] ^= 1;
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

/* The first group of those that are not done is, one way or another. */
static void first_done(struct comm *c) {
	struct group *g = c->pending;
	c->pending = g->next;
	atomic_store(&g->place->done, 1);
	free(g);
}

static void go_on(struct comm *c) {
	while (c->used && !c->async && c->pending && atomic_load(&c->pending->place->reached) && move_group(c->pending))
		first_done(c);
}

/* Whether the stream is held, by something else than a group. */
static int is_held(const struct stream *s) {
	if (s->first == s->last)
		return 0;
	for (int i = 0; i < MAX_COMMS; i++)
		for (struct group *g = comms[i].pending; g; g = g->next)
			if (s->queue[s->first].args[0] == (uintptr_t)&g->place->done)
				return 0;
	return 1;
}

/* Puts the group on the stream, behind what is there and before what comes. */
static int submit_group(const struct group *g, struct stream *s) {
	struct group *copy = malloc(sizeof *copy), **at = &g->comm->pending;
	struct place *place = calloc(1, sizeof *place);
	struct op reached = {.kind = WRITE, .args = {(uintptr_t)&place->reached, 1}};
	struct op done = {.kind = AWAIT, .args = {(uintptr_t)&place->done, 1}};
	*copy = *g;
	copy->stream = s;
	copy->place = place;
	copy->next = NULL;
	while (*at)
		at = &(*at)->next;
	*at = copy;
	int rc = submit(s, &reached);
	note("rank %d posts to a %s stream\n", g->comm->rank, is_held(s) ? "held" : "free");
	if (!rc)
		rc = submit(s, &done);
	go_on(g->comm);
	return rc;
}

int cuStreamQuery(struct stream *s) {
	for (int i = 0; i < MAX_COMMS; i++)
		go_on(&comms[i]);
	return fakecuda_stream_query(s);
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
	if (exec->lanes > 1)
		return fakecuda_graph_launch(exec, s);
	for (int i = 0; i < exec->n && !rc; i++)
		rc = group_of(&exec->ops[i]) ? submit_group(group_of(&exec->ops[i]), s) : submit(s, &exec->ops[i]);
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
	*p = (struct kernel_params){.grid = {g->comm->ctas ? (unsigned)g->comm->ctas : ctas, 1, 1},
				    .block = {512, 1, 1}};
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
	static const char *const texts[] = {"no error",
					    "unhandled cuda error",
					    "unhandled system error",
					    "internal error",
					    "invalid argument",
					    "invalid usage",
					    "remote process exited or there was a network error"};
	return code >= 0 && code <= 6 ? texts[code] : "unknown result code";
}

static struct sockaddr_un where(const struct id *id, int rank, socklen_t *n) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int length = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%.90s-%d", id->bytes, rank);
	*n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
	return a;
}

static int serve(const struct id *id, int rank) {
	socklen_t n;
	struct sockaddr_un a = where(id, rank, &n);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(fd, (struct sockaddr *)&a, n) || listen(fd, MAX_RANKS)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int listening[MAX_COMMS];

int ncclGetUniqueId(struct id *id) {
	static int count;
	NCCL_FAIL_IF_ASKED;
	if (!current)
		return 1;
	snprintf(id->bytes, sizeof id->bytes, "fakenccl-%d-%d", (int)getpid(), count);
	int fd = serve(id, 0);
	if (fd < 0)
		return 2;
	listening[count++] = fd;
	return 0;
}

/* A rank that serves others may come later than those. */
static int dial(const struct id *id, int rank) {
	socklen_t n;
	struct sockaddr_un a = where(id, rank, &n);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	while (connect(fd, (struct sockaddr *)&a, n)) {
		if (errno != ECONNREFUSED)
			return -1;
		usleep(1000);
	}
	return fd;
}

/* Each rank serves those above it and dials those below, which it tells its own number. */
static int meet(struct comm *c, const struct id *id) {
	int server = c->rank ? serve(id, c->rank) : listening[atoi(strrchr(id->bytes, '-') + 1)];
	for (int r = 0; r < c->rank; r++) {
		c->fd[r] = dial(id, r);
		if (c->fd[r] < 0 || write(c->fd[r], &c->rank, sizeof c->rank) < 0)
			return -1;
	}
	for (int i = c->rank + 1; i < c->ranks; i++) {
		int fd = accept4(server, NULL, NULL, SOCK_CLOEXEC), r;
		if (recv(fd, &r, sizeof r, MSG_WAITALL) != sizeof r || r <= c->rank || r >= c->ranks)
			return -1;
		c->fd[r] = fd;
	}
	close(server);
	return 0;
}

/* Each rank needs a GPU of its own. */
static int compare_devices(const struct comm *c) {
	for (int r = 0; r < c->ranks; r++)
		if (r != c->rank && write(c->fd[r], &c->dev, sizeof c->dev) < 0)
			return 2;
	for (int r = 0; r < c->ranks; r++) {
		int theirs = -1;
		if (r != c->rank && recv(c->fd[r], &theirs, sizeof theirs, MSG_WAITALL) < 0)
			return 2;
		if (theirs == c->dev || getenv("FAKE_NCCL_SAME_GPU"))
			return 5;
	}
	return 0;
}

int ncclCommInitRankConfig(struct comm **out, int ranks, struct id id, int rank, const struct config *f) {
	NCCL_FAIL_IF_ASKED;
	if (f->size != sizeof *f || f->magic != 0xcafebeef || f->version != 21800 || f->blocking != 1 ||
	    f->cga != INT_MIN || f->net || f->split != INT_MIN || ranks < 2 || ranks > MAX_RANKS)
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
	*c = (struct comm){.magic = MAGIC, .rank = rank, .ranks = ranks, .dev = (int)(current - CTX_MAGIC)};
	c->ctas = f->max == INT_MIN ? 0 : f->max;
	if (meet(c, &id))
		return 2;
	int rc = compare_devices(c);
	if (rc)
		return rc;
	note("rank %d init %d %d nvls %s\n", rank, f->min == INT_MIN ? 0 : f->min, f->max == INT_MIN ? 0 : f->max,
	     getenv("NCCL_NVLS_ENABLE"));
	c->used = 1;
	*out = c;
	return 0;
}

static int gone(struct comm *c) {
	for (int r = 0; r < c->ranks; r++)
		if (r != c->rank)
			close(c->fd[r]);
	c->used = c->magic = 0;
	return 0;
}

/* Ends what is under way. The real one waits for streams that are held, without end. */
static void end_all(struct comm *c) {
	while (c->pending) {
		advance(c->pending->stream);
		if (!atomic_load(&c->pending->place->reached)) {
			note("rank %d hangs in abort behind a held stream\n", c->rank);
			hang();
		}
		first_done(c);
	}
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
	end_all(c);
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
		int rc = submit_group(g, g->stream);
		if (!rc && is_bytes("FAKE_NCCL_FAIL_END_BYTES", g->calls[0].n))
			rc = 3;
		free(g);
		return rc ? rc : failing(__func__);
	}
	g->comm->captured = 1;
	g->comm->graphs++;
	struct op op = {.kind = NCCL_GROUP, .args = {(uintptr_t)g}};
	return submit(g->stream, &op) ? 1 : 0;
}

static int add(int sends, void *p, size_t n, int type, int peer, struct comm *c, struct stream *s) {
	if (c->magic != MAGIC || type != 1 || peer < 0 || peer >= c->ranks || peer == c->rank || !s)
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
	open_group->calls[open_group->n++] =
		(struct call){.sends = sends, .peer = peer, .p = p, .n = n, .length = sends ? n : 0};
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
