/*
 * protocol.h: the protocols by which kernels of two ranks exchange messages: staged, put and ll. It is both C and CUDA
 * C++: GPU kernels and their emulation on the host compile the same code.
 *
 * The including file defines first, all static and inline:
 *
 *	SR_FN                       qualifiers of every function
 *	struct sr_group             the threads of a block that execute a role together: `rank`, `size`, other fields
 *	sr_sync(g)                  barrier of a group
 *	sr_vote(g, ok)              barrier of a group; true if ok is true in all its threads
 *	sr_load(word)               reads a word; writes that precede its store are visible afterwards (acquire, system)
 *	sr_store(word, value)       writes a word after everything before the group's last barrier (release, system)
 *	sr_store_after_read(word, value)
 *	                            the same after reads only: the peer may now overwrite data that is in the group's
 *	                            registers; stores of the group need not be visible first
 *	sr_load_counter(counter)    reads a counter of this rank that another thread may write (relaxed)
 *	sr_store_counter(counter, value)
 *	                            writes such a counter (relaxed)
 *	sr_copy(g, dst, src, n)     copies with all threads of the group; complete for the calling thread only
 *	sr_poll(a, role, block, word, want)
 *	                            waits until *word >= want; false if the wait failed, with the cause in a->state
 *	sr_now(value)               the value, computed at this point and not later
 *
 *	SR_WARP_THREADS             threads of a group that wait for lines together; a group consists of whole warps
 *	SR_LANES, SR_WORDS          threads that carry a line of 128 bytes together, and 8-byte words per thread
 *	SR_AHEAD                    lines in flight per thread
 *	sr_put_line(line, data, flag)
 *	                            stores 8 bytes of payload with a flag in each half
 *	sr_put_part(line, data)     stores SR_WORDS words of a line of 128 bytes, whose last word is the flag
 *	sr_get_line(a, block, line, n, flag, data), sr_get_part(a, block, line, n, flag, data)
 *	                            called by whole warps: waits for n lines per thread, 1 or SR_AHEAD; false in all
 *	                            threads of the warp if the wait failed. A line with the flag has its payload
 */
#ifndef P2P_SENDRECV_PROTOCOL_H
#define P2P_SENDRECV_PROTOCOL_H

/*
 * Every thread has a copy `c` of its block's counters for the roles that it executes. sr_load_counts reads them from
 * memory when the kernel begins. Thread 0 of the role writes them back with sr_store_counts when the kernel ends. If a
 * role had nothing to do, other threads may still be reading the counters then; they read the same values, except for
 * head and ll_head, which only thread 0 uses. A resident kernel advances c->offset over the messages of a window.
 */

/* Reads the counters of the given roles from memory; the other role's counters are 0. */
SR_FN struct sr_count sr_load_counts(const struct sr_count *kept, sr_u32 roles) {
	struct sr_count c = {0, 0, 0, 0, 0, 0, 0, 0, 0};
	if (roles & SR_SEND) {
		c.sent = sr_load_counter(&kept->sent);
		c.head = sr_load_counter(&kept->head);
		c.ll_sent = sr_load_counter(&kept->ll_sent);
		c.ll_head = sr_load_counter(&kept->ll_head);
	}
	if (roles & SR_RECEIVE) {
		c.received = sr_load_counter(&kept->received);
		c.ll_received = sr_load_counter(&kept->ll_received);
	}
	return c;
}

/* Writes them back. Called by thread 0 of the roles. */
SR_FN void sr_store_counts(struct sr_count *kept, const struct sr_count *c, sr_u32 roles) {
	if (roles & SR_SEND) {
		sr_store_counter(&kept->sent, c->sent);
		sr_store_counter(&kept->head, c->head);
		sr_store_counter(&kept->ll_sent, c->ll_sent);
		sr_store_counter(&kept->ll_head, c->ll_head);
	}
	if (roles & SR_RECEIVE) {
		sr_store_counter(&kept->received, c->received);
		sr_store_counter(&kept->ll_received, c->ll_received);
	}
}

