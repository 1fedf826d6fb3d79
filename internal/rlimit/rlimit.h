/* rlimit.h: what a process needs before Go's runtime is there. */
#ifndef P2P_RLIMIT_H
#define P2P_RLIMIT_H

enum {
	OWN_THREADS = 40, /* of a parent and two workers, all together */
};

#define OWN_ADDRESS_SPACE (4ull << 30)

#endif
