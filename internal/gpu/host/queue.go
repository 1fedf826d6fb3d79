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

// mostCTAs is the maximum number of thread blocks of a kernel, which all run concurrently.
const mostCTAs = C.HOST_CTAS

// queue is a thread that executes commands in order, with threads that emulate the warps of its kernels.
type queue struct{ c *C.struct_p2p_queue } // nil once closed

// Queue opens a queue. CPU threads emulate its kernels, one thread per warp of the largest grid. They test the
// protocols; their speed says nothing about a GPU.
func (d *device) Queue() (gpu.Queue, error) {
	cpus, err := abi.ProcessCPUs()
	if err != nil {
		return nil, fmt.Errorf("host: queue: CPUs of this process: %w", err)
	}
	var e C.struct_p2p_error
	c := C.p2p_host_queue_new(unsafe.Pointer(unsafe.SliceData(cpus)), C.size_t(len(cpus)*8), &e)
	if c == nil {
		return nil, abi.ErrorAt(unsafe.Pointer(&e))
	}
	return &queue{c: c}, nil
}

func (q *queue) Table() *abi.Queue { return abi.QueueAt(unsafe.Pointer(q.c)) }

// Close ends the queue. The queue need not be idle: its waits end.
func (q *queue) Close() error {
	if q.c != nil {
		C.p2p_host_queue_free(q.c)
		q.c = nil
	}
	return nil
}