/* A block's share of a message. */
struct sr_share {
	sr_u64 from, bytes;
};

/* The number of pieces of `size` bytes, a multiple of SR_GRAIN, in a message. Both sizes are below 2 TiB. */
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

/* Waits for a word with all threads of the group. */
SR_FN int sr_await(const struct sr_args *a, struct sr_group *g, sr_u32 role, sr_u32 block, const sr_u64 *word,
		   sr_u64 want) {
	int ok = 1;
	if (g->rank == 0)
		ok = sr_poll(a, role, block, word, want);
	return sr_vote(g, ok);
}

/*
 * Polls once for the next credit, before it is needed. The load acquires what the peer did before it gave the credit:
 * if *seen is already sufficient later, the group may write without polling again.
 */
SR_FN void sr_poll_once(const struct sr_group *g, const sr_u64 *word, sr_u64 want, sr_u64 *seen) {
	if (g->rank == 0 && *seen < want)
		*seen = sr_load(word);
}

/* Waits for a credit, unless *seen, the last value that thread 0 read, is sufficient. */
SR_FN int sr_await_credit(const struct sr_args *a, struct sr_group *g, sr_u32 block, const sr_u64 *word, sr_u64 want,
			  sr_u64 *seen) {
	int ok = 1;
	if (g->rank == 0 && *seen < want) {
		ok = sr_poll(a, SR_SEND, block, word, want);
		*seen = want;
	}
	return sr_vote(g, ok);
}

/* Whether this is the first message of a launch or of an iteration of a resident kernel. */
SR_FN int sr_first(const struct sr_count *c) { return c->offset == 0; }

/* Publishes to the peer what all threads of the group have finished writing. */
SR_FN void sr_publish(struct sr_group *g, sr_u64 *word, sr_u64 value) {
	sr_sync(g);
	if (g->rank == 0)
		sr_store(word, value);
}

/* Publishes to the peer what all threads of the group have finished reading. */
SR_FN void sr_publish_read(struct sr_group *g, sr_u64 *word, sr_u64 value) {
	sr_sync(g);
	if (g->rank == 0)
		sr_store_after_read(word, value);
}

/* ---- staged ----------------------------------------------------------------------------------------------------- */

/* The offset of step `step` of a block in a staging area. */
SR_FN sr_u64 sr_slot(const struct sr_args *a, sr_u32 block, sr_u64 step) {
	return ((sr_u64)block * a->stages + step % a->stages) * a->stride;
}

/* The value of head from which step `step` may be written: the receiver has taken the previous step in the slot. */
SR_FN sr_u64 sr_step_credit(const struct sr_args *a, sr_u64 step) {
	return step < a->stages ? 0 : step + 1 - a->stages;
}

/*
 * Waits until the peer has taken everything that blocks below a->drain have sent. head protects the slots of its own
 * block only. When the stride, the number of stages or the number of blocks changes, slots change their block.
 */
SR_FN int sr_drained(const struct sr_args *a, struct sr_group *g) {
	int ok = 1;
	if (a->drain == 0)
		return 1;
	/* If a block has already sent this message, this wait only takes longer. */
	if (g->rank == 0)
		for (sr_u32 b = 0; ok && b < a->drain; b++)
			ok = sr_poll(a, SR_SEND, b, &a->out->head[b].value, sr_load_counter(&a->count[b].sent));
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
		if (!sr_await_credit(a, g, block, head, sr_step_credit(a, step), &c->head))
			return 0;
		sr_copy(g, a->peer_staging + sr_slot(a, block, step), a->src + c->offset + s.from + at, n);
		sr_publish(g, &a->peer_in->tail[block].value, step + 1);
	}
	c->sent = step;
	sr_poll_once(g, head, sr_step_credit(a, step), &c->head);
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
		sr_publish_read(g, &a->peer_out->head[block].value, step + 1);
	}
	c->received = step;
	return 1;
}

/* ---- put -------------------------------------------------------------------------------------------------------- */

