/*
 * dynlib.h: tables of functions of a vendor's library that is loaded at run time. The package that uses the library
 * lists the required and the optional functions in two macros of the form
 *
 *	#define LIST(X) X(name, type, (parameters), (arguments)) …
 *
 * from which it generates a struct of pointers (P2P_POINTER) and the description for the loader (P2P_LIBRARY).
 */
#ifndef P2P_DYNLIB_H
#define P2P_DYNLIB_H

/* Describes a library. The loader fills `table`; the pointers of missing optional functions are NULL. */
struct p2p_library {
	const char *const *names; /* in the order of the table, the required ones first */
	unsigned required, count;
	void **table;
};

#define P2P_POINTER(name, type, params, ...) type(*name) params;
#define P2P_NAME(name, ...) #name,
#define P2P_ONE(...) +1

/* Defines `library` for `pointers`, a struct of the pointers of REQUIRED followed by those of OPTIONAL. */
#define P2P_LIBRARY(library, pointers, REQUIRED, OPTIONAL)                                                             \
	static const char *const library##_names[] = {REQUIRED(P2P_NAME) OPTIONAL(P2P_NAME)};                          \
	_Static_assert(sizeof(pointers) == sizeof library##_names, "a pointer for each name");                         \
	const struct p2p_library library = {library##_names, 0 REQUIRED(P2P_ONE),                                      \
					    sizeof library##_names / sizeof *library##_names, (void **)&(pointers)}

#endif
