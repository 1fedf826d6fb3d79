// sendrecv.h: what the kernels that send and receive have in common: the primitives of gpu/abi/protocol.h, and the two
// ways in which a kernel runs, once and resident.
#ifndef P2P_SENDRECV_KERNELS_H
#define P2P_SENDRECV_KERNELS_H

#include "gpu/abi/sendrecv.h"
#include "move.h"
#include "sync.h"

#define SR_FN DEVICE

// ---- primitives -----------------------------------------------------------------------------------------------------

// Threads of a block that play a role together; all warps of a role are whole. `bar` is their named barrier.
struct sr_group {
	u32 rank, size, bar;
};

DEVICE void sr_sync(const sr_group *g) { asm volatile("bar.sync %0, %1;" ::"r"(g->bar), "r"(g->size) : "memory"); }

// Barrier of `size` threads; true if all say yes.
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

// Why no release: fence.acq_rel.sys orders stores too, so that it would wait for the copies of this group, and for what
// the block's senders have under way on NVLink, before the peer may go on. Without it there is no release pattern here,
// so causality order does not put the group's loads in front of the stores of the peer, which acquires this word
// (sr_load). That no load returns what such a store writes follows otherwise:
//
// - Ordinary copies: there is a barrier of the group before (bar.sync), in front of which its memory accesses are
//   performed relative to all its threads. A read has been performed when its value has been transmitted from memory
//   and cannot be modified by another thread (PTX ISA, at membar). So each value is fixed before this store is issued,
//   and a store of the peer is issued later still: it depends on a load that has returned the word.
// - Lines, and copies in bulk: this store depends on the loads, through the flags that come with the payload and that
// the
//   threads vote on (bar.red), or through mbarrier.try_wait, which has seen complete_tx of the copy that read. A load
//   that returned what a store of the peer writes would close a chain of dependencies and reads onto itself, a value
//   out of thin air, which the model forbids. Completion by an mbarrier includes the fence between the proxies.
DEVICE void sr_taken(u64 *word, u64 value) {
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(global(word)), "l"(value) : "memory");
}

DEVICE u64 sr_kept(const u64 *counter) {
	u64 v;
	asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(global(counter)) : "memory");
	return v;
}

DEVICE void sr_keep(u64 *counter, u64 value) {
	asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(global(counter)), "l"(value) : "memory");
}

// Notes that a wait was given up; who comes first is told.
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

// A wait that lasts looks at the clock, and at what the host says, now and then: reading the host's memory takes long.
constexpr u32 looks = 2048;

DEVICE bool lost(const sr_args *a, u64 *since, u64 limit_ns) {
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
		for (u32 look = 0; look < looks; look++) {
			have = sr_load(word);
			if (have >= want)
				return true;
		}
		if (lost(a, &since, limit_ns)) {
			give_up(a, role, block, want, have);
			return false;
		}
	}
}

DEVICE int sr_poll(const sr_args *a, u32 role, u32 block, const u64 *word, u64 want) {
	return poll(a, role, block, word, want, a->timeout_ns);
}

// A wait that others end. The host writes and checks payloads before it rings the doorbell, and has deadlines for what
// it waits for meanwhile; other blocks have some for theirs. Whoever gives up calls this wait off.
DEVICE bool poll_own(const sr_args *a, u32 role, const u64 *word, u64 want) {
	return poll(a, role, block(), word, want, ~0ull);
}

// What is not aligned alike goes byte by byte.
DEVICE void sr_copy(const sr_group *g, u8 *dst, const u8 *src, u64 n) {
	const Team t = {0, 1, g->rank, g->size};
	if (((u64)dst ^ (u64)src) % 16 == 0)
		move_rows(t, dst, src, n);
	else
		move_bytes(t, dst, src, 0, n);
}

// Lines are waited for by whole warps: one whose threads part and meet again costs more than what it saves.
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

// Each half of a line comes whole and carries the flag: so no order between them is needed.
DEVICE void sr_put_line(u8 *line, u64 data, u32 flag) {
	asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(global(line)), "r"((u32)data), "r"(flag),
		     "r"((u32)(data >> 32))
		     : "memory");
}

// 8 neighbouring threads store an aligned line of 128 bytes by one instruction. NVLink carries it as one write.
DEVICE void sr_put_part(u8 *line, const u64 *data) {
	asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(global(line)), "l"(data[0]), "l"(data[1])
		     : "memory");
}