/* A message may be written when the receiver has given credit for it: head counts the credits. */
SR_FN int sr_send_put(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	const sr_u64 *const head = &a->out->head[block].value;
	const sr_u64 message = c->sent + 1;
	if (s.bytes == 0)
		return 1;
	if (!sr_await_credit(a, g, block, head, message, &c->head))
		return 0;
	sr_copy(g, a->peer_dst + c->offset + s.from, a->src + c->offset + s.from, s.bytes);
	sr_publish(g, &a->peer_in->tail[block].value, message);
	c->sent = message;
	sr_poll_once(g, head, message + 1, &c->head);
	return 1;
}

SR_FN int sr_receive_put(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	const sr_u64 message = c->received + 1;
	if (s.bytes == 0)
		return 1;
	if (a->credits && sr_first(c) && g->rank == 0)
		sr_store(&a->peer_out->head[block].value, message - 1 + a->credits);
	if (!sr_await(a, g, SR_RECEIVE, block, &a->in->tail[block].value, message))
		return 0;
	c->received = message;
	return 1;
}

/* ---- ll, ll128 -------------------------------------------------------------------------------------------------- */

/*
 * The form of a message in lines. It is a compile-time constant at every call of these functions.
 *
 * A narrow line belongs to one thread: 8 bytes of payload, and a flag of 4 bytes in each half, since the halves may
 * become visible separately. A wide line (SR_WIDE) belongs to SR_LANES threads: 120 bytes of payload and a flag of 8
 * bytes, which become visible together on links with atomic 128-byte stores.
 *
 * SR_ALIGNED: the message consists of aligned words, and each thread has several lines in flight. SR_SINGLE: in
 * addition, the message is at most one line per thread, which removes all branches between a receive and its answer.
 * SR_ANSWER: the message follows an sr_receive_ll, which has already obtained the credit for it.
 */
enum { SR_WIDE = 1, SR_ALIGNED = 2, SR_SINGLE = 4, SR_ANSWER = 8 };
enum { SR_WIDE_FLAG = SR_WIDE_LINE / 8 - 1 }; /* index of the flag's word in a wide line */

/* Payload in one line of every thread of a group, and the size of these lines, bytes. */
SR_FN sr_u32 sr_lines_payload(const struct sr_group *g, int form) {
	return form & SR_WIDE ? g->size / SR_LANES * SR_WIDE_PAYLOAD : g->size * 8;
}

SR_FN sr_u32 sr_lines_bytes(const struct sr_group *g, int form) {
	return form & SR_WIDE ? g->size / SR_LANES * SR_WIDE_LINE : g->size * 16;
}

/* SR_ALIGNED and SR_SINGLE, as they apply to this block's share of the messages of a launch. */
SR_FN int sr_form(const struct sr_args *a, const struct sr_group *g, const struct sr_share *s, int form) {
	const sr_u64 all = (sr_u64)a->src | (sr_u64)a->dst | a->spacing | s->bytes;
	if (all % 8)
		return 0;
	return s->bytes && s->bytes <= sr_lines_payload(g, form) ? SR_ALIGNED | SR_SINGLE : SR_ALIGNED;
}

/*
 * The flag of a message: message % (2^32-1) + 1, or message + 1 in a wide line. It is never 0, the value of unused
 * memory.
 */
SR_FN sr_u64 sr_flag(sr_u64 message, int form) {
	const sr_u64 next = message + 1, folded = (next & 0xffffffffu) + (next >> 32);
	return form & SR_WIDE ? next : (sr_u32)folded + (sr_u32)(folded >> 32);
}

/*
 * The offset of the lines of a block, bytes. Narrow and wide lines use separate memory, so that no payload of one kind
 * is taken for a flag of the other. The slots of a block are contiguous, so that consecutive messages stay within one
 * or two pages.
 */
