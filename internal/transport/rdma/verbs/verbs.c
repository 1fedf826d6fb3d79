#include "verbs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>

/* An errno from a verb that returns one, or its negative, or -1 and sets errno. */
static int result(int rc) {
	if (rc == 0)
		return 0;
	if (rc == -1)
		return errno ? errno : EIO;
	return rc < 0 ? -rc : rc;
}

/* An errno from a verb that returns an object. */
static int made(const void *object) { return object ? 0 : errno ? errno : EIO; }

int p2p_verbs_list(struct ibv_device ***list, int *n) {
	errno = 0;
	*n = 0;
	*list = ibv.get_device_list(n);
	return made(*list);
}

void p2p_verbs_free(struct ibv_device **list) { ibv.free_device_list(list); }

int p2p_verbs_open(struct ibv_device *device, struct ibv_context **context) {
	errno = 0;
	*context = ibv.open_device(device);
	if (!*context)
		return made(NULL);
	int flags = fcntl((*context)->async_fd, F_GETFL);
	if (flags >= 0 && fcntl((*context)->async_fd, F_SETFL, flags | O_NONBLOCK) == 0)
		return 0;
	int failed = errno;
	ibv.close_device(*context);
	return failed;
}

int p2p_verbs_close(struct ibv_context *context) {
	errno = 0;
	return result(ibv.close_device(context));
}

int p2p_verbs_query(struct ibv_context *context, struct ibv_device_attr *attr) {
	errno = 0;
	return result(ibv.query_device(context, attr));
}

/* The exported function knows only the older part of attr. */
int p2p_verbs_port(struct ibv_context *context, int port, struct ibv_port_attr *attr) {
	struct verbs_context *extended = verbs_get_ctx_op(context, query_port);
	memset(attr, 0, sizeof *attr);
	errno = 0;
	if (extended)
		return result(extended->query_port(context, (uint8_t)port, attr, sizeof *attr));
	return result(ibv.query_port(context, (uint8_t)port, (struct _compat_ibv_port_attr *)attr));
}

static int zero(const union ibv_gid *gid) { return !gid->global.subnet_prefix && !gid->global.interface_id; }

/* One by one, from a library that knows no types. */
static int gids_of_old(struct ibv_context *context, int port, struct ibv_gid_entry *table, int size, int *n) {
	struct ibv_port_attr attr;
	int rc = p2p_verbs_port(context, port, &attr);
	for (int i = 0; rc == 0 && i < attr.gid_tbl_len && *n < size; i++) {
		struct ibv_gid_entry e = {.gid_index = (uint32_t)i, .gid_type = (uint32_t)P2P_VERBS_UNKNOWN};
		errno = 0;
		rc = result(ibv.query_gid(context, (uint8_t)port, i, &e.gid));
		if (rc == 0 && !zero(&e.gid))
			table[(*n)++] = e;
	}
	return rc;
}

int p2p_verbs_gids(struct ibv_context *context, int port, struct ibv_gid_entry *table, int size, int *n) {
	*n = 0;
	if (!ibv.query_gid_table)
		return gids_of_old(context, port, table, size, n);
	ssize_t got = ibv.query_gid_table(context, table, (size_t)size, 0, sizeof *table);
	if (got < 0)
		return (int)-got;
	for (ssize_t i = 0; i < got; i++) /* the table holds all ports' */
		if (table[i].port_num == (uint32_t)port && !zero(&table[i].gid))
			table[(*n)++] = table[i];
	return 0;
}

void p2p_verbs_netdev(uint32_t index, char *name) {
	if (!index || !if_indextoname(index, name))
		*name = 0;
}

int p2p_verbs_event(struct ibv_context *context, int *type, unsigned *number) {
	struct ibv_async_event e;
	if (ibv.get_async_event(context, &e) != 0)
		return 0;
	*type = (int)e.event_type;
	switch (e.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		*number = e.element.qp->qp_num;
		break;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
		*number = (unsigned)e.element.port_num;
		break;
	default:
		*number = 0;
	}
	ibv.ack_async_event(&e);
	return 1;
}

int p2p_verbs_pd(struct ibv_context *context, struct ibv_pd **pd) {
	errno = 0;
	*pd = ibv.alloc_pd(context);
	return made(*pd);
}

int p2p_verbs_free_pd(struct ibv_pd *pd) {
	errno = 0;
	return result(ibv.dealloc_pd(pd));
}

/* Flags of the optional range may be left out, and are where the library does not know them. */
int p2p_verbs_reg(struct ibv_pd *pd, uintptr_t addr, size_t bytes, unsigned access, struct ibv_mr **mr) {
	unsigned required = access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	errno = 0;
	if (access != required && ibv.reg_mr_iova2)
		*mr = ibv.reg_mr_iova2(pd, (void *)addr, bytes, addr, access);
	else
		*mr = ibv.reg_mr(pd, (void *)addr, bytes, (int)required);
	return made(*mr);
}

