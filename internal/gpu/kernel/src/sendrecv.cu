// sendrecv.cu: kernels that send messages to kernels on other GPUs by loads and stores. The protocols are in
// gpu/abi/protocol.h, the arguments of a launch in gpu/abi/sendrecv.h.
#include "sendrecv.h"

// The first sender_warps warps of a block send; the others receive.
struct ByWarp {
	static constexpr bool divided = true;
	MEMBER u32 pair() const { return block(); }
	MEMBER u32 senders(const sr_args *a) const { return a->sender_warps * SR_WARP; }
	MEMBER u32 plays(const sr_args *a) const { return thread() < senders(a) ? SR_SEND : SR_RECEIVE; }
	MEMBER bool leads(const sr_args *a) const { return thread() == 0 || thread() == senders(a); }
	MEMBER sr_group sending(const sr_args *a) const { return {thread(), senders(a), 1}; }
	MEMBER sr_group receiving(const sr_args *a) const { return {thread() - senders(a), threads() - senders(a), 2}; }
};

struct Ws : ByWarp {
	MEMBER bool message(const sr_args *a, sr_count *c, u32 roles) const {
		if (thread() < senders(a)) {
			sr_group g = sending(a);
			return !(roles & SR_SEND) || sr_send_ws(a, &g, c, block(), blocks());
		}
		sr_group g = receiving(a);
		return !(roles & SR_RECEIVE) || sr_receive_ws(a, &g, c, block(), blocks());
	}
};

KERNEL_ALONE(512) p2p_sr_ws(const sr_args args) {
	const sr_args a = args;
	run(&a, Ws());
}

struct Put : ByWarp {
	MEMBER bool message(const sr_args *a, sr_count *c, u32 roles) const {
		if (thread() < senders(a)) {
			sr_group g = sending(a);
			return !(roles & SR_SEND) || sr_send_put(a, &g, c, block(), blocks());
		}
		sr_group g = receiving(a);
		return !(roles & SR_RECEIVE) || sr_receive_put(a, &g, c, block(), blocks());
	}
};

// 16 warps send, and one warp waits for messages.
KERNEL_ALONE(544) p2p_sr_put(const sr_args args) {
	const sr_args a = args;
	run(&a, Put());
}

// Even blocks send and odd blocks receive, with all their threads.
struct Stable {
	static constexpr bool divided = true;
	MEMBER u32 pair() const { return block() / 2; }
	MEMBER u32 plays(const sr_args *) const { return block() % 2 ? SR_RECEIVE : SR_SEND; }
	MEMBER bool leads(const sr_args *) const { return thread() == 0; }
	MEMBER bool message(const sr_args *a, sr_count *c, u32 roles) const {
		sr_group g = {thread(), threads(), 1};
		if (block() % 2)
			return !(roles & SR_RECEIVE) || sr_receive_staged(a, &g, c, block() / 2, blocks() / 2);
		return !(roles & SR_SEND) || sr_send_staged(a, &g, c, block() / 2, blocks() / 2);
	}
};

KERNEL_ALONE(512) p2p_sr_stable(const sr_args args) {
	const sr_args a = args;
	run(&a, Stable());
}