SR_FN sr_u32 sr_lines_at(sr_u32 block, sr_u64 message, int form) {
	const sr_u32 slot = block * SR_LL_SLOTS + (sr_u32)message % SR_LL_SLOTS;
	return form & SR_WIDE ? SR_LL_AREA + slot * (SR_WIDE_LINES * SR_WIDE_LINE) : slot * (2 * SR_LL_BYTES);
}

/* The value of ll_head from which a message may be written: the receiver has taken the previous message in the slot. */
SR_FN sr_u64 sr_ll_credit(sr_u64 message) { return message < SR_LL_SLOTS ? 0 : message + 1 - SR_LL_SLOTS; }

/* Reads the first n, at most 8, bytes at p. */
SR_FN sr_u64 sr_gather(const sr_u8 *p, sr_u32 n) {
	sr_u64 v = 0;
	if (n >= 8 && (sr_u64)p % 8 == 0)
		return *(const volatile sr_u64 *)p;
	for (sr_u32 i = 0; i < 8 && i < n; i++)
		v |= (sr_u64)(*(const volatile sr_u8 *)(p + i)) << (8 * i);
	return v;
}

/* Writes them. */
SR_FN void sr_scatter(sr_u8 *p, sr_u64 v, sr_u32 n) {
	if (n >= 8 && (sr_u64)p % 8 == 0) {
		*(volatile sr_u64 *)p = v;
		return;
	}
	for (sr_u32 i = 0; i < 8 && i < n; i++)
		*(volatile sr_u8 *)(p + i) = (sr_u8)(v >> (8 * i));
}

/* The number of bytes from `at` to the end. */
SR_FN sr_u32 sr_bytes_from(sr_u32 bytes, sr_u32 at) { return at < bytes ? bytes - at : 0; }

/*
 * A thread's part of a message in lines. The fields describe its first line; each further line is sr_lines_payload
 * bytes of payload and sr_lines_bytes bytes of lines behind. All of it can be computed before the message may be sent
 * or has arrived.
 */
struct sr_line {
	sr_u8 *line;    /* its part of the line */
	sr_u8 *warp;    /* its part of the warp's first line, which it polls if it has no line of its own */
	sr_u8 *payload; /* its part of the message */
	sr_u64 flag;
	sr_u32 first; /* index of the first word of its part within the line */
	sr_u32 reach; /* bytes of the share from the warp's first line on: all threads of the warp loop so far */
	sr_u32 mine;  /* bytes of the share from its own line on; 0: it has no line */
	sr_u32 left;  /* bytes of the share from its part of the line on */
	sr_u64 data[SR_WORDS]; /* to send */
};

SR_FN struct sr_line sr_line_of(const struct sr_group *g, sr_u32 block, const struct sr_share *s, sr_u8 *lines,
				sr_u8 *payload, sr_u64 message, int form) {
	const int wide = form & SR_WIDE;
	const sr_u32 lanes = wide ? SR_LANES : 1, number = g->rank / lanes, lane = g->rank % lanes;
	const sr_u32 warp = g->rank / SR_WARP_THREADS * (SR_WARP_THREADS / lanes);
	const sr_u32 holds = wide ? SR_WIDE_PAYLOAD : 8, part = wide ? lane * 8 * SR_WORDS : 0;
	const sr_u32 bytes = (sr_u32)s->bytes;
	struct sr_line l;
	l.warp = lines + sr_lines_at(block, message, form) + warp * (wide ? SR_WIDE_LINE : 16) + part;
	l.line = l.warp + (number - warp) * (wide ? SR_WIDE_LINE : 16);
	l.payload = payload + s->from + number * holds + part;
	l.flag = sr_flag(message, form);
	l.first = part / 8;
	l.reach = sr_bytes_from(bytes, warp * holds);
	l.mine = sr_bytes_from(bytes, number * holds);
	l.left = sr_bytes_from(bytes, number * holds + part);
	for (sr_u32 i = 0; i < SR_WORDS; i++)
		l.data[i] = 0;
	return l;
}

/* Words of a thread's part of a line; the last word of a wide line is its flag. */
SR_FN sr_u32 sr_words_of(int form) { return form & SR_WIDE ? SR_WORDS : 1; }

