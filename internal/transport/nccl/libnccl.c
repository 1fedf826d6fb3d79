#include "libnccl.h"

struct nccl_functions nccl_functions;

P2P_LIBRARY(nccl_library, nccl_functions, NCCL_REQUIRED, NCCL_OPTIONAL);

int nccl_fail(struct p2p_error *e, void *comm, const char *what, int native) {
	const char *text = native == NCCL_MISSING ? "this NCCL has no such function" : ncclGetErrorString(native);
	const char *last = comm ? ncclGetLastError(comm) : NULL;
	p2p_fail(e, P2P_ERR_DEVICE, native, "");
	snprintf(e->text, sizeof e->text, "%s: %s (%d)%s%s", what, text ? text : "unknown error", native,
		 last && *last ? ": " : "", last ? last : "");
	return P2P_ERR_DEVICE;
}
