/*
 * verbs.h: the verbs for set-up, for calls from Go. Every function that can fail returns an errno, 0 for success,
 * however the verb itself reports errors.
 */
#ifndef P2P_VERBS_H
#define P2P_VERBS_H

#include "libverbs.h"

/* The caller frees the list with p2p_verbs_free. */
int p2p_verbs_list(struct ibv_device ***list, int *n);
void p2p_verbs_free(struct ibv_device **list);

/* Asynchronous events of the context are read without waiting. */
int p2p_verbs_open(struct ibv_device *device, struct ibv_context **context);
int p2p_verbs_close(struct ibv_context *context);
int p2p_verbs_query(struct ibv_context *context, struct ibv_device_attr *attr);
int p2p_verbs_port(struct ibv_context *context, int port, struct ibv_port_attr *attr);

enum { P2P_VERBS_UNKNOWN = -1 }; /* gid_type from a library that is too old to report it */

/* Fills table with at most size GIDs that are not zero; *n is their number. */
int p2p_verbs_gids(struct ibv_context *context, int port, struct ibv_gid_entry *table, int size, int *n);

/* name has room for IF_NAMESIZE; "" if there is no such interface. */
void p2p_verbs_netdev(uint32_t index, char *name);

/* Takes an event if there is one: *type is an ibv_event_type, *number that of its queue pair or port, if any. */
int p2p_verbs_event(struct ibv_context *context, int *type, unsigned *number);

int p2p_verbs_pd(struct ibv_context *context, struct ibv_pd **pd);
int p2p_verbs_free_pd(struct ibv_pd *pd);
int p2p_verbs_reg(struct ibv_pd *pd, uintptr_t addr, size_t bytes, unsigned access, struct ibv_mr **mr);
int p2p_verbs_reg_dmabuf(struct ibv_pd *pd, int fd, uint64_t offset, size_t bytes, uint64_t iova, unsigned access,
			 struct ibv_mr **mr);
int p2p_verbs_dereg(struct ibv_mr *mr);
int p2p_verbs_cq(struct ibv_context *context, int depth, struct ibv_cq **cq);
int p2p_verbs_destroy_cq(struct ibv_cq *cq);

/* An RC queue pair whose sends and receives complete on cq, not all signalled. *cap becomes the actual capacity. */
int p2p_verbs_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_qp_cap *cap, struct ibv_qp **qp);
int p2p_verbs_destroy_qp(struct ibv_qp *qp);

/* The path from a queue pair to its remote end. */
struct p2p_verbs_path {
	uint32_t number, psn, own_psn;
	unsigned char gid[16];
	int global; /* by GID, else by LID */
	uint16_t lid;
	uint8_t port, gid_index, traffic_class, service_level;
	int mtu;       /* enum ibv_mtu */
	uint8_t reads; /* outstanding, each way */
	uint8_t timeout, retry, rnr_retry, rnr_timer;
};

int p2p_verbs_init(struct ibv_qp *qp, int port, unsigned access);
int p2p_verbs_rtr(struct ibv_qp *qp, const struct p2p_verbs_path *path);
int p2p_verbs_rts(struct ibv_qp *qp, const struct p2p_verbs_path *path);
int p2p_verbs_err(struct ibv_qp *qp);
int p2p_verbs_state(struct ibv_qp *qp, int *state);

/* A work request for p2p_verbs_post. flags are ibv_send_flags. */
struct p2p_verbs_work {
	uint64_t id;
	int op; /* enum ibv_wr_opcode */
	unsigned flags;
	uint32_t imm; /* host byte order */
	uint64_t addr;
	uint32_t bytes, lkey;
	uint64_t remote;
	uint32_t rkey;
};

int p2p_verbs_post(struct ibv_qp *qp, const struct p2p_verbs_work *work);
int p2p_verbs_post_recv(struct ibv_qp *qp, uint64_t id); /* without a buffer: for immediate data */
/* Returns the number of completions taken, at most size, or a negative errno. */
int p2p_verbs_poll(struct ibv_cq *cq, int size, struct ibv_wc *wc);
uint32_t p2p_verbs_imm(const struct ibv_wc *wc); /* host byte order */

#endif
