/*
 * libverbs.h: libibverbs, loaded at run time. The distribution's <infiniband/verbs.h> has the types and the functions
 * of the data path, ibv_post_send, ibv_post_recv and ibv_poll_cq, which are inline and call through the context.
 * Exported functions are called through a table: ibv.open_device is ibv_open_device. Two lists name all of them; the
 * table and the look-up (libverbs.c) are generated from the lists.
 *
 * Never call an exported function by its own name, nor functions such as ibv_query_port, ibv_reg_mr and
 * ibv_query_gid_table, which the header implements by exported ones: that would link the library.
 */
#ifndef P2P_LIBVERBS_H
#define P2P_LIBVERBS_H

#include "gpu/dynlib/dynlib.h"

#include <infiniband/verbs.h>

/* X(exported name, name in the table). */
#define VERBS_REQUIRED(X)                                                                                              \
	X(ibv_get_device_list, get_device_list)                                                                        \
	X(ibv_free_device_list, free_device_list)                                                                      \
	X(ibv_open_device, open_device)                                                                                \
	X(ibv_close_device, close_device)                                                                              \
	X(ibv_query_device, query_device)                                                                              \
	X(ibv_query_port, query_port)                                                                                  \
	X(ibv_query_gid, query_gid)                                                                                    \
	X(ibv_get_async_event, get_async_event)                                                                        \
	X(ibv_ack_async_event, ack_async_event)                                                                        \
	X(ibv_alloc_pd, alloc_pd)                                                                                      \
	X(ibv_dealloc_pd, dealloc_pd)                                                                                  \
	X(ibv_reg_mr, reg_mr)                                                                                          \
	X(ibv_dereg_mr, dereg_mr)                                                                                      \
	X(ibv_create_cq, create_cq)                                                                                    \
	X(ibv_destroy_cq, destroy_cq)                                                                                  \
	X(ibv_create_qp, create_qp)                                                                                    \
	X(ibv_modify_qp, modify_qp)                                                                                    \
	X(ibv_query_qp, query_qp)                                                                                      \
	X(ibv_destroy_qp, destroy_qp)

/* NULL in the table if the library is too old. */
#define VERBS_OPTIONAL(X)                                                                                              \
	X(ibv_reg_mr_iova2, reg_mr_iova2)                                                                              \
	X(ibv_reg_dmabuf_mr, reg_dmabuf_mr)                                                                            \
	X(_ibv_query_gid_table, query_gid_table)

/* The types are taken from the header, so that a wrong use does not compile. */
#define X(symbol, name) __typeof__(&symbol) name;
struct p2p_verbs_functions {
	VERBS_REQUIRED(X)
	VERBS_OPTIONAL(X)
};
#undef X

/* Filled once p2p_verbs_library is loaded; read-only afterwards. */
extern struct p2p_verbs_functions ibv;
extern const struct p2p_library p2p_verbs_library;

#endif
