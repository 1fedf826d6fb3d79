/*
 * fakeverbs.c: a libibverbs without RDMA devices. It has two, fake0 and fake1, each with one Ethernet port, whose
 * reliably connected queue pairs work between all processes of a user on one machine: the names that libibverbs
 * exports, with post_send, post_recv and poll_cq where the header's inline functions look for them. Queue pairs write,
 * write with immediate and read. A send is done when it is posted, else when the process next posts or polls; there is
 * no thread. Where a real device would refuse, drop, retry or fail, so does this one: states and attributes of queue
 * pairs, keys and bounds of regions, protection domains, numbers, sequence numbers and GIDs that do not fit together,
 * full queues, completion queues that overrun. Tests build it with verbstest.Build and load it through
 * P2PBENCH_LIBIBVERBS.
 *
 * FAKEVERBS_FAULT is a list of faults, by commas; with "fake1/" before it a fault is that device's alone. The counts
 * are of one process.
 *
 * - no-devices: there are none
 * - iwarp: they say that they are iWARP
 * - infiniband: they have a second port, which is InfiniBand
 * - no-gid: the ports have no GIDs
 * - port-down: the ports are down
 * - port-down-after=N: the ports go down after N sends: an event, and every later send fails
 * - removed-after=N: the device goes away after N sends: an event, and everything is flushed
 * - few-cqe=N, few-qps=N, few-wr=N: entries of a completion queue, queue pairs, requests of a queue that it has at most
 * - memlock: ibv_reg_mr fails as where too little memory may be locked
 * - no-dmabuf: ibv_reg_dmabuf_mr is not supported
 * - bad-rkey=N: the N-th write meets a remote access error
 * - rnr=N: each of the first N writes with immediate meets no receive when it is first tried
 * - drop-imm=N: the N-th immediate arrives with its lowest bit wrong
 * - slow=US: a send takes so many microseconds, and reads its buffer at the end of them
 * - fail-NAME=ERRNO: ibv_NAME fails, always
 *
 * FAKEVERBS_LOG names a file that gets a line for each object: "+qp 4097" when it is made, "-qp 4097" when it is
 * destroyed; also cq, mr, pd and context. Each time that rnr=N struck is an object "rnr", which is gone at once.
 *
 * Built with -DOLD it is what rdma-core was before it had GID types, dma-buf and optional access flags. Built with
 * -Dibv_create_qp=other it lacks ibv_create_qp.
 */
#include "fakewire.h"

#define LOCKED                                                                                                         \
	pthread_mutex_t *held __attribute__((cleanup(unlock), unused)) = &fake_lock;                                   \
	pthread_mutex_lock(held)

static void unlock(pthread_mutex_t **held) { pthread_mutex_unlock(*held); }

#define REFUSE(device, name, failure)                                                                                  \
	do {                                                                                                           \
		int code = refused(device, name);                                                                      \
		if (code) {                                                                                            \
			errno = code;                                                                                  \
			return failure;                                                                                \
		}                                                                                                      \
	} while (0)

#define NEVER(condition, code)                                                                                         \
	do {                                                                                                           \
		if (condition) {                                                                                       \
			errno = code;                                                                                  \
			return NULL;                                                                                   \
		}                                                                                                      \
	} while (0)

__attribute__((constructor)) static void load(void) {
	read_faults();
	for (int i = 0; i < DEVICES; i++) {
		struct ibv_device *d = &devices[i].base;
		d->node_type = IBV_NODE_CA;
		d->transport_type = devices[i].fault.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
		snprintf(d->name, sizeof d->name, "fake%d", i);
		snprintf(d->dev_name, sizeof d->dev_name, "uverbs%d", i);
	}
}

/* ---- devices --------------------------------------------------------------------------------------------------- */

