package cuda

/*
#include "queue.h"
*/
import "C"

import (
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// queueDriver is the CUDA version of the oldest driver whose streams can wait for words in memory without a boot
// option.
const queueDriver = 11070

// Queue is a stream of a GPU.
type Queue struct {
	dev   *Device
	table *abi.Queue // nil once closed
}

// Queue opens a queue and tests it on a few bytes.
func (d *Device) Queue() (gpu.Queue, error) {
	if d.c == nil {
		return nil, errClosed
	}
	if err := d.queues(); err != nil {
		return nil, err
	}
	var c *C.struct_p2p_queue
	var e C.struct_p2p_error
	C.cuda_queue_open(d.c, &c, &e)
	if err := failure("queue", &e); err != nil {
		return nil, err
	}
	q := &Queue{dev: d, table: abi.QueueAt(unsafe.Pointer(c))}
	d.keep(q)
	return q, nil
}

// queues returns nil if the GPU supports queues, otherwise an error with the reason.
func (d *Device) queues() error {
	v := driverVersion()
	switch {
	case d.c.memops == 0 && v < queueDriver:
		return unsupported("queue: streams that wait for words in memory need a driver for CUDA %s, this driver is for %s: "+
			"update the NVIDIA driver", cudaVersion(queueDriver), cudaVersion(v))
	case d.c.memops == 0:
		return unsupported("queue: streams of %s cannot wait for words of 8 bytes in memory, according to the driver (CUDA %s)",
			d.info.UUID, cudaVersion(v))
	case d.c.registered == 0:
		return unsupported("queue: %s cannot access pinned memory at the CPU's address", d.info.UUID)
	}
	return nil
}

// Table is the function table for timed loops.
func (q *Queue) Table() *abi.Queue { return q.table }

// Close waits until all work of the queue is complete and releases the queue. If the work does not complete within two
// seconds, for example because the queue waits for a word that is never written, Close returns an error that wraps
// abi.ErrTimeout. Queue and device then stay until the process ends, since freeing them would wait, too. A second Close
// does nothing.
func (q *Queue) Close() error {
	if !q.dev.drop(q) {
		return nil
	}
	var e C.struct_p2p_error
	C.cuda_queue_close((*C.struct_p2p_queue)(q.table.Pointer()), &e)
	q.table = nil
	return failure("close queue", &e)
}
