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
 *	sr_store(word, value)       writes one after all that the group did before its last barrier (release, system)
 *	sr_taken(word, value)       the same where the group only read what the peer may now overwrite: the values are
 *	                            in the group's registers, and its own stores need not be visible first
 *	sr_kept(counter)            reads a counter of this rank that another thread may be writing (relaxed)
 *	sr_keep(counter, value)     writes one (relaxed)
 *	sr_copy(g, dst, src, n)     copies together; complete for the caller only
 *	sr_poll(a, role, block, word, want)
 *	                            waits until *word >= want; false if it was given up, which it noted in a->state
 *	sr_now(value)               the value, computed here and not later
 *
 *	SR_WARP_THREADS             threads of a group that wait for lines together; a group is of whole warps
 *	SR_LANES, SR_WORDS          of those, how many carry a line of 128 bytes together, and 8 byte words of each
 *	SR_AHEAD                    lines that a thread has under way
 *	sr_put_line(line, data, flag)
 *	                            8 bytes of payload with a flag in each half
 *	sr_put_part(line, data)     SR_WORDS words of a line of 128 bytes, whose last word is the flag
 *	sr_get_line(a, block, line, n, flag, data), sr_get_part(a, block, line, n, flag, data)
 *	                            called by whole warps: waits for n lines of each thread, 1 or SR_AHEAD; false to all
 *	                            of the warp if it was given up. Where a flag is, the payload is
 */
#ifndef P2P_SENDRECV_PROTOCOL_H
#define P2P_SENDRECV_PROTOCOL_H

/*
 * Every thread has a copy of its block's counters, `c` below: of the roles that it plays, read when the kernel begins
 * (sr_recall) and written back by thread 0 of the role when the kernel ends (sr_remember). The threads of a role may
 * still be reading then if none of them had anything to do; the values are the same, but for head and ll_head, which
 * only thread 0 uses. A resident kernel moves c->offset through the messages of a window.
 */

/* The counters of a block as kept in memory. Those of the other role are its threads' alone: here they are 0. */
SR_FN struct sr_count sr_recall(const struct sr_count *kept, sr_u32 roles) {
	struct sr_count c = {0, 0, 0, 0, 0, 0, 0, 0, 0};
	if (roles & SR_SEND) {
		c.sent = sr_kept(&kept->sent);
		c.head = sr_kept(&kept->head);
		c.ll_sent = sr_kept(&kept->ll_sent);
		c.ll_head = sr_kept(&kept->ll_head);
	}
	if (roles & SR_RECEIVE) {
		c.received = sr_kept(&kept->received);
		c.ll_received = sr_kept(&kept->ll_received);
	}
	return c;
}

/* Called by thread 0 of the roles. */
SR_FN void sr_remember(struct sr_count *kept, const struct sr_count *c, sr_u32 roles) {
	if (roles & SR_SEND) {
		sr_keep(&kept->sent, c->sent);
		sr_keep(&kept->head, c->head);
		sr_keep(&kept->ll_sent, c->ll_sent);
		sr_keep(&kept->ll_head, c->ll_head);
	}
	if (roles & SR_RECEIVE) {
		sr_keep(&kept->received, c->received);
		sr_keep(&kept->ll_received, c->ll_received);
	}
}

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

/*
 * Looks for the room that comes next, while nothing waits for it. What a peer did before it gave the room is acquired
 * here, so that whoever finds *seen to be enough may write without another look.
 */
SR_FN void sr_look(const struct sr_group *g, const sr_u64 *word, sr_u64 want, sr_u64 *seen) {
	if (g->rank == 0 && *seen < want)
		*seen = sr_load(word);
}

/* Waits for room, unless *seen, what thread 0 saw last, is enough. */
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
	/* A block that has already sent this message only makes this wait longer. */
	if (g->rank == 0)
		for (sr_u32 b = 0; ok && b < a->drain; b++)
			ok = sr_poll(a, SR_SEND, b, &a->out->head[b].value, sr_kept(&a->count[b].sent));
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
	sr_look(g, head, sr_room(a, step), &c->head);
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
	const sr_u64 *const head = &a->out->head[block].value;
	const sr_u64 message = c->sent + 1;
	if (s.bytes == 0)
		return 1;
	if (!sr_await_room(a, g, block, head, message, &c->head))
		return 0;
	sr_copy(g, a->peer_dst + c->offset + s.from, a->src + c->offset + s.from, s.bytes);
	sr_publish(g, &a->peer_in->tail[block].value, message);
	c->sent = message;
	sr_look(g, head, message + 1, &c->head);
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

/* ---- ll, ll128 -------------------------------------------------------------------------------------------------- */

/*
 * The form in which a message goes in lines, a constant wherever one of these functions is called.
 *
 * A line is of one thread: 8 bytes of payload, and 4 of flag in each half, since halves may arrive one by one. A wide
 * one is of SR_LANES threads: 120 bytes of payload and 8 of flag, which arrive together where the way is made for it.
 *
 * An aligned message is made of aligned words; of those a thread has several under way. A single one is also one line
 * of each thread at most: there is nothing to decide between what comes and what is answered. An answer has room, since
 * it follows what sr_receive_ll received.
 */
