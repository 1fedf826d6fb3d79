/* rlimit.h: minimum limits for Go's runtime to start. */
#ifndef P2P_RLIMIT_H
#define P2P_RLIMIT_H

enum {
	OWN_THREADS = 40, /* threads of a parent and two workers together */
};

#define OWN_ADDRESS_SPACE (4ull << 30)

#endif
