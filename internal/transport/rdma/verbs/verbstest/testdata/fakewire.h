/*
 * fakewire.h: what a device does by itself: sends are tried when they are posted, and again whenever the process posts
 * or polls, until they end; completions of receives are collected then. A process that does neither makes no progress.
 */
#include "fakefault.h"
#include "fakepeer.h"

enum { AGAIN = -1 }; /* beside enum ibv_wc_status: to be tried later */

enum { RETRY_NS = 200 * 1000 }; /* between tries of what nobody answers */

static void qp_error(struct fake_qp *qp);

/* ---- events and completions ------------------------------------------------------------------------------------ */

static void tell(struct fake_context *c, struct ibv_async_event e) {
	if (write(c->events, &e, sizeof e) != sizeof e)
		return; /* a reader that is so far behind knows enough */
}

static void tell_all(struct fake_device *d, struct ibv_async_event e) {
	for (struct fake_context *c = d->contexts; c; c = c->next)
		tell(c, e);
}

static void overrun(struct fake_cq *cq) {
	cq->dead = 1;
	cq->out = cq->in;
	tell(context_of(cq->base.context),
	     (struct ibv_async_event){.event_type = IBV_EVENT_CQ_ERR, .element.cq = &cq->base});
	for (struct fake_qp *qp = cq->qps; qp; qp = qp->next)
		qp_error(qp);
}

static void push(struct fake_cq *cq, const struct fake_done *done) {
	if (cq->dead)
		return;
	if (cq->in - cq->out == (uint64_t)cq->base.cqe) {
		overrun(cq);
		return;
	}
	cq->ring[cq->in++ % (uint64_t)cq->base.cqe] = *done;
}

static void push_send(struct fake_qp *qp, uint64_t number, enum ibv_wc_status status, uint32_t detail) {
	const struct fake_send *s = &qp->sends[number % qp->cap.max_send_wr];
	struct fake_done done = {
		.wc = {.wr_id = s->id, .status = status, .vendor_err = detail, .qp_num = qp->base.qp_num},
		.qp = qp,
		.retires = number + 1,
	};
	done.wc.opcode = s->op == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
	if (s->op == IBV_WR_RDMA_READ)
		done.wc.byte_len = s->bytes;
	push((struct fake_cq *)qp->base.send_cq, &done);
}

static void push_recv(struct fake_qp *qp, uint64_t number, enum ibv_wc_status status) {
	const struct fake_received *r = &qp->wire->ring[number % qp->wire->depth];
	struct fake_done done = {
		.wc = {.wr_id = qp->recv_ids[number % qp->wire->depth],
		       .status = status,
		       .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
		       .qp_num = qp->base.qp_num},
		.qp = qp,
	};
	if (status == IBV_WC_SUCCESS) {
		done.wc.byte_len = r->bytes;
		done.wc.imm_data = r->imm;
		done.wc.wc_flags = IBV_WC_WITH_IMM;
		done.wc.src_qp = qp->wire->dest;
	}
	push((struct fake_cq *)qp->base.recv_cq, &done);
}

/* Moves receives that the remote end has filled into the completion queue. */
static void collect(struct fake_qp *qp) {
	uint64_t done = atomic_load(&qp->wire->done);
	while (qp->seen < done)
		push_recv(qp, qp->seen++, IBV_WC_SUCCESS);
}

/* Waits until the remote end is not at this process's memory. One that died there is not waited for for long. */
static void settle(struct fake_qp *qp) {
	for (int64_t end = now() + 1000000000ll; atomic_load(&qp->wire->busy) && now() < end;)
		sched_yield();
}

static void flush(struct fake_qp *qp) {
	while (qp->run < qp->posted)
		push_send(qp, qp->run++, IBV_WC_WR_FLUSH_ERR, 0);
	for (uint64_t posted = atomic_load(&qp->wire->posted); qp->seen < posted;)
		push_recv(qp, qp->seen++, IBV_WC_WR_FLUSH_ERR);
}

static void qp_error(struct fake_qp *qp) {
	if (qp->base.state == IBV_QPS_ERR)
		return;
	qp->base.state = IBV_QPS_ERR;
	atomic_store(&qp->wire->state, IBV_QPS_ERR);
	settle(qp);
	collect(qp);
	flush(qp);
}

/* ---- faults of the whole device -------------------------------------------------------------------------------- */

static void port_goes_down(struct fake_device *d) {
	d->down = 1;
	tell_all(d, (struct ibv_async_event){.event_type = IBV_EVENT_PORT_ERR, .element.port_num = 1});
}

static void each_qp(struct fake_device *d, void (*f)(struct fake_qp *)) {
	for (struct fake_context *c = d->contexts; c; c = c->next)
		for (struct fake_cq *cq = c->cqs; cq; cq = cq->next)
			for (struct fake_qp *qp = cq->qps; qp; qp = qp->next)
				f(qp);
}