enum { SR_WIDE = 1, SR_ALIGNED = 2, SR_SINGLE = 4, SR_ANSWER = 8 };
enum { SR_WIDE_FLAG = SR_WIDE_LINE / 8 - 1 }; /* number of the word that is the flag */

/* Bytes of payload that a group's lines hold together, and bytes of them. */
SR_FN sr_u32 sr_lines_payload(const struct sr_group *g, int form) {
	return form & SR_WIDE ? g->size / SR_LANES * SR_WIDE_PAYLOAD : g->size * 8;
}

SR_FN sr_u32 sr_lines_bytes(const struct sr_group *g, int form) {
	return form & SR_WIDE ? g->size / SR_LANES * SR_WIDE_LINE : g->size * 16;
}

/* SR_ALIGNED, and SR_SINGLE, if the messages of a launch are that for this block. */
SR_FN int sr_form(const struct sr_args *a, const struct sr_group *g, const struct sr_share *s, int form) {
	const sr_u64 all = (sr_u64)a->src | (sr_u64)a->dst | a->spacing | s->bytes;
	if (all % 8)
		return 0;
	return s->bytes && s->bytes <= sr_lines_payload(g, form) ? SR_ALIGNED | SR_SINGLE : SR_ALIGNED;
}

/* The flag of a message, never 0, which unused memory holds: message % (2^32-1) + 1, or in a wide line message + 1. */
SR_FN sr_u64 sr_flag(sr_u64 message, int form) {
	const sr_u64 next = message + 1, folded = (next & 0xffffffffu) + (next >> 32);
	return form & SR_WIDE ? next : (sr_u32)folded + (sr_u32)(folded >> 32);
}

/*
 * Where the lines of a block begin, in bytes. Both kinds lie in memory of their own: a payload is no flag. The slots of
 * a block lie together, so that going round them stays within a page or two.
 */
SR_FN sr_u32 sr_lines_at(sr_u32 block, sr_u64 message, int form) {
	const sr_u32 slot = block * SR_LL_SLOTS + (sr_u32)message % SR_LL_SLOTS;
	return form & SR_WIDE ? SR_LL_AREA + slot * (SR_WIDE_LINES * SR_WIDE_LINE) : slot * (2 * SR_LL_BYTES);
}

/* What ll_head must be before a message may be written: the one that lay there was taken. */
SR_FN sr_u64 sr_ll_room(sr_u64 message) { return message < SR_LL_SLOTS ? 0 : message + 1 - SR_LL_SLOTS; }

/* The 8 bytes from p on, of which only the first n count. */
SR_FN sr_u64 sr_gather(const sr_u8 *p, sr_u32 n) {
	sr_u64 v = 0;
	if (n >= 8 && (sr_u64)p % 8 == 0)
		return *(const volatile sr_u64 *)p;
	for (sr_u32 i = 0; i < 8 && i < n; i++)
		v |= (sr_u64)(*(const volatile sr_u8 *)(p + i)) << (8 * i);
	return v;
}

SR_FN void sr_scatter(sr_u8 *p, sr_u64 v, sr_u32 n) {
	if (n >= 8 && (sr_u64)p % 8 == 0) {
		*(volatile sr_u64 *)p = v;
		return;
	}
	for (sr_u32 i = 0; i < 8 && i < n; i++)
		*(volatile sr_u8 *)(p + i) = (sr_u8)(v >> (8 * i));
}

SR_FN sr_u32 sr_beyond(sr_u32 bytes, sr_u32 at) { return at < bytes ? bytes - at : 0; }

/*
 * A thread's part of a message in lines: of its first line here, and of the others sr_lines_payload and sr_lines_bytes
 * on. All of it is known before the message may be sent, or has come.
 */
struct sr_line {
	sr_u8 *line;    /* its part of the line … */
	sr_u8 *warp;    /* … or what it looks at with the other threads of its warp where it has none … */
	sr_u8 *payload; /* … and its part of the message */
	sr_u64 flag;
	sr_u32 first;          /* number of the first word of its part of a line */
	sr_u32 reach;          /* bytes of the share from the first line of its warp on: so far all of the warp go */
	sr_u32 mine;           /* the same from its own line on; 0: it has none */
	sr_u32 left;           /* the same from its part of the line on */
	sr_u64 data[SR_WORDS]; /* what is sent */
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
	l.reach = sr_beyond(bytes, warp * holds);
	l.mine = sr_beyond(bytes, number * holds);
	l.left = sr_beyond(bytes, number * holds + part);
	for (sr_u32 i = 0; i < SR_WORDS; i++)
		l.data[i] = 0;
	return l;
}

/* Words of a part of a line, of which the last one of a wide line is its flag. */
SR_FN sr_u32 sr_words_of(int form) { return form & SR_WIDE ? SR_WORDS : 1; }

SR_FN int sr_is_flag(const struct sr_line *l, sr_u32 i, int form) {
	return (form & SR_WIDE) && i == SR_WORDS - 1 && l->first + i == SR_WIDE_FLAG;
}

