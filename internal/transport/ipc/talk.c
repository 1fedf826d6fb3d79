#include "core.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Polls before a wait falls back to the slow loop, which checks the deadline. */
#define FAST_POLLS 512

/* Time that rank 0 waits for rank 1 to confirm the channel; at most a quarter of the general timeout. */
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
		x->end->count.triggered++;
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

/* Does not wait: a descriptor is sent before its ring message, so it has arrived when the message has. */
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

int ipc_send(struct run *x, struct p2p_message *m) {
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

static int put_inbound(struct run *x, const struct p2p_message *m) {
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
		x->s->message_done = m->seq;
		return P2P_OK;
	case MSG_ACK:
		x->s->message_ack = m->seq;
		return P2P_OK;
	case MSG_SEND:
	case MSG_UNMAP:
		return put_inbound(x, m);
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

/* ---- completion and acknowledgement ------------------------------------------------------------------------------ */

/*
 * Waits until *word or *by_message, the latest sequence number received as a message, has reached seq. It polls both,
 * because the peer may have fallen back to messages when this rank has not.
 */
static inline int await(struct run *x, _Atomic uint64_t *word, const uint64_t *by_message, uint64_t seq, int what) {
	const struct p2p_ctx *c = x->l.ctx;
	int polls = c->wake == P2P_WAKE_SPIN ? FAST_POLLS : 1, rc;
	for (int i = 0; i < polls; i++) {
		if (!ipc_before(atomic_load_explicit(word, memory_order_acquire), seq))
			return P2P_OK;
		if (p2p_ring_peek(&x->s->in)) {
			if ((rc = ipc_progress(x)))
				return rc;
			if (!ipc_before(*by_message, seq))
				return P2P_OK;
		}
	}
	struct p2p_wait w = {0};
	for (;;) {
		if ((rc = ipc_progress(x)))
			return rc;
		uint64_t have = atomic_load_explicit(word, memory_order_acquire);
		if (!ipc_before(have, seq) || !ipc_before(*by_message, seq))
			break;
		if ((rc = p2p_wait_step(c, &w, what, seq, have, x->l.e)))
			return rc;
	}
	atomic_store_explicit(&c->progress->waiting, P2P_WAIT_NONE, memory_order_relaxed);
	return P2P_OK;
}

static int ring(struct run *x, uint32_t type, uint64_t seq) {
	struct p2p_message m = {.type = type, .seq = seq};
	return ipc_send(x, &m);
}

/* The operation at which a rank is killed. */
#define FAULT_AT 5

int ipc_publish_done(struct run *x, uint64_t seq) {
	if (x->end->cfg.fault == IPC_DIE_BEFORE_DONE && x->end->cfg.rank == 0 && ++x->dones == FAULT_AT)
		raise(SIGKILL);
	if (!x->end->channel)
		return ring(x, MSG_DONE, seq);
	atomic_store_explicit(&x->out->done, seq, memory_order_release);
	return P2P_OK;
}

int ipc_await_done(struct run *x, uint64_t seq) {
	return await(x, &x->in->done, &x->s->message_done, seq, P2P_WAIT_DONE);
}

int ipc_acknowledge(struct run *x, uint64_t seq) {
	if (x->end->cfg.fault == IPC_DIE_BEFORE_ACK && x->end->cfg.rank == 1 && ++x->acks == FAULT_AT)
		raise(SIGKILL);
	if (!x->end->channel)
		return ring(x, MSG_ACK, seq);
	atomic_store_explicit(&x->in->ack, seq, memory_order_release);
	return P2P_OK;
}

int ipc_await_ack(struct run *x, uint64_t seq) { return await(x, &x->out->ack, &x->s->message_ack, seq, P2P_WAIT_ACK); }

/*
 * Rank 1 stores its confirmation when it connects. A rank without a confirmation signals completion by messages; ranks
 * receive both.
 */
int ipc_confirm(struct run *x) {
	struct ipc_end *end = x->end;
	int mute = end->cfg.fault == IPC_MUTE;
	if (end->cfg.completion == IPC_RING_ACK)
		return P2P_OK;
	if (end->cfg.rank == 1) {
		end->channel = !mute;
		end->unconfirmed = (uint32_t)mute;
		end->count.triggered += (uint32_t)mute;
		if (!mute)
			atomic_store_explicit(&end->link->opener_ready, 1, memory_order_release);
		return P2P_OK;
	}
	uint64_t timeout = x->l.ctx->timeout_ns / 4 < CONFIRM_NS ? x->l.ctx->timeout_ns / 4 : CONFIRM_NS;
	uint64_t begin = p2p_raw_ns();
	struct p2p_wait w = {0};
	while (!atomic_load_explicit(&end->link->opener_ready, memory_order_acquire)) {
		int rc = ipc_wait_step(x, &w, P2P_WAIT_READY, 1, 0);
		if (rc)
			return rc;
		if (p2p_raw_ns() - begin > timeout) {
			end->unconfirmed = 1;
			return P2P_OK;
		}
	}
	end->channel = 1;
	return P2P_OK;
}
