/*
 * libnccl.h: declarations of the part of NCCL that is used here. One list names every function; the table of pointers,
 * the look-up (libnccl.c) and a wrapper of the same name are generated from it, so that callers call NCCL as if it were
 * linked. The wrapper of an optional function that the library lacks returns the value that the list gives.
 */
#ifndef P2P_LIBNCCL_H
#define P2P_LIBNCCL_H

#include "gpu/abi/p2p.h"
#include "gpu/dynlib/dynlib.h"

/* Results. */
enum {
	NCCL_OK = 0,
	NCCL_IN_PROGRESS = 7,
	NCCL_MISSING = -1, /* ours: the library has no such function */
};

enum { NCCL_UINT8 = 1 }; /* data type */

/* Identifies a communicator: made by one rank, sent to all. */
struct nccl_id {
	char bytes[128];
};

#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_CONFIG_VERSION 21800 /* the version of struct nccl_config, as ncclGetVersion encodes it */
#define NCCL_UNDEFINED INT32_MIN  /* leaves a field to the library */

/*
 * Configuration of a communicator. Later versions append fields, read no more than `size` bytes, and use defaults for
 * fields newer than `version`, so the layout of 2.18 works with all of them.
 */
struct nccl_config {
	size_t size;
	uint32_t magic, version;
	int32_t blocking, cga_cluster, min_ctas, max_ctas;
	const char *net_name;
	int32_t split_share;
};

/* X(name, type, parameters, arguments). Communicators, registrations and streams are opaque pointers. */
#define NCCL_REQUIRED(X)                                                                                               \
	X(ncclGetVersion, int, (int *version), (version))                                                              \
	X(ncclGetErrorString, const char *, (int code), (code))                                                        \
	X(ncclGetUniqueId, int, (struct nccl_id * id), (id))                                                           \
	X(ncclCommInitRankConfig, int,                                                                                 \
	  (void **comm, int ranks, struct nccl_id id, int rank, struct nccl_config *config),                           \
	  (comm, ranks, id, rank, config))                                                                             \
	X(ncclCommDestroy, int, (void *comm), (comm))                                                                  \
	X(ncclCommAbort, int, (void *comm), (comm))                                                                    \
	X(ncclCommGetAsyncError, int, (void *comm, int *code), (comm, code))                                           \
	X(ncclGroupStart, int, (void), ())                                                                             \
	X(ncclGroupEnd, int, (void), ())                                                                               \
	X(ncclSend, int, (const void *p, size_t count, int type, int peer, void *comm, void *stream),                  \
	  (p, count, type, peer, comm, stream))                                                                        \
	X(ncclRecv, int, (void *p, size_t count, int type, int peer, void *comm, void *stream),                        \
	  (p, count, type, peer, comm, stream))

/* X(name, type, parameters, arguments, result if missing). */
#define NCCL_OPTIONAL(X)                                                                                               \
	X(ncclGetLastError, const char *, (void *comm), (comm), NULL)                                                  \
	X(ncclCommRegister, int, (void *comm, void *p, size_t n, void **handle), (comm, p, n, handle), NCCL_MISSING)   \
	X(ncclCommDeregister, int, (void *comm, void *handle), (comm, handle), NCCL_MISSING)

struct nccl_functions {
	NCCL_REQUIRED(P2P_POINTER)
	NCCL_OPTIONAL(P2P_POINTER)
};

/* Filled once nccl_library is loaded; read-only afterwards. */
extern struct nccl_functions nccl_functions;
extern const struct p2p_library nccl_library;

#define X(name, type, params, args)                                                                                    \
	static inline type name params { return nccl_functions.name args; }
NCCL_REQUIRED(X)
#undef X
#define X(name, type, params, args, missing)                                                                           \
	static inline type name params { return nccl_functions.name ? nccl_functions.name args : missing; }
NCCL_OPTIONAL(X)
#undef X

/* Sets *e to "what: text (code): NCCL's last error" and returns P2P_ERR_DEVICE. comm may be NULL. */
int nccl_fail(struct p2p_error *e, void *comm, const char *what, int native);

static inline int nccl_ok(struct p2p_error *e, void *comm, const char *what, int native) {
	return native == NCCL_OK ? P2P_OK : nccl_fail(e, comm, what, native);
}

#endif