struct ibv_device **ibv_get_device_list(int *n) {
	LOCKED;
	REFUSE(NULL, "get_device_list", NULL);
	struct ibv_device **list = calloc(DEVICES + 1, sizeof *list);
	int count = 0;
	for (int i = 0; list && i < DEVICES; i++)
		if (!devices[i].fault.no_devices)
			list[count++] = &devices[i].base;
	if (n)
		*n = count;
	return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size) {
	LOCKED;
	const struct fake_device *d = context_of(context)->device;
	int code = refused(d, "query_port");
	if (code || !has_port(d, port))
		return code ? code : EINVAL;
	struct ibv_port_attr a = {
		.state = d->down || d->fault.port_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = mtu_of(d),
		.lid = lid_of(d, port),
		.gid_tbl_len = GIDS,
		.max_msg_sz = MAX_MESSAGE,
		.pkey_tbl_len = 1,
		.active_width = 2,  /* 4x */
		.active_speed = 32, /* EDR */
		.link_layer = port == INFINIBAND ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
	};
	memcpy(attr, &a, size < sizeof a ? size : sizeof a);
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
	return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
	const struct fake_device *d = context_of(context)->device;
	int code = refused(d, "query_gid");
	errno = code ? code : EINVAL;
	if (code || !has_port(d, port) || index < 0 || index >= GIDS)
		return -1;
	gid_of(d, port, index, gid);
	return 0;
}

#ifndef OLD
ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *table, size_t size, uint32_t flags,
			     size_t entry) {
	const struct fake_device *d = context_of(context)->device;
	int code = refused(d, "query_gid_table");
	if (code || flags || entry != sizeof *table)
		return code ? -code : -EINVAL;
	ssize_t n = 0;
	for (int port = INFINIBAND; port >= ETHERNET; port--) /* no order was promised */
		for (int i = GIDS - 1; i >= 0; i--) {
			struct ibv_gid_entry e = {.gid_index = (uint32_t)i, .port_num = (uint32_t)port};
			gid_of(d, port, i, &e.gid);
			if (!e.gid.global.interface_id)
				continue;
			if ((size_t)n == size)
				return -EINVAL;
			if (port == ETHERNET)
				e.gid_type = i ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
			table[n++] = e;
		}
	return n;
}
#endif

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
	const struct fake_device *d = context_of(context)->device;
	int code = refused(d, "query_device");
	if (code)
		return code;
	*attr = (struct ibv_device_attr){
		.fw_ver = "1.0.fake",
		.max_mr_size = UINT64_MAX,
		.max_qp = d->fault.few_qps ? (int)d->fault.few_qps : MAX_QPS / 2,
		.max_qp_wr = d->fault.few_wr ? (int)d->fault.few_wr : MAX_WR,
		.max_sge = 1,
		.max_cq = 1 << 10,
		.max_cqe = d->fault.few_cqe ? (int)d->fault.few_cqe : MAX_CQE,
		.max_mr = MAX_MRS,
		.max_pd = 1 << 10,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.atomic_cap = IBV_ATOMIC_NONE,
		.phys_port_cnt = d->fault.infiniband ? 2 : 1,
	};
	return 0;
}

static int post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
static int poll_cq(struct ibv_cq *, int, struct ibv_wc *);

struct ibv_context *ibv_open_device(struct ibv_device *device) {
	LOCKED;
	struct fake_device *d = (struct fake_device *)device;
	REFUSE(d, "open_device", NULL);
	int code = meet();
	NEVER(code, code);
	int fd[2];
	NEVER(pipe2(fd, O_CLOEXEC) != 0, errno);
	fcntl(fd[1], F_SETFL, O_NONBLOCK);
	struct fake_context *c = calloc(1, sizeof *c);
	c->device = d;
	c->events = fd[1];
	struct ibv_context *out = &c->v.context;
	out->device = device;
	out->cmd_fd = -1;
	out->async_fd = fd[0];
	out->num_comp_vectors = 1;
	out->ops.post_send = post_send;
	out->ops.post_recv = post_recv;
	out->ops.poll_cq = poll_cq;
	pthread_mutex_init(&out->mutex, NULL);
#ifndef OLD
	out->abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->v.sz = sizeof c->v;
	c->v.query_port = query_port;
#endif
	c->next = d->contexts;
	d->contexts = c;
	note("+context %s\n", device->name);
	return out;
}

