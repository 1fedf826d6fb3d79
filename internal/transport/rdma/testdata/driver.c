/*
 * driver.c: the timed loops between two ends of one process, in two threads, on whatever libibverbs it is linked with.
 * It is built with the loops themselves in it, and sanitizers, so that every access of theirs is watched: queues, rings
 * and memory are no larger than they must be. It prints what went wrong and exits with 1.
 *
 *	driver         every form, every operation, then everything is closed; and so again, in three orders
 *	driver NAME    the form of that name fails in the middle of a batch (by FAKEVERBS_FAULT), and everything is
 *closed
 */
#include "memory.c"
#include "post.c"
#include "rdma.c"
#include "sample.c"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "driver.c:%d: %s: %s\n", __LINE__, #condition, strerror(errno));               \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

enum { MOST = 64, LARGEST = 5000, SLOTS = 40, ITERS = 60 };

struct form {
	const char *name;
	uint32_t conns, groups, qps, window, signal_every, inlined, pre_granted, by_order, separate_imm, in_memory,
		burst;
};

static const struct form forms[] = {
	{"alone", 1, 0, 1, 8, 1, 64, 0, 0, 0, 0, 1},
	{"unshared", 4, 0, 3, 8, 3, 64, 0, 0, 0, 0, 1},
	{"shared", 9, 2, 1, 5, 1, 64, 0, 0, 0, 0, 1},
	{"shared by all", 5, 1, 3, 3, 7, 0, 0, 0, 0, 0, 1},
	{"pre-granted", 6, 3, 2, 4, 4, 64, 1, 0, 0, 0, 1},
	{"separate immediate", 4, 2, 1, 2, 1, 64, 0, 0, 1, 0, 1},
	{"by order", 3, 0, 2, 6, 2, 64, 0, 1, 0, 0, 1},
	{"by order, separate immediate", 2, 0, 3, 7, 5, 64, 1, 1, 1, 0, 1},
	{"one at a time", 4, 2, 2, 1, 1, 64, 0, 0, 0, 0, 1},
	{"deep", 1, 0, 1, 256, 64, 64, 0, 0, 0, 0, 1},
	{"in memory", 1, 0, 1, 4, 2, 64, 1, 0, 0, 1, 1},
	{"in memory, shared", 7, 3, 2, 5, 3, 0, 1, 0, 0, 1, 4},
	{"burst", 3, 0, 2, 2, 1, 64, 0, 0, 0, 0, 3},
	{"burst, separate immediate", 2, 1, 1, 3, 1, 64, 1, 0, 1, 0, RDMA_BURST},
	{"long burst", 1, 0, 1, 1, 1, 64, 1, 0, 0, 1, RDMA_BURST},
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct rdma_end end;
	struct p2p_ctx ctx;
	struct ibv_mr *mrs[3];
	uint8_t *source, *inbox, *control;
	uint32_t *index; /* of queue pairs, by connection */
	struct p2p_batch batch;
	struct p2p_result result;
	struct p2p_error error;
	int64_t samples[ITERS];
	int rc;
};

/* ---- device ----------------------------------------------------------------------------------------------------- */

static int bind_engine(void *self, struct p2p_error *e) {
	(void)self, (void)e;
	return P2P_OK;
}

static int wait_engine(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	(void)self, (void)c, (void)e;
	return P2P_OK;
}

static int fill_payload(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
			struct p2p_error *e) {
	(void)self, (void)c, (void)step, (void)e;
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = p2p_payload_byte(key, i);
	return P2P_OK;
}

static int check_payload(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
			 struct p2p_mismatch *m, struct p2p_error *e) {
	(void)self, (void)c, (void)step, (void)e;
	*m = (struct p2p_mismatch){0};
	for (size_t i = 0; i < n; i++)
		if (((const uint8_t *)p)[i] != p2p_payload_byte(key, i) && m->count++ == 0)
			m->offset = i;
	return P2P_OK;
}

static struct p2p_engine engine = {
	.abi = P2P_ABI, .bind = bind_engine, .wait = wait_engine, .fill = fill_payload, .check = check_payload};

/* ---- ends ------------------------------------------------------------------------------------------------------- */