static void device_goes(struct fake_device *d) {
	d->removed = 1;
	tell_all(d, (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
	each_qp(d, qp_error);
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

static int inside(const struct fake_region *r, uint32_t key, uint32_t pd, uint64_t at, uint64_t bytes) {
	return atomic_load(&r->key) == key && key && r->pd == pd && at >= r->iova && bytes <= r->bytes &&
	       at - r->iova <= r->bytes - bytes;
}

static struct fake_region *region_of(struct fake_share *share, uint32_t key) {
	return &share->regions[(key >> 8) % MAX_MRS];
}

/* The local bytes of a send, or NULL when its key does not give them. */
static void *local(struct fake_qp *qp, const struct fake_send *s) {
	struct fake_region *r = region_of(self, s->lkey);
	if (s->flags & IBV_SEND_INLINE)
		return qp->inlined + (size_t)(s - qp->sends) * qp->cap.max_inline_data;
	if (!inside(r, s->lkey, qp->base.pd->handle, s->addr, s->bytes))
		return NULL;
	if (s->op == IBV_WR_RDMA_READ && !(r->access & IBV_ACCESS_LOCAL_WRITE))
		return NULL;
	return (void *)(r->addr + (s->addr - r->iova));
}

/* The address in the remote process, or 0 when the key does not give it. */
static uint64_t remote(struct fake_qp *qp, const struct fake_wire *w, const struct fake_send *s) {
	struct fake_region *r = region_of(qp->peer->share, s->rkey);
	uint32_t need = s->op == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
	if (!inside(r, s->rkey, w->pd, s->remote, s->bytes) || !(r->access & need) || !(w->access & need))
		return 0;
	return r->addr + (s->remote - r->iova);
}

static int has_port(const struct fake_device *d, int port) {
	return port == ETHERNET || (port == INFINIBAND && d->fault.infiniband);
}

static uint16_t lid_of(const struct fake_device *d, int port) {
	return port == INFINIBAND ? (uint16_t)(LID + (d - devices)) : 0;
}

static enum ibv_mtu mtu_of(const struct fake_device *d) { return d == devices ? IBV_MTU_4096 : IBV_MTU_1024; }

/* Zero where there is none. */
static void gid_of(const struct fake_device *d, int port, int index, union ibv_gid *gid) {
	const unsigned char n = (unsigned char)(d - devices + 1);
	const unsigned char all[3][16] = {
		{0xfe, 0x80, [8] = 2, [15] = n},    /* Ethernet 0: link-local, RoCE v1 */
		{[10] = 0xff, 0xff, 10, 88, 0, n},  /* Ethernet 1: 10.88.0.n, RoCE v2 */
		{0xfe, 0x80, [8] = 0x55, [15] = n}, /* InfiniBand 0 */
	};
	memset(gid, 0, sizeof *gid);
	if (!d->fault.no_gid && has_port(d, port) && index < (port == ETHERNET ? 2 : 1))
		memcpy(gid->raw, all[port == ETHERNET ? index : 2], 16);
}

/* Whether the addresses lead from a queue pair to another one. */
static int leads(const struct fake_qp *qp, const struct fake_wire *to) {
	union ibv_gid gid;
	if (to->device >= DEVICES || to->port != qp->wire->port)
		return 0;
	if (!qp->way.is_global)
		return qp->way.dlid == lid_of(&devices[to->device], (int)to->port);
	gid_of(&devices[to->device], (int)to->port, qp->way.grh.sgid_index, &gid);
	return memcmp(&gid, &qp->way.grh.dgid, sizeof gid) == 0;
}

/* The other end, if it is there and connected to this one. It is busy then. */
static struct fake_wire *reach(struct fake_qp *qp) {
	if (!qp->peer)
		qp->peer = visit(qp->wire->dest);
	if (!qp->peer || is_dead(qp->peer))
		return NULL;
	struct fake_wire *w = &qp->peer->share->wires[qp->wire->dest % MAX_QPS];
	atomic_store(&w->busy, 1);
	uint32_t state = atomic_load(&w->state);
	if ((state == IBV_QPS_RTR || state == IBV_QPS_RTS) && atomic_load(&w->number) == qp->wire->dest &&
	    w->dest == qp->base.qp_num && w->psn == qp->psn && leads(qp, w))
		return w;
	atomic_store(&w->busy, 0);
	return NULL;
}

/* Nobody answers: until the time of all retries is over. */
static int unanswered(struct fake_qp *qp, struct fake_send *s, int64_t at) {
	int64_t patience = (int64_t)(qp->retries + 1) * (4096ll << qp->timeout);
	if (qp->timeout && at - s->first > patience)
		return IBV_WC_RETRY_EXC_ERR;
	s->due = at + RETRY_NS;
	return AGAIN;
}

static int64_t rnr_wait(uint32_t timer) { /* ns, by the table of ibv_modify_qp(3) */
	if (timer == 0)
		timer = 32;
	return timer == 1 ? 10000 : (timer % 2 ? 30000ll << (timer - 3) / 2 : 20000ll << (timer - 2) / 2);
}

/* The remote end has no receive. */
static int not_ready(struct fake_send *s, int64_t at, uint32_t timer) {
	if (s->rnrs == 0)
		return IBV_WC_RNR_RETRY_EXC_ERR;
	if (s->rnrs != RNR_FOREVER)
		s->rnrs--;
	s->due = at + rnr_wait(timer);
	return AGAIN;
}

static int accuse(struct fake_wire *w) {
	atomic_store(&w->state, IBV_QPS_ERR);
	return IBV_WC_REM_ACCESS_ERR;
}

/* Whether this is the n-th, from 1, of what the counter counts; each send counts once. */
static int is_nth(long *counter, long n, struct fake_send *s, int bit) {
	if (s->spoilt & bit)
		return 0;
	s->spoilt |= bit;
	return ++*counter == n;
}

enum { COUNTED_WRITE = 1, COUNTED_IMM = 2, COUNTED_RNR = 4 };

/* The bytes and the immediate, to an end that is busy for it. Returns a status or AGAIN. */
static int deliver(struct fake_qp *qp, struct fake_wire *w, struct fake_send *s, int64_t at, uint32_t *detail) {
	struct fake_device *d = device_of(qp);
	int imm = s->op == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint64_t done = atomic_load(&w->done), there = s->bytes ? remote(qp, w, s) : 0;
	if (w->mtu != qp->wire->mtu)
		return IBV_WC_REM_INV_REQ_ERR;
	if (s->op != IBV_WR_RDMA_READ && is_nth(&d->writes, d->fault.bad_rkey, s, COUNTED_WRITE))
		return accuse(w);
	if (s->bytes && !there)
		return accuse(w);
	if (imm && d->rnrs < d->fault.rnr && !(s->spoilt & COUNTED_RNR)) {
		s->spoilt |= COUNTED_RNR;
		d->rnrs++;
		note("+rnr %u\n-rnr %u\n", qp->base.qp_num, qp->base.qp_num);
		return not_ready(s, at, w->rnr_timer);
	}
	if (imm && done == atomic_load(&w->posted))
		return not_ready(s, at, w->rnr_timer);
	if (s->bytes) {
		*detail = (uint32_t)copy(qp->peer, local(qp, s), there, s->bytes, s->op != IBV_WR_RDMA_READ);
		if (*detail)
			return *detail == ESRCH ? unanswered(qp, s, at) : IBV_WC_REM_OP_ERR;
	}
	if (imm) {
		int flip = is_nth(&d->imms, d->fault.drop_imm, s, COUNTED_IMM);
		w->ring[done % w->depth] =
			(struct fake_received){.imm = s->imm ^ (flip ? htonl(1) : 0), .bytes = s->bytes};
		atomic_store(&w->done, done + 1);
	}
	return IBV_WC_SUCCESS;
}

/* Tries the send at the head of the queue. Returns a status or AGAIN. */
static int attempt(struct fake_qp *qp, struct fake_send *s, uint32_t *detail) {
	int64_t at = now();
	if (at < s->due)
		return AGAIN;
	if (!s->first)
		s->first = at;
	if (device_of(qp)->down)
		return IBV_WC_RETRY_EXC_ERR; /* without the wait that it is in truth */
	if (s->bytes > MAX_MESSAGE)
		return IBV_WC_LOC_LEN_ERR;
	if (s->bytes && !local(qp, s))
		return IBV_WC_LOC_PROT_ERR;
	struct fake_wire *w = reach(qp);
	if (!w)
		return unanswered(qp, s, at);
	int status = deliver(qp, w, s, at, detail);
	atomic_store(&w->busy, 0);
	return status;
}

/* Sends complete in order: one that waits holds up those behind it. */
static void run(struct fake_qp *qp) {
	while (qp->base.state == IBV_QPS_RTS && qp->run < qp->posted) {
		struct fake_send *s = &qp->sends[qp->run % qp->cap.max_send_wr];
		uint32_t detail = 0;
		int status = attempt(qp, s, &detail);
		if (status == AGAIN)
			return;
		uint64_t number = qp->run++;
		if (status != IBV_WC_SUCCESS || s->flags & IBV_SEND_SIGNALED)
			push_send(qp, number, (enum ibv_wc_status)status, detail);
		if (status != IBV_WC_SUCCESS)
			qp_error(qp);
	}
}

static void look_after(struct fake_qp *qp) {
	if (qp->base.state != IBV_QPS_ERR && atomic_load(&qp->wire->state) == IBV_QPS_ERR) {
		tell(context_of(qp->base.context),
		     (struct ibv_async_event){.event_type = IBV_EVENT_QP_ACCESS_ERR, .element.qp = &qp->base});
		qp_error(qp);
	}
	collect(qp);
	run(qp);
}

/* What all devices of the process would have done by themselves in the meantime. */
static void progress(void) {
	for (struct fake_device *d = devices; d < devices + DEVICES; d++)
		each_qp(d, look_after);
}