int ibv_close_device(struct ibv_context *context) {
	LOCKED;
	struct fake_context *c = context_of(context);
	REFUSE(c->device, "close_device", -1);
	for (struct fake_context **at = &c->device->contexts; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	note("-context %s\n", context->device->name);
	close(context->async_fd);
	close(c->events);
	free(c);
	return 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
	pthread_mutex_lock(&fake_lock);
	progress();
	pthread_mutex_unlock(&fake_lock);
	return read(context->async_fd, event, sizeof *event) == sizeof *event ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }

/* ---- memory ---------------------------------------------------------------------------------------------------- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
	LOCKED;
	static uint32_t handles;
	REFUSE(context_of(context)->device, "alloc_pd", NULL);
	struct fake_pd *pd = calloc(1, sizeof *pd);
	pd->base.context = context;
	pd->base.handle = ++handles;
	note("+pd %u\n", pd->base.handle);
	return &pd->base;
}

int ibv_dealloc_pd(struct ibv_pd *base) {
	LOCKED;
	struct fake_pd *pd = (struct fake_pd *)base;
	int code = refused(context_of(base->context)->device, "dealloc_pd");
	if (code || pd->users)
		return code ? code : EBUSY;
	note("-pd %u\n", base->handle);
	free(pd);
	return 0;
}

/* Whether the kernel could pin the ends of it. */
static int is_mapped(const void *p, size_t n) {
	char byte[2];
	struct iovec mine = {byte, 2}, at[2] = {{(void *)(uintptr_t)p, 1}, {(char *)(uintptr_t)p + n - 1, 1}};
	return n == 0 || process_vm_readv(getpid(), &mine, 1, at, 2, 0) == 2;
}

/* The region is at iova for work requests, and at p in this process. */
static struct ibv_mr *region(struct ibv_pd *pd, void *p, size_t n, uint64_t iova, unsigned access) {
	static uint32_t next;
	static uint8_t age;
	unsigned writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	NEVER((access & writes) && !(access & IBV_ACCESS_LOCAL_WRITE), EINVAL);
	struct fake_region *r = NULL;
	for (uint32_t i = 0; i < MAX_MRS; i++)
		if (!atomic_load(&self->regions[(next + i) % MAX_MRS].key)) {
			next = (next + i) % MAX_MRS;
			r = &self->regions[next];
			break;
		}
	NEVER(!r, ENOMEM);
	age += age == 255 ? 2 : 1;
	struct fake_mr *mr = calloc(1, sizeof *mr);
	uint32_t key = next << 8 | age;
	next++;
	mr->base = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = p, .length = n, .handle = key, .lkey = key, .rkey = key};
	mr->mapped = MAP_FAILED;
	r->pd = pd->handle;
	r->access = access;
	r->iova = iova;
	r->bytes = n;
	r->addr = (uintptr_t)p;
	atomic_store(&r->key, key);
	((struct fake_pd *)pd)->users++;
	note("+mr %u\n", key);
	return &mr->base;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *p, size_t n, uint64_t iova, unsigned access) {
	LOCKED;
	const struct fake_device *d = context_of(pd->context)->device;
	REFUSE(d, "reg_mr", NULL);
	NEVER(d->removed, EIO);
	NEVER(d->fault.memlock, ENOMEM);
	NEVER(!is_mapped(p, n), EFAULT);
	return region(pd, p, n, iova, access);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *p, size_t n, int access) {
	NEVER((unsigned)access & IBV_ACCESS_OPTIONAL_RANGE, EINVAL);
	return reg_mr(pd, p, n, (uintptr_t)p, (unsigned)access);
}

#ifndef OLD
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *p, size_t n, uint64_t iova, unsigned access) {
	return reg_mr(pd, p, n, iova, access);
}

