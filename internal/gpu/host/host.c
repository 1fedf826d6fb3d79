#include "host.h"

#include <stdlib.h>

/* Unaligned words. */
typedef uint32_t __attribute__((aligned(1), may_alias)) word;

#if defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

/* The constants of p2p_payload_word for words whose index shares its upper half with `first`. */
struct series {
	uint32_t start, high;
};

static struct series series_at(uint64_t key, uint64_t first) {
	struct series s = {(uint32_t)first * 0x9e3779b1u + (uint32_t)key,
			   (uint32_t)(first >> 32) * 0x85ebca6bu + (uint32_t)(key >> 32)};
	return s;
}

static inline uint32_t series_word(struct series s, uint32_t i) {
	uint32_t x = (s.start + i * 0x9e3779b1u) ^ s.high;
	x ^= x >> 15;
	x *= 0x2c1b3c6du;
	return x ^ (x >> 13);
}

WIDE static void fill_words(word *p, uint32_t n, struct series s) {
	for (uint32_t i = 0; i < n; i++)
		p[i] = series_word(s, i);
}

/* The OR of the differing bits of n words, 0 if the payload is correct. */
WIDE static uint32_t diff_words(const word *p, uint32_t n, struct series s) {
	uint32_t d = 0;
	for (uint32_t i = 0; i < n; i++)
		d |= p[i] ^ series_word(s, i);
	return d;
}

/* Maximum length of a run of words. After a difference, the run is searched byte by byte. */
#define RUN_WORDS 4096u

/* Fills [off, off+len): single bytes up to the first whole word, runs of words, single bytes. */
static void fill_range(uint8_t *p, uint64_t off, uint64_t len, uint64_t key) {
	uint64_t end = off + len;
	for (; off < end && (off & 3); off++)
		p[off] = p2p_payload_byte(key, off);
	while (end - off >= 4) {
		uint64_t words = (end - off) / 4, to_next_high = 0x100000000u - ((off / 4) & 0xffffffffu);
		uint32_t n = (uint32_t)(words < RUN_WORDS ? words : RUN_WORDS);
		if (n > to_next_high)
			n = (uint32_t)to_next_high;
		fill_words((word *)(p + off), n, series_at(key, off / 4));
		off += 4 * (uint64_t)n;
	}
	for (; off < end; off++)
		p[off] = p2p_payload_byte(key, off);
}

static void check_bytes(const uint8_t *p, uint64_t off, uint64_t end, uint64_t key, struct p2p_mismatch *m) {
	for (; off < end; off++) {
		uint8_t want = p2p_payload_byte(key, off);
		if (p[off] == want)
			continue;
		if (m->count++ == 0) {
			m->offset = off;
			m->expected = want;
			m->got = p[off];
		}
	}
}

static void check_range(const uint8_t *p, uint64_t off, uint64_t len, uint64_t key, struct p2p_mismatch *m) {
	uint64_t end = off + len, head = (off + 3) & ~(uint64_t)3;
	if (head > end)
		head = end;
	check_bytes(p, off, head, key, m);
	off = head;
	while (end - off >= 4) {
		uint64_t words = (end - off) / 4, to_next_high = 0x100000000u - ((off / 4) & 0xffffffffu);
		uint32_t n = (uint32_t)(words < RUN_WORDS ? words : RUN_WORDS);
		if (n > to_next_high)
			n = (uint32_t)to_next_high;
		if (diff_words((const word *)(p + off), n, series_at(key, off / 4)))
			check_bytes(p, off, off + 4 * (uint64_t)n, key, m);
		off += 4 * (uint64_t)n;
	}
	check_bytes(p, off, end, key, m);
}

static int host_bind(void *self, struct p2p_error *e) {
	(void)self;
	e->code = P2P_OK;
	return P2P_OK;
}

/* Progress is reported after every BEAT_BYTES, because the first access to new memory can be slow. */
#define BEAT_BYTES (64u << 20)

static uint64_t next_piece(uint64_t left) { return left < BEAT_BYTES ? left : BEAT_BYTES; }

static int host_fill(void *self, const struct p2p_ctx *c, void *p, size_t n, uint64_t key, uint64_t step,
		     struct p2p_error *e) {
	(void)self, (void)e;
	if (step == 0 || n <= P2P_SAMPLE_BYTES) {
		for (uint64_t off = 0, len; (len = next_piece(n - off)) > 0; off += len) {
			fill_range(p, off, len, key);
			p2p_beat(c);
		}
		return P2P_OK;
	}
	for (uint64_t off = 0; off + P2P_SAMPLE_BYTES <= n; off += step)
		fill_range(p, off, P2P_SAMPLE_BYTES, key);
	fill_range(p, n - P2P_SAMPLE_BYTES, P2P_SAMPLE_BYTES, key);
	return P2P_OK;
}

