// Package looptest lets tests be the clock of a timed loop.
package looptest

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../../.. -DP2P_SHARED_HEADERS=0x9bf70d31
#include "transport/loop/loop.h"

static void take(const struct p2p_batch *b, struct p2p_result *r, int64_t *samples, const uint64_t *t) {
	static const struct p2p_clock clock = {.ns_per_tick = 1, .tsc = 1};
	static const struct p2p_ctx ctx = {.clock = &clock};
	const struct p2p_loop l = {.ctx = &ctx, .b = b, .r = r, .samples = samples};
	for (uint32_t i = 0; i < p2p_loop_length(&l); i++)
		p2p_loop_take(&l, i, t[2 * i], t[2 * i + 1]);
}
*/
import "C"

import (
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/transport/loop"
)

// Take takes the samples of a batch whose iteration i lasts from times[2i] to times[2i+1], in ns.
func Take(call *loop.Call, samples []int64, times ...uint64) {
	C.take((*C.struct_p2p_batch)(call.Batch()), (*C.struct_p2p_result)(call.Result()), (*C.int64_t)(unsafe.SliceData(samples)),
		(*C.uint64_t)(unsafe.SliceData(times)))
}
