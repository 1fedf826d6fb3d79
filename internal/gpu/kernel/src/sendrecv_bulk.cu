// sendrecv_bulk.cu: kernels that send and receive with the bulk copy engine of sm_90. A block has two warps; one thread
// of the first sends, one thread of the second receives. The words and their order are those of gpu/abi/protocol.h, but
// copies overlap: only complete copies are published.
#include "bulkcopy.h"
#include "sendrecv.h"

constexpr u32 pipe_ahead = 3; // loads in flight; the other buffers are being stored from
constexpr u32 pipe_lag = 8;   // stores in flight before the oldest must be complete

extern SHARED __attribute__((aligned(128))) u8 stage[]; // SR_BULK_SHARED bytes, one half per role
SHARED __attribute__((aligned(8))) u64 sr_loaded[2 * SR_BULK_STAGES];

// A role's buffers in shared memory, and the number of loads into them, over all messages of a launch.
struct Pipe {
	u8 *buffers;
	u64 *barriers;
	u64 loads; // started since the kernel began
};

// A block's share as a sequence of chunks. A chunk lies within one step of a staged message.
struct Row {
	u64 bytes;  // a multiple of 16
	u64 stride; // bytes of a step
	u32 per_step, chunks;
};

DEVICE Row row_of(u64 bytes, u64 stride) {
	Row r;
	r.bytes = bytes;
	r.stride = stride;
	r.per_step = sr_pieces(stride, SR_BULK_CHUNK);
	const u32 steps = sr_pieces(bytes, stride);
	r.chunks = steps ? (steps - 1) * r.per_step + sr_pieces(bytes - (steps - 1) * stride, SR_BULK_CHUNK) : 0;
	return r;
}

// An iterator over the chunks of a row, without divisions.
struct Chunk {
	u32 at, within; // index in the row; index within its step
	u64 step;       // index of its step in the row
};

DEVICE void advance(const Row *r, Chunk *k) {
	k->at++;
	if (++k->within == r->per_step) {
		k->within = 0;
		k->step++;
	}
}

DEVICE u64 in_share(const Row *r, const Chunk *k) { return k->step * r->stride + (u64)k->within * SR_BULK_CHUNK; }

DEVICE u32 bytes_of(const Row *r, const Chunk *k) {
	const u64 to_step = r->stride - (u64)k->within * SR_BULK_CHUNK, to_end = r->bytes - in_share(r, k);
	const u64 n = to_step < to_end ? to_step : to_end;
	return n < SR_BULK_CHUNK ? (u32)n : SR_BULK_CHUNK;
}

DEVICE u64 steps_of(const Row *r) { return sr_pieces(r->bytes, r->stride); }

DEVICE bool last_of_step(const Row *r, const Chunk *k) {
	return k->within + 1 == r->per_step || k->at + 1 == r->chunks;
}

DEVICE u8 *buffer_of(const Pipe *p, u64 load) { return p->buffers + load % SR_BULK_STAGES * SR_BULK_CHUNK; }

DEVICE void pipe_load(Pipe *p, const u8 *from, u32 bytes) {
	const u64 k = p->loads++;
	bulk_load(buffer_of(p, k), from, bytes, &p->barriers[k % SR_BULK_STAGES]);
}

DEVICE void pipe_await(const Pipe *p, u64 load) {
	bulk_await(&p->barriers[load % SR_BULK_STAGES], load / SR_BULK_STAGES & 1);
}

// Waits for the loads in flight from `load` on, and for the stores: none may be in flight when the block exits.
DEVICE bool abandon(const Pipe *p, u64 load) {
	for (; load < p->loads; load++)
		pipe_await(p, load);
	bulk_stores_done<0>();
	return false;
}

// ---- sending --------------------------------------------------------------------------------------------------------

// The progress of a sender's stores.
struct Sent {
	Chunk next;  // the first chunk that is not known to be complete
	u64 *tail;   // the peer's word to which complete steps are published
	u64 earlier; // steps of earlier messages
};

// Records that all chunks before `to` are complete, and publishes the steps that end before it.
DEVICE void completed(const Row *r, Sent *s, u32 to) {
	bool publish = false;
	while (s->next.at < to) {
		publish = publish || last_of_step(r, &s->next);
		advance(r, &s->next);
	}
	if (!publish)
		return;
	const bool short_step = s->next.at == r->chunks && s->next.within;
	bulk_fence();
	sr_store(s->tail, s->earlier + s->next.step + short_step);
}

