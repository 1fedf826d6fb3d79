/*
 * libnccl.h: the part of NCCL that is used here, in our own declarations. One list names every function; from it come
 * the table of pointers, the look-up (libnccl.c) and a wrapper of the same name, so that the rest reads as if it were
 * linked. A wrapper of an optional function that the library lacks returns what the list says.
 */
#ifndef P2P_LIBNCCL_H
#define P2P_LIBNCCL_H

#include "gpu/abi/p2p.h"

/* Results. */
enum {
	NCCL_OK = 0,
	NCCL_IN_PROGRESS = 7,
	NCCL_MISSING = -1, /* ours: the library has no such function */
};

enum { NCCL_UINT8 = 1 }; /* data type */

/* Made by one rank, given to all. */
struct nccl_id {
	char bytes[128];
};

#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_CONFIG_VERSION 21800 /* whose fields these are, as ncclGetVersion counts */
#define NCCL_UNDEFINED INT32_MIN  /* leaves a field to the library */

/*
 * What a communicator shall be like. Later versions append fields; they read no more than `size` bytes and take their
 * defaults for what came after `version`, so that the layout of 2.18 serves them all.
 */
struct nccl_config {
	size_t size;
	uint32_t magic, version;
	int32_t blocking, cga_cluster, min_ctas, max_ctas;
	const char *net_name;
	int32_t split_share;
};

/* X(type, name, parameters, arguments). Communicators, registrations and streams are opaque pointers. */
#define NCCL_REQUIRED(X)                                                                                               \
	X(int, ncclGetVersion, (int *version), (version))                                                              \
	X(const char *, ncclGetErrorString, (int code), (code))                                                        \
	X(int, ncclGetUniqueId, (struct nccl_id * id), (id))                                                           \
	X(int, ncclCommInitRankConfig,                                                                                 \
	  (void **comm, int ranks, struct nccl_id id, int rank, struct nccl_config *config),                           \
	  (comm, ranks, id, rank, config))                                                                             \
	X(int, ncclCommDestroy, (void *comm), (comm))                                                                  \
	X(int, ncclCommAbort, (void *comm), (comm))                                                                    \
	X(int, ncclCommGetAsyncError, (void *comm, int *code), (comm, code))                                           \
	X(int, ncclGroupStart, (void), ())                                                                             \
	X(int, ncclGroupEnd, (void), ())                                                                               \
	X(int, ncclSend, (const void *p, size_t count, int type, int peer, void *comm, void *stream),                  \
	  (p, count, type, peer, comm, stream))                                                                        \
	X(int, ncclRecv, (void *p, size_t count, int type, int peer, void *comm, void *stream),                        \
	  (p, count, type, peer, comm, stream))

/* X(type, name, parameters, arguments, result if missing). */
#define NCCL_OPTIONAL(X)                                                                                               \
	X(const char *, ncclGetLastError, (void *comm), (comm), NULL)                                                  \
	X(int, ncclCommRegister, (void *comm, void *p, size_t n, void **handle), (comm, p, n, handle), NCCL_MISSING)   \
	X(int, ncclCommDeregister, (void *comm, void *handle), (comm, handle), NCCL_MISSING)

#define X(type, name, params, ...) type(*name) params;
struct nccl_functions {
	NCCL_REQUIRED(X)
	NCCL_OPTIONAL(X)
};
#undef X

/* Filled by nccl_load; read-only afterwards. */
extern struct nccl_functions nccl_functions;

#define X(type, name, params, args)                                                                                    \
	static inline type name params { return nccl_functions.name args; }
NCCL_REQUIRED(X)
#undef X
#define X(type, name, params, args, missing)                                                                           \
	static inline type name params { return nccl_functions.name ? nccl_functions.name args : missing; }
NCCL_OPTIONAL(X)
#undef X

/*
 * Finds libnccl.so.2, else libnccl.so; or what P2PBENCH_LIBNCCL names and nothing else. Returns 0, or -1 with the
 * reason in why: what dlopen said, or the first required function that is missing.
 */
int nccl_load(char *why, size_t size);

/* Sets *e to "what: text (code): NCCL's last error" and returns P2P_ERR_DEVICE. comm may be NULL. */
int nccl_fail(struct p2p_error *e, void *comm, const char *what, int native);

static inline int nccl_ok(struct p2p_error *e, void *comm, const char *what, int native) {
	return native == NCCL_OK ? P2P_OK : nccl_fail(e, comm, what, native);
}

#endif
