#include "libcuda.h"

struct cuda_functions cuda_functions;

P2P_LIBRARY(cuda_library, cuda_functions, CUDA_REQUIRED, CUDA_OPTIONAL);

const char *cuda_lacks(const char *function) {
#define X(name, type, params, args, since)                                                                             \
	if (!cuda_functions.name && strcmp(function, #name) == 0)                                                      \
		return since;
	CUDA_OPTIONAL(X)
#undef X
	return NULL;
}

int cuda_fail(struct p2p_error *e, const char *what, int native) {
	const char *name = NULL, *text = NULL, *since = native == CUDA_NOT_SUPPORTED ? cuda_lacks(what) : NULL;
	p2p_fail(e, P2P_ERR_DEVICE, native, "");
	if (since) {
		snprintf(e->text, sizeof e->text,
			 "%s: this driver does not have the function; drivers for CUDA %s or newer do", what, since);
		return P2P_ERR_DEVICE;
	}
	cuGetErrorName(native, &name);
	cuGetErrorString(native, &text);
	snprintf(e->text, sizeof e->text, "%s: %s (%d): %s", what, name ? name : "unknown error", native,
		 text ? text : "the driver has no text for it");
	return P2P_ERR_DEVICE;
}
