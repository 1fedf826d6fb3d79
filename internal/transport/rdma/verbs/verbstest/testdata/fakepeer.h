/*
 * fakepeer.h: how processes meet. Each has a slot, the high bits of its queue pairs' numbers, and holds a socket that
 * listens by an abstract name with the slot in it: whoever connects learns the process's id from the kernel and finds
 * the memfd with its share among that process's descriptors. Nothing has a name in a file system, and nothing stays
 * after the process, however it ended.
 */
#include "fakeverbs.h"

#define SHARE_NAME "p2pbench-fakeverbs"

static struct fake_share *self;
static int listener = -1;
static struct fake_peer peers[MAX_PEERS];

static socklen_t slot_name(struct sockaddr_un *a, uint32_t slot) {
	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, SHARE_NAME "-%u-%u", (unsigned)getuid(), slot);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Returns the slot that the process now holds, or 0. */
static uint32_t take_slot(void) {
	struct sockaddr_un a;
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	for (uint32_t i = 0; listener >= 0 && i < MAX_SLOTS - 1; i++) {
		uint32_t slot = 1 + ((uint32_t)getpid() + i) % (MAX_SLOTS - 1);
		if (bind(listener, (struct sockaddr *)&a, slot_name(&a, slot)) == 0)
			return listen(listener, 4096) == 0 ? slot : 0;
		if (errno != EADDRINUSE)
			break;
	}
	return 0;
}

/* Makes this process reachable, once. Returns an errno. */
static int meet(void) {
	if (self)
		return 0;
	int fd = memfd_create(SHARE_NAME, MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, sizeof *self) != 0)
		return errno;
	void *p = mmap(NULL, sizeof *self, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED)
		return errno;
	uint32_t slot = take_slot();
	if (!slot)
		return EADDRNOTAVAIL;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* unknown to kernels that do not restrict it */
	self = p;
	self->slot = slot;
	self->pid = getpid();
	return 0;
}

/* Those who only asked for this process's id wait for no answer. */
static void dismiss_callers(void) {
	for (int fd; listener >= 0 && (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
		close(fd);
}

static pid_t holder(uint32_t slot) {
	struct sockaddr_un a;
	struct ucred who = {0};
	socklen_t n = slot_name(&a, slot), size = sizeof who;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return 0;
	if (connect(fd, (struct sockaddr *)&a, n) != 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
		who.pid = 0;
	close(fd);
	return who.pid;
}

static struct fake_share *map_fd(const char *path) {
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	void *p = mmap(NULL, sizeof *self, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

/* Maps the share of another process, which is one of its descriptors. */
static struct fake_share *map_share(pid_t pid) {
	char path[300], link[64];
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	struct fake_share *share = NULL;
	for (struct dirent *e; dir && !share && (e = readdir(dir)) != NULL;) {
		snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, e->d_name);
		ssize_t n = readlink(path, link, sizeof link - 1);
		if (n > 0 && strncmp(link, "/memfd:" SHARE_NAME, sizeof "/memfd:" SHARE_NAME - 1) == 0)
			share = map_fd(path);
	}
	if (dir)
		closedir(dir);
	return share;
}

static int is_dead(const struct fake_peer *p) {
	struct pollfd f = {.fd = p->pidfd, .events = POLLIN};
	return p->pidfd >= 0 && poll(&f, 1, 0) > 0;
}

/* Fills p with the process that holds the slot. Returns 0 when there is none, or it may not be looked into. */
static int join(struct fake_peer *p, uint32_t slot) {
	if (slot == self->slot) {
		*p = (struct fake_peer){.share = self, .pidfd = -1};
		return 1;
	}
	pid_t pid = holder(slot);
	int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (pidfd < 0)
		return 0;
	struct fake_share *share = map_share(pid);
	if (!share || share->slot != slot) {
		if (share)
			munmap(share, sizeof *share);
		close(pidfd);
		return 0;
	}
	*p = (struct fake_peer){.share = share, .pidfd = pidfd};
	return 1;
}

/* Returns the process that has the queue pair of that number, for leave, or NULL. */
static struct fake_peer *visit(uint32_t number) {
	uint32_t slot = number / MAX_QPS;
	struct fake_peer *empty = NULL;
	for (struct fake_peer *p = peers; p < peers + MAX_PEERS; p++) {
		if (p->share && p->share->slot == slot && !is_dead(p)) {
			p->users++;
			return p;
		}
		if (!p->share && !empty)
			empty = p;
	}
	if (!empty || !join(empty, slot))
		return NULL;
	empty->users = 1;
	return empty;
}

static void leave(struct fake_peer *p) {
	if (!p || --p->users > 0)
		return;
	if (p->share != self) {
		munmap(p->share, sizeof *p->share);
		close(p->pidfd);
	}
	*p = (struct fake_peer){0};
}

/*
 * Copies between this process and a peer. What is small, and the end of what is not, goes eight bytes by eight in
 * ascending order: a flag behind its data is not seen before them, as with real devices. Returns an errno.
 */
static int copy(const struct fake_peer *p, void *here, uint64_t there, size_t n, int towards) {
	enum { PIECES = 64 };
	struct iovec mine = {here, n}, theirs[PIECES + 1];
	int pieces = 0;
	size_t tail = n <= 8 * PIECES ? n : 8, at = n - tail;
	if (p->share == self) {
		memmove(towards ? (void *)there : here, towards ? here : (void *)there, at);
		for (; at < n; at += 8) {
			atomic_thread_fence(memory_order_release);
			memmove((char *)(towards ? (void *)there : here) + at,
				(char *)(towards ? here : (void *)there) + at, n - at < 8 ? n - at : 8);
		}
		return 0;
	}
	if (at)
		theirs[pieces++] = (struct iovec){(void *)there, at};
	for (; at < n; at += 8)
		theirs[pieces++] = (struct iovec){(void *)(there + at), n - at < 8 ? n - at : 8};
	pid_t pid = p->share->pid;
	ssize_t got = towards ? process_vm_writev(pid, &mine, 1, theirs, (unsigned long)pieces, 0)
			      : process_vm_readv(pid, &mine, 1, theirs, (unsigned long)pieces, 0);
	return got < 0 ? errno : (size_t)got < n ? EFAULT : 0;
}
