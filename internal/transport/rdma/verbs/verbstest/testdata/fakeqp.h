/* fakeqp.h: queue pairs, as the process makes, modifies and feeds them. */

/* The next wire that is free, going round, so that a number comes back as late as it can. */
static struct fake_wire *free_wire(uint32_t *number) {
	static uint32_t next = 1;
	for (uint32_t i = 0; i < MAX_QPS; i++) {
		uint32_t at = (next + i) % MAX_QPS;
		if (!atomic_load(&self->wires[at].number)) {
			next = at + 1;
			*number = self->slot * MAX_QPS + at;
			return &self->wires[at];
		}
	}
	return NULL;
}

static void reset(struct fake_qp *qp) {
	qp->base.state = IBV_QPS_RESET;
	atomic_store(&qp->wire->state, IBV_QPS_RESET);
	settle(qp);
	forget(qp);
	leave(qp->peer);
	qp->peer = NULL;
	qp->posted = qp->run = qp->retired = qp->polled = qp->seen = 0;
	atomic_store(&qp->wire->posted, 0);
	atomic_store(&qp->wire->done, 0);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
	LOCKED;
	struct fake_device *d = context_of(pd->context)->device;
	struct ibv_qp_cap *cap = &attr->cap;
	uint32_t most = d->fault.few_wr ? (uint32_t)d->fault.few_wr : MAX_WR, number = 0;
	REFUSE(d, "create_qp", NULL);
	NEVER(d->removed, EIO);
	NEVER(attr->qp_type != IBV_QPT_RC, EOPNOTSUPP);
	NEVER(attr->srq || !attr->send_cq || attr->send_cq != attr->recv_cq, EINVAL);
	NEVER(!cap->max_send_wr || cap->max_send_wr > most || cap->max_recv_wr > most, EINVAL);
	NEVER(cap->max_send_sge > 1 || cap->max_recv_sge > 1 || cap->max_inline_data > MAX_INLINE, EINVAL);
	NEVER(d->qps >= (d->fault.few_qps ? d->fault.few_qps : MAX_QPS / 2), ENOMEM);
	struct fake_wire *w = free_wire(&number);
	NEVER(!w, ENOMEM);
	cap->max_inline_data = (cap->max_inline_data + 3) / 4 * 4;
	struct fake_qp *qp = calloc(1, sizeof *qp);
	struct fake_cq *cq = (struct fake_cq *)attr->send_cq;
	qp->wire = w;
	qp->cap = *cap;
	qp->sends = calloc(cap->max_send_wr, sizeof *qp->sends);
	qp->inlined = calloc(cap->max_send_wr, cap->max_inline_data);
	qp->recv_ids = calloc(cap->max_recv_wr, sizeof *qp->recv_ids);
	qp->base.context = pd->context;
	qp->base.qp_context = attr->qp_context;
	qp->base.pd = pd;
	qp->base.send_cq = attr->send_cq;
	qp->base.recv_cq = attr->recv_cq;
	qp->base.handle = qp->base.qp_num = number;
	qp->base.qp_type = attr->qp_type;
	w->device = (uint32_t)(d - devices);
	w->pd = pd->handle;
	w->depth = cap->max_recv_wr;
	reset(qp);
	atomic_store(&w->number, number);
	qp->next = cq->qps;
	cq->qps = qp;
	((struct fake_pd *)pd)->users++;
	d->qps++;
	note("+qp %u\n", number);
	return &qp->base;
}

int ibv_destroy_qp(struct ibv_qp *base) {
	LOCKED;
	struct fake_qp *qp = (struct fake_qp *)base;
	int code = refused(device_of(qp), "destroy_qp");
	if (code)
		return code;
	reset(qp);
	atomic_store(&qp->wire->number, 0);
	for (struct fake_qp **at = &((struct fake_cq *)base->send_cq)->qps; *at; at = &(*at)->next)
		if (*at == qp) {
			*at = qp->next;
			break;
		}
	((struct fake_pd *)base->pd)->users--;
	device_of(qp)->qps--;
	note("-qp %u\n", base->qp_num);
	free(qp->sends);
	free(qp->inlined);
	free(qp->recv_ids);
	free(qp);
	return 0;
}

int ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
	LOCKED;
	struct fake_qp *qp = (struct fake_qp *)base;
	int code = refused(device_of(qp), "query_qp");
	(void)mask;
	if (code)
		return code;
	progress();
	memset(init, 0, sizeof *init);
	memset(attr, 0, sizeof *attr);
	init->cap = attr->cap = qp->cap;
	attr->qp_state = attr->cur_qp_state = base->state;
	return 0;
}

static int to_init(struct fake_qp *qp, const struct ibv_qp_attr *a) {
	unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (!has_port(device_of(qp), a->port_num) || a->pkey_index || a->qp_access_flags & ~known)
		return EINVAL;
	qp->wire->port = a->port_num;
	qp->wire->access = a->qp_access_flags;
	return 0;
}

static int to_rtr(struct fake_qp *qp, const struct ibv_qp_attr *a) {
	const struct fake_device *d = device_of(qp);
	const struct ibv_ah_attr *way = &a->ah_attr;
	union ibv_gid own;
	gid_of(d, way->port_num, way->grh.sgid_index, &own);
	if (way->port_num != qp->wire->port || (way->is_global ? !own.global.interface_id : way->port_num == ETHERNET))
		return EINVAL;
	if (a->path_mtu < IBV_MTU_256 || a->path_mtu > mtu_of(d) || a->rq_psn >> 24 || a->dest_qp_num >> 24 ||
	    a->max_dest_rd_atomic > 16 || a->min_rnr_timer > 31)
		return EINVAL;
	qp->way = *way;
	qp->wire->dest = a->dest_qp_num;
	qp->wire->psn = a->rq_psn;
	qp->wire->mtu = a->path_mtu;
	qp->wire->rnr_timer = a->min_rnr_timer;
	return 0;
}

