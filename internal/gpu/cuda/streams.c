#include "streams.h"

/* All streams but main. */
static unsigned others(const struct cuda_streams *s) { return (1u << s->count) - 2; }

static int new_event(void **event, struct p2p_error *e) {
	return cuda_ok(e, "cuEventCreate", cuEventCreate(event, CUDA_EVENT_NO_TIMING));
}

static int new_stream(struct cuda_streams *s, unsigned i, struct p2p_error *e) {
	int rc = cuda_ok(e, "cuStreamCreate", cuStreamCreate(&s->stream[i], CUDA_STREAM_NON_BLOCKING));
	for (unsigned m = 0; m < P2P_MARKS && !rc; m++)
		rc = new_event(&s->marks[m][i], e);
	return rc || i == 0 ? rc : new_event(&s->joined[i], e);
}

int cuda_streams_open(struct cuda_streams *s, unsigned count, struct p2p_error *e) {
	int rc = P2P_OK;
	s->count = count;
	for (unsigned i = 0; i < count && !rc; i++)
		rc = new_stream(s, i, e);
	return rc || count == 1 ? rc : new_event(&s->forked, e);
}

/* ---- copy ----------------------------------------------------------------------------------------------------- */

static int record(void *event, void *stream, struct p2p_error *e) {
	return cuda_ok(e, "cuEventRecord", cuEventRecord(event, stream));
}

static int follow(void *stream, void *event, struct p2p_error *e) {
	return cuda_ok(e, "cuStreamWaitEvent", cuStreamWaitEvent(stream, event, 0));
}

/* Makes those of the streams that are marked as behind wait for main. */
static int catch_up(struct cuda_streams *s, unsigned streams, struct p2p_error *e) {
	streams &= s->behind;
	if (!streams)
		return P2P_OK;
	int rc = record(s->forked, s->stream[0], e);
	for (; streams && !rc; streams &= streams - 1) {
		unsigned i = (unsigned)__builtin_ctz(streams);
		rc = follow(s->stream[i], s->forked, e);
		s->behind &= ~(1u << i);
	}
	return rc;
}

static unsigned pieces(const struct cuda_streams *s, size_t n) {
	size_t worth = n / CUDA_STREAM_BYTES;
	return worth < 1 ? 1 : worth > s->count ? s->count : (unsigned)worth;
}

int cuda_streams_copy(struct cuda_streams *s, void *dst, const void *src, size_t n, struct p2p_error *e) {
	unsigned count = pieces(s, n);
	size_t piece = n / count & ~(size_t)15;
	int rc = catch_up(s, (1u << count) - 1, e);
	for (unsigned i = 0; i < count && !rc; i++) {
		size_t at = i * piece, bytes = i + 1 < count ? piece : n - at;
		s->busy |= 1u << i & others(s);
		rc = cuda_ok(e, "cuMemcpyAsync",
			     cuMemcpyAsync((uintptr_t)dst + at, (uintptr_t)src + at, bytes, s->stream[i]));
	}
	return rc;
}

int cuda_streams_barrier(struct cuda_streams *s, struct p2p_error *e) {
	int rc = P2P_OK;
	for (; s->busy; s->busy &= s->busy - 1) {
		unsigned i = (unsigned)__builtin_ctz(s->busy);
		if (!rc)
			rc = record(s->joined[i], s->stream[i], e);
		if (!rc)
			rc = follow(s->stream[0], s->joined[i], e);
	}
	s->behind = others(s);
	return rc;
}

int cuda_streams_query(struct cuda_streams *s) {
	int native = cuStreamQuery(s->stream[0]);
	for (; s->busy && native == CUDA_OK; s->busy &= s->busy - 1) {
		native = cuStreamQuery(s->stream[__builtin_ctz(s->busy)]);
		if (native)
			return native;
	}
	if (native == CUDA_OK)
		s->behind = 0;
	return native;
}

/* ---- marks ---------------------------------------------------------------------------------------------------- */

int cuda_streams_mark(struct cuda_streams *s, uint32_t i, struct p2p_error *e) {
	unsigned streams = s->busy | 1;
	int rc = P2P_OK;
	if (i >= P2P_MARKS)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "mark: no such number");
	s->open_marks[i] = streams;
	for (; streams && !rc; streams &= streams - 1) {
		unsigned k = (unsigned)__builtin_ctz(streams);
		rc = record(s->marks[i][k], s->stream[k], e);
	}
	return rc;
}

int cuda_streams_reached(struct cuda_streams *s, uint32_t i, int *yes, struct p2p_error *e) {
	*yes = 0;
	if (i >= P2P_MARKS)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "reached: no such number");
	for (; s->open_marks[i]; s->open_marks[i] &= s->open_marks[i] - 1) {
		int native = cuEventQuery(s->marks[i][__builtin_ctz(s->open_marks[i])]);
		if (native == CUDA_NOT_READY)
			return P2P_OK;
		if (native)
			return cuda_fail(e, "cuEventQuery", native);
	}
	*yes = 1;
	return P2P_OK;
}

/* ---- close ---------------------------------------------------------------------------------------------------- */

/* Keeps the first failure. */
static void closing(int *rc, struct p2p_error *e, const char *what, int native) {
	if (*rc == P2P_OK)
		*rc = cuda_ok(e, what, native);
}

static void destroy_event(int *rc, struct p2p_error *e, void *event) {
	if (event)
		closing(rc, e, "cuEventDestroy_v2", cuEventDestroy_v2(event));
}

int cuda_streams_close(struct cuda_streams *s, struct p2p_error *e) {
	int rc = P2P_OK;
	for (unsigned i = 0; i < s->count; i++) {
		if (s->stream[i])
			closing(&rc, e, "cuStreamDestroy_v2", cuStreamDestroy_v2(s->stream[i]));
		for (unsigned m = 0; m < P2P_MARKS; m++)
			destroy_event(&rc, e, s->marks[m][i]);
		destroy_event(&rc, e, s->joined[i]);
	}
	destroy_event(&rc, e, s->forked);
	return rc;
}
