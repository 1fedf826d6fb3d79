/*
 * dynlib.h: the functions that a package takes from a vendor's library, which is opened at run time. The package names
 * them in two lists, required and optional, of the form
 *
 *	#define LIST(X) X(name, type, (parameters), (arguments)) …
 *
 * and makes from them a struct of pointers (P2P_POINTER) and the description that the loader takes (P2P_LIBRARY).
 */
#ifndef P2P_DYNLIB_H
#define P2P_DYNLIB_H

/* The loader fills `table`; pointers of optional functions that the library lacks are NULL. */
struct p2p_library {
	const char *const *names; /* in the order of the table, the required ones first */
	unsigned required, count;
	void **table;
};

#define P2P_POINTER(name, type, params, ...) type(*name) params;
#define P2P_NAME(name, ...) #name,
#define P2P_ONE(...) +1

/* Defines `library` over `pointers`, a struct of REQUIRED's pointers and then OPTIONAL's. */
#define P2P_LIBRARY(library, pointers, REQUIRED, OPTIONAL)                                                             \
	static const char *const library##_names[] = {REQUIRED(P2P_NAME) OPTIONAL(P2P_NAME)};                          \
	_Static_assert(sizeof(pointers) == sizeof library##_names, "a pointer for each name");                         \
	const struct p2p_library library = {library##_names, 0 REQUIRED(P2P_ONE),                                      \
					    sizeof library##_names / sizeof *library##_names, (void **)&(pointers)}

#endif
