/*
 * graph.h: NCCL's calls as a CUDA graph: recorded from the stream, looked at, launched. The driver's functions are
 * found at run time; list, table and wrappers are made as in libnccl.h.
 */
#ifndef P2P_NCCL_GRAPH_H
#define P2P_NCCL_GRAPH_H

#include "gpu/abi/p2p.h"

/* What the driver tells of a kernel in a graph. One of function and kernel says which it is. */
struct graph_kernel {
	void *function;
	unsigned grid[3], block[3];
	unsigned shared;
	void **params, **extra;
	void *kernel;
	void *context;
};

/* X(name, parameters, arguments). Streams, graphs and nodes are opaque pointers. */
#define GRAPH_REQUIRED(X)                                                                                              \
	X(cuGetErrorName, (int code, const char **name), (code, name))                                                 \
	X(cuStreamBeginCapture_v2, (void *stream, int mode), (stream, mode))                                           \
	X(cuStreamEndCapture, (void *stream, void **graph), (stream, graph))                                           \
	X(cuGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags), (exec, graph, flags))     \
	X(cuGraphLaunch, (void *exec, void *stream), (exec, stream))                                                   \
	X(cuGraphExecDestroy, (void *exec), (exec))                                                                    \
	X(cuGraphDestroy, (void *graph), (graph))

/* To look into a graph. Call none of them where nccl_graph_missing names one. */
#define GRAPH_LOOK(X)                                                                                                  \
	X(cuGraphGetNodes, (void *graph, void **nodes, size_t *n), (graph, nodes, n))                                  \
	X(cuGraphNodeGetType, (void *node, int *type), (node, type))                                                   \
	X(cuGraphKernelNodeGetParams_v2, (void *node, struct graph_kernel *k), (node, k))

/* Drivers before CUDA 12.3 do not name kernels. */
#define GRAPH_NAME(X)                                                                                                  \
	X(cuFuncGetName, (const char **name, void *function), (name, function))                                        \
	X(cuKernelGetName, (const char **name, void *kernel), (name, kernel))

#define X(name, params, args) int(*name) params;
struct nccl_graph_functions {
	GRAPH_REQUIRED(X)
	GRAPH_LOOK(X)
	GRAPH_NAME(X)
};
#undef X

/* Filled by nccl_graph_load; read-only afterwards. */
extern struct nccl_graph_functions nccl_graph_functions;

#define X(name, params, args)                                                                                          \
	static inline int name params { return nccl_graph_functions.name args; }
GRAPH_REQUIRED(X)
GRAPH_LOOK(X)
#undef X
#define X(name, params, args)                                                                                          \
	static inline int name params { return nccl_graph_functions.name ? nccl_graph_functions.name args : -1; }
GRAPH_NAME(X)
#undef X

/* Finds libcuda.so.1, or what P2PBENCH_LIBCUDA names. Returns 0, or -1 with the reason in why. */
int nccl_graph_load(char *why, size_t size);

/* The first function that this driver lacks to look into a graph; NULL: it has them all. */
const char *nccl_graph_missing(void);

/* Sets *e to "what: CUDA_ERROR_NAME (code)" and returns P2P_ERR_DEVICE. */
int nccl_graph_fail(struct p2p_error *e, const char *what, int native);

static inline int graph_ok(struct p2p_error *e, const char *what, int native) {
	return native == 0 ? P2P_OK : nccl_graph_fail(e, what, native);
}

/* The kernels that one window launches on this rank, as the driver tells. */
struct nccl_launch {
	uint64_t ctas; /* thread blocks of the largest: they run one after the other */
	uint32_t kernels;
	uint32_t known; /* 0: text says why not */
	/* Their names as the linker has them, each once, a line each; nothing where the driver does not tell. */
	char text[512];
};

/* From here on what this thread puts on the stream is recorded and does not run. */
int nccl_graph_begin(void *stream, struct p2p_error *e);

/* Ends it, in any case. *graph is the caller's to destroy, NULL after a failure. */
int nccl_graph_end(void *stream, void **graph, struct p2p_error *e);

/* Looks into the graph. What cannot be told is told in l->text. */
void nccl_graph_look(void *graph, struct nccl_launch *l);

/* Says in l why nothing is known. */
void nccl_graph_unknown(struct nccl_launch *l, const char *why);

#endif
