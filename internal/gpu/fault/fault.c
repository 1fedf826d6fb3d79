#include "fault.h"

#include <stdlib.h>

/* Payloads that were written lately, to know what stands at an address. */
#define REMEMBERED 256

struct fault {
	struct p2p_engine engine;
	struct p2p_engine *inner;
	const struct p2p_ctx *ctx; /* of the last fill */
	uint64_t at, offset, copies, fills;
	struct {
		void *p;
		uint64_t key;
	} fill[REMEMBERED];
};

static int fault_bind(void *self, struct p2p_error *e) {
	struct fault *f = self;
	return f->inner->bind(f->inner->self, e);
}

static int fault_wait(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	struct fault *f = self;
	return f->inner->wait(f->inner->self, c, e);
}

static int fault_fill(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
		      struct p2p_error *e) {
	((struct fault *)self)->ctx = c;
	struct fault *f = self;
	f->fill[f->fills % REMEMBERED].p = p;
	f->fill[f->fills % REMEMBERED].key = key;
	f->fills++;
	return f->inner->fill(f->inner->self, c, p, n, key, step, e);
}

static int fault_check(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
		       struct p2p_mismatch *m, struct p2p_error *e) {
	struct fault *f = self;
	return f->inner->check(f->inner->self, c, p, n, key, step, m, e);
}

/* Writes another byte where the last fill of src put its payload's. */
static int flip(struct fault *f, const void *src, struct p2p_error *e) {
	uint64_t key = 0;
	for (uint64_t i = f->fills, seen = 0; i > 0 && seen < REMEMBERED; i--, seen++)
		if (f->fill[(i - 1) % REMEMBERED].p == src) {
			key = f->fill[(i - 1) % REMEMBERED].key;
			break;
		}
	uint64_t other = key + 1;
	while (p2p_payload_byte(other, 0) == p2p_payload_byte(key, f->offset))
		other++;
	return f->inner->fill(f->inner->self, f->ctx, (uint8_t *)(uintptr_t)src + f->offset, 1, other, 0, e);
}

/* Counts messages; a transport either copies or says what leaves by other means. */
static int fault_leave(void *self, const void *src, size_t n, struct p2p_error *e) {
	struct fault *f = self;
	return f->copies++ == f->at && f->offset < n ? flip(f, src, e) : P2P_OK;
}

static int fault_copy(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	struct fault *f = self;
	int rc = fault_leave(self, src, n, e);
	return rc ? rc : f->inner->copy(f->inner->self, dst, src, n, e);
}

struct p2p_engine *p2p_fault_flip(struct p2p_engine *inner, uint64_t at, uint64_t offset) {
	struct fault *f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	f->inner = inner;
	f->at = at;
	f->offset = offset;
	f->engine = (struct p2p_engine){
		.abi = P2P_ABI,
		.async = inner->async,
		.self = f,
		.bind = fault_bind,
		.copy = fault_copy,
		.wait = fault_wait,
		.fill = fault_fill,
		.check = fault_check,
		.stream = inner->stream,
		.leave = fault_leave,
	};
	return &f->engine;
}

void p2p_fault_free(struct p2p_engine *g) { free(g->self); }
