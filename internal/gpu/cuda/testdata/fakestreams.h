/*
 * fakestreams.h: streams, events, graphs and kernels for the fake driver. Kernels are C functions, found by name. A
 * stream executes its work at once. With FAKE_SHUFFLE it executes nothing until a stream is polled; then one operation
 * of any stream runs whose events are complete, which reveals missing waits. A stream that waits for a word continues
 * when a stream is polled.
 */

enum { MAX_OPS = 512, MAX_LANES = 8 };

/* ---- kernels -------------------------------------------------------------------------------------------------- */

static const char *const kernels[] = {"p2p_fill", "p2p_check", "p2p_copy", "p2p_copy_bulk", "p2p_proxy"};

/*
 * RECORD and WAIT tie streams together, EDGE_OUT and EDGE_IN the lanes of a graph; GRAPH is a launch of one. AWAIT and
 * WRITE are of words in memory. SENDRECV is the first of several kernels that send and receive.
 */
enum { FILL, CHECK, COPY, COPY_BULK, PROXY, MEMCPY, RECORD, WAIT, EDGE_OUT, EDGE_IN, GRAPH, AWAIT, WRITE, SENDRECV };

/* One operation, with its arguments as passed to the device. */
struct op {
	int kind, lane;
	uint64_t args[5];
};

struct graph {
	int n, lanes, spoilt;
	uint64_t id;
	struct stream *streams[MAX_LANES];
	struct op ops[MAX_OPS];
};

struct stream {
	int hung, priority, lane, error;
	struct proxy_run proxy;
	struct graph *capture;
	struct op *queue; /* pending operations: FAKE_SHUFFLE, or behind a wait for a word */
	int first, last, room;
	struct stream *next;
};

struct event {
	uint64_t recorded, done; /* by number */
	int timing;
	uint64_t ns;    /* when it was done last */
	uint64_t graph; /* recorded into that one, */
	int node;       /* as that operation */
};

static __thread struct graph *capturing;

static int covered(uint64_t o, uint64_t n, uint64_t step) {
	return !step || o % step < P2P_SAMPLE_BYTES || o + P2P_SAMPLE_BYTES >= n;
}

/* The first byte from o on that counts. */
static uint64_t next_covered(uint64_t o, uint64_t n, uint64_t step) {
	if (covered(o, n, step))
		return o;
	const uint64_t next = (o / step + 1) * step, tail = n - P2P_SAMPLE_BYTES;
	return next < tail ? next : tail;
}

/* Words at any address. */
typedef uint32_t __attribute__((aligned(1), may_alias)) word;

/* Large payloads are what the tests spend their time on. */
#if defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((optimize("O3"), target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE __attribute__((optimize("O3")))
#endif

WIDE static void fill_words(word *p, uint64_t n, uint64_t key) {
	for (uint64_t i = 0; i < n; i++)
		p[i] = p2p_payload_word(key, i);
}

/* All differing bits of n words. */
WIDE static uint32_t diff_words(const word *p, uint64_t n, uint64_t key) {
	uint32_t d = 0;
	for (uint64_t i = 0; i < n; i++)
		d |= p[i] ^ p2p_payload_word(key, i);
	return d;
}

static void fill(const uint64_t *a) {
	uint8_t *p = (uint8_t *)(uintptr_t)a[0];
	uint64_t o = a[3] ? 0 : a[1] / 4 * 4;
	fill_words((word *)p, o / 4, a[2]);
	for (; o < a[1]; o = next_covered(o + 1, a[1], a[3]))
		p[o] = p2p_payload_byte(a[2], o);
}

static void check(const uint64_t *a) {
	const uint8_t *p = (const uint8_t *)(uintptr_t)a[0];
	uint64_t *found = (uint64_t *)(uintptr_t)a[4];
	uint64_t o = a[3] ? 0 : a[1] / 4 * 4;
	if (diff_words((const word *)p, o / 4, a[2]))
		o = 0;
	for (; o < a[1]; o = next_covered(o + 1, a[1], a[3]))
		if (p[o] != p2p_payload_byte(a[2], o)) {
			found[0]++;
			found[1] = o < found[1] ? o : found[1];
		}
}

