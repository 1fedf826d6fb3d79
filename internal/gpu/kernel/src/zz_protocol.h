/* Code generated from internal/gpu/abi/protocol.h by scripts/sync-headers. DO NOT EDIT. */
/*
 * protocol.h: how two ranks pass a message from kernel to kernel: staged, put and ll. It is C and CUDA C++ at once, so
 * that the GPUs' kernels and their double on a host run the same lines.
 *
 * The includer defines before, all static and inline:
 *
 *	SR_FN                       what stands before a function
 *	struct sr_group             the threads of a block that play a role together: `rank`, `size`, what else it likes
 *	sr_sync(g)                  barrier of a group
 *	sr_vote(g, ok)              barrier of a group; true if all its threads say yes
 *	sr_load(word)               reads a word; what was written before it is visible afterwards (acquire, system)
 *	sr_peek(word)               reads one and promises nothing about what was written before it
 *	sr_store(word, value)       writes one after all that the group did before its last barrier (release, system)
 *	sr_taken(word, value)       the same where the group only read what the peer may now overwrite: what was read is
 *	                            there, so that nothing needs to be flushed first
 *	sr_copy(g, dst, src, n)     copies together; complete for the caller only
 *	sr_poll(a, role, block, word, want)
 *	                            waits until *word >= want; false if it was given up, which it noted in a->state
 *	sr_now(value)               the value, computed here and not later
 *	sr_put_line(line, data, flag), sr_get_line(a, block, line, flag, &data)
 *	                            8 bytes of payload with a flag in each half; get waits, false if it was given up
 */
#ifndef P2P_SENDRECV_PROTOCOL_H
#define P2P_SENDRECV_PROTOCOL_H

/*
 * Every thread has a copy of its block's counters, `c` below, read when the kernel begins; thread 0 writes it back when
 * the kernel ends. A resident kernel moves c->offset through the messages of a window.
 */

/* A block's part of a message. */
struct sr_share {
	sr_u64 from, bytes;
};

/* How many pieces of `size` bytes, a multiple of SR_GRAIN, a message is. Both are below 2 TiB. */
SR_FN sr_u32 sr_pieces(sr_u64 bytes, sr_u64 size) {
	const sr_u32 grains = (sr_u32)((bytes + SR_GRAIN - 1) / SR_GRAIN), each = (sr_u32)(size / SR_GRAIN);
	return (grains + each - 1) / each;
}

SR_FN struct sr_share sr_share_of(sr_u64 bytes, sr_u32 block, sr_u32 blocks) {
	const sr_u64 each = (sr_u64)sr_pieces(bytes, (sr_u64)SR_GRAIN * blocks) * SR_GRAIN;
	struct sr_share s;
	s.from = each * block < bytes ? each * block : bytes;
	s.bytes = bytes - s.from < each ? bytes - s.from : each;
	return s;
}

/* Waits for a word together. */
SR_FN int sr_await(const struct sr_args *a, struct sr_group *g, sr_u32 role, sr_u32 block, const sr_u64 *word,
		   sr_u64 want) {
	int ok = 1;
	if (g->rank == 0)
		ok = sr_poll(a, role, block, word, want);
	return sr_vote(g, ok);
}

/* The same for a word that was looked at before: *seen is what thread 0 saw. Mostly it need not look again. */
SR_FN int sr_await_room(const struct sr_args *a, struct sr_group *g, sr_u32 block, const sr_u64 *word, sr_u64 want,
			sr_u64 *seen) {
	int ok = 1;
	if (g->rank == 0 && *seen < want) {
		ok = sr_poll(a, SR_SEND, block, word, want);
		*seen = want;
	}
	return sr_vote(g, ok);
}

/* Whether this is the first message since the host last had a say. */
SR_FN int sr_first(const struct sr_count *c) { return c->offset == 0; }

/* Says to the peer what all threads of the group have finished. */
SR_FN void sr_publish(struct sr_group *g, sr_u64 *word, sr_u64 value) {
	sr_sync(g);
	if (g->rank == 0)
		sr_store(word, value);
}

/* The same for what the group has read. */
SR_FN void sr_publish_taken(struct sr_group *g, sr_u64 *word, sr_u64 value) {
	sr_sync(g);
	if (g->rank == 0)
		sr_taken(word, value);
}

/* ---- staged ----------------------------------------------------------------------------------------------------- */

/* Where step `step` of a block lies in a staging area. */
SR_FN sr_u64 sr_slot(const struct sr_args *a, sr_u32 block, sr_u64 step) {
	return ((sr_u64)block * a->stages + step % a->stages) * a->stride;
}

/* What head must be before step `step` may be written: the step that lay there was taken. */
SR_FN sr_u64 sr_room(const struct sr_args *a, sr_u64 step) { return step < a->stages ? 0 : step + 1 - a->stages; }

/*
 * Waits until the peer has taken everything that blocks below a->drain have sent. head guards the slots of its own
 * block only: where stride, stages or the number of blocks change, a slot is another block's from now on.
 */