// Waits for a credit for the step of chunk `k`. Before it polls, it completes and publishes all earlier chunks: the
// peer may need them to give the credit.
DEVICE bool room_for(const sr_args *a, sr_count *c, const Row *r, Sent *s, const Chunk *k) {
	const u64 *const head = &a->out->head[block()].value;
	const u64 want = sr_step_credit(a, s->earlier + k->step);
	if (c->head < want)
		c->head = sr_load(head);
	if (c->head < want) {
		bulk_stores_done<0>();
		completed(r, s, k->at);
		if (!sr_poll(a, SR_SEND, block(), head, want))
			return false;
		c->head = want;
	}
	bulk_fence();
	return true;
}

DEVICE bool drained(const sr_args *a) {
	for (u32 b = 0; b < a->drain; b++)
		if (!sr_poll(a, SR_SEND, b, &a->out->head[b].value, sr_load_counter(&a->count[b].sent)))
			return false;
	return true;
}

// The data to send was written by ordinary instructions, or by bulk copies of the peer (an answer from the inbox). The
// doorbell or the block's barrier has made it visible to this thread's own loads. Loads of bulk copies use the async
// proxy; this fence orders them after it.
DEVICE void source_is_there() { bulk_fence(); }

// The group of a thread that executes its role alone.
constexpr sr_group alone = {0, 1, 0};

// Loads chunks up to pipe_ahead beyond `at`, from a complete source.
DEVICE void load_ahead(Pipe *p, const Row *r, Chunk *ahead, u32 at, const u8 *src) {
	for (; ahead->at < r->chunks && ahead->at < at + pipe_ahead; advance(r, ahead)) {
		bulk_stores_read<SR_BULK_STAGES - pipe_ahead>();
		pipe_load(p, src + in_share(r, ahead), bytes_of(r, ahead));
	}
}

DEVICE bool send_staged(const sr_args *a, sr_count *c, Pipe *p) {
	const sr_share s = sr_share_of(a->bytes, block(), blocks());
	const Row r = row_of(s.bytes, a->stride);
	const u64 base = p->loads;
	Sent sent = {{0, 0, 0}, &a->peer_in->tail[block()].value, c->sent};
	Chunk ahead = {0, 0, 0};
	if (sr_first(c) && !drained(a))
		return false;
	source_is_there();
	for (Chunk k = {0, 0, 0}; k.at < r.chunks; advance(&r, &k)) {
		load_ahead(p, &r, &ahead, k.at, a->src + c->offset + s.from);
		pipe_await(p, base + k.at);
		if (k.within == 0 && !room_for(a, c, &r, &sent, &k))
			return abandon(p, base + k.at + 1);
		bulk_store(a->peer_staging + sr_slot(a, block(), c->sent + k.step) + (u64)k.within * SR_BULK_CHUNK,
			   buffer_of(p, base + k.at), bytes_of(&r, &k));
		bulk_stores_done<pipe_lag>();
		if (k.at >= pipe_lag)
			completed(&r, &sent, k.at + 1 - pipe_lag);
	}
	bulk_stores_done<0>();
	completed(&r, &sent, r.chunks);
	c->sent += steps_of(&r);
	sr_poll_once(&alone, &a->out->head[block()].value, sr_step_credit(a, c->sent), &c->head);
	return true;
}

DEVICE bool send_put(const sr_args *a, sr_count *c, Pipe *p) {
	const sr_share s = sr_share_of(a->bytes, block(), blocks());
	if (s.bytes == 0)
		return true;
	const Row r = row_of(s.bytes, (s.bytes + SR_GRAIN - 1) / SR_GRAIN * SR_GRAIN);
	const u64 base = p->loads, *const head = &a->out->head[block()].value;
	Chunk ahead = {0, 0, 0};
	source_is_there();
	load_ahead(p, &r, &ahead, 0, a->src + c->offset + s.from);
	if (c->head <= c->sent && !sr_poll(a, SR_SEND, block(), head, c->sent + 1))
		return abandon(p, base);
	bulk_fence();
	for (Chunk k = {0, 0, 0}; k.at < r.chunks; advance(&r, &k)) {
		load_ahead(p, &r, &ahead, k.at, a->src + c->offset + s.from);
		pipe_await(p, base + k.at);
		bulk_store(a->peer_dst + c->offset + s.from + in_share(&r, &k), buffer_of(p, base + k.at),
			   bytes_of(&r, &k));
	}
	bulk_stores_done<0>();
	bulk_fence();
	sr_store(&a->peer_in->tail[block()].value, ++c->sent);
	sr_poll_once(&alone, head, c->sent + 1, &c->head);
	return true;
}

