/* load.h: dlopen and dlsym for dynlib's Go side. */
#ifndef P2P_DYNLIB_LOAD_H
#define P2P_DYNLIB_LOAD_H

#include "dynlib.h"

#include <stddef.h>

/* Opens a library. Returns NULL with the reason in text on failure. */
void *p2p_dynlib_open(const char *file, char *text, size_t size);

/*
 * Fills the table. Returns NULL, or the name of the first missing required function. In that case it clears the table
 * and closes the library.
 */
const char *p2p_dynlib_fill(void *lib, const struct p2p_library *l);

/* The library's file name with all links resolved; "" if unknown. */
void p2p_dynlib_path(void *lib, char *path, size_t size);

#endif