SR_FN int sr_drained(const struct sr_args *a, struct sr_group *g) {
	int ok = 1;
	if (a->drain == 0)
		return 1;
	if (g->rank == 0)
		for (sr_u32 b = 0; ok && b < a->drain; b++)
			ok = sr_poll(a, SR_SEND, b, &a->out->head[b].value, a->count[b].sent);
	return sr_vote(g, ok);
}

SR_FN int sr_send_staged(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	const sr_u64 *const head = &a->out->head[block].value;
	sr_u64 step = c->sent;
	if (sr_first(c) && !sr_drained(a, g))
		return 0;
	for (sr_u64 at = 0; at < s.bytes; at += a->stride, step++) {
		const sr_u64 n = s.bytes - at < a->stride ? s.bytes - at : a->stride;
		if (!sr_await_room(a, g, block, head, sr_room(a, step), &c->head))
			return 0;
		sr_copy(g, a->peer_staging + sr_slot(a, block, step), a->src + c->offset + s.from + at, n);
		sr_publish(g, &a->peer_in->tail[block].value, step + 1);
	}
	c->sent = step;
	if (g->rank == 0)
		c->head = sr_peek(head);
	return 1;
}

SR_FN int sr_receive_staged(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block,
			    sr_u32 blocks) {
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	sr_u64 step = c->received;
	for (sr_u64 at = 0; at < s.bytes; at += a->stride, step++) {
		const sr_u64 n = s.bytes - at < a->stride ? s.bytes - at : a->stride;
		if (!sr_await(a, g, SR_RECEIVE, block, &a->in->tail[block].value, step + 1))
			return 0;
		sr_copy(g, a->dst + c->offset + s.from + at, a->staging + sr_slot(a, block, step), n);
		sr_publish_taken(g, &a->peer_out->head[block].value, step + 1);
	}
	c->received = step;
	return 1;
}

/* ---- put -------------------------------------------------------------------------------------------------------- */

/* A message may be written once the receiver waits for it: head counts those. */
SR_FN int sr_send_put(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	const sr_u64 message = c->sent + 1;
	if (s.bytes == 0)
		return 1;
	if (!sr_await_room(a, g, block, &a->out->head[block].value, message, &c->head))
		return 0;
	sr_copy(g, a->peer_dst + c->offset + s.from, a->src + c->offset + s.from, s.bytes);
	sr_publish(g, &a->peer_in->tail[block].value, message);
	c->sent = message;
	if (g->rank == 0)
		c->head = sr_peek(&a->out->head[block].value);
	return 1;
}

SR_FN int sr_receive_put(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	const sr_u64 message = c->received + 1;
	if (s.bytes == 0)
		return 1;
	if (a->grant && sr_first(c) && g->rank == 0)
		sr_store(&a->peer_out->head[block].value, message - 1 + a->grant);
	if (!sr_await(a, g, SR_RECEIVE, block, &a->in->tail[block].value, message))
		return 0;
	c->received = message;
	return 1;
}

/* ---- ll --------------------------------------------------------------------------------------------------------- */

/* The flag of a message, message % (2^32-1) + 1: never 0, which unused memory holds. */
SR_FN sr_u32 sr_flag(sr_u64 message) {
	const sr_u64 next = message + 1, folded = (next & 0xffffffffu) + (next >> 32);
	return (sr_u32)folded + (sr_u32)(folded >> 32);
}

/* Where the lines of a block begin, in bytes. */
SR_FN sr_u32 sr_lines_at(sr_u32 block, sr_u64 message) {
	return ((sr_u32)message % SR_LL_SLOTS * SR_LL_CTAS + block) * (2 * SR_LL_BYTES);
}

/* What ll_head must be before a message may be written: the one that lay there was taken. */
SR_FN sr_u64 sr_ll_room(sr_u64 message) { return message < SR_LL_SLOTS ? 0 : message + 1 - SR_LL_SLOTS; }

/* The 8 bytes from p on, of which only the first n count. */
SR_FN sr_u64 sr_gather(const sr_u8 *p, sr_u64 n) {
	sr_u64 v = 0;
	if (n >= 8 && (sr_u64)p % 8 == 0)
		return *(const volatile sr_u64 *)p;
	for (sr_u32 i = 0; i < 8 && i < n; i++)
		v |= (sr_u64)(*(const volatile sr_u8 *)(p + i)) << (8 * i);
	return v;
}

SR_FN void sr_scatter(sr_u8 *p, sr_u64 v, sr_u64 n) {
	if (n >= 8 && (sr_u64)p % 8 == 0) {
		*(volatile sr_u64 *)p = v;
		return;
	}
	for (sr_u32 i = 0; i < 8 && i < n; i++)
		*(volatile sr_u8 *)(p + i) = (sr_u8)(v >> (8 * i));
}