static int run_graph(struct stream *s, const struct graph *g);

/* In fakequeue.h. */
static int memop_met(const struct op *op);
static int memop(const struct op *op);
static int sendrecv_find(uintptr_t *f, const char *name);
static int sendrecv_set(uintptr_t f, int attr, int value);
static int sendrecv_launch(struct stream *s, uintptr_t f, const unsigned shape[4], const void *args);
static int sendrecv_run(const struct op *op);

static int tie(struct stream *s, const struct op *op) {
	struct event *e = (struct event *)(uintptr_t)op->args[0];
	if (op->kind == RECORD && !s->hung) {
		e->done = op->args[1];
		e->ns = p2p_raw_ns();
	}
	if (op->kind == WAIT && e->done < op->args[1])
		s->hung = 1;
	return 0;
}

static int run(struct stream *s, const struct op *op) {
	const uint64_t *a = op->args;
	switch (op->kind) {
	case FILL:
		fill(a);
		return 0;
	case CHECK:
		check(a);
		return 0;
	case RECORD:
	case WAIT:
		return tie(s, op);
	case EDGE_OUT:
	case EDGE_IN:
		return 0;
	case AWAIT:
	case WRITE:
		return memop(op);
	case SENDRECV:
		return sendrecv_run(op);
	case GRAPH:
		return run_graph(s, (const struct graph *)(uintptr_t)a[0]);
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

/* ---- order of execution --------------------------------------------------------------------------------------- */

static struct stream *streams; /* all of them */

/* Polling any stream may execute work of all streams. */
static pthread_mutex_t gpu = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static int shuffling(void) { return getenv("FAKE_SHUFFLE") != NULL; }

static unsigned choose(unsigned n) {
	static uint64_t count;
	return (unsigned)(p2p_mix64(((uint64_t)number("FAKE_SHUFFLE", 0) << 32) + ++count) % n);
}

static int may_run(const struct stream *s) {
	if (s->first == s->last || s->hung || s->error)
		return 0;
	const struct op *op = &s->queue[s->first];
	if (op->kind == AWAIT)
		return memop_met(op);
	return op->kind != WAIT || ((struct event *)(uintptr_t)op->args[0])->done >= op->args[1];
}

/* The stream that executes next: the same for a while, so that some run far ahead. NULL: none may run. */
static struct stream *pick(void) {
	static struct stream *last;
	static unsigned again;
	unsigned ready = 0;
	for (struct stream *s = streams; s; s = s->next) {
		if (s == last && may_run(s) && again) {
			again--;
			return s;
		}
		ready += (unsigned)may_run(s);
	}
	if (!ready)
		return NULL;
	unsigned k = choose(ready);
	struct stream *s = streams;
	while (!may_run(s) || k--)
		s = s->next;
	last = s;
	again = choose(8);
	return s;
}

/* Executes one operation of some stream. Returns 0 if none may run. */
static int step(void) {
	struct stream *s = pick();
	if (!s)
		return 0;
	struct op op = s->queue[s->first++];
	s->error = run(s, &op);
	return 1;
}

/* Executes the operations of a waiting stream that may run. Returns 1 if there were any. */
static int advance(struct stream *s) {
	int some = 0;
	pthread_mutex_lock(&gpu);
	for (; !shuffling() && may_run(s); some = 1) {
		struct op op = s->queue[s->first++];
		s->error = run(s, &op);
	}
	pthread_mutex_unlock(&gpu);
	return some;
}

/* The same for all streams: one may write a word that another one waits for. */
static void advance_all(void) {
	int more;
	do {
		more = 0;
		for (struct stream *s = streams; s; s = s->next)
			more |= advance(s);
	} while (more);
}

static int enqueue(struct stream *s, const struct op *op) {
	if (s->first == s->last)
		s->first = s->last = 0;
	if (s->last == s->room) {
		s->room = 2 * s->room + 64;
		s->queue = realloc(s->queue, (size_t)s->room * sizeof *op);
	}
	s->queue[s->last++] = *op;
	return 0;
}

static int note_op(struct stream *s, struct op op) {
	struct graph *g = s->capture;
	if (g->spoilt)
		return 901;
	if (g->n == MAX_OPS)
		return 2;
	op.lane = s->lane;
	g->ops[g->n++] = op;
	return 0;
}

static int submit(struct stream *s, const struct op *op) {
	if (atomic_load(&s->proxy.alive))
		return 999; /* would wait for a resident kernel */
	if (s->capture)
		return note_op(s, *op);
	pthread_mutex_lock(&gpu);
	advance_all();
	int later = shuffling() || s->first != s->last || (op->kind == AWAIT && !memop_met(op));
	int rc = later ? enqueue(s, op) : run(s, op);
	pthread_mutex_unlock(&gpu);
	return rc;
}

/* Whether operation i may run: it is the next of its lane, and the operations it waits for are complete. */
static int node_ready(const struct graph *g, const char *done, int i) {
	if (done[i] || (g->ops[i].kind == EDGE_IN && !done[g->ops[i].args[1]]))
		return 0;
	for (int k = 0; k < i; k++)
		if (g->ops[k].lane == g->ops[i].lane && !done[k])
			return 0;
	return 1;
}

/* Runs a graph's operations in the order in which they were recorded, or in any order that its edges permit. */
static int run_graph(struct stream *s, const struct graph *g) {
	char done[MAX_OPS] = {0};
	for (int i = 0; i < g->n; i++) {
		int at = shuffling() ? (int)choose((unsigned)g->n) : i;
		while (!node_ready(g, done, at))
			at = (at + 1) % g->n;
		int rc = run(s, &g->ops[at]);
		if (rc)
			return rc;
		done[at] = 1;
	}
	return 0;
}

/* ---- modules and launches ------------------------------------------------------------------------------------- */

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
	held_gone(__func__);
	free(mod);
	live[MODULES]--;
	return 0;
}

int cuModuleGetFunction(uintptr_t *f, const char *mod, const char *name) {
	char entry[64];
	FAIL_IF_ASKED;
	snprintf(entry, sizeof entry, ".visible .entry %s(", name);
	if (!strstr(mod, entry))
		return 500;
	for (uintptr_t i = 0; i < PROXY + 1; i++)
		if (strcmp(name, kernels[i]) == 0) {
			*f = i + 1;
			return 0;
		}
	return sendrecv_find(f, name);
}

int cuFuncSetAttribute(uintptr_t f, int attr, int value) {
	FAIL_IF_ASKED;
	if (f > SENDRECV)
		return sendrecv_set(f, attr, value);
	return f == COPY_BULK + 1 && attr == 8 && value == 128 << 10 ? 0 : 1;
}

int cuLaunchKernel(uintptr_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		   unsigned shared, struct stream *s, uint64_t **params, void **extra) {
	static const int counts[] = {[FILL] = 4, [CHECK] = 5, [COPY] = 3, [COPY_BULK] = 3};
	NEED_CONTEXT;
	struct op op = {.kind = (int)f - 1};
	if (!gx || gy != 1 || gz != 1 || by != 1 || bz != 1 || extra)
		return 1;
	if (f > SENDRECV)
		return sendrecv_launch(s, f, (unsigned[]){gx, bx, shared, 0}, params[0]);
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
	struct op op = {.kind = MEMCPY, .args = {dst, src, n}};
	return submit(s, &op);
}

int cuStreamCreate(struct stream **s, unsigned flags) {
	NEED_CONTEXT;
	*s = calloc(1, sizeof **s);
	live[STREAMS]++;
	pthread_mutex_lock(&gpu);
	(*s)->next = streams;
	streams = *s;
	pthread_mutex_unlock(&gpu);
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
	pthread_mutex_lock(&gpu);
	if (shuffling())
		step();
	advance_all();
	int busy = s->hung || s->first != s->last;
	pthread_mutex_unlock(&gpu);
	if (s->error)
		return s->error;
	if (s->capture)
		s->capture->spoilt = 1;
	return s->capture ? 900 : busy ? 600 : 0;
}

int cuStreamDestroy_v2(struct stream *s) {
	struct stream **at = &streams;
	if (s->proxy.alive)
		return 999;
	live[RESIDENT] -= proxy_join(&s->proxy);
	while (shuffling() && s->first != s->last && step())
		;
	pthread_mutex_lock(&gpu);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	pthread_mutex_unlock(&gpu);
	free(s->queue);
	free(s);
	live[STREAMS]--;
	return 0;
}

int cuEventCreate(struct event **e, unsigned flags) {
	NEED_CONTEXT;
	*e = calloc(1, sizeof **e);
	(*e)->timing = flags == 0;
	live[EVENTS]++;
	return flags == 0 || flags == 2 ? 0 : 1;
}

int cuEventDestroy_v2(struct event *e) {
	FAIL_IF_ASKED;
	free(e);
	live[EVENTS]--;
	return 0;
}

int cuEventRecord(struct event *e, struct stream *s) {
	NEED_CONTEXT;
	if (s->capture) {
		e->graph = s->capture->id;
		e->node = s->capture->n;
		return note_op(s, (struct op){.kind = EDGE_OUT});
	}
	e->graph = 0;
	struct op op = {.kind = RECORD, .args = {(uintptr_t)e, ++e->recorded}};
	return submit(s, &op);
}

int cuEventQuery(struct event *e) {
	NEED_CONTEXT;
	if (e->graph)
		return 907;
	if (shuffling())
		step();
	return e->done < e->recorded ? 600 : 0;
}

/* A stream that waits for an event of a recording takes part in it from then on. */
static int join_capture(struct stream *s, const struct event *e) {
	if (!capturing || capturing->id != e->graph)
		return 907;
	if (!s->capture) {
		if (capturing->lanes == MAX_LANES)
			return 2;
		s->capture = capturing;
		s->lane = capturing->lanes;
		capturing->streams[capturing->lanes++] = s;
	}
	return note_op(s, (struct op){.kind = EDGE_IN, .args = {0, (uint64_t)e->node}});
}

int cuStreamWaitEvent(struct stream *s, struct event *e, unsigned flags) {
	NEED_CONTEXT;
	if (flags)
		return 1;
	if (e->graph)
		return join_capture(s, e);
	if (s->capture)
		return 905;
	struct op op = {.kind = WAIT, .args = {(uintptr_t)e, e->recorded}};
	return submit(s, &op);
}

int cuStreamBeginCapture_v2(struct stream *s, int mode) {
	static _Atomic uint64_t ids;
	NEED_CONTEXT;
	s->capture = calloc(1, sizeof *s->capture);
	s->lane = 0;
	*s->capture = (struct graph){.lanes = 1, .id = ++ids, .streams = {s}};
	capturing = s->capture;
	live[GRAPHS]++;
	return mode == 1 ? 0 : 1;
}

/* Whether the first lane waits for the end of that one. */
static int joined(const struct graph *g, int lane) {
	int end = g->n - 1;
	while (g->ops[end].lane != lane)
		end--;
	for (int i = end + 1; i < g->n; i++)
		if (g->ops[i].lane == 0 && g->ops[i].kind == EDGE_IN && g->ops[i].args[1] == (uint64_t)end)
			return 1;
	return 0;
}

int cuStreamEndCapture(struct stream *s, struct graph **out) {
	FAIL_IF_ASKED;
	struct graph *g = s->capture;
	if (!g || s->lane)
		return 901;
	int rc = g->spoilt ? 901 : 0;
	for (int i = 0; i < g->lanes; i++) {
		g->streams[i]->capture = NULL;
		if (i && !joined(g, i))
			rc = 904;
	}
	capturing = NULL;
	*out = rc ? NULL : g;
	if (rc) {
		free(g);
		live[GRAPHS]--;
	}
	return rc;
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
	struct op op = {.kind = GRAPH, .args = {(uintptr_t)exec}};
	int rc = 0;
	if (exec->lanes > 1 || s->capture)
		return submit(s, &op);
	for (int i = 0; i < exec->n && !rc; i++) /* each may hold the stream */
		rc = submit(s, &exec->ops[i]);
	return rc;
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
