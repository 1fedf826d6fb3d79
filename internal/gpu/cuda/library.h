/* library.h: finding a vendor library's functions at run time, so that the binary starts where there is no driver. */
#ifndef CUDA_LIBRARY_H
#define CUDA_LIBRARY_H

#include <stddef.h>

/* One function: its name and where its pointer goes in the library's table. */
struct cuda_symbol {
	const char *name;
	size_t at;
	int required;
};

/*
 * Opens the library (environment variable `override` may name another file) and fills the table. Returns 0, or -1
 * with the reason in why: what dlopen said, or the first required function that is missing. Optional functions that
 * are missing stay NULL.
 */
int cuda_library_open(const char *soname, const char *override, const struct cuda_symbol *symbols, size_t count,
		      void *table, char *why, size_t size);

#endif