SR_FN int sr_is_flag(const struct sr_line *l, sr_u32 i, int form) {
	return (form & SR_WIDE) && i == SR_WORDS - 1 && l->first + i == SR_WIDE_FLAG;
}

/* Reads what the thread sends in its line `at` bytes of payload behind the first. */
SR_FN void sr_read_part(const struct sr_line *l, sr_u32 at, int form, sr_u64 *data) {
	const sr_u32 left = sr_bytes_from(l->left, at);
	for (sr_u32 i = 0; i < sr_words_of(form); i++)
		if (sr_is_flag(l, i, form))
			data[i] = l->flag;
		else if (!(form & SR_ALIGNED))
			data[i] = sr_gather(l->payload + at + 8 * i, sr_bytes_from(left, 8 * i));
		else if (left > 8 * i)
			data[i] = ((const volatile sr_u64 *)(l->payload + at))[i];
}

/* Writes what was received in that line. */
SR_FN void sr_write_part(const struct sr_line *l, sr_u32 at, int form, const sr_u64 *data) {
	const sr_u32 left = sr_bytes_from(l->left, at);
	for (sr_u32 i = 0; i < sr_words_of(form); i++)
		if (sr_is_flag(l, i, form))
			continue;
		else if (!(form & SR_ALIGNED))
			sr_scatter(l->payload + at + 8 * i, data[i], sr_bytes_from(left, 8 * i));
		else if (left > 8 * i)
			((volatile sr_u64 *)(l->payload + at))[i] = data[i];
}

SR_FN void sr_put(const struct sr_line *l, sr_u32 on, const sr_u64 *data, int form) {
	if (form & SR_WIDE)
		sr_put_part(l->line + on, data);
	else
		sr_put_line(l->line + on, data[0], (sr_u32)l->flag);
}

/* Lines in flight per thread. */
SR_FN sr_u32 sr_ahead(int form) { return (form & (SR_ALIGNED | SR_SINGLE)) == SR_ALIGNED ? SR_AHEAD : 1; }

/* Receives sr_ahead lines, from `at` bytes of payload on. The first of them exists for the thread's warp. */
SR_FN int sr_get(const struct sr_args *a, const struct sr_group *g, sr_u32 block, const struct sr_line *l, sr_u32 at,
		 sr_u32 on, int form) {
	const sr_u32 step = sr_lines_payload(g, form), bytes = sr_lines_bytes(g, form), n = sr_ahead(form);
	const sr_u8 *line[SR_AHEAD];
	sr_u64 data[SR_AHEAD][SR_WORDS];
	for (sr_u32 k = 0; k < n; k++)
		line[k] = at + k * step < l->mine ? l->line + on + k * bytes : l->warp + on;
	if (form & SR_WIDE ? !sr_get_part(a, block, line, n, l->flag, data)
			   : !sr_get_line(a, block, line, n, (sr_u32)l->flag, data))
		return 0;
	for (sr_u32 k = 0; k < n; k++)
		sr_write_part(l, at + k * step, form, data[k]);
	return 1;
}

/* Prepares the message `ahead` messages behind the next one to send. */
SR_FN struct sr_line sr_prepare_ll(const struct sr_args *a, const struct sr_group *g, const struct sr_count *c,
				   sr_u32 block, const struct sr_share *s, sr_u32 ahead, int form) {
	struct sr_line l = sr_line_of(g, block, s, a->peer_lines, (sr_u8 *)a->src + c->offset + ahead * a->spacing,
				      c->ll_sent, form);
	if (l.mine)
		sr_read_part(&l, 0, form, l.data);
	return l;
}