/*
 * The first of a thread's lines of a message, and what it holds; the next one is g->size lines on. All of it is known
 * before the message may be sent, or has come: so nothing needs to be worked out between a message and its answer.
 */
struct sr_line {
	sr_u8 *line;
	sr_u8 *payload; /* in the inbox */
	sr_u64 data;    /* what is sent */
	sr_u32 flag;
	sr_u32 left;  /* bytes of the block's share from here on; 0: the thread has no line */
	sr_u32 whole; /* 1: 8 bytes, aligned */
};

SR_FN struct sr_line sr_line_of(const struct sr_group *g, sr_u32 block, const struct sr_share *s, sr_u8 *lines,
				sr_u8 *payload, sr_u64 message) {
	const sr_u32 at = 8 * g->rank, bytes = (sr_u32)s->bytes;
	struct sr_line l;
	l.line = lines + sr_lines_at(block, message) + 2 * at;
	l.payload = payload + s->from + at;
	l.data = 0;
	l.flag = sr_flag(message);
	l.left = at < bytes ? bytes - at : 0;
	l.whole = l.left >= 8 && (sr_u64)l.payload % 8 == 0;
	return l;
}

SR_FN struct sr_line sr_prepare_ll(const struct sr_args *a, const struct sr_group *g, const struct sr_count *c,
				   sr_u32 block, const struct sr_share *s) {
	struct sr_line l = sr_line_of(g, block, s, a->peer_lines, (sr_u8 *)a->src + c->offset, c->ll_sent);
	if (l.left)
		l.data = sr_gather(l.payload, l.left);
	return l;
}

/* `l` is what sr_prepare_ll gave. */
SR_FN int sr_send_ll(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block,
		     const struct sr_share *s, const struct sr_line *l) {
	const sr_u32 step = 8 * g->size;
	if (s->bytes == 0)
		return 1;
	if (!c->ll_room &&
	    !sr_await_room(a, g, block, &a->out->ll_head[block].value, sr_ll_room(c->ll_sent), &c->ll_head))
		return 0;
	if (l->left)
		sr_put_line(l->line, l->data, l->flag);
	for (sr_u32 at = step; at < l->left; at += step)
		sr_put_line(l->line + 2 * at, sr_gather(l->payload + at, l->left - at), l->flag);
	c->ll_room = 0;
	c->ll_sent++;
	if (g->rank == 0)
		c->ll_head = sr_peek(&a->out->ll_head[block].value);
	return 1;
}

/* The lines stay the receiver's until sr_release_ll. */
SR_FN int sr_receive_ll(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block,
			const struct sr_share *s) {
	const struct sr_line l = sr_line_of(g, block, s, a->lines, a->dst + c->offset, c->ll_received);
	const sr_u32 room = sr_now(g->rank != 0 || c->ll_head >= sr_ll_room(c->ll_sent)), whole = sr_now(l.whole);
	const sr_u32 step = 8 * g->size, more = sr_now(l.left > step);
	sr_u64 data = 0;
	int ok = 1;
	if (s->bytes == 0)
		return 1;
	if (l.left)
		ok = sr_get_line(a, block, l.line, l.flag, &data);
	if (ok && whole)
		*(volatile sr_u64 *)l.payload = data;
	else if (ok)
		sr_scatter(l.payload, data, l.left);
	for (sr_u32 at = more ? step : l.left; ok && at < l.left; at += step) {
		ok = sr_get_line(a, block, l.line + 2 * at, l.flag, &data);
		if (ok)
			sr_scatter(l.payload + at, data, l.left - at);
	}
	/* The barrier at the end also tells all whether they may send next: that is one less before an answer. */
	c->ll_room = (sr_u32)sr_vote(g, ok && room);
	return c->ll_room || sr_vote(g, ok);
}

/* Gives the lines of the message that was received back to the sender. It comes after an answer, if there is one. */
SR_FN void sr_release_ll(const struct sr_args *a, const struct sr_group *g, struct sr_count *c, sr_u32 block,
			 const struct sr_share *s) {
	if (s->bytes == 0)
		return;
	c->ll_received++;
	if (g->rank == 0)
		sr_taken(&a->peer_out->ll_head[block].value, c->ll_received);
}

/* ---- ws -----------------------------------------------------------------------------------------------------------
 */

/* Small messages go in lines: a step through the staging area waits for its bytes before it says that they are there.
 */
SR_FN int sr_send_ws(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	if (!a->in_lines)
		return sr_send_staged(a, g, c, block, blocks);
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	const struct sr_line first = sr_prepare_ll(a, g, c, block, &s);
	return sr_send_ll(a, g, c, block, &s, &first);
}

SR_FN int sr_receive_ws(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	if (!a->in_lines)
		return sr_receive_staged(a, g, c, block, blocks);
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	if (!sr_receive_ll(a, g, c, block, &s))
		return 0;
	sr_release_ll(a, g, c, block, &s);
	return 1;
}

#endif
