#include "libnvml.h"

#include "library.h"

struct nvml_functions nvml_functions;

static const struct cuda_symbol symbols[] = {
#define X(name, params, args) {#name, offsetof(struct nvml_functions, name), 1},
	NVML_REQUIRED(X)
#undef X
#define X(name, params, args) {#name, offsetof(struct nvml_functions, name), 0},
		NVML_OPTIONAL(X)
#undef X
			{"nvmlErrorString", offsetof(struct nvml_functions, nvmlErrorString), 1},
};

int nvml_load(char *why, size_t size) {
	struct p2p_error e;
	if (cuda_library_open("libnvidia-ml.so.1", "P2PBENCH_LIBNVML", symbols, sizeof symbols / sizeof *symbols,
			      &nvml_functions, why, size))
		return -1;
	int native = nvmlInit_v2();
	if (native == NVML_OK)
		return 0;
	nvml_fail(&e, "nvmlInit_v2", native);
	snprintf(why, size, "%s", e.text);
	return -1;
}

int nvml_fail(struct p2p_error *e, const char *what, int native) {
	p2p_fail(e, P2P_ERR_DEVICE, native, "");
	snprintf(e->text, sizeof e->text, "%s: %s (%d)", what, nvml_functions.nvmlErrorString(native), native);
	return P2P_ERR_DEVICE;
}
