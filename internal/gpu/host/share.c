#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS */
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* Linux 4.17; older kernels treat the address as a hint */
#endif

/* A mapping of this process. */
struct piece {
	uint8_t *base;
	uint64_t length;
	uint64_t id; /* 0: another process's memory */
	int fd;      /* -1: another process's memory */
};

/* Mappings sorted by address. They do not overlap. */
struct book {
	struct piece *of;
	size_t count, room;
};

struct share {
	struct p2p_memory table;
	struct book own, mapped;
};

/* ---- errors --------------------------------------------------------------------------------------------------- */

static const char *advice(int code) {
	switch (code) {
	case EMFILE:
		return ": this process cannot open more files: raise `ulimit -n`";
	case ENFILE:
		return ": the machine cannot open more files: raise fs.file-max, or lower `ulimit -n` of other "
		       "processes";
	case ENOMEM:
		return ": out of memory, or too many mappings: raise vm.max_map_count";
	default:
		return "";
	}
}

/* Sets *e from errno. */
static int failed(struct p2p_error *e, const char *what, uint64_t bytes) {
	int code = errno;
	p2p_fail(e, P2P_ERR_DEVICE, code, "");
	snprintf(e->text, sizeof e->text, "host: %s, %llu bytes: %s (%d)%s", what, (unsigned long long)bytes,
		 strerror(code), code, advice(code));
	return P2P_ERR_DEVICE;
}

static int unknown(struct p2p_error *e, const char *what, const void *p) {
	p2p_fail(e, P2P_ERR_INVALID, 0, "");
	snprintf(e->text, sizeof e->text, "host: %s %p", what, p);
	return P2P_ERR_INVALID;
}

/* ---- book ----------------------------------------------------------------------------------------------------- */

/* The last mapping that begins at or below p, NULL if there is none. Timed loops call it inside the timed part. */
static struct piece *below(const struct book *b, const uint8_t *p) {
	struct piece *at = b->of;
	if (b->count == 0 || at->base > p)
		return NULL;
	for (size_t n = b->count; n > 1;) {
		size_t half = n / 2;
		at = at[half].base <= p ? at + half : at;
		n -= half;
	}
	return at;
}

static struct piece *begins_at(const struct book *b, const void *base) {
	struct piece *x = below(b, base);
	return x && x->base == base ? x : NULL;
}

/* Reserves space for one more mapping, so that note cannot fail. */
static int make_room(struct book *b, struct p2p_error *e) {
	if (b->count < b->room)
		return P2P_OK;
	size_t room = b->room ? 2 * b->room : 64;
	struct piece *of = realloc(b->of, room * sizeof *of);
	if (!of)
		return failed(e, "the list of allocations", room * sizeof *of);
	b->of = of;
	b->room = room;
	return P2P_OK;
}

static void note(struct book *b, struct piece x) {
	struct piece *last = below(b, x.base);
	size_t at = last ? (size_t)(last - b->of) + 1 : 0;
	memmove(b->of + at + 1, b->of + at, (b->count - at) * sizeof x);
	b->of[at] = x;
	b->count++;
}

static int unmap(struct book *b, struct piece *x, struct p2p_error *e) {
	if (munmap(x->base, x->length))
		return failed(e, "munmap", x->length);
	if (x->fd >= 0)
		close(x->fd);
	size_t after = (size_t)(b->of + b->count - x) - 1;
	memmove(x, x + 1, after * sizeof *x);
	b->count--;
	return P2P_OK;
}

