// sendrecv.h: common code of the kernels that send and receive: the primitives of gpu/abi/protocol.h, and the main loop
// of one-shot and resident kernels.
#ifndef P2P_SENDRECV_KERNELS_H
#define P2P_SENDRECV_KERNELS_H

#include "gpu/abi/sendrecv.h"
#include "move.h"
#include "sync.h"

#define SR_FN DEVICE

// ---- primitives -----------------------------------------------------------------------------------------------------

// Threads of a block that execute a role together; a role has whole warps. `bar` is their named barrier.
struct sr_group {
	u32 rank, size, bar;
};

DEVICE void sr_sync(const sr_group *g) { asm volatile("bar.sync %0, %1;" ::"r"(g->bar), "r"(g->size) : "memory"); }

// Barrier of `size` threads; true if ok is true in all of them.
DEVICE bool all_agree(u32 bar, u32 size, bool ok) {
	u32 all;
	asm volatile("{\n\t.reg .pred p, q;\n\t"
		     "setp.ne.u32 p, %1, 0;\n\t"
		     "bar.red.and.pred q, %2, %3, p;\n\t"
		     "selp.u32 %0, 1, 0, q;\n\t}"
		     : "=r"(all)
		     : "r"((u32)ok), "r"(bar), "r"(size)
		     : "memory");
	return all;
}

DEVICE int sr_vote(const sr_group *g, int ok) { return all_agree(g->bar, g->size, ok); }

DEVICE u64 sr_load(const u64 *word) {
	u64 v;
	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(global(word)) : "memory");
	return v;
}

DEVICE void sr_store(u64 *word, u64 value) {
	fence();
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(global(word)), "l"(value) : "memory");
}

DEVICE u32 load_u32(const u32 *p) { return *(const volatile Global<u32> *)p; }

// Why there is no release: fence.acq_rel.sys orders stores, too. It would delay the peer until the copies of this group
// and the stores of the block's senders on NVLink are complete. Without the fence there is no release pattern, so
// causality order does not order the group's loads before the stores of the peer, which acquires this word (sr_load).
// Still no load can return what such a store writes:
//
// - Ordinary copies: a barrier of the group (bar.sync) precedes this store, and memory accesses before the barrier are
//   performed relative to all its threads. A read has been performed when its value has been transmitted from memory
//   and cannot be modified by another thread (PTX ISA, at membar). So each value is fixed before this store is issued.
//   The peer's stores are issued later, since they depend on a load that has returned this word.
// - Lines and bulk copies: this store depends on the loads, through the flags that arrive with the payload and that the
//   threads vote on (bar.red), or through mbarrier.try_wait, which has observed complete_tx of the copy that read. A
//   load that returned what a store of the peer writes would close a cycle of dependencies and reads, an
//   out-of-thin-air value, which the model forbids. Completion by an mbarrier includes the fence between the proxies.
DEVICE void sr_store_after_read(u64 *word, u64 value) {
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(global(word)), "l"(value) : "memory");
}

DEVICE u64 sr_load_counter(const u64 *counter) {
	u64 v;
	asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(global(counter)) : "memory");
	return v;
}

DEVICE void sr_store_counter(u64 *counter, u64 value) {
	asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(global(counter)), "l"(value) : "memory");
}

// Reports a failed wait to the host. Only the first report counts.
DEVICE void give_up(const sr_args *a, u32 role, u32 block, u64 want, u64 have) {
	sr_state *const s = a->state;
	if (load_u32(&s->failed))
		return;
	store_fresh(&s->role, role);
	store_fresh(&s->block, (u64)block);
	store_fresh(&s->want, want);
	store_fresh(&s->have, have);
	fence();
	store_fresh(&s->failed, 1u);
}

// Number of polls between two checks of the clock and of the host's flags: reading host memory is slow.
constexpr u32 polls = 2048;

// Whether a wait must end: the host or another wait failed, or the deadline has passed.
DEVICE bool must_end(const sr_args *a, u64 *since, u64 limit_ns) {
	const u64 t = now();
	if (*since == 0)
		*since = t;
	return load_u32(&a->state->abort) || load_u32(&a->state->failed) || t - *since > limit_ns;
}

