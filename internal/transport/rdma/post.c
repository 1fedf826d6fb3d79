#include "core.h"

int rdma_fail_verbs(struct p2p_error *e, const char *what, int errnum) {
	p2p_fail(e, P2P_ERR_DEVICE, errnum, "");
	snprintf(e->text, sizeof e->text, "%s: %s", what, strerror(errnum));
	return P2P_ERR_DEVICE;
}

/* Posts n receives, at most RDMA_CHAIN of them. */
static int post_receives(struct ibv_qp *qp, uint32_t index, uint32_t n, struct p2p_error *e) {
	struct ibv_recv_wr wr[RDMA_CHAIN], *bad;
	for (uint32_t i = 0; i < n; i++)
		wr[i] = (struct ibv_recv_wr){.wr_id = rdma_wr_id(0, index, 0, 0),
					     .next = i + 1 < n ? &wr[i + 1] : NULL};
	int errnum = ibv_post_recv(qp, wr, &bad);
	return errnum ? rdma_fail_verbs(e, "ibv_post_recv", errnum) : P2P_OK;
}

int p2p_rdma_receives(struct ibv_qp *qp, uint32_t index, uint32_t n, struct p2p_error *e) {
	int rc = P2P_OK;
	for (uint32_t posted = 0; !rc && posted < n; posted += RDMA_CHAIN)
		rc = post_receives(qp, index, n - posted < RDMA_CHAIN ? n - posted : RDMA_CHAIN, e);
	return rc;
}

static int flush_sends(struct run *x, struct rdma_qp *q) {
	struct ibv_send_wr *bad;
	if (q->chained == 0)
		return P2P_OK;
	q->chain->wr[q->chained - 1].next = NULL;
	q->chained = q->chained_bytes = 0;
	int errnum = ibv_post_send(q->qp, q->chain->wr, &bad);
	return errnum ? rdma_fail_verbs(x->l.e, "ibv_post_send", errnum) : P2P_OK;
}

static int flush_receives(struct run *x, struct rdma_qp *q) {
	int rc = p2p_rdma_receives(q->qp, (uint32_t)(q - x->end->qp), q->reposts, x->l.e);
	q->reposts = 0;
	return rc;
}

void rdma_list(struct rdma_end *end, struct rdma_qp *q) {
	if (!q->listed)
		end->pending[end->pendings++] = (uint32_t)(q - end->qp);
	q->listed = 1;
}

int rdma_flush(struct run *x, int leisure) {
	struct rdma_end *end = x->end;
	uint32_t left = 0;
	int rc = P2P_OK;
	for (uint32_t i = 0; !rc && i < end->pendings; i++) {
		struct rdma_qp *q = &end->qp[end->pending[i]];
		if (q->reposts > q->slack) /* before the credits that rely on them */
			rc = flush_receives(x, q);
		if (!rc)
			rc = flush_sends(x, q);
		if (!rc && q->reposts && leisure)
			rc = flush_receives(x, q);
		q->listed = q->reposts != 0;
		if (q->listed)
			end->pending[left++] = end->pending[i];
	}
	end->pendings = left;
	return rc;
}

int rdma_post_write(struct run *x, struct rdma_qp *q, const struct ibv_send_wr *write, uint32_t id,
		    struct rdma_sent note) {
	if (q->chained == RDMA_CHAIN || q->chained_bytes >= RDMA_CHAIN_BYTES) {
		int rc = flush_sends(x, q);
		if (rc)
			return rc;
	}
	const uint32_t index = (uint32_t)(q - x->end->qp), n = q->chained++;
	struct ibv_send_wr *wr = &q->chain->wr[n];
	*wr = *write;
	if (wr->num_sge) {
		q->chain->sge[n] = *write->sg_list;
		wr->sg_list = &q->chain->sge[n];
		q->chained_bytes += wr->sg_list->length;
	}
	wr->next = wr + 1;
	wr->wr_id = rdma_wr_id(id, index, q->head, note.request);
	q->unsignaled++;
	if (q->unsignaled >= rdma_max_unsignaled(q))
		wr->send_flags |= IBV_SEND_SIGNALED;
	if (wr->send_flags & IBV_SEND_SIGNALED)
		q->unsignaled = 0;
	else
		note.posted = 0;
	q->ring[q->head++ & q->mask] = note;
	rdma_list(x->end, q);
	return P2P_OK;
}

int rdma_post_control(struct run *x, struct rdma_qp *q, const void *from, uint32_t n, uint64_t to, uint32_t rkey) {
	struct ibv_sge sge = {(uint64_t)(uintptr_t)from, n, x->end->control_lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = rkey;
	wr.send_flags = n <= q->inlined ? IBV_SEND_INLINE : 0;
	return rdma_post_write(x, q, &wr, 0, (struct rdma_sent){.conn = RDMA_CONTROL});
}