/* What the thread sends in its line `at` bytes of payload on. */
SR_FN void sr_read_part(const struct sr_line *l, sr_u32 at, int form, sr_u64 *data) {
	const sr_u32 left = sr_beyond(l->left, at);
	for (sr_u32 i = 0; i < sr_words_of(form); i++)
		if (sr_is_flag(l, i, form))
			data[i] = l->flag;
		else if (!(form & SR_ALIGNED))
			data[i] = sr_gather(l->payload + at + 8 * i, sr_beyond(left, 8 * i));
		else if (left > 8 * i)
			data[i] = ((const volatile sr_u64 *)(l->payload + at))[i];
}

/* And where that goes at the receiver. */
SR_FN void sr_write_part(const struct sr_line *l, sr_u32 at, int form, const sr_u64 *data) {
	const sr_u32 left = sr_beyond(l->left, at);
	for (sr_u32 i = 0; i < sr_words_of(form); i++)
		if (sr_is_flag(l, i, form))
			continue;
		else if (!(form & SR_ALIGNED))
			sr_scatter(l->payload + at + 8 * i, data[i], sr_beyond(left, 8 * i));
		else if (left > 8 * i)
			((volatile sr_u64 *)(l->payload + at))[i] = data[i];
}

SR_FN void sr_put(const struct sr_line *l, sr_u32 on, const sr_u64 *data, int form) {
	if (form & SR_WIDE)
		sr_put_part(l->line + on, data);
	else
		sr_put_line(l->line + on, data[0], (sr_u32)l->flag);
}

/* Lines that a thread has under way. */
SR_FN sr_u32 sr_ahead(int form) { return (form & (SR_ALIGNED | SR_SINGLE)) == SR_ALIGNED ? SR_AHEAD : 1; }

/* Takes what came `at` bytes of payload on, in sr_ahead lines. The thread's warp has the first of them. */
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

/* The message `ahead` of the one that is sent next. */
SR_FN struct sr_line sr_prepare_ll(const struct sr_args *a, const struct sr_group *g, const struct sr_count *c,
				   sr_u32 block, const struct sr_share *s, sr_u32 ahead, int form) {
	struct sr_line l = sr_line_of(g, block, s, a->peer_lines, (sr_u8 *)a->src + c->offset + ahead * a->spacing,
				      c->ll_sent, form);
	if (l.mine)
		sr_read_part(&l, 0, form, l.data);
	return l;
}

/* `l` is what sr_prepare_ll gave. */
SR_FN int sr_send_ll(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block,
		     const struct sr_share *s, const struct sr_line *l, int form) {
	const sr_u32 step = sr_lines_payload(g, form), bytes = sr_lines_bytes(g, form), n = sr_ahead(form);
	if (!(form & SR_SINGLE) && s->bytes == 0)
		return 1;
	if (!(form & SR_ANSWER) && !c->ll_room &&
	    !sr_await_room(a, g, block, &a->out->ll_head[block].value, sr_ll_room(c->ll_sent), &c->ll_head))
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
	c->ll_room = 0;
	c->ll_sent++;
	if (!(form & SR_ANSWER)) /* before the next answer sr_receive_ll looks, when this one's time has been taken */
		sr_look(g, &a->out->ll_head[block].value, sr_ll_room(c->ll_sent), &c->ll_head);
	return 1;
}

/*
 * The lines stay the receiver's until sr_release_ll. There is room for what it sends next when it has received: it
 * looks for it before it waits for what comes, so that an answer need not. A group that does not send needs none: its
 * ll_sent is 0.
 */
SR_FN int sr_receive_ll(const struct sr_args *a, struct sr_group *g, struct sr_count *c, sr_u32 block,
			const struct sr_share *s, int form) {
	const struct sr_line l = sr_line_of(g, block, s, a->lines, a->dst + c->offset, c->ll_received, form);
	const sr_u64 *const head = &a->out->ll_head[block].value, want = sr_ll_room(c->ll_sent);
	const sr_u32 step = sr_lines_payload(g, form), bytes = sr_lines_bytes(g, form), n = sr_ahead(form);
	int ok = 1;
	if (!(form & SR_SINGLE) && s->bytes == 0)
		return 1;
	sr_look(g, head, want, &c->ll_head);
	const sr_u32 room = sr_now(g->rank != 0 || c->ll_head >= want);
	for (sr_u32 at = 0, on = 0; ok && at < l.reach; at += n * step, on += n * bytes) {
		ok = sr_get(a, g, block, &l, at, on, form);
		if (form & SR_SINGLE)
			break;
	}
	/* The barrier at the end also tells all whether they may send next: that is one less before an answer. */
	c->ll_room = 1;
	if (sr_vote(g, ok && room))
		return 1;
	return sr_vote(g, ok) && sr_await_room(a, g, block, head, want, &c->ll_head);
}

/* Gives the lines of the message that was received back to the sender. It comes after an answer, if there is one. */
SR_FN void sr_release_ll(const struct sr_args *a, const struct sr_group *g, struct sr_count *c, sr_u32 block,
			 const struct sr_share *s, int form) {
	if (!(form & SR_SINGLE) && s->bytes == 0)
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