static void close_book(struct book *b) {
	struct p2p_error ignored;
	while (b->count > 0 && unmap(b, b->of + b->count - 1, &ignored) == P2P_OK)
		;
	free(b->of);
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* IDs are unique in the process, over all devices, and are never reused. */
static uint64_t next_id(void) {
	static _Atomic uint64_t last;
	return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/*
 * Creates a memfd of that length. Seals prevent a peer from growing it or shrinking it, which would cause SIGBUS here.
 */
static int make_memfd(uint64_t length, int *fd, struct p2p_error *e) {
	*fd = memfd_create("p2pbench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return failed(e, "memfd_create", length);
	const char *what = ftruncate(*fd, (off_t)length)                              ? "ftruncate"
			   : fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0 ? "seal"
										      : NULL;
	if (!what)
		return P2P_OK;
	int rc = failed(e, what, length);
	close(*fd);
	return rc;
}

/* Maps fd at `at`; at another address if `at` is NULL or the range is occupied. */
static void *map(int fd, uint64_t length, void *at) {
	const int access = PROT_READ | PROT_WRITE;
	void *p = at ? mmap(at, length, access, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) : MAP_FAILED;
	return p != MAP_FAILED ? p : mmap(NULL, length, access, MAP_SHARED, fd, 0);
}

/* Pages are allocated at their first access: the caller must check before that enough memory is available. */
static int share_alloc(void *self, size_t n, void *at, void **base, struct p2p_error *e) {
	struct share *s = self;
	uint64_t page = s->table.granule;
	int fd, rc;
	if (n > INT64_MAX - page)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "host: allocate: the size exceeds the address space");
	uint64_t length = n ? (n + page - 1) / page * page : page;
	if ((rc = make_room(&s->own, e)) || (rc = make_memfd(length, &fd, e)))
		return rc;
	void *p = map(fd, length, at);
	if (p == MAP_FAILED) {
		rc = failed(e, "mmap", length);
		close(fd);
		return rc;
	}
	note(&s->own, (struct piece){p, length, next_id(), fd});
	*base = p;
	return P2P_OK;
}

static int share_release(void *self, void *base, struct p2p_error *e) {
	struct share *s = self;
	struct piece *x = begins_at(&s->own, base);
	return x ? unmap(&s->own, x, e) : unknown(e, "release: no allocation begins at", base);
}

static int share_range(void *self, const void *p, struct p2p_range *r, struct p2p_error *e) {
	const struct share *s = self;
	const struct piece *x = below(&s->own, p);
	if (!x || (uint64_t)((const uint8_t *)p - x->base) >= x->length)
		return unknown(e, "range: in no allocation of this process:", p);
	*r = (struct p2p_range){x->base, x->length, x->id};
	return P2P_OK;
}

static int share_export(void *self, void *base, struct p2p_handle *h, struct p2p_error *e) {
	struct share *s = self;
	const struct piece *x = begins_at(&s->own, base);
	if (!x)
		return unknown(e, "export: no allocation of this process begins at", base);
	int fd = fcntl(x->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return failed(e, "export", x->length);
	*h = (struct p2p_handle){.kind = HOST_HANDLE_MEMFD, .fd = fd, .length = x->length, .id = x->id};
	return P2P_OK;
}

/* Rejects a handle whose length exceeds its memfd: the first access beyond the end would cause SIGBUS. */
static int acceptable(const struct p2p_handle *h, struct p2p_error *e) {
	struct stat st;
	if (h->kind != HOST_HANDLE_MEMFD || h->fd < 0 || h->length == 0)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "host: open: not a handle of CPU memory with its descriptor");
	if (fstat(h->fd, &st))
		return failed(e, "open", h->length);
	if ((uint64_t)st.st_size >= h->length)
		return P2P_OK;
	p2p_fail(e, P2P_ERR_INVALID, 0, "");
	snprintf(e->text, sizeof e->text, "host: open: the memory has %llu bytes, the handle says %llu",
		 (unsigned long long)st.st_size, (unsigned long long)h->length);
	return P2P_ERR_INVALID;
}

static int share_open(void *self, const struct p2p_handle *h, void **base, struct p2p_error *e) {
	struct share *s = self;
	int rc;
	if ((rc = acceptable(h, e)) || (rc = make_room(&s->mapped, e)))
		return rc;
	void *p = map(h->fd, h->length, NULL);
	if (p == MAP_FAILED)
		return failed(e, "mmap", h->length);
	note(&s->mapped, (struct piece){p, h->length, 0, -1});
	*base = p;
	return P2P_OK;
}

static int share_close(void *self, void *base, struct p2p_error *e) {
	struct share *s = self;
	struct piece *x = begins_at(&s->mapped, base);
	return x ? unmap(&s->mapped, x, e) : unknown(e, "close: nothing that was opened begins at", base);
}

/* Nothing to do: CPUs access pageable memory. */
static int share_pin(void *self, void *p, size_t n, struct p2p_error *e) {
	(void)self, (void)p, (void)n, (void)e;
	return P2P_OK;
}

static int share_unpin(void *self, void *p, struct p2p_error *e) {
	(void)self, (void)p, (void)e;
	return P2P_OK;
}

/* MemAvailable of the machine. Only the device's Free considers the limits of control groups. */
static int share_unused(void *self, uint64_t *bytes, struct p2p_error *e) {
	(void)self;
	static const char key[] = "\nMemAvailable:"; /* never the first line */
	char text[4096];
	int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	int code = errno;
	if (fd >= 0)
		close(fd);
	errno = code;
	if (n < 0)
		return failed(e, "/proc/meminfo", sizeof text);
	text[n] = 0;
	const char *at = strstr(text, key);
	if (!at)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "host: free memory: no MemAvailable in /proc/meminfo");
	*bytes = strtoull(at + sizeof key - 1, NULL, 10) << 10; /* "  123 kB" */
	return P2P_OK;
}

/* ---- open and close ------------------------------------------------------------------------------------------- */

struct p2p_memory *p2p_host_memory_new(void) {
	struct share *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->table = (struct p2p_memory){
		.abi = P2P_ABI,
		.fds = 1,
		.self = s,
		.granule = (uint64_t)sysconf(_SC_PAGESIZE),
		.alloc = share_alloc,
		.release = share_release,
		.range = share_range,
		.export = share_export,
		.open = share_open,
		.close = share_close,
		.pin = share_pin,
		.unpin = share_unpin,
		.unused = share_unused,
	};
	return &s->table;
}

void p2p_host_memory_free(struct p2p_memory *m) {
	struct share *s = m->self;
	close_book(&s->own);
	close_book(&s->mapped);
	free(s);
}
