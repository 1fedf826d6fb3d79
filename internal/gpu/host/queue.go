package host

/*
#include "kernels.h"
#include "queue.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// mostCTAs is how many thread blocks a kernel has at most: all of them run at once.
const mostCTAs = C.HOST_CTAS

// queue is a thread that does commands in order, with others that play the warps of its kernels.
type queue struct{ c *C.struct_p2p_queue } // nil once closed

// Queue opens a queue whose kernels are played by threads. There are as many as the largest grid that was started has
// warps: it shows that a protocol is right, not what a GPU makes of it.
func (d *device) Queue() (gpu.Queue, error) {
	cpus, err := abi.ProcessCPUs()
	if err != nil {
		return nil, fmt.Errorf("host: queue: where its threads may run: %w", err)
	}
	var e C.struct_p2p_error
	c := C.p2p_host_queue_new(unsafe.Pointer(unsafe.SliceData(cpus)), C.size_t(len(cpus)*8), &e)
	if c == nil {
		return nil, abi.ErrorAt(unsafe.Pointer(&e))
	}
	return &queue{c: c}, nil
}

func (q *queue) Table() *abi.Queue { return abi.QueueAt(unsafe.Pointer(q.c)) }

// Close ends a queue that is not idle too: what waits gives up.
func (q *queue) Close() error {
	if q.c != nil {
		C.p2p_host_queue_free(q.c)
		q.c = nil
	}
	return nil
}
