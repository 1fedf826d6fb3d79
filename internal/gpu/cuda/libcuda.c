#include "libcuda.h"

#include "library.h"

struct cuda_functions cuda_functions;

static const struct cuda_symbol symbols[] = {
#define X(name, params, args) {#name, offsetof(struct cuda_functions, name), 1},
	CUDA_REQUIRED(X)
#undef X
#define X(name, params, args) {#name, offsetof(struct cuda_functions, name), 0},
		CUDA_OPTIONAL(X)
#undef X
};

int cuda_load(char *why, size_t size) {
	return cuda_library_open("libcuda.so.1", "P2PBENCH_LIBCUDA", symbols, sizeof symbols / sizeof *symbols,
				 &cuda_functions, why, size);
}

int cuda_fail(struct p2p_error *e, const char *what, int native) {
	const char *name = NULL, *text = NULL;
	cuGetErrorName(native, &name);
	cuGetErrorString(native, &text);
	p2p_fail(e, P2P_ERR_DEVICE, native, "");
	snprintf(e->text, sizeof e->text, "%s: %s (%d): %s", what, name ? name : "unknown error", native,
		 text ? text : "the driver has no text for it");
	return P2P_ERR_DEVICE;
}
