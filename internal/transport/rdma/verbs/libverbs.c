#define _GNU_SOURCE
#include "libverbs.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

struct p2p_verbs_functions ibv;

static const struct {
	const char *symbol;
	size_t at;
	int required;
} symbols[] = {
#define X(symbol, name) {#symbol, offsetof(struct p2p_verbs_functions, name), 1},
	VERBS_REQUIRED(X)
#undef X
#define X(symbol, name) {#symbol, offsetof(struct p2p_verbs_functions, name), 0},
		VERBS_OPTIONAL(X)
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

/* The name of the file behind links, whose end is the library's version. */
static void resolve(void *lib, const char *name, char *file, size_t size) {
	struct link_map *map = NULL;
	char path[PATH_MAX];
	if (dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, path))
		name = path;
	snprintf(file, size, "%s", name);
}

int p2p_verbs_load(char *text, size_t size) {
	const char *const usual[] = {"libibverbs.so.1", "libibverbs.so", NULL};
	const char *const asked[] = {getenv("P2PBENCH_LIBIBVERBS"), NULL};
	const char *found = "";
	void *lib = open_library(asked[0] && *asked[0] ? asked : usual, &found, text, size);
	if (!lib)
		return -1;
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *f = dlsym(lib, symbols[i].symbol); /* the default version where there are several */
		if (!f && symbols[i].required) {
			snprintf(text, size, "%s: no function %s", found, symbols[i].symbol);
			memset(&ibv, 0, sizeof ibv);
			dlclose(lib);
			return -1;
		}
		memcpy((char *)&ibv + symbols[i].at, &f, sizeof f);
	}
	resolve(lib, found, text, size);
	return 0;
}