DEVICE bool poll(const sr_args *a, u32 role, u32 block, const u64 *word, u64 want, u64 limit_ns) {
	u64 have = 0, since = 0;
#pragma unroll 1
	for (;;) {
#pragma unroll 1
		for (u32 i = 0; i < polls; i++) {
			have = sr_load(word);
			if (have >= want)
				return true;
		}
		if (must_end(a, &since, limit_ns)) {
			give_up(a, role, block, want, have);
			return false;
		}
	}
}

DEVICE int sr_poll(const sr_args *a, u32 role, u32 block, const u64 *word, u64 want) {
	return poll(a, role, block, word, want, a->timeout_ns);
}

// A wait without a deadline of its own. The host, which writes and checks payloads before it rings the doorbell, and
// the other blocks have deadlines for their waits. If one of them fails, this wait ends.
DEVICE bool poll_own(const sr_args *a, u32 role, const u64 *word, u64 want) {
	return poll(a, role, block(), word, want, ~0ull);
}

// Copies byte by byte if the addresses differ modulo 16.
DEVICE void sr_copy(const sr_group *g, u8 *dst, const u8 *src, u64 n) {
	const Team t = {0, 1, g->rank, g->size};
	if (((u64)dst ^ (u64)src) % 16 == 0)
		move_rows(t, dst, src, n);
	else
		move_bytes(t, dst, src, 0, n);
}

// Whole warps wait for lines: divergence and reconvergence of a warp cost more than they save.
constexpr u32 SR_WARP = 32, SR_WARP_THREADS = SR_WARP, SR_LANES = 8, SR_WORDS = 2, SR_AHEAD = 2;

DEVICE bool warp_all(bool yes) {
	u32 all;
	asm volatile("{\n\t.reg .pred p, q;\n\t"
		     "setp.ne.u32 p, %1, 0;\n\t"
		     "vote.sync.all.pred q, p, 0xffffffff;\n\t"
		     "selp.u32 %0, 1, 0, q;\n\t}"
		     : "=r"(all)
		     : "r"((u32)yes)
		     : "memory");
	return all;
}

// Each half of a line becomes visible as a whole and carries the flag: the halves need no order.
DEVICE void sr_put_line(u8 *line, u64 data, u32 flag) {
	asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(global(line)), "r"((u32)data), "r"(flag),
		     "r"((u32)(data >> 32))
		     : "memory");
}

// 8 neighbouring threads store an aligned line of 128 bytes with one instruction. NVLink transfers it as one write.
DEVICE void sr_put_part(u8 *line, const u64 *data) {
	asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(global(line)), "l"(data[0]), "l"(data[1])
		     : "memory");
}

// A thread's part of a line, as read by one poll.
struct Narrow {
	u32 low, one, high, two;
	MEMBER void read(const u8 *line) {
		asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(low), "=r"(one), "=r"(high), "=r"(two)
			     : "l"(global(line))
			     : "memory");
	}
	MEMBER bool arrived(u64 flag) const { return one == (u32)flag && two == (u32)flag; }
	MEMBER u64 flag() const { return one; }
	MEMBER void words(u64 *data) const { data[0] = low | (u64)high << 32; }
};

struct Wide {
	u64 first, second;
	MEMBER void read(const u8 *line) {
		asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
			     : "=l"(first), "=l"(second)
			     : "l"(global(line))
			     : "memory");
	}
	MEMBER bool arrived(u64 flag) const { return thread() % SR_LANES != SR_LANES - 1 || second == flag; }
	MEMBER u64 flag() const { return second; }
	MEMBER void words(u64 *data) const {
		data[0] = first;
		data[1] = second;
	}
};