// What a look at a thread's part of a line found.
struct Narrow {
	u32 low, one, high, two;
	MEMBER void look(const u8 *line) {
		asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(low), "=r"(one), "=r"(high), "=r"(two)
			     : "l"(global(line))
			     : "memory");
	}
	MEMBER bool came(u64 flag) const { return one == (u32)flag && two == (u32)flag; }
	MEMBER u64 flag() const { return one; }
	MEMBER void words(u64 *data) const { data[0] = low | (u64)high << 32; }
};

struct Wide {
	u64 first, second;
	MEMBER void look(const u8 *line) {
		asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
			     : "=l"(first), "=l"(second)
			     : "l"(global(line))
			     : "memory");
	}
	MEMBER bool came(u64 flag) const { return thread() % SR_LANES != SR_LANES - 1 || second == flag; }
	MEMBER u64 flag() const { return second; }
	MEMBER void words(u64 *data) const {
		data[0] = first;
		data[1] = second;
	}
};

// Looks until n lines of each of the warp's threads have come. What is in `l` then was read line by line by one
// instruction of the warp.
template <u32 n, class L> DEVICE bool await_lines(const sr_args *a, u32 block, const u8 *const *line, u64 flag, L *l) {
	u64 since = 0;
	bool came;
#pragma unroll 1
	for (u32 left = looks;;) {
#pragma unroll
		for (u32 k = 0; k < n; k++)
			l[k].look(line[k]);
		came = true;
#pragma unroll
		for (u32 k = 0; k < n; k++)
			came = came && l[k].came(flag);
		if (warp_all(came))
			return true;
		if (--left)
			continue;
		if (!warp_all(!lost(a, &since, a->timeout_ns)))
			break;
		left = looks;
	}
	if (!came)
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

// The compiler would rather compute a value where it is used.
DEVICE u32 sr_now(u32 value) {
	asm volatile("" : "+r"(value));
	return value;
}

#include "gpu/abi/protocol.h"

// ---- the forms of a kernel ------------------------------------------------------------------------------------------

// Barrier of all threads of the block, whatever their role.
DEVICE bool block_agrees(bool ok) { return all_agree(0, threads(), ok); }

// Adds one to what the blocks have finished.
DEVICE void arrive(sr_team *t) {
	fence();
	asm volatile("red.relaxed.sys.global.add.u64 [%0], 1;" ::"l"(global(&t->arrived.value)) : "memory");
}

// Waits for the host's word, then for the peers', so that all ranks begin together. One thread calls.
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

// What block 0 knows of an iteration of a resident kernel.
struct Iteration {
	u64 number, arrived; // arrived: by all blocks before it began
	u64 began, ended;    // ns; began: of what is being timed
	u32 samples;         // of the iteration, taken so far
	u64 given;           // to the host
};

// The host is far: it gets the samples of an iteration when that is over.
SHARED u64 sample_of[SR_TRAIN];

// What was being timed has ended, and the next begins. One thread calls.
DEVICE void sample(Iteration *it, u64 t) {
	sample_of[it->samples++ % SR_TRAIN] = t - it->began;
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
//	bool divided                  whether the roles are played by different threads
//	bool message(a, c, roles)     divided: plays roles, called by all threads; whether this thread's went well
//	bool window(a, n, c, it)      not divided: the same for all messages of an iteration. Round trips that follow
//	                              each other are samples of their own
//	u32 pair()                    the number of the block's counters
//	u32 plays(a)                  the roles of this thread, whatever the launch asks for
//	bool leads(a)                 whether it is thread 0 of them, which writes their counters back

// What a launch runs, as loops around one call of message, so that its code is there once.
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

// The messages of one iteration. Counters are in registers: nothing between two messages needs a barrier, but that one
// role comes after the other.
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
		// A block that is alone begins here, and ends where its last thread has got what it waited for.
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

// A kernel may be launched before the one in front of it has ended: it takes its place on the SMs, and waits here. Then
// the next one may come.
DEVICE void take_turn() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A kernel's life.
template <class K> DEVICE void run(const sr_args *a, K k) {
	take_turn();
	sr_count *const kept = &a->count[k.pair()];
	const u32 roles = a->roles & k.plays(a);
	sr_count c = sr_recall(kept, roles);
	run_iterations(a, &c, &k);
	if (k.leads(a))
		sr_remember(kept, &c, roles);
}

#endif
