#include "rlimit.h"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * The one place in which C prints and ends the process: there is no Go yet that could. 2 is the exit code of what is
 * not possible here.
 */
__attribute__((format(printf, 1, 2))) static void refuse(const char *format, ...) {
	char text[256];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	ssize_t written = write(2, text, (size_t)n);
	(void)written; /* nobody is left to be told */
	_exit(2);
}

static void look_at_address_space(void) {
	struct rlimit l;
	if (getrlimit(RLIMIT_AS, &l) || l.rlim_cur == RLIM_INFINITY || l.rlim_cur >= OWN_ADDRESS_SPACE)
		return;
	refuse("p2pbench: the address space is limited to %llu KiB: raise the limit (ulimit -v) to %llu or more, and "
	       "what "
	       "buffers need\n",
	       (unsigned long long)l.rlim_cur >> 10, OWN_ADDRESS_SPACE >> 10);
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *stay(void *arg) {
	pthread_mutex_lock(&held);
	pthread_mutex_unlock(&held);
	return arg;
}

/* Starts as many threads as a run needs, for a moment. */
static void look_at_threads(void) {
	pthread_t thread[OWN_THREADS];
	pthread_attr_t attr;
	int n = 0, code = 0;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + (16u << 10));
	pthread_mutex_lock(&held);
	while (n < OWN_THREADS && !(code = pthread_create(&thread[n], &attr, stay, NULL)))
		n++;
	pthread_mutex_unlock(&held);
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	pthread_attr_destroy(&attr);
	if (code)
		refuse("p2pbench: after %d threads: %s: a run needs %d: raise the limit of processes and threads "
		       "(ulimit -u, "
		       "pids.max of the control group)\n",
		       n, strerror(code), OWN_THREADS);
}

/* A worker's parent has looked at the threads for it. */
__attribute__((constructor)) static void look(int argc, char **argv) {
	look_at_address_space();
	if (argc != 2 || strcmp(argv[1], "worker") != 0)
		look_at_threads();
}