// Polls until n lines of each of the warp's threads have arrived. `l` then holds them; the warp read each line with one
// instruction.
template <u32 n, class L> DEVICE bool await_lines(const sr_args *a, u32 block, const u8 *const *line, u64 flag, L *l) {
	u64 since = 0;
	bool arrived;
#pragma unroll 1
	for (u32 left = polls;;) {
#pragma unroll
		for (u32 k = 0; k < n; k++)
			l[k].read(line[k]);
		arrived = true;
#pragma unroll
		for (u32 k = 0; k < n; k++)
			arrived = arrived && l[k].arrived(flag);
		if (warp_all(arrived))
			return true;
		if (--left)
			continue;
		if (!warp_all(!must_end(a, &since, a->timeout_ns)))
			break;
		left = polls;
	}
	if (!arrived)
		give_up(a, SR_RECEIVE, block, flag, l[0].flag());
	return false;
}

template <u32 n, class L>
DEVICE bool get_lines(const sr_args *a, u32 block, const u8 *const *line, u64 flag, u64 (*data)[SR_WORDS]) {
	L l[n];
	if (!await_lines<n>(a, block, line, flag, l))
		return false;
#pragma unroll
	for (u32 k = 0; k < n; k++)
		l[k].words(data[k]);
	return true;
}

DEVICE int sr_get_line(const sr_args *a, u32 block, const u8 *const *line, u32 n, u32 flag, u64 (*data)[SR_WORDS]) {
	return n == 1 ? get_lines<1, Narrow>(a, block, line, flag, data)
		      : get_lines<SR_AHEAD, Narrow>(a, block, line, flag, data);
}

DEVICE int sr_get_part(const sr_args *a, u32 block, const u8 *const *line, u32 n, u64 flag, u64 (*data)[SR_WORDS]) {
	return n == 1 ? get_lines<1, Wide>(a, block, line, flag, data)
		      : get_lines<SR_AHEAD, Wide>(a, block, line, flag, data);
}

// Prevents the compiler from moving the computation of a value to its use.
DEVICE u32 sr_now(u32 value) {
	asm volatile("" : "+r"(value));
	return value;
}

#include "gpu/abi/protocol.h"

// ---- the forms of a kernel ------------------------------------------------------------------------------------------

// Barrier of all threads of the block, of both roles.
DEVICE bool block_agrees(bool ok) { return all_agree(0, threads(), ok); }

// Adds this block to those that have finished the iteration.
DEVICE void arrive(sr_team *t) {
	fence();
	asm volatile("red.relaxed.sys.global.add.u64 [%0], 1;" ::"l"(global(&t->arrived.value)) : "memory");
}

// Waits for the host's doorbell, then for the peers' words: a barrier of the ranks. One thread calls it.
DEVICE bool begin_together(const sr_args *a, u64 iteration) {
	if (!poll_own(a, SR_SEND, &a->state->doorbell, iteration))
		return false;
	if (!a->begins)
		return true;
	sr_store(&a->peer_in->sync.value, iteration);
	if (a->peer_out != a->peer_in)
		sr_store(&a->peer_out->sync.value, iteration);
	return sr_poll(a, SR_SEND, 0, &a->out->sync.value, iteration) &&
	       sr_poll(a, SR_RECEIVE, 0, &a->in->sync.value, iteration);
}

// State of an iteration of a resident kernel, in block 0.
struct Iteration {
	u64 number, arrived; // arrived: the blocks' counter before the iteration
	u64 began, ended;    // ns; began: start of the current sample
	u32 samples;         // samples of this iteration so far
	u64 given;           // samples written to the host
};

// Samples are written to the host at the end of an iteration, because host memory is slow.
SHARED u64 sample_of[SR_BURST];

// Ends a sample and begins the next. One thread calls it.
DEVICE void sample(Iteration *it, u64 t) {
	sample_of[it->samples++ % SR_BURST] = t - it->began;
	it->began = t;
}

DEVICE void give_samples(const sr_args *a, Iteration *it) {
	for (u32 i = 0; a->samples && i < it->samples; i++)
		store_fresh(&a->samples[it->given++], sample_of[i]);
	it->samples = 0;
}

DEVICE bool begin(const sr_args *a, Iteration *it) {
	if (block() != 0)
		return poll_own(a, SR_SEND, &a->team->go.value, it->number);
	if (!begin_together(a, it->number))
		return false;
	it->arrived = sr_load(&a->team->arrived.value);
	it->began = now();
	if (blocks() > 1)
		sr_store(&a->team->go.value, it->number);
	return true;
}

