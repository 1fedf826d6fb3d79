#include "libnccl.h"

#include <dlfcn.h>
#include <stdlib.h>

struct nccl_functions nccl_functions;

static const struct {
	const char *name;
	size_t at;
	int required;
} symbols[] = {
#define X(type, name, ...) {#name, offsetof(struct nccl_functions, name), 1},
	NCCL_REQUIRED(X)
#undef X
#define X(type, name, ...) {#name, offsetof(struct nccl_functions, name), 0},
		NCCL_OPTIONAL(X)
#undef X
};

/* Tries the names in order. The first one's failure is the one to report: it is the name that should be there. */
static void *open_library(const char *const *names, const char **found, char *why, size_t size) {
	for (int i = 0; names[i]; i++) {
		void *lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		*found = names[i];
		if (lib)
			return lib;
		if (i == 0)
			snprintf(why, size, "%s", dlerror());
	}
	return NULL;
}

int nccl_load(char *why, size_t size) {
	const char *const usual[] = {"libnccl.so.2", "libnccl.so", NULL};
	const char *const asked[] = {getenv("P2PBENCH_LIBNCCL"), NULL};
	const char *found = "";
	void *lib = open_library(asked[0] && *asked[0] ? asked : usual, &found, why, size);
	if (!lib)
		return -1;
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *f = dlsym(lib, symbols[i].name);
		if (!f && symbols[i].required) {
			snprintf(why, size, "%s: no function %s", found, symbols[i].name);
			memset(&nccl_functions, 0, sizeof nccl_functions);
			dlclose(lib);
			return -1;
		}
		memcpy((char *)&nccl_functions + symbols[i].at, &f, sizeof f);
	}
	return 0;
}

int nccl_fail(struct p2p_error *e, void *comm, const char *what, int native) {
	const char *text = native == NCCL_MISSING ? "this NCCL has no such function" : ncclGetErrorString(native);
	const char *last = comm ? ncclGetLastError(comm) : NULL;
	p2p_fail(e, P2P_ERR_DEVICE, native, "");
	snprintf(e->text, sizeof e->text, "%s: %s (%d)%s%s", what, text ? text : "unknown error", native,
		 last && *last ? ": " : "", last ? last : "");
	return P2P_ERR_DEVICE;
}
