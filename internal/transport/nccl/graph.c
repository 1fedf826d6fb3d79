#include "graph.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { CAPTURE_THREAD_LOCAL = 1, NODE_KERNEL = 0 };

struct nccl_graph_functions nccl_graph_functions;

static const struct {
	const char *name;
	size_t at;
	int required;
} symbols[] = {
#define X(name, ...) {#name, offsetof(struct nccl_graph_functions, name), 1},
	GRAPH_REQUIRED(X)
#undef X
#define X(name, ...) {#name, offsetof(struct nccl_graph_functions, name), 0},
		GRAPH_LOOK(X) GRAPH_NAME(X)
#undef X
};

int nccl_graph_load(char *why, size_t size) {
	const char *asked = getenv("P2PBENCH_LIBCUDA");
	const char *path = asked && *asked ? asked : "libcuda.so.1";
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(why, size, "%s", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *f = dlsym(lib, symbols[i].name);
		if (!f && symbols[i].required) {
			snprintf(why, size, "%s: no function %s", path, symbols[i].name);
			memset(&nccl_graph_functions, 0, sizeof nccl_graph_functions);
			dlclose(lib);
			return -1;
		}
		memcpy((char *)&nccl_graph_functions + symbols[i].at, &f, sizeof f);
	}
	return 0;
}

const char *nccl_graph_missing(void) {
#define X(name, ...)                                                                                                   \
	if (!nccl_graph_functions.name)                                                                                \
		return #name;
	GRAPH_LOOK(X)
#undef X
	return NULL;
}

int nccl_graph_fail(struct p2p_error *e, const char *what, int native) {
	const char *name = NULL;
	p2p_fail(e, P2P_ERR_DEVICE, native, "");
	snprintf(e->text, sizeof e->text, "%s: %s (%d)", what,
		 cuGetErrorName(native, &name) == 0 && name ? name : "unknown error", native);
	return P2P_ERR_DEVICE;
}

int nccl_graph_begin(void *stream, struct p2p_error *e) {
	return graph_ok(e, "cuStreamBeginCapture_v2", cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL));
}

int nccl_graph_end(void *stream, void **graph, struct p2p_error *e) {
	*graph = NULL;
	return graph_ok(e, "cuStreamEndCapture", cuStreamEndCapture(stream, graph));
}

void nccl_graph_unknown(struct nccl_launch *l, const char *why) {
	memset(l, 0, sizeof *l);
	snprintf(l->text, sizeof l->text, "%s", why);
}

static int listed(const char *lines, const char *name) {
	size_t n = strlen(name);
	for (const char *p = lines; (p = strstr(p, name)); p++)
		if ((p == lines || p[-1] == '\n') && (p[n] == '\n' || p[n] == 0))
			return 1;
	return 0;
}

static void add_name(struct nccl_launch *l, const struct graph_kernel *k) {
	const char *name = NULL;
	size_t at = strlen(l->text);
	int rc = k->function ? cuFuncGetName(&name, k->function) : cuKernelGetName(&name, k->kernel);
	if (rc == 0 && name && !listed(l->text, name))
		snprintf(l->text + at, sizeof l->text - at, "%s%s", at ? "\n" : "", name);
}

static int add_node(struct nccl_launch *l, void *node, struct p2p_error *e) {
	struct graph_kernel k = {0};
	int type = -1;
	int rc = graph_ok(e, "cuGraphNodeGetType", cuGraphNodeGetType(node, &type));
	if (rc || type != NODE_KERNEL)
		return rc;
	rc = graph_ok(e, "cuGraphKernelNodeGetParams_v2", cuGraphKernelNodeGetParams_v2(node, &k));
	if (rc)
		return rc;
	l->kernels++;
	uint64_t ctas = (uint64_t)k.grid[0] * k.grid[1] * k.grid[2];
	l->ctas = ctas > l->ctas ? ctas : l->ctas;
	add_name(l, &k);
	return P2P_OK;
}

static int look(void *graph, struct nccl_launch *l, struct p2p_error *e) {
	size_t n = 0;
	int rc = graph_ok(e, "cuGraphGetNodes", cuGraphGetNodes(graph, NULL, &n));
	if (rc || n == 0)
		return rc;
	void **nodes = calloc(n, sizeof *nodes);
	if (!nodes)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	rc = graph_ok(e, "cuGraphGetNodes", cuGraphGetNodes(graph, nodes, &n));
	for (size_t i = 0; i < n && rc == P2P_OK; i++)
		rc = add_node(l, nodes[i], e);
	free(nodes);
	return rc;
}

void nccl_graph_look(void *graph, struct nccl_launch *l) {
	struct p2p_error e;
	const char *missing = nccl_graph_missing();
	memset(l, 0, sizeof *l);
	if (missing) {
		snprintf(l->text, sizeof l->text, "this driver has no %s", missing);
		return;
	}
	if (look(graph, l, &e))
		nccl_graph_unknown(l, e.text);
	else
		l->known = 1;
}