DEVICE bool end(const sr_args *a, Iteration *it) {
	if (block() != 0) {
		arrive(a->team);
		return true;
	}
	if (blocks() > 1 && !poll_own(a, SR_RECEIVE, &a->team->arrived.value, it->arrived + blocks() - 1))
		return false;
	if (blocks() > 1)
		it->ended = now();
	sample(it, it->ended);
	give_samples(a, it);
	sr_store(&a->state->done, it->number);
	return true;
}

// A kernel is an object of a class K:
//
//	bool divided                  whether different threads execute the roles
//	bool message(a, c, roles)     if divided: executes the roles; all threads call it; true if this thread succeeded
//	bool window(a, n, c, it)      if not divided: the same for all messages of an iteration. Back-to-back round
// trips 	                              are separate samples 	u32 pair()                    the index of the
// block's counters 	u32 plays(a) the roles of this thread, whether the launch has them or not 	bool leads(a)
// whether this is thread 0 of its role, which writes the counters back

// The loops of a launch, around a single call of message, so that its code is not duplicated.
struct Shape {
	u32 iters, window, phases;
};

template <class K> DEVICE Shape shape_of(const sr_args *a) {
	const u32 phases = K::divided && a->order != SR_TOGETHER ? 2 : 1;
	return a->iters ? Shape{a->iters, a->window, phases} : Shape{1, 1, phases};
}

DEVICE u32 roles_in(const sr_args *a, const Shape *n, u32 phase) {
	if (n->phases == 1)
		return a->roles;
	return (a->order == SR_SEND_FIRST) == (phase == 0) ? SR_SEND : SR_RECEIVE;
}

// Runs the messages of one iteration. Counters are in registers: a barrier between two messages is needed only if the
// roles follow each other.
template <class K> DEVICE bool run_window(const sr_args *a, const Shape *n, sr_count *c, K *k, Iteration *it) {
	bool ok = true;
	u32 phase = 0;
#pragma unroll 1
	for (u32 left = n->window; ok && left;) {
		ok = k->message(a, c, roles_in(a, n, phase));
		if (n->phases == 2)
			ok = block_agrees(ok);
		if (++phase < n->phases)
			continue;
		phase = 0;
		c->offset += a->spacing;
		if (--left && n->phases == 2 && rank() == 0)
			sample(it, now());
	}
	c->offset = 0;
	return ok;
}

template <class K> DEVICE void run_iterations(const sr_args *a, sr_count *c, K *k) {
	const bool resident = a->iters != 0;
	const Shape n = shape_of<K>(a);
	Iteration it = {a->first, 0, 0, 0, 0, 0};
#pragma unroll 1
	for (u32 i = 0; i < n.iters; i++) {
		bool ok = true;
		it.number++;
		if (resident && thread() == 0)
			ok = begin(a, &it);
		if (resident && !block_agrees(ok))
			return;
		// The time of a single block begins here and ends when its last thread has received its data.
		if (resident && thread() == 0 && blocks() == 1)
			it.began = now();
		if constexpr (K::divided)
			ok = run_window(a, &n, c, k, &it);
		else
			ok = k->window(a, &n, c, &it);
		if (resident && !K::divided)
			it.ended = now();
		if (!resident || !block_agrees(ok))
			return;
		if (K::divided)
			it.ended = now();
		if (thread() == 0)
			ok = end(a, &it);
		if (!block_agrees(ok))
			return;
	}
}

// Programmatic dependent launch: the kernel may occupy the SMs before the previous kernel has ended, waits for it here,
// and then allows the launch of the next kernel.
DEVICE void take_turn() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The body of a kernel.
template <class K> DEVICE void run(const sr_args *a, K k) {
	take_turn();
	sr_count *const kept = &a->count[k.pair()];
	const u32 roles = a->roles & k.plays(a);
	sr_count c = sr_load_counts(kept, roles);
	run_iterations(a, &c, &k);
	if (k.leads(a))
		sr_store_counts(kept, &c, roles);
}

#endif