int p2p_verbs_reg_dmabuf(struct ibv_pd *pd, int fd, uint64_t offset, size_t bytes, uint64_t iova, unsigned access,
			 struct ibv_mr **mr) {
	if (!ibv.reg_dmabuf_mr)
		return ENOSYS;
	errno = 0;
	*mr = ibv.reg_dmabuf_mr(pd, offset, bytes, iova, fd, (int)access);
	return made(*mr);
}

int p2p_verbs_dereg(struct ibv_mr *mr) {
	errno = 0;
	return result(ibv.dereg_mr(mr));
}

int p2p_verbs_cq(struct ibv_context *context, int depth, struct ibv_cq **cq) {
	errno = 0;
	*cq = ibv.create_cq(context, depth, NULL, NULL, 0);
	return made(*cq);
}

int p2p_verbs_destroy_cq(struct ibv_cq *cq) {
	errno = 0;
	return result(ibv.destroy_cq(cq));
}

int p2p_verbs_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap *cap, struct ibv_qp **qp) {
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = *cap, .qp_type = IBV_QPT_RC};
	errno = 0;
	*qp = ibv.create_qp(pd, &attr);
	*cap = attr.cap;
	return made(*qp);
}

int p2p_verbs_destroy_qp(struct ibv_qp *qp) {
	errno = 0;
	return result(ibv.destroy_qp(qp));
}

static int modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
	errno = 0;
	return result(ibv.modify_qp(qp, attr, mask | IBV_QP_STATE));
}

int p2p_verbs_init(struct ibv_qp *qp, int port, unsigned access) {
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)port, .qp_access_flags = access};
	return modify(qp, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int p2p_verbs_rtr(struct ibv_qp *qp, const struct p2p_verbs_path *path) {
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)path->mtu,
		.dest_qp_num = path->number,
		.rq_psn = path->psn,
		.max_dest_rd_atomic = path->reads,
		.min_rnr_timer = path->rnr_timer,
		.ah_attr = {.dlid = path->lid, .sl = path->service_level, .port_num = path->port},
	};
	if (path->global) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.sgid_index = path->gid_index;
		attr.ah_attr.grh.hop_limit = 64;
		attr.ah_attr.grh.traffic_class = path->traffic_class;
		memcpy(attr.ah_attr.grh.dgid.raw, path->gid, sizeof path->gid);
	}
	return modify(qp, &attr,
		      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			      IBV_QP_MIN_RNR_TIMER);
}

int p2p_verbs_rts(struct ibv_qp *qp, const struct p2p_verbs_path *path) {
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = path->own_psn,
		.timeout = path->timeout,
		.retry_cnt = path->retry,
		.rnr_retry = path->rnr_retry,
		.max_rd_atomic = path->reads,
	};
	return modify(qp, &attr,
		      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int p2p_verbs_err(struct ibv_qp *qp) {
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	return modify(qp, &attr, 0);
}

int p2p_verbs_state(struct ibv_qp *qp, int *state) {
	struct ibv_qp_attr attr = {0};
	struct ibv_qp_init_attr init;
	errno = 0;
	int rc = result(ibv.query_qp(qp, &attr, IBV_QP_STATE, &init));
	*state = (int)attr.qp_state;
	return rc;
}

int p2p_verbs_post(struct ibv_qp *qp, const struct p2p_verbs_work *work) {
	struct ibv_sge sge = {.addr = work->addr, .length = work->bytes, .lkey = work->lkey};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = work->id,
					 .sg_list = &sge,
					 .num_sge = work->bytes > 0,
					 .opcode = (enum ibv_wr_opcode)work->op,
					 .send_flags = work->flags,
					 .imm_data = htonl(work->imm),
					 .wr.rdma = {.remote_addr = work->remote, .rkey = work->rkey},
				 };
	errno = 0;
	return result(ibv_post_send(qp, &wr, &bad));
}

int p2p_verbs_post_recv(struct ibv_qp *qp, uint64_t id) {
	struct ibv_recv_wr *bad, wr = {.wr_id = id};
	errno = 0;
	return result(ibv_post_recv(qp, &wr, &bad));
}

int p2p_verbs_poll(struct ibv_cq *cq, int size, struct ibv_wc *wc) {
	errno = 0;
	int n = ibv_poll_cq(cq, size, wc);
	return n < 0 ? -(errno ? errno : EIO) : n; /* drivers have negative results of their own */
}

uint32_t p2p_verbs_imm(const struct ibv_wc *wc) { return ntohl(wc->imm_data); }
