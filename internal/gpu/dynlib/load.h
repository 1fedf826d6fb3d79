/* load.h: dlopen and dlsym as dynlib's Go side calls them. */
#ifndef P2P_DYNLIB_LOAD_H
#define P2P_DYNLIB_LOAD_H

#include "dynlib.h"

#include <stddef.h>

/* Opens a library. NULL: text says why not. */
void *p2p_dynlib_open(const char *file, char *text, size_t size);

/*
 * Fills the table. Returns NULL, or the first required function that the library lacks; then the table is empty and the
 * library closed.
 */
const char *p2p_dynlib_fill(void *lib, const struct p2p_library *l);

/* The library's file with all links resolved; "" if it cannot be known. */
void p2p_dynlib_path(void *lib, char *path, size_t size);

#endif
