#include "recorder.h"

#include <stdlib.h>

static int begin(void *stream, struct p2p_error *e) {
	return cuda_ok(e, "cuStreamBeginCapture_v2", cuStreamBeginCapture_v2(stream, CUDA_CAPTURE_THREAD_LOCAL));
}

static int end(void *stream, void **graph, struct p2p_error *e) {
	*graph = NULL;
	return cuda_ok(e, "cuStreamEndCapture", cuStreamEndCapture(stream, graph));
}

static int drop(void *graph, struct p2p_error *e) { return cuda_ok(e, "cuGraphDestroy", cuGraphDestroy(graph)); }

static int make(void *graph, void **exec, struct p2p_error *e) {
	*exec = NULL;
	return cuda_ok(e, "cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags(exec, graph, 0));
}

static int start(void *exec, void *stream, struct p2p_error *e) {
	return cuda_ok(e, "cuGraphLaunch", cuGraphLaunch(exec, stream));
}

static int release(void *exec, struct p2p_error *e) {
	return cuda_ok(e, "cuGraphExecDestroy", cuGraphExecDestroy(exec));
}

/* ---- nodes of a graph ------------------------------------------------------------------------------------------- */

static int listed(const char *lines, const char *name) {
	size_t n = strlen(name);
	for (const char *p = lines; (p = strstr(p, name)); p++)
		if ((p == lines || p[-1] == '\n') && (p[n] == '\n' || p[n] == 0))
			return 1;
	return 0;
}

static void add_name(struct p2p_launches *l, const struct cuda_kernel_node *k) {
	const char *name = NULL;
	size_t at = strlen(l->text);
	int rc = k->function ? cuFuncGetName(&name, k->function) : cuKernelGetName(&name, k->kernel);
	if (rc == CUDA_OK && name && !listed(l->text, name))
		snprintf(l->text + at, sizeof l->text - at, "%s%s", at ? "\n" : "", name);
}

static int add_node(struct p2p_launches *l, void *node, struct p2p_error *e) {
	struct cuda_kernel_node k = {0};
	int type = -1;
	int rc = cuda_ok(e, "cuGraphNodeGetType", cuGraphNodeGetType(node, &type));
	if (rc || type != CUDA_NODE_KERNEL)
		return rc;
	rc = cuda_ok(e, "cuGraphKernelNodeGetParams_v2", cuGraphKernelNodeGetParams_v2(node, &k));
	if (rc)
		return rc;
	l->kernels++;
	uint64_t ctas = (uint64_t)k.grid[0] * k.grid[1] * k.grid[2];
	l->ctas = ctas > l->ctas ? ctas : l->ctas;
	add_name(l, &k);
	return P2P_OK;
}

static int look(void *graph, struct p2p_launches *l, struct p2p_error *e) {
	size_t n = 0;
	int rc = cuda_ok(e, "cuGraphGetNodes", cuGraphGetNodes(graph, NULL, &n));
	if (rc || n == 0)
		return rc;
	void **nodes = calloc(n, sizeof *nodes);
	if (!nodes)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	rc = cuda_ok(e, "cuGraphGetNodes", cuGraphGetNodes(graph, nodes, &n));
	for (size_t i = 0; i < n && rc == P2P_OK; i++)
		rc = add_node(l, nodes[i], e);
	free(nodes);
	return rc;
}

static void inspect(void *graph, struct p2p_launches *l) {
	struct p2p_error e;
	memset(l, 0, sizeof *l);
	if (look(graph, l, &e))
		p2p_launches_unknown(l, e.text);
	else
		l->known = 1;
}

/* inspect on a driver that cannot. */
static void blind(void *graph, struct p2p_launches *l) {
	(void)graph;
	p2p_launches_unknown(l, cuda_recorder()->blind);
}

static const char *missing(void) {
	static const char *const needed[] = {"cuGraphGetNodes", "cuGraphNodeGetType", "cuGraphKernelNodeGetParams_v2"};
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
		if (cuda_lacks(needed[i]))
			return needed[i];
	return NULL;
}

const struct p2p_recorder *cuda_recorder(void) {
	static char why[64];
	static struct p2p_recorder table = {
		.abi = P2P_ABI,
		.begin = begin,
		.end = end,
		.drop = drop,
		.inspect = inspect,
		.make = make,
		.start = start,
		.release = release,
	};
	const char *lacking = missing();
	if (lacking) {
		snprintf(why, sizeof why, "this driver has no %s", lacking);
		table.blind = why;
		table.inspect = blind;
	}
	return &table;
}