static uint64_t region_bytes(void) { return (LARGEST + 511) / 512 * 512 * SLOTS; }

static struct ibv_mr *give(struct side *s, uint8_t **p, size_t n, int access) {
	MUST((*p = calloc(1, n)));
	struct ibv_mr *mr = ibv_reg_mr(s->pd, *p, n, access);
	MUST(mr);
	return mr;
}

static uint32_t groups_of(const struct form *f) { return f->groups ? f->groups : f->conns; }

/* Work requests under way on a queue pair: what its connections need, and no more. */
static uint32_t receives_of(const struct form *f) {
	return (f->conns + groups_of(f) - 1) / groups_of(f) * f->window * (f->by_order ? 2 : 1);
}

static uint32_t sends_of(const struct form *f) { return 2 * receives_of(f) * (1 + f->separate_imm) + 16; }

/* The queues of one direction. */
static void make_queues(struct side *s, const struct form *f, int receives) {
	struct rdma_end *end = &s->end;
	struct p2p_error e;
	for (uint32_t g = 0; g < groups_of(f); g++) {
		struct ibv_cq *cq =
			ibv_create_cq(s->context, (int)(f->qps * (sends_of(f) + receives_of(f))), NULL, NULL, 0);
		MUST(cq);
		end->cq[end->cqs++] = cq;
		for (uint32_t i = 0; i < f->qps; i++) {
			struct ibv_qp_init_attr a = {
				.send_cq = cq,
				.recv_cq = cq,
				.qp_type = IBV_QPT_RC,
				.cap = {sends_of(f), receives_of(f), 1, 1, sizeof(struct rdma_cts)}};
			struct ibv_qp_attr init = {
				.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
			struct rdma_qp *q = &end->qp[end->qps];
			uint32_t ring = 1;
			while (ring < sends_of(f))
				ring *= 2;
			*q = (struct rdma_qp){.qp = ibv_create_qp(s->pd, &a), .mask = ring - 1, .room = sends_of(f)};
			q->inlined = a.cap.max_inline_data;
			q->ring = calloc(ring, sizeof *q->ring);
			q->chain = calloc(1, sizeof *q->chain);
			MUST(q->qp && q->ring && q->chain);
			MUST(!ibv_modify_qp(q->qp, &init,
					    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
			MUST(!receives || f->in_memory || !p2p_rdma_receives(q->qp, end->qps, receives_of(f), &e));
			end->qps++;
		}
	}
}

/* One end of each connection of a direction. */
static void make_conns(struct side *s, const struct form *f, struct rdma_conn *c, uint32_t first, uint32_t id,
		       uint32_t *by_id, int receives, size_t at) {
	for (uint32_t k = 0; k < f->conns; k++, c++) {
		uint32_t group = f->groups ? k % f->groups : k;
		*c = (struct rdma_conn){.id = id + k, .number = k, .qps = f->qps, .unused = f->window};
		uint32_t *index = s->index + (receives ? MOST : 0) + k * f->qps;
		for (uint32_t i = 0; i < f->qps; i++)
			index[i] = first + group * f->qps + i;
		c->qp = index;
		for (uint32_t i = 0; i < f->window; i++)
			c->request[i] = (uint8_t)i;
		struct rdma_cts *grants = (struct rdma_cts *)(s->control + at) + k * RDMA_REQUESTS;
		if (receives) {
			c->entry = grants;
			for (uint32_t i = 0; i < f->qps; i++)
				s->end.qp[index[i]].owner = k;
		} else {
			c->fifo = grants;
			MUST((c->bins = calloc(RDMA_BINS, sizeof *c->bins)));
		}
		by_id[id + k] = k + 1;
	}
}

enum { WORDS = 2 * sizeof(struct rdma_words) };

static size_t fifos(const struct form *f) { return (size_t)f->conns * RDMA_REQUESTS * sizeof(struct rdma_cts); }

static void open_side(struct side *s, const struct form *f, struct ibv_device *device, uint32_t rank,
		      struct p2p_progress *team, const struct p2p_clock *clock) {
	memset(s, 0, sizeof *s);
	MUST((s->context = ibv_open_device(device)));
	MUST((s->pd = ibv_alloc_pd(s->context)));
	const int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	s->mrs[0] = give(s, &s->source, region_bytes(), 0);
	s->mrs[1] = give(s, &s->inbox, region_bytes(), writes);
	s->mrs[2] = give(s, &s->control, WORDS + 2 * fifos(f), writes);
	s->ctx = (struct p2p_ctx){clock, &team[rank], team, 20000000000u, 2, 1, P2P_WAKE_SPIN, 0, 0};
	struct rdma_end *end = &s->end;
	end->ctx = &s->ctx;
	end->engine = &engine;
	end->rank = rank;
	end->bytes = region_bytes();
	end->config = (struct rdma_config){.window = f->window,
					   .signal_every = f->signal_every,
					   .inlined = f->inlined,
					   .pre_granted = f->pre_granted,
					   .by_order = f->by_order,
					   .separate_imm = f->separate_imm,
					   .in_memory = f->in_memory,
					   .burst = f->burst};
	uint32_t each = groups_of(f) * f->qps;
	end->cq = calloc(2 * groups_of(f), sizeof *end->cq);
	end->qp = calloc(2 * each, sizeof *end->qp);
	end->pending = calloc(2 * each, sizeof *end->pending);
	end->out = calloc(f->conns, sizeof *end->out);
	end->in = calloc(f->conns, sizeof *end->in);
	end->peer = calloc(1, sizeof *end->peer);
	s->index = calloc(2 * MOST, sizeof *s->index);
	MUST(end->cq && end->qp && end->pending && end->out && end->in && end->peer && s->index);
	/* Queue pair i of one side is connected with i of the other: rank 0's to rank 1 come first. */
	make_queues(s, f, rank == 1);
	make_queues(s, f, rank == 0);
	const uint32_t out = rank == 0 ? 0 : each, in = each - out;
	make_conns(s, f, end->out, out, 100 + 1000 * rank, end->out_by_id, 0, WORDS);
	make_conns(s, f, end->in, in, 500 + 1000 * rank, end->in_by_id, 1, WORDS + fifos(f));
	end->outs = end->ins = f->conns;
	end->peers = 1;
	*end->peer = (struct rdma_peer){.rank = 1 - rank,
					.out = f->conns,
					.in = f->conns,
					.inbox = s->inbox,
					.words = (struct rdma_words *)s->control,
					.outgoing = (struct rdma_words *)s->control + 1};
	end->source = s->source;
	end->source_lkey = s->mrs[0]->lkey;
	end->inbox_rkey = s->mrs[1]->rkey;
	end->control_lkey = s->mrs[2]->lkey;
}

static void join(struct side *s, const struct form *f, const struct side *o) {
	union ibv_gid gid;
	MUST(!ibv_query_gid(o->context, 1, 1, &gid));
	for (uint32_t i = 0; i < s->end.qps; i++) {
		struct ibv_qp_attr rtr = {
			.qp_state = IBV_QPS_RTR,
			.path_mtu = IBV_MTU_1024,
			.dest_qp_num = o->end.qp[i].qp->qp_num,
			.max_dest_rd_atomic = 1,
			.min_rnr_timer = 1,
			.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = 1}}};
		struct ibv_qp_attr rts = {
			.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
		MUST(!ibv_modify_qp(s->end.qp[i].qp, &rtr,
				    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
		MUST(!ibv_modify_qp(s->end.qp[i].qp, &rts,
				    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	}
	s->end.peer->remote_words = (uint64_t)(uintptr_t)o->control;
	s->end.peer->remote_words_rkey = o->mrs[2]->rkey;
	for (uint32_t k = 0; k < f->conns; k++) {
		struct rdma_conn *out = &s->end.out[k], *in = &s->end.in[k];
		out->remote_id = o->end.in[k].id;
		out->inbox = (uint64_t)(uintptr_t)o->inbox;
		out->inbox_rkey = o->mrs[1]->rkey;
		in->remote_id = o->end.out[k].id;
		in->remote_fifo = (uint64_t)(uintptr_t)o->end.out[k].fifo;
		in->remote_fifo_rkey = o->mrs[2]->rkey;
	}
}

/* order 0: from the last queue to the first, 1: from the first, 2: every other one first. */
static void close_side(struct side *s, int order) {
	struct rdma_end *end = &s->end;
	for (uint32_t n = 0; n < end->qps; n++) {
		uint32_t i = order == 0   ? end->qps - 1 - n
			     : order == 1 ? n
					  : (2 * n) % end->qps + (end->qps % 2 == 0 && 2 * n >= end->qps);
		MUST(!ibv_destroy_qp(end->qp[i].qp));
		free(end->qp[i].ring);
		free(end->qp[i].chain);
	}
	for (uint32_t i = 0; i < end->cqs; i++)
		MUST(!ibv_destroy_cq(end->cq[order == 0 ? end->cqs - 1 - i : i]));
	for (uint32_t k = 0; k < end->outs; k++)
		free(end->out[k].bins);
	void *pieces[] = {end->cq, end->qp, end->pending, end->out, end->in, end->peer, s->index};
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
		free(pieces[i]);
	for (int i = 0; i < 3; i++)
		MUST(!ibv_dereg_mr(s->mrs[i]));
	free(s->source);
	free(s->inbox);
	free(s->control);
	MUST(!ibv_dealloc_pd(s->pd));
	MUST(!ibv_close_device(s->context));
}

/* ---- runs ------------------------------------------------------------------------------------------------------- */

static void *run_side(void *p) {
	struct side *s = p;
	s->result = (struct p2p_result){0};
	s->error = (struct p2p_error){0};
	s->rc = p2p_rdma_run(&s->end, &s->batch, s->samples, &s->result, &s->error);
	if (s->rc) /* the other one need not wait */
		for (uint32_t r = 0; r < s->ctx.ranks; r++)
			atomic_store(&s->ctx.team[r].abort, 1);
	return NULL;
}

static void run_both(struct side *sides, const struct p2p_batch *b) {
	pthread_t threads[2];
	for (int i = 0; i < 2; i++) {
		sides[i].batch = *b;
		MUST(!pthread_create(&threads[i], NULL, run_side, &sides[i]));
	}
	for (int i = 0; i < 2; i++)
		MUST(!pthread_join(threads[i], NULL));
}

static void good(const struct form *f, const struct side *sides, const struct p2p_batch *b) {
	for (int i = 0; i < 2; i++) {
		const struct side *s = &sides[i];
		uint64_t messages = (uint64_t)(b->warmup + b->iters) * b->window;
		int receives = i == 1 || b->op == P2P_OP_BIDIR || b->op == P2P_OP_PINGPONG;
		if (!s->rc && !s->end.misroutes && s->result.checked == (receives ? messages * b->size : 0))
			continue;
		fprintf(stderr, "%s, operation %u, size %llu, rank %d: %d (%s), %llu misroutes, %llu bytes checked\n",
			f->name, b->op, (unsigned long long)b->size, i, s->rc, s->error.text,
			(unsigned long long)s->end.misroutes, (unsigned long long)s->result.checked);
		exit(1);
	}
}

/* Completions that nobody waits for: of a request that has come, of none, of a connection that is none. */
static void strays(const struct form *f, struct side *s) {
	struct rdma_end *end = &s->end;
	struct rdma_conn *c = end->in;
	struct p2p_error e = {0};
	struct run x = {.l = {.ctx = &s->ctx, .b = &s->batch, .e = &e}, .end = end, .w = &end->config};
	const uint64_t before = end->misroutes;
	const uint32_t id[] = {c->id, c->id, c->id, c->id - 1, 0, RDMA_IDS}, request[] = {0, 1, 255, 0, 0, 0};
	struct ibv_wc wc = {.opcode = IBV_WC_RECV_RDMA_WITH_IMM, .wc_flags = IBV_WC_WITH_IMM};
	if (f->by_order || f->pre_granted) /* requests are not identified by immediate data */
		return;
	wc.wr_id = rdma_wr_id(0, c->qp[0], 0, 0);
	for (int i = 0; i < 6; i++) {
		c->count = c->finished + 1;
		c->expected[0] = i > 0; /* that no request is expected is what the batches left */
		wc.imm_data = htonl(request[i] << 16 | id[i]);
		MUST(arrive(&x, &wc) != P2P_OK && strstr(e.text, "misrouted"));
	}
	wc.wr_id = rdma_wr_id(0, end->qps, 0, 0);
	MUST(arrive(&x, &wc) != P2P_OK);
	wc.wr_id = rdma_wr_id(end->out->id, end->out->qp[0], end->qp[end->out->qp[0]].head, 0); /* not posted yet */
	MUST(retire(&x, &wc) != P2P_OK);
	MUST(end->misroutes == before + 8);
}

/* A form from its opening to its end, between two devices or on one. */
static void life(const struct form *f, struct ibv_device **devices, int other, int order, int fails) {
	static const struct p2p_clock clock = {.ns_per_tick = 1};
	struct p2p_progress *team = aligned_alloc(128, 2 * sizeof *team);
	struct side *sides = calloc(2, sizeof *sides);
	MUST(team && sides);
	memset(team, 0, 2 * sizeof *team);
	open_side(&sides[0], f, devices[0], 0, team, &clock);
	open_side(&sides[1], f, devices[other], 1, team, &clock);
	join(&sides[0], f, &sides[1]);
	join(&sides[1], f, &sides[0]);
	uint64_t first = 0;
	static const uint64_t sizes[] = {0, 1, 64, 65, LARGEST};
	for (uint32_t op = P2P_OP_LATENCY; op <= P2P_OP_PINGPONG && !fails; op++)
		for (size_t i = f->in_memory; i < sizeof sizes / sizeof *sizes; i++, first += ITERS + 2) {
			const int many = op == P2P_OP_STREAM || op == P2P_OP_BIDIR;
			struct p2p_batch b = {.size = sizes[i],
					      .stride = (sizes[i] + 511) / 512 * 512,
					      .first = first,
					      .seed = 3,
					      .op = op,
					      .check = P2P_CHECK_FULL,
					      .window = many ? SLOTS : 1,
					      .warmup = 2,
					      .iters = many ? 6 : ITERS};
			run_both(sides, &b);
			good(f, sides, &b);
		}
	if (fails) {
		struct p2p_batch b = {
			.size = 64, .stride = 512, .op = P2P_OP_BIDIR, .window = SLOTS, .warmup = 1000, .iters = 6};
		run_both(sides, &b);
		MUST(sides[0].rc && sides[1].rc);
	}
	strays(f, &sides[1]);
	close_side(&sides[other], order);
	close_side(&sides[1 - other], order);
	free(sides);
	free(team);
}

/* Every value of a histogram is in its bin, and no bin is wide. */
static void bins(void) {
	for (uint32_t i = 0; i < RDMA_BINS; i++) {
		const uint64_t least = p2p_rdma_bin(i), next = p2p_rdma_bin(i + 1);
		MUST(next > least && (next - least - 1) * 32 <= least);
		MUST(bin_of(least) == i && bin_of(next - 1) == i && bin_of(least + (next - least) / 2) == i);
	}
	MUST(p2p_rdma_bin(0) == 0 && p2p_rdma_bin(RDMA_BINS) > 24ull * 3600 * 1000000000);
	MUST(bin_of(UINT64_MAX) == RDMA_BINS - 1 && bin_of(p2p_rdma_bin(RDMA_BINS)) == RDMA_BINS - 1);
}

int main(int argc, char **argv) {
	const size_t n_forms = sizeof forms / sizeof *forms;
	int n, lives = 0;
	struct ibv_device **devices = ibv_get_device_list(&n);
	MUST(devices && n == 2);
	bins();
	for (size_t i = 0; i < n_forms; i++)
		if (argc > 1 && strcmp(argv[1], forms[i].name) == 0)
			life(&forms[i], devices, ++lives, 0, 1);
	const int once = argc > 1 && strcmp(argv[1], "-short") == 0; /* each form in one of the orders */
	for (int order = 0; order < 3; order++)
		for (size_t i = 0; i < n_forms; i++)
			if (argc == 1 || (once && (int)(i % 3) == order)) {
				life(&forms[i], devices, order != 1, order, 0);
				lives++;
			}
	MUST(lives);
	ibv_free_device_list(devices);
	return 0;
}
