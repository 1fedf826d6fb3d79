#include "share.h"

#include "book.h"
#include <stdlib.h>

struct share {
	struct p2p_memory table; /* first: the table's address is the share's */
	struct cuda_device *device;
	int kind;
	struct cuda_book book;
};

static int unknown(struct p2p_error *e, const char *what, const void *p) {
	p2p_fail(e, P2P_ERR_INVALID, 0, "");
	snprintf(e->text, sizeof e->text, "%s %p", what, p);
	return P2P_ERR_INVALID;
}

/* The region that begins at base and has that origin, NULL if there is none. */
static struct cuda_memory *piece_at(const struct share *s, const void *base, int origin) {
	struct cuda_memory *m = cuda_book_at(&s->book, (uintptr_t)base);
	return m && m->origin == origin ? m : NULL;
}

/* Adds a new region; cuda_book_make_room has reserved space for it. */
static void keep(struct share *s, struct cuda_memory *m, void **base) {
	cuda_book_add(&s->book, m);
	*base = (void *)(uintptr_t)m->addr;
}

static int let_go(struct share *s, struct cuda_memory *m, struct p2p_error *e) {
	cuda_book_drop(&s->book, m);
	return cuda_memory_close(m, e);
}

/* ---- allocations ---------------------------------------------------------------------------------------------- */

static int share_alloc(void *self, size_t n, void *at, void **base, struct p2p_error *e) {
	struct share *s = self;
	struct cuda_memory *m;
	if (n > SIZE_MAX - s->table.granule)
		return p2p_fail(e, P2P_ERR_INVALID, 0, "allocate: the size exceeds the address space");
	int rc = cuda_book_make_room(&s->book, e);
	if (rc || (rc = cuda_memory_alloc(s->device, s->kind, n ? n : 1, (uintptr_t)at, &m, e)))
		return rc;
	keep(s, m, base);
	return P2P_OK;
}

static int share_release(void *self, void *base, struct p2p_error *e) {
	struct share *s = self;
	struct cuda_memory *m = piece_at(s, base, CUDA_ALLOCATED);
	return m ? let_go(s, m, e) : unknown(e, "release: no allocation begins at", base);
}

static int buffer_id(uint64_t p, uint64_t *id, struct p2p_error *e) {
	return cuda_ok(e, "cuPointerGetAttribute", cuPointerGetAttribute(id, CUDA_POINTER_BUFFER_ID, p));
}

/*
 * Queries the driver on every call, like a library that cannot know what its user has freed since. The context is
 * already current in the caller's thread; making it current again would add to the measured time.
 */
static int range_legacy(void *self, const void *p, struct p2p_range *r, struct p2p_error *e) {
	uint64_t base;
	size_t length;
	(void)self;
	int rc = cuda_ok(e, "cuMemGetAddressRange_v2", cuMemGetAddressRange_v2(&base, &length, (uintptr_t)p));
	if (rc)
		return rc;
	r->base = (uint8_t *)(uintptr_t)base;
	r->length = length;
	return buffer_id((uintptr_t)p, &r->id, e);
}

/* Memory of cuMemCreate is mapped by this process itself, so the index is sufficient. */
static int range_vmm(void *self, const void *p, struct p2p_range *r, struct p2p_error *e) {
	struct share *s = self;
	const struct cuda_memory *m = cuda_book_around(&s->book, (uintptr_t)p);
	if (!m || m->origin != CUDA_ALLOCATED)
		return unknown(e, "range: in no allocation of this process:", p);
	*r = (struct p2p_range){(uint8_t *)(uintptr_t)m->addr, m->size, m->id};
	return P2P_OK;
}

/* ---- handles -------------------------------------------------------------------------------------------------- */

