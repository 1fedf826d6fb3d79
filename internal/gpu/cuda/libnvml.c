#include "libnvml.h"

struct nvml_functions nvml_functions;

P2P_LIBRARY(nvml_library, nvml_functions, NVML_REQUIRED, NVML_OPTIONAL);

int nvml_fail(struct p2p_error *e, const char *what, int native) {
	p2p_fail(e, P2P_ERR_DEVICE, native, "");
	snprintf(e->text, sizeof e->text, "%s: %s (%d)", what, nvmlErrorString(native), native);
	return P2P_ERR_DEVICE;
}

int nvml_start(struct p2p_error *e) {
	int native = nvmlInit_v2();
	return native == NVML_OK ? P2P_OK : nvml_fail(e, "nvmlInit_v2", native);
}