/* Sends the message `l`, from sr_prepare_ll. */
SR_FN int sr_send_ll(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block,
		     const struct sr_share *s, const struct sr_line *l, int form) {
	const sr_u32 step = sr_lines_payload(g, form), bytes = sr_lines_bytes(g, form), n = sr_ahead(form);
	if (!(form & SR_SINGLE) && s->bytes == 0)
		return 1;
	if (!(form & SR_ANSWER) && !c->ll_credit &&
	    !sr_await_credit(a, g, block, &a->out->ll_head[block].value, sr_ll_credit(c->ll_sent), &c->ll_head))
		return 0;
	if (l->mine)
		sr_put(l, 0, l->data, form);
	for (sr_u32 at = step, on = bytes; !(form & SR_SINGLE) && at < l->mine; at += n * step, on += n * bytes) {
		sr_u64 data[SR_AHEAD][SR_WORDS];
		for (sr_u32 k = 0; k < n; k++)
			if (at + k * step < l->mine)
				sr_read_part(l, at + k * step, form, data[k]);
		for (sr_u32 k = 0; k < n; k++)
			if (at + k * step < l->mine)
				sr_put(l, on + k * bytes, data[k], form);
	}
	c->ll_credit = 0;
	c->ll_sent++;
	if (!(form & SR_ANSWER)) /* for answers sr_receive_ll polls, outside the answer's time */
		sr_poll_once(g, &a->out->ll_head[block].value, sr_ll_credit(c->ll_sent), &c->ll_head);
	return 1;
}

/*
 * Receives a message. The receiver owns the lines until sr_release_ll. On return the group also has a credit for the
 * message that it sends next: it polls for the credit before it waits for the lines, so that an answer need not wait. A
 * group that does not send needs no credit: its ll_sent is 0.
 */
SR_FN int sr_receive_ll(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block,
			const struct sr_share *s, int form) {
	const struct sr_line l = sr_line_of(g, block, s, a->lines, a->dst + c->offset, c->ll_received, form);
	const sr_u64 *const head = &a->out->ll_head[block].value, want = sr_ll_credit(c->ll_sent);
	const sr_u32 step = sr_lines_payload(g, form), bytes = sr_lines_bytes(g, form), n = sr_ahead(form);
	int ok = 1;
	if (!(form & SR_SINGLE) && s->bytes == 0)
		return 1;
	sr_poll_once(g, head, want, &c->ll_head);
	const sr_u32 room = sr_now(g->rank != 0 || c->ll_head >= want);
	for (sr_u32 at = 0, on = 0; ok && at < l.reach; at += n * step, on += n * bytes) {
		ok = sr_get(a, g, block, &l, at, on, form);
		if (form & SR_SINGLE)
			break;
	}
	/* The final barrier also tells all threads whether they may send: this saves a barrier before an answer. */
	c->ll_credit = 1;
	if (sr_vote(g, ok && room))
		return 1;
	return sr_vote(g, ok) && sr_await_credit(a, g, block, head, want, &c->ll_head);
}

/* Returns the lines of the received message to the sender. If there is an answer, it is sent before. */
SR_FN void sr_release_ll(const struct sr_args *a, const struct sr_group *g, struct sr_count *c, sr_u32 block,
			 const struct sr_share *s, int form) {
	if (!(form & SR_SINGLE) && s->bytes == 0)
		return;
	c->ll_received++;
	if (g->rank == 0)
		sr_store_after_read(&a->peer_out->ll_head[block].value, c->ll_received);
}

/* ---- ws --------------------------------------------------------------------------------------------------------- */

/* Small messages are sent in lines: a staged step must wait for its bytes before it can publish them. */
SR_FN int sr_send_ws(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	if (!a->in_lines)
		return sr_send_staged(a, g, c, block, blocks);
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	const struct sr_line first = sr_prepare_ll(a, g, c, block, &s, 0, 0);
	return sr_send_ll(a, g, c, block, &s, &first, 0);
}

SR_FN int sr_receive_ws(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block, sr_u32 blocks) {
	if (!a->in_lines)
		return sr_receive_staged(a, g, c, block, blocks);
	const struct sr_share s = sr_share_of(a->bytes, block, blocks);
	if (!sr_receive_ll(a, g, c, block, &s, 0))
		return 0;
	sr_release_ll(a, g, c, block, &s, 0);
	return 1;
}

#endif