// All threads send and receive. Sending seldom waits, because credits arrive early.
template <int form> struct Lines {
	static constexpr bool divided = false;
	sr_share share; // the block's share, the same for every message
	MEMBER u32 pair() const { return block(); }
	MEMBER u32 plays(const sr_args *) const { return SR_SEND | SR_RECEIVE; }
	MEMBER bool leads(const sr_args *) const { return thread() == 0; }

	MEMBER sr_line prepare(const sr_args *a, const sr_group *g, const sr_count *c, u32 ahead) const {
		return sr_prepare_ll(a, g, c, block(), &share, ahead, form);
	}
	MEMBER bool send(const sr_args *a, sr_group *g, sr_count *c, const sr_line *l) const {
		return sr_send_ll(a, g, c, block(), &share, l, form);
	}
	// Sends after a receive, without waiting for a credit.
	MEMBER void reply(const sr_args *a, sr_group *g, sr_count *c, const sr_line *l) const {
		sr_send_ll(a, g, c, block(), &share, l, form | SR_ANSWER);
	}
	MEMBER bool receive(const sr_args *a, sr_group *g, sr_count *c) const {
		return sr_receive_ll(a, g, c, block(), &share, form);
	}
	MEMBER void release(const sr_args *a, const sr_group *g, sr_count *c) const {
		sr_release_ll(a, g, c, block(), &share, form);
	}

	// The answering side of round trips of single-line messages. The next message is read before the wait for the
	// peer's message.
	MEMBER bool answer(const sr_args *a, u32 messages, sr_count *c) const {
		sr_group g = {thread(), threads(), 1};
		sr_line next = prepare(a, &g, c, 0);
#pragma unroll 1
		while (receive(a, &g, c)) {
			reply(a, &g, c, &next);
			release(a, &g, c);
			if (--messages == 0)
				return true;
			next = prepare(a, &g, c, 1);
			c->offset += a->spacing;
		}
		return false;
	}

	// The initiating side. The sample of a round trip ends after the next message was sent, because reading the
	// clock takes longer than sending it.
	MEMBER bool ask(const sr_args *a, u32 messages, sr_count *c, Iteration *it) const {
		sr_group g = {thread(), threads(), 1};
		sr_line next = prepare(a, &g, c, 0);
		if (!send(a, &g, c, &next))
			return false;
#pragma unroll 1
		for (;;) {
			if (--messages)
				next = prepare(a, &g, c, 1);
			if (!receive(a, &g, c))
				return false;
			if (messages == 0)
				break;
			reply(a, &g, c, &next);
			if (rank() == 0)
				sample(it, now());
			release(a, &g, c);
			c->offset += a->spacing;
		}
		release(a, &g, c);
		return true;
	}

	// Messages of any size, with the roles in any order.
	MEMBER bool any(const sr_args *a, u32 messages, sr_count *c, Iteration *it) const {
		sr_group g = {thread(), threads(), 1};
#pragma unroll 1
		while (messages) {
#pragma unroll 1
			for (u32 phase = 0; phase < 2; phase++) {
				const bool sends = (a->order == SR_RECEIVE_FIRST) == (phase == 1);
				if (sends && (a->roles & SR_SEND)) {
					const sr_line l = prepare(a, &g, c, 0);
					if (!send(a, &g, c, &l))
						return false;
				}
				if (!sends && (a->roles & SR_RECEIVE) && !receive(a, &g, c))
					return false;
			}
			if (a->roles & SR_RECEIVE)
				release(a, &g, c);
			c->offset += a->spacing;
			if (--messages && a->order != SR_TOGETHER && rank() == 0)
				sample(it, now());
		}
		return true;
	}

	MEMBER bool window(const sr_args *a, const Shape *n, sr_count *c, Iteration *it) const {
		const bool trips = (form & SR_SINGLE) && a->roles == (SR_SEND | SR_RECEIVE) && a->order != SR_TOGETHER;
		bool ok;
		if (!trips)
			ok = any(a, n->window, c, it);
		else if (a->order == SR_SEND_FIRST)
			ok = ask(a, n->window, c, it);
		else
			ok = answer(a, n->window, c);
		c->offset = 0;
		return ok;
	}
};

template <int form> DEVICE void run_lines(const sr_args *a) {
	const sr_group g = {thread(), threads(), 1};
	const sr_share share = sr_share_of(a->bytes, block(), blocks());
	constexpr int aligned = form | SR_ALIGNED, single = aligned | SR_SINGLE;
	switch (sr_form(a, &g, &share, form)) {
	case SR_ALIGNED | SR_SINGLE:
		return run(a, Lines<single>{share});
	case SR_ALIGNED:
		return run(a, Lines<aligned>{share});
	default:
		return run(a, Lines<form>{share});
	}
}

KERNEL_ALONE(512) p2p_sr_ll(const sr_args args) {
	const sr_args a = args;
	run_lines<0>(&a);
}

KERNEL_ALONE(512) p2p_sr_ll128(const sr_args args) {
	const sr_args a = args;
	run_lines<SR_WIDE>(&a);
}