static int to_rts(struct fake_qp *qp, const struct ibv_qp_attr *a) {
	if (a->sq_psn >> 24 || a->timeout > 31 || a->retry_cnt > 7 || a->rnr_retry > 7 || a->max_rd_atomic > 16)
		return EINVAL;
	qp->psn = a->sq_psn;
	qp->timeout = a->timeout;
	qp->retries = a->retry_cnt;
	qp->rnr_retries = a->rnr_retry;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask) {
	const struct {
		enum ibv_qp_state from, to;
		int mask;
		int (*step)(struct fake_qp *, const struct ibv_qp_attr *);
	} steps[] = {
		{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, to_init},
		{IBV_QPS_INIT, IBV_QPS_RTR,
		 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			 IBV_QP_MIN_RNR_TIMER,
		 to_rtr},
		{IBV_QPS_RTR, IBV_QPS_RTS,
		 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		 to_rts},
	};
	LOCKED;
	struct fake_qp *qp = (struct fake_qp *)base;
	int code = refused(device_of(qp), "modify_qp");
	if (code || device_of(qp)->removed || !(mask & IBV_QP_STATE))
		return code ? code : device_of(qp)->removed ? EIO : EINVAL;
	dismiss_callers();
	progress();
	if (attr->qp_state == IBV_QPS_ERR) {
		qp_error(qp);
		return 0;
	}
	if (attr->qp_state == IBV_QPS_RESET) {
		reset(qp);
		return 0;
	}
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		if (steps[i].from != base->state || steps[i].to != attr->qp_state)
			continue;
		if (mask != (steps[i].mask | IBV_QP_STATE))
			return EINVAL;
		code = steps[i].step(qp, attr);
		if (code == 0) {
			base->state = attr->qp_state;
			atomic_store(&qp->wire->state, attr->qp_state);
		}
		return code;
	}
	return EINVAL;
}

/* Puts a work request into the queue. Returns an errno. */
static int enqueue(struct fake_qp *qp, const struct ibv_send_wr *wr) {
	const struct ibv_sge *sge = wr->num_sge ? wr->sg_list : &(struct ibv_sge){0};
	struct fake_device *d = device_of(qp);
	uint64_t slot = qp->posted % qp->cap.max_send_wr;
	if (qp->base.state != IBV_QPS_RTS && qp->base.state != IBV_QPS_ERR)
		return EINVAL;
	if (wr->num_sge < 0 || wr->num_sge > (int)qp->cap.max_send_sge)
		return EINVAL;
	if (wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM &&
	    wr->opcode != IBV_WR_RDMA_READ)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE &&
	    (sge->length > qp->cap.max_inline_data || wr->opcode == IBV_WR_RDMA_READ))
		return EINVAL;
	if (qp->posted - qp->retired == qp->cap.max_send_wr)
		return ENOMEM;
	struct fake_send *s = &qp->sends[slot];
	*s = (struct fake_send){
		.id = wr->wr_id,
		.addr = sge->addr,
		.bytes = sge->length,
		.lkey = sge->lkey,
		.remote = wr->wr.rdma.remote_addr,
		.rkey = wr->wr.rdma.rkey,
		.imm = wr->imm_data,
		.op = (int)wr->opcode,
		.flags = (int)wr->send_flags,
		.due = d->fault.slow ? now() + 1000 * d->fault.slow : 0,
		.rnrs = qp->rnr_retries,
	};
	if (wr->send_flags & IBV_SEND_INLINE && s->bytes)
		memcpy(qp->inlined + slot * qp->cap.max_inline_data, (void *)(uintptr_t)sge->addr, s->bytes);
	qp->posted++;
	return 0;
}

static int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
	LOCKED;
	struct fake_qp *qp = (struct fake_qp *)base;
	struct fake_device *d = device_of(qp);
	for (; wr; wr = wr->next) {
		int code = d->removed ? EIO : enqueue(qp, wr);
		if (code) {
			*bad = wr;
			return code;
		}
		if (d->fault.port_down_after && d->posts == d->fault.port_down_after)
			port_goes_down(d);
		if (d->fault.removed_after && d->posts == d->fault.removed_after)
			device_goes(d);
		d->posts++;
		look_after(qp);
		if (base->state == IBV_QPS_ERR)
			flush(qp);
	}
	return 0;
}

static int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	LOCKED;
	struct fake_qp *qp = (struct fake_qp *)base;
	for (; wr; wr = wr->next) {
		uint64_t posted = atomic_load(&qp->wire->posted);
		int code = 0;
		if (device_of(qp)->removed)
			code = EIO;
		else if (base->state == IBV_QPS_RESET || wr->num_sge < 0 || wr->num_sge > (int)qp->cap.max_recv_sge)
			code = EINVAL;
		else if (posted - qp->polled == qp->cap.max_recv_wr)
			code = ENOMEM;
		if (code) {
			*bad = wr;
			return code;
		}
		qp->recv_ids[posted % qp->cap.max_recv_wr] = wr->wr_id;
		atomic_store(&qp->wire->posted, posted + 1);
		if (base->state == IBV_QPS_ERR)
			flush(qp);
	}
	return 0;
}
