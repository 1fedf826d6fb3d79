/*
 * kernel.h: a small model of the kernels around the protocols: threads and their roles, the counters that are kept from
 * message to message, and the window of a resident kernel.
 *
 * The includer has included plan.h, sendrecv.h and protocol.h of gpu/abi, and defines the functions that are
 * declared here.
 */
#ifndef P2P_PROTOCOLTEST_KERNEL_H
#define P2P_PROTOCOLTEST_KERNEL_H

/* The place of a thread: its rank, block and role. */
struct pt_part {
	uint32_t rank, block, role, thread; /* role: 0 sends, 1 receives */
};

/* The memory of a rank. */
struct pt_where {
	struct sr_words *words;
	struct sr_count *count;
	struct sr_state *state;
	sr_u8 *src, *dst, *staging, *lines;
};

static const struct pt_work *pt_work_of(void);
static struct pt_where pt_where(uint32_t rank);
static struct sr_group pt_group(const struct pt_part *p);
/* Barrier of all threads of the block, in both roles. */
static void pt_block_barrier(const struct pt_part *p);
/* Barrier of all threads of the rank; the last one then executes the host's part. */
static void pt_rank_barrier(const struct pt_part *p);
/* Registers the counters that the thread uses; NULL: none. */
static void pt_register_counts(const struct sr_count *c);
static void pt_gave_up(uint32_t rank);
/* Whether a wait of the rank was given up before the host's latest part. */
static int pt_ended(uint32_t rank);

static struct pt_part pt_part_of(uint32_t index) {
	const struct pt_work *w = pt_work_of();
	const uint32_t n = w->plan->threads, pair = index / n / 2;
	return (struct pt_part){pair / w->blocks, pair % w->blocks, index / n % 2, index % n};
}

/* Whether the host's part follows message l: with a resident kernel, after the last message of a window. */
static int pt_pause(uint32_t l) {
	const struct pt_work *w = pt_work_of();
	return !w->plan->resident || l + 1 == w->launches || w->launch[l + 1].slot == 0;
}

static struct sr_args pt_args(uint32_t rank, const struct pt_launch *m, uint64_t spacing) {
	const struct pt_where own = pt_where(rank), peer = pt_where(1 - rank);
	const struct pt_side *s = &m->side[rank];
	const uint64_t at = pt_work_of()->plan->resident ? 0 : m->slot * spacing;
	return (struct sr_args){
		.src = own.src + at,
		.dst = own.dst + at,
		.bytes = m->bytes,
		.peer_dst = peer.dst + at,
		.peer_staging = peer.staging,
		.staging = own.staging,
		.peer_lines = peer.lines,
		.lines = own.lines,
		.in = own.words,
		.out = own.words,
		.peer_in = peer.words,
		.peer_out = peer.words,
		.count = own.count,
		.spacing = spacing,
		.state = own.state,
		.timeout_ns = pt_work_of()->plan->timeout_ns,
		.stride = m->stride,
		.stages = m->stages,
		.roles = s->roles,
		.order = s->order,
		.drain = s->drain,
		.credits = s->credits,
	};
}

static int pt_in_lines(const struct pt_launch *m) { return m->variant == PT_LL || m->variant == PT_LL128; }

/* The roles of a thread in a message: its own, but with lines the threads of the first role have both. */
static uint32_t pt_roles(const struct pt_part *p, const struct pt_launch *m) {
	const uint32_t roles = p->block < m->ctas ? m->side[p->rank].roles : 0;
	if (pt_in_lines(m))
		return p->role == 0 ? roles : 0;
	return roles & (p->role == 0 ? SR_SEND : SR_RECEIVE);
}

/* The roles of a thread in the kernel that begins with message l: a resident kernel has those of all its messages. */
static uint32_t pt_kernel_roles(const struct pt_part *p, uint32_t l) {
	const struct pt_work *w = pt_work_of();
	uint32_t roles = pt_roles(p, &w->launch[l]);
	while (w->plan->resident && ++l < w->launches)
		roles |= pt_roles(p, &w->launch[l]);
	return roles;
}

typedef int (*pt_protocol)(const struct sr_args *, struct sr_group *, struct sr_count *, sr_u32, sr_u32);

/* The next line that a resident kernel sends, read before the current receive is complete. */
struct pt_next {
	struct sr_line line;
	int ready;
	int follows; /* 1: it is sent after a receive */
};

