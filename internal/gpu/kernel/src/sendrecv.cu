// sendrecv.cu: kernels that pass messages to kernels on other GPUs by loads and stores. The protocols are in
// zz_protocol.h, and what a launch is told in zz_sendrecv.h.
#include "sendrecv.h"

// The first sender_warps warps of a block send while the others receive.
struct ByWarp {
	static constexpr bool divided = true;
	MEMBER u32 pair() const { return block(); }
	MEMBER u32 senders(const sr_args *a) const { return a->sender_warps * SR_WARP; }
	MEMBER bool sender(const sr_args *) const { return thread() == 0; }
	MEMBER bool receiver(const sr_args *a) const { return thread() == senders(a); }
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

// 16 warps that send, and one that waits.
KERNEL_ALONE(544) p2p_sr_put(const sr_args args) {
	const sr_args a = args;
	run(&a, Put());
}

// Even blocks send and odd ones receive, with all their threads.
struct Stable {
	static constexpr bool divided = true;
	MEMBER u32 pair() const { return block() / 2; }
	MEMBER bool sender(const sr_args *) const { return thread() == 0 && block() % 2 == 0; }
	MEMBER bool receiver(const sr_args *) const { return thread() == 0 && block() % 2 == 1; }
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

// All threads send and receive. Sending waits for nobody, as a rule.
struct Lines {
	static constexpr bool divided = false;
	sr_share share; // of a message, the same for all
	MEMBER u32 pair() const { return block(); }
	MEMBER bool sender(const sr_args *) const { return thread() == 0; }
	MEMBER bool receiver(const sr_args *) const { return thread() == 0; }
	MEMBER bool message(const sr_args *a, sr_count *c, u32 roles) const {
		sr_group g = {thread(), threads(), 1};
		const bool sends = roles & SR_SEND, receives = roles & SR_RECEIVE,
			   answers = a->order == SR_RECEIVE_FIRST;
		sr_line first = {};
		if (sends)
			first = sr_prepare_ll(a, &g, c, block(), &share);
		if (answers && receives && !sr_receive_ll(a, &g, c, block(), &share))
			return false;
		if (sends && !sr_send_ll(a, &g, c, block(), &share, &first))
			return false;
		if (!answers && receives && !sr_receive_ll(a, &g, c, block(), &share))
			return false;
		if (receives)
			sr_release_ll(a, &g, c, block(), &share);
		return true;
	}
};

KERNEL_ALONE(512) p2p_sr_ll(const sr_args args) {
	const sr_args a = args;
	run(&a, Lines{sr_share_of(a.bytes, block(), blocks())});
}