/* Whatever can be mapped may play a dma-buf. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t n, uint64_t iova, int fd, int access) {
	LOCKED;
	const struct fake_device *d = context_of(pd->context)->device;
	REFUSE(d, "reg_dmabuf_mr", NULL);
	NEVER(d->fault.no_dmabuf, EOPNOTSUPP);
	uint64_t page = (uint64_t)getpagesize(), before = offset % page;
	struct stat file;
	NEVER(fstat(fd, &file) != 0, errno);
	NEVER(offset + n > (uint64_t)file.st_size, EINVAL);
	int protection = PROT_READ | (access & IBV_ACCESS_LOCAL_WRITE ? PROT_WRITE : 0);
	char *p = mmap(NULL, n + before, protection, MAP_SHARED, fd, (off_t)(offset - before));
	NEVER(p == MAP_FAILED, errno);
	struct ibv_mr *mr = region(pd, p + before, n, iova, (unsigned)access);
	if (!mr) {
		munmap(p, n + before);
		return NULL;
	}
	((struct fake_mr *)mr)->mapped = p;
	((struct fake_mr *)mr)->bytes = n + before;
	return mr;
}
#endif

int ibv_dereg_mr(struct ibv_mr *base) {
	LOCKED;
	struct fake_mr *mr = (struct fake_mr *)base;
	int code = refused(context_of(base->context)->device, "dereg_mr");
	if (code)
		return code;
	atomic_store(&region_of(self, base->lkey)->key, 0);
	for (struct fake_device *d = devices; d < devices + DEVICES; d++)
		each_qp(d, settle);
	if (mr->mapped != MAP_FAILED)
		munmap(mr->mapped, mr->bytes);
	((struct fake_pd *)base->pd)->users--;
	note("-mr %u\n", base->lkey);
	free(mr);
	return 0;
}

/* ---- completion queues ----------------------------------------------------------------------------------------- */

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *user, struct ibv_comp_channel *channel,
			     int vector) {
	LOCKED;
	static uint32_t handles;
	struct fake_context *c = context_of(context);
	int most = c->device->fault.few_cqe ? (int)c->device->fault.few_cqe : MAX_CQE, granted = 15;
	REFUSE(c->device, "create_cq", NULL);
	NEVER(cqe < 1 || cqe > most || channel || vector, EINVAL);
	while (granted < cqe)
		granted = 2 * granted + 1;
	struct fake_cq *cq = calloc(1, sizeof *cq);
	cq->base.context = context;
	cq->base.cq_context = user;
	cq->base.cqe = granted > most ? most : granted;
	cq->base.handle = ++handles;
	cq->ring = calloc((size_t)cq->base.cqe, sizeof *cq->ring);
	cq->next = c->cqs;
	c->cqs = cq;
	note("+cq %u\n", cq->base.handle);
	return &cq->base;
}

int ibv_destroy_cq(struct ibv_cq *base) {
	LOCKED;
	struct fake_cq *cq = (struct fake_cq *)base;
	struct fake_context *c = context_of(base->context);
	int code = refused(c->device, "destroy_cq");
	if (code || cq->qps)
		return code ? code : EBUSY;
	for (struct fake_cq **at = &c->cqs; *at; at = &(*at)->next)
		if (*at == cq) {
			*at = cq->next;
			break;
		}
	note("-cq %u\n", base->handle);
	free(cq->ring);
	free(cq);
	return 0;
}

static int poll_cq(struct ibv_cq *base, int size, struct ibv_wc *wc) {
	LOCKED;
	struct fake_cq *cq = (struct fake_cq *)base;
	int n = 0;
	progress();
	for (; n < size && cq->out < cq->in; n++) {
		const struct fake_done *done = &cq->ring[cq->out++ % (uint64_t)base->cqe];
		wc[n] = done->wc;
		if (done->retires)
			done->qp->retired = done->retires;
		else
			done->qp->polled++;
	}
	return n;
}

/* Takes the queue pair's completions out of its completion queue. */
static void forget(struct fake_qp *qp) {
	struct fake_cq *cq = (struct fake_cq *)qp->base.send_cq;
	uint64_t kept = cq->out;
	for (uint64_t i = cq->out; i < cq->in; i++) {
		struct fake_done *done = &cq->ring[i % (uint64_t)cq->base.cqe];
		if (done->qp != qp)
			cq->ring[kept++ % (uint64_t)cq->base.cqe] = *done;
	}
	cq->in = kept;
}

#include "fakeqp.h"