// ---- receiving ------------------------------------------------------------------------------------------------------

// The progress of a receiver.
struct Taken {
	Chunk ahead; // the next chunk to load
	u64 tail;    // last value read
};

// Loads chunks that have arrived, up to pipe_ahead beyond `at`. Waits only if no load is in flight.
DEVICE bool load_arrived(const sr_args *a, const sr_count *c, Pipe *p, const Row *r, Taken *t, u32 at) {
	const u64 *const tail = &a->in->tail[block()].value;
	for (; t->ahead.at < r->chunks && t->ahead.at < at + pipe_ahead; advance(r, &t->ahead)) {
		const u64 want = c->received + t->ahead.step + 1;
		if (t->tail < want) {
			t->tail = sr_load(tail);
			if (t->tail < want) {
				if (t->ahead.at > at)
					return true;
				if (!sr_poll(a, SR_RECEIVE, block(), tail, want))
					return false;
				t->tail = want;
			}
			bulk_fence();
		}
		bulk_stores_read<SR_BULK_STAGES - pipe_ahead>();
		pipe_load(p, a->staging + sr_slot(a, block(), want - 1) + (u64)t->ahead.within * SR_BULK_CHUNK,
			  bytes_of(r, &t->ahead));
	}
	return true;
}

DEVICE bool receive_staged(const sr_args *a, sr_count *c, Pipe *p) {
	const sr_share s = sr_share_of(a->bytes, block(), blocks());
	const Row r = row_of(s.bytes, a->stride);
	const u64 base = p->loads;
	Taken taken = {{0, 0, 0}, 0};
	for (Chunk k = {0, 0, 0}; k.at < r.chunks; advance(&r, &k)) {
		if (!load_arrived(a, c, p, &r, &taken, k.at))
			return abandon(p, base + k.at);
		pipe_await(p, base + k.at);
		if (last_of_step(&r, &k)) // the whole step is in shared memory
			sr_store_after_read(&a->peer_out->head[block()].value, c->received + k.step + 1);
		bulk_store(a->dst + c->offset + s.from + in_share(&r, &k), buffer_of(p, base + k.at), bytes_of(&r, &k));
	}
	bulk_stores_done<0>();
	bulk_fence();
	c->received += steps_of(&r);
	return true;
}

DEVICE bool receive_put(const sr_args *a, sr_count *c) {
	if (sr_share_of(a->bytes, block(), blocks()).bytes == 0)
		return true;
	if (a->credits && sr_first(c))
		sr_store(&a->peer_out->head[block()].value, c->received + a->credits);
	if (!sr_poll(a, SR_RECEIVE, block(), &a->in->tail[block()].value, c->received + 1))
		return false;
	c->received++;
	return true;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// Thread 0 sends, the first thread of the other warp receives; the other threads only take part in barriers.
struct ByThread {
	static constexpr bool divided = true;
	Pipe pipe; // for this thread's role
	MEMBER ByThread() {
		const u32 role = thread() / SR_WARP;
		pipe = {stage + role * (SR_BULK_SHARED / 2), sr_loaded + role * SR_BULK_STAGES, 0};
		if (thread() % SR_WARP == 0)
			bulk_init(pipe.barriers, SR_BULK_STAGES);
	}
	MEMBER u32 pair() const { return block(); }
	MEMBER u32 plays(const sr_args *) const { return thread() < SR_WARP ? SR_SEND : SR_RECEIVE; }
	MEMBER bool leads(const sr_args *) const { return thread() % SR_WARP == 0; }
};

struct WsBulk : ByThread {
	MEMBER bool message(const sr_args *a, sr_count *c, u32 roles) {
		if (thread() == 0 && (roles & SR_SEND))
			return send_staged(a, c, &pipe);
		return thread() != SR_WARP || !(roles & SR_RECEIVE) || receive_staged(a, c, &pipe);
	}
};

KERNEL_ALONE(64) p2p_sr_ws_bulk(const sr_args args) {
	const sr_args a = args;
	run(&a, WsBulk());
}

struct PutBulk : ByThread {
	MEMBER bool message(const sr_args *a, sr_count *c, u32 roles) {
		if (thread() == 0 && (roles & SR_SEND))
			return send_put(a, c, &pipe);
		return thread() != SR_WARP || !(roles & SR_RECEIVE) || receive_put(a, c);
	}
};

KERNEL_ALONE(64) p2p_sr_put_bulk(const sr_args args) {
	const sr_args a = args;
	run(&a, PutBulk());
}