static int share_export(void *self, void *base, struct p2p_handle *h, struct p2p_error *e) {
	struct share *s = self;
	struct cuda_memory *m = piece_at(s, base, CUDA_ALLOCATED);
	struct cuda_opaque opaque = {{0}};
	int fd = -1, rc;
	if (!m)
		return unknown(e, "export: no allocation of this process begins at", base);
	uint64_t id = m->id;
	if ((rc = cuda_memory_export(m, &opaque, &fd, e)))
		return rc;
	if (s->kind == CUDA_MEMORY_LEGACY && (rc = buffer_id(m->addr, &id, e)))
		return rc;
	*h = (struct p2p_handle){.kind = (uint32_t)s->kind, .fd = fd, .length = m->size, .id = id};
	_Static_assert(sizeof h->opaque == sizeof opaque.bytes, "a handle carries what the driver makes");
	memcpy(h->opaque, opaque.bytes, sizeof opaque.bytes);
	return P2P_OK;
}

static int acceptable(const struct share *s, const struct p2p_handle *h, struct p2p_error *e) {
	if (h->kind == (uint32_t)s->kind && h->length && (h->fd >= 0 || !s->table.fds))
		return P2P_OK;
	p2p_fail(e, P2P_ERR_INVALID, 0, "");
	snprintf(e->text, sizeof e->text, "open: not a handle of kind %d: kind %u, %llu bytes, descriptor %d", s->kind,
		 h->kind, (unsigned long long)h->length, h->fd);
	return P2P_ERR_INVALID;
}

static int share_open(void *self, const struct p2p_handle *h, void **base, struct p2p_error *e) {
	struct share *s = self;
	struct cuda_memory *m;
	struct cuda_opaque opaque;
	int rc;
	if ((rc = acceptable(s, h, e)) || (rc = cuda_book_make_room(&s->book, e)))
		return rc;
	memcpy(opaque.bytes, h->opaque, sizeof opaque.bytes);
	if ((rc = cuda_memory_import(s->device, s->kind, &opaque, h->fd, h->length, &m, e)))
		return rc;
	keep(s, m, base);
	return P2P_OK;
}

static int share_close(void *self, void *base, struct p2p_error *e) {
	struct share *s = self;
	struct cuda_memory *m = piece_at(s, base, CUDA_IMPORTED);
	return m ? let_go(s, m, e) : unknown(e, "close: nothing that was opened begins at", base);
}

/* ---- the rest ------------------------------------------------------------------------------------------------- */

static int share_pin(void *self, void *p, size_t n, struct p2p_error *e) {
	struct share *s = self;
	struct cuda_memory *m;
	int rc = cuda_book_make_room(&s->book, e);
	if (rc || (rc = cuda_memory_pin(s->device, p, n, &m, e)))
		return rc;
	cuda_book_add(&s->book, m);
	return P2P_OK;
}

static int share_unpin(void *self, void *p, struct p2p_error *e) {
	struct share *s = self;
	struct cuda_memory *m = piece_at(s, p, CUDA_PINNED);
	return m ? let_go(s, m, e) : unknown(e, "unpin: nothing that was pinned begins at", p);
}

static int share_unused(void *self, uint64_t *bytes, struct p2p_error *e) {
	struct share *s = self;
	size_t unused, total;
	int rc = cuda_device_memory(s->device, &unused, &total, e);
	*bytes = rc ? 0 : unused;
	return rc;
}

int cuda_share_open(struct cuda_device *d, int kind, struct p2p_memory **out, struct p2p_error *e) {
	size_t granule;
	int rc = cuda_memory_granule(d, kind, &granule, e);
	if (rc)
		return rc;
	struct share *s = calloc(1, sizeof *s);
	if (!s)
		return p2p_fail(e, P2P_ERR_DEVICE, 0, "out of host memory");
	s->device = d;
	s->kind = kind;
	s->table = (struct p2p_memory){
		.abi = P2P_ABI,
		.fds = kind == CUDA_MEMORY_VMM,
		.self = s,
		.granule = granule,
		.alloc = share_alloc,
		.release = share_release,
		.range = kind == CUDA_MEMORY_LEGACY ? range_legacy : range_vmm,
		.export = share_export,
		.open = share_open,
		.close = share_close,
		.pin = share_pin,
		.unpin = share_unpin,
		.unused = share_unused,
	};
	*out = &s->table;
	return P2P_OK;
}

int cuda_share_close(struct p2p_memory *table, struct p2p_error *e) {
	struct share *s = (struct share *)table;
	int rc = cuda_book_close(&s->book, e);
	free(s);
	return rc;
}