static int host_check(void *self, const struct p2p_ctx *c, const void *p, size_t n, uint64_t key, uint64_t step,
		      struct p2p_mismatch *m, struct p2p_error *e) {
	(void)self, (void)e;
	memset(m, 0, sizeof *m);
	if (step == 0 || n <= P2P_SAMPLE_BYTES) {
		for (uint64_t off = 0, len; (len = next_piece(n - off)) > 0; off += len) {
			check_range(p, off, len, key, m);
			p2p_beat(c);
		}
		return P2P_OK;
	}
	uint64_t off = 0;
	for (; off + P2P_SAMPLE_BYTES <= n; off += step)
		check_range(p, off, P2P_SAMPLE_BYTES, key, m);
	uint64_t last = off - step + P2P_SAMPLE_BYTES, tail = n - P2P_SAMPLE_BYTES; /* count no byte twice */
	check_range(p, tail > last ? tail : last, n - (tail > last ? tail : last), key, m);
	return P2P_OK;
}

#if defined(__x86_64__)
/*
 * Copies with non-temporal stores. The receiver has read the previous message, so ordinary stores would first fetch
 * every line from the receiver's cache.
 */
__attribute__((target("avx512f"))) static void stream_512(uint8_t *d, const uint8_t *s, size_t n) {
	for (; n >= 256; d += 256, s += 256, n -= 256) {
		for (int i = 0; i < 256; i += 64)
			_mm_prefetch((const char *)s + 2048 + i, _MM_HINT_T0);
		__m512i a = _mm512_loadu_si512(s), b = _mm512_loadu_si512(s + 64);
		__m512i c = _mm512_loadu_si512(s + 128), e = _mm512_loadu_si512(s + 192);
		_mm512_stream_si512((void *)d, a);
		_mm512_stream_si512((void *)(d + 64), b);
		_mm512_stream_si512((void *)(d + 128), c);
		_mm512_stream_si512((void *)(d + 192), e);
	}
	memcpy(d, s, n);
}

static void stream_128(uint8_t *d, const uint8_t *s, size_t n) {
	for (; n >= 64; d += 64, s += 64, n -= 64) {
		__m128i a = _mm_loadu_si128((const __m128i *)s), b = _mm_loadu_si128((const __m128i *)(s + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(s + 32)), e = _mm_loadu_si128((const __m128i *)(s + 48));
		_mm_stream_si128((__m128i *)d, a);
		_mm_stream_si128((__m128i *)(d + 16), b);
		_mm_stream_si128((__m128i *)(d + 32), c);
		_mm_stream_si128((__m128i *)(d + 48), e);
	}
	memcpy(d, s, n);
}

static void copy_streaming(uint8_t *d, const uint8_t *s, size_t n) {
	size_t head = -(uintptr_t)d & 63;
	memcpy(d, s, head);
	if (__builtin_cpu_supports("avx512f"))
		stream_512(d + head, s + head, n - head);
	else
		stream_128(d + head, s + head, n - head);
	_mm_sfence();
}
#else
/* On other processors libc's memcpy is used. */
static void copy_streaming(uint8_t *d, const uint8_t *s, size_t n) { memcpy(d, s, n); }
#endif

struct host_self {
	struct p2p_engine engine;
	size_t nt_from;
};

static int host_copy(void *self, void *dst, const void *src, size_t n, struct p2p_error *e) {
	const struct host_self *h = self;
	(void)e;
	if (n >= h->nt_from && n >= 64)
		copy_streaming(dst, src, n);
	else
		memcpy(dst, src, n);
	return P2P_OK;
}

static int host_wait(void *self, const struct p2p_ctx *c, struct p2p_error *e) {
	(void)self, (void)c, (void)e;
	return P2P_OK;
}

struct p2p_engine *p2p_host_engine_new(size_t nt_from) {
	struct host_self *h = calloc(1, sizeof *h);
	if (!h)
		return NULL;
	h->nt_from = nt_from;
	h->engine = (struct p2p_engine){
		.abi = P2P_ABI,
		.self = h,
		.bind = host_bind,
		.copy = host_copy,
		.wait = host_wait,
		.fill = host_fill,
		.check = host_check,
	};
	return &h->engine;
}

void p2p_host_engine_free(struct p2p_engine *g) { free(g->self); }
