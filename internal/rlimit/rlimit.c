#include "rlimit.h"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * Prints an error and exits with 2, the exit code of "not possible on this machine". Only here does C print and exit:
 * Go's runtime has not started.
 */
__attribute__((format(printf, 1, 2))) static void refuse(const char *format, ...) {
	char text[256];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	ssize_t written = write(2, text, (size_t)n);
	(void)written; /* stderr is closed: the error cannot be reported */
	_exit(2);
}

static void check_address_space(void) {
	struct rlimit l;
	if (getrlimit(RLIMIT_AS, &l) || l.rlim_cur == RLIM_INFINITY || l.rlim_cur >= OWN_ADDRESS_SPACE)
		return;
	refuse("p2pbench: the address space is limited to %llu KiB: raise the limit (ulimit -v) to %llu plus the size "
	       "of the buffers\n",
	       (unsigned long long)l.rlim_cur >> 10, OWN_ADDRESS_SPACE >> 10);
}

static pthread_mutex_t start = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_start(void *arg) {
	pthread_mutex_lock(&start);
	pthread_mutex_unlock(&start);
	return arg;
}

/* Starts as many threads as a run needs, and ends them. */
static void check_threads(void) {
	pthread_t thread[OWN_THREADS];
	pthread_attr_t attr;
	int n = 0, code = 0;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + (16u << 10));
	pthread_mutex_lock(&start);
	while (n < OWN_THREADS && !(code = pthread_create(&thread[n], &attr, wait_for_start, NULL)))
		n++;
	pthread_mutex_unlock(&start);
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	pthread_attr_destroy(&attr);
	if (code)
		refuse("p2pbench: a run needs %d threads, only %d could be started: %s: raise the limit of processes "
		       "and threads (ulimit -u, pids.max of the control group)\n",
		       OWN_THREADS, n, strerror(code));
}

/* A worker does not check threads: its parent has done so. */
__attribute__((constructor)) static void check_limits(int argc, char **argv) {
	check_address_space();
	if (argc != 2 || strcmp(argv[1], "worker") != 0)
		check_threads();
}
