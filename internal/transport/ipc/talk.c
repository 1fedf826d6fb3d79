#include "core.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Looks at a word before a wait counts as slow. */
#define FAST_LOOKS 512

/* Rank 0 waits so long for rank 1 to confirm the channel, and at most a quarter of the time that any wait has. */
#define CONFIRM_NS 5000000000u

int ipc_talk_open(struct ipc_end *end, struct p2p_error *e) {
	struct ipc_state *s = end->state;
	uint32_t me = end->cfg.rank;
	s->inbound = calloc(INBOUND, sizeof *s->inbound);
	if (!s->inbound)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	p2p_ring_start(&end->link->ring[me], (uint32_t)end->cfg.start);
	p2p_ring_writer_init(&s->out, &end->link->ring[me]);
	return P2P_OK;
}

/* ---- descriptors ---------------------------------------------------------------------------------------------- */

int ipc_send_fd(struct run *x, int fd) {
	char byte = 0;
	struct iovec v = {&byte, 1};
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr h = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
	struct cmsghdr *c = CMSG_FIRSTHDR(&h);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	struct p2p_wait w = {0};
	if (x->end->cfg.fault == IPC_STUTTER && ++x->s->sent_fds % 7 == 0) {
		x->end->count.struck++;
		for (int i = 0; i < 100; i++) {
			int rc = ipc_wait_step(x, &w, P2P_WAIT_READY, 1, 0);
			if (rc)
				return rc;
		}
	}
	while (sendmsg(x->end->socket, &h, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
		int rc;
		if (errno != EAGAIN && errno != ETOOMANYREFS && errno != EINTR) {
			snprintf(x->l.e->text, sizeof x->l.e->text, "send a file descriptor: %s", strerror(errno));
			return x->l.e->code = P2P_ERR_DEVICE;
		}
		if ((rc = ipc_wait_step(x, &w, P2P_WAIT_READY, 1, 0)))
			return rc;
	}
	ipc_waited(x, &w);
	return P2P_OK;
}

/* What was sent before a ring message is there once the message is. */
int ipc_take_fd(struct run *x, int32_t *fd) {
	char byte;
	struct iovec v = {&byte, 1};
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr h = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
	ssize_t n;
	*fd = -1;
	do
		n = recvmsg(x->end->socket, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	struct cmsghdr *c = n == 1 ? CMSG_FIRSTHDR(&h) : NULL;
	if (c && c->cmsg_type == SCM_RIGHTS && !(h.msg_flags & MSG_CTRUNC)) {
		memcpy(fd, CMSG_DATA(c), sizeof *fd);
		return P2P_OK;
	}
	if (n == 1)
		return p2p_fail(x->l.e, P2P_ERR_DEVICE, 0,
				"a file descriptor was dropped: raise the limit of open files (ulimit -n)");
	return p2p_fail(x->l.e, P2P_ERR_DEVICE, 0, "no file descriptor came with the message");
}

/* ---- messages ------------------------------------------------------------------------------------------------- */

int ipc_tell(struct run *x, struct p2p_message *m) {
	struct p2p_wait w = {0};
	int rc;
	if (m->flags & FLAG_FD && (rc = ipc_send_fd(x, m->handle.fd)))
		return rc;
	while (!p2p_ring_put(&x->s->out, m))
		if ((rc = ipc_wait_step(x, &w, P2P_WAIT_READY, m->seq, 0)))
			return rc;
	ipc_waited(x, &w);
	x->end->count.control_msgs++;
	return P2P_OK;
}

static int set_aside(struct run *x, const struct p2p_message *m) {
	struct ipc_state *s = x->s;
	if (s->inbound_tail - s->inbound_head == INBOUND)
		return p2p_fail(x->l.e, P2P_ERR_INVALID, 0, "the peer sent more messages than a window has");
	s->inbound[s->inbound_tail++ % INBOUND] = *m;
	return P2P_OK;
}

static int take(struct run *x, struct p2p_message *m) {
	int rc;
	m->handle.fd = -1;
	if (m->flags & FLAG_FD && (rc = ipc_take_fd(x, &m->handle.fd)))
		return rc;
	switch (m->type) {
	case MSG_PUBLISH:
		ipc_take_publication(x, m);
		return P2P_OK;
	case MSG_REQUEST:
		return ipc_take_request(x, m);
	case MSG_HANDLE:
		ipc_take_answer(x, m);
		return P2P_OK;
	case MSG_DONE:
		x->s->rung_done = m->seq;
		return P2P_OK;
	case MSG_ACK:
		x->s->rung_ack = m->seq;
		return P2P_OK;
	case MSG_SEND:
	case MSG_UNMAP:
		return set_aside(x, m);
	case MSG_MAPADDR:
		ipc_take_address(x, m);
		return P2P_OK;
	}
	return p2p_fail(x->l.e, P2P_ERR_INVALID, 0, "the peer sent a message of no known type");
}

int ipc_progress(struct run *x) {
	struct p2p_message m;
	while (p2p_ring_get(&x->s->in, &m)) {
		int rc = take(x, &m);
		if (rc)
			return rc;
	}
	return P2P_OK;
}

int ipc_wait_step(struct run *x, struct p2p_wait *w, int what, uint64_t want, uint64_t have) {
	int rc = ipc_progress(x);
	return rc ? rc : p2p_wait_step(x->l.ctx, w, what, want, have, x->l.e);
}

/* ---- done and acknowledged ------------------------------------------------------------------------------------ */

/*
 * Waits until *word or *rung, the latest number that came as a message, has reached seq. Both are looked at whatever
 * this rank itself uses: a peer that fell back to messages must not be waited for in vain.
 */
static inline int await(struct run *x, _Atomic uint64_t *word, const uint64_t *rung, uint64_t seq, int what) {
	const struct p2p_ctx *c = x->l.ctx;
	int looks = c->wake == P2P_WAKE_SPIN ? FAST_LOOKS : 1, rc;
	for (int i = 0; i < looks; i++) {
		if (!ipc_before(atomic_load_explicit(word, memory_order_acquire), seq))
			return P2P_OK;
		if (p2p_ring_peek(&x->s->in)) {
			if ((rc = ipc_progress(x)))
				return rc;
			if (!ipc_before(*rung, seq))
				return P2P_OK;
		}
	}
	struct p2p_wait w = {0};
	for (;;) {
		if ((rc = ipc_progress(x)))
			return rc;
		uint64_t have = atomic_load_explicit(word, memory_order_acquire);
		if (!ipc_before(have, seq) || !ipc_before(*rung, seq))
			break;
		if ((rc = p2p_wait_step(c, &w, what, seq, have, x->l.e)))
			return rc;
	}
	atomic_store_explicit(&c->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
	return P2P_OK;
}

static int ring(struct run *x, uint32_t type, uint64_t seq) {
	struct p2p_message m = {.type = type, .seq = seq};
	return ipc_tell(x, &m);
}

/* Where a fault is to strike: late enough that the run is well under way. */
#define FAULT_AT 5

int ipc_publish_done(struct run *x, uint64_t seq) {
	if (x->end->cfg.fault == IPC_DIE_BEFORE_DONE && x->end->cfg.rank == 0 && ++x->dones == FAULT_AT)
		raise(SIGKILL);
	if (!x->end->channel)
		return ring(x, MSG_DONE, seq);
	atomic_store_explicit(&x->out->done, seq, memory_order_release);
	return P2P_OK;
}

int ipc_await_done(struct run *x, uint64_t seq) { return await(x, &x->in->done, &x->s->rung_done, seq, P2P_WAIT_DONE); }

int ipc_acknowledge(struct run *x, uint64_t seq) {
	if (x->end->cfg.fault == IPC_DIE_BEFORE_ACK && x->end->cfg.rank == 1 && ++x->acks == FAULT_AT)
		raise(SIGKILL);
	if (!x->end->channel)
		return ring(x, MSG_ACK, seq);
	atomic_store_explicit(&x->in->ack, seq, memory_order_release);
	return P2P_OK;
}

int ipc_await_ack(struct run *x, uint64_t seq) { return await(x, &x->out->ack, &x->s->rung_ack, seq, P2P_WAIT_ACK); }

/*
 * Rank 1 stores its confirmation as it connects. A rank that did not get one, or never gave one, tells by messages;
 * the other one hears both.
 */
int ipc_confirm(struct run *x) {
	struct ipc_end *end = x->end;
	int mute = end->cfg.fault == IPC_MUTE;
	if (end->cfg.completion == IPC_RING_ACK)
		return P2P_OK;
	if (end->cfg.rank == 1) {
		end->channel = !mute;
		end->unconfirmed = (uint32_t)mute;
		end->count.struck += (uint32_t)mute;
		if (!mute)
			atomic_store_explicit(&end->link->opener_ready, 1, memory_order_release);
		return P2P_OK;
	}
	uint64_t patience = x->l.ctx->timeout_ns / 4 < CONFIRM_NS ? x->l.ctx->timeout_ns / 4 : CONFIRM_NS;
	uint64_t begin = p2p_raw_ns();
	struct p2p_wait w = {0};
	while (!atomic_load_explicit(&end->link->opener_ready, memory_order_acquire)) {
		int rc = ipc_wait_step(x, &w, P2P_WAIT_READY, 1, 0);
		if (rc)
			return rc;
		if (p2p_raw_ns() - begin > patience) {
			end->unconfirmed = 1;
			return P2P_OK;
		}
	}
	end->channel = 1;
	return P2P_OK;
}
