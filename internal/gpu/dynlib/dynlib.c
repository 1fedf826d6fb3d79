#define _GNU_SOURCE
#include "load.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *p2p_dynlib_open(const char *file, char *text, size_t size) {
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		snprintf(text, size, "%s", dlerror());
	return lib;
}

const char *p2p_dynlib_fill(void *lib, const struct p2p_library *l) {
	for (unsigned i = 0; i < l->count; i++) {
		l->table[i] = dlsym(lib, l->names[i]); /* the default version if there are several */
		if (l->table[i] || i >= l->required)
			continue;
		memset(l->table, 0, l->count * sizeof *l->table);
		dlclose(lib);
		return l->names[i];
	}
	return NULL;
}

void p2p_dynlib_path(void *lib, char *path, size_t size) {
	struct link_map *map = NULL;
	char file[PATH_MAX];
	path[0] = '\0';
	if (dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, file))
		snprintf(path, size, "%s", file);
}
