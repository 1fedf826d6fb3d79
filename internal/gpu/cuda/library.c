#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuda_library_open(const char *soname, const char *override, const struct cuda_symbol *symbols, size_t count,
		      void *table, char *why, size_t size) {
	const char *path = getenv(override);
	if (!path || !*path)
		path = soname;
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(why, size, "%s", dlerror());
		return -1;
	}
	for (size_t i = 0; i < count; i++) {
		void *f = dlsym(lib, symbols[i].name);
		if (!f && symbols[i].required) {
			snprintf(why, size, "%s: no function %s", path, symbols[i].name);
			memset(table, 0, symbols[count - 1].at + sizeof f);
			dlclose(lib);
			return -1;
		}
		memcpy((char *)table + symbols[i].at, &f, sizeof f);
	}
	return 0;
}