static inline int pt_pass_lines(const struct pt_part *p, const struct pt_launch *m, const struct sr_args *a,
				struct sr_count *c, struct pt_next *next, int more, int form) {
	const uint32_t roles = pt_roles(p, m), answers = a->order == SR_RECEIVE_FIRST;
	struct sr_group g = pt_group(p);
	const struct sr_share share = sr_share_of(a->bytes, p->block, m->ctas);
	const int after = next->follows || (answers && (roles & SR_RECEIVE));
	form |= sr_form(a, &g, &share, form);
	if ((roles & SR_SEND) && !next->ready)
		next->line = sr_prepare_ll(a, &g, c, p->block, &share, 0, form);
	if (answers && (roles & SR_RECEIVE) && !sr_receive_ll(a, &g, c, p->block, &share, form))
		return 0;
	if ((roles & SR_SEND) && !sr_send_ll(a, &g, c, p->block, &share, &next->line, after ? form | SR_ANSWER : form))
		return 0;
	next->follows = more && roles == (SR_SEND | SR_RECEIVE);
	next->ready = more && (roles & SR_SEND);
	if (next->ready)
		next->line = sr_prepare_ll(a, &g, c, p->block, &share, 1, form);
	if (!answers && (roles & SR_RECEIVE) && !sr_receive_ll(a, &g, c, p->block, &share, form))
		return 0;
	if (roles & SR_RECEIVE)
		sr_release_ll(a, &g, c, p->block, &share, form);
	return 1;
}

static int pt_run_lines(const struct pt_part *p, const struct pt_launch *m, const struct sr_args *a, struct sr_count *c,
			struct pt_next *next, int more) {
	if (m->variant == PT_LL128)
		return pt_pass_lines(p, m, a, c, next, more, SR_WIDE);
	return pt_pass_lines(p, m, a, c, next, more, 0);
}

/* A thread's part of a message. Returns 0 if a wait was given up. more: another message of the window follows. */
static int pt_run_message(const struct pt_part *p, const struct pt_launch *m, const struct sr_args *a,
			  struct sr_count *c, struct pt_next *next, int more) {
	static const pt_protocol send[] = {sr_send_staged, sr_send_put};
	static const pt_protocol receive[] = {sr_receive_staged, sr_receive_put};
	const uint32_t roles = pt_roles(p, m);
	struct sr_group g = pt_group(p);
	uint32_t phase = a->order == SR_RECEIVE_FIRST ? SR_RECEIVE : SR_SEND;
	int ok = 1;
	if (pt_in_lines(m))
		return pt_run_lines(p, m, a, c, next, more);
	for (uint32_t i = 0; i < 2; i++, phase ^= SR_SEND | SR_RECEIVE) {
		if (ok && (roles & phase))
			ok = (phase == SR_SEND ? send : receive)[m->variant](a, &g, c, p->block, m->ctas);
		if (a->order != SR_TOGETHER)
			pt_block_barrier(p);
	}
	return ok;
}

/* One thread: runs all messages. */
static void pt_run_thread(const struct pt_part *p, uint64_t spacing) {
	const struct pt_work *w = pt_work_of();
	const int resident = (int)w->plan->resident;
	struct sr_count *const kept = &pt_where(p->rank).count[p->block];
	struct sr_count c = {0};
	struct pt_next next = {.ready = 0};
	uint32_t roles = 0;
	pt_register_counts(&c);
	for (uint32_t l = 0; l < w->launches; l++) {
		const struct pt_launch *m = &w->launch[l];
		const struct sr_args a = pt_args(p->rank, m, spacing);
		if (!resident || l == 0) {
			roles = pt_kernel_roles(p, l);
			c = sr_load_counts(kept, roles);
		}
		if (resident)
			c.offset = m->slot * spacing;
		const int more = resident && !pt_pause(l);
		if (p->block < m->ctas && !pt_ended(p->rank) && !pt_run_message(p, m, &a, &c, &next, more))
			pt_gave_up(p->rank);
		if (p->thread == 0 && (!resident || l + 1 == w->launches))
			sr_store_counts(kept, &c, roles);
		if (pt_pause(l))
			pt_rank_barrier(p);
	}
	pt_register_counts(NULL);
}

#endif
