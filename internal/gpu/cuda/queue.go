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

// queueDriver is the oldest driver whose streams wait for words in memory without being told to at boot.
const queueDriver = 11070

// Queue is work of a GPU in order, on a stream of its own.
type Queue struct {
	dev   *Device
	table *abi.Queue // nil once closed
}

// Queue opens a queue and tries it out on a few bytes.
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

// queues says why the GPU can have no queue; nil if it can.
func (d *Device) queues() error {
	v := driverVersion()
	switch {
	case d.c.memops == 0 && v < queueDriver:
		return unsupported("queue: streams that wait for words in memory need a driver for CUDA %s, this one is for %s: "+
			"update the NVIDIA driver", cudaVersion(queueDriver), cudaVersion(v))
	case d.c.memops == 0:
		return unsupported("queue: streams of %s cannot wait for words of 8 bytes in memory, as the driver (CUDA %s) says",
			d.info.UUID, cudaVersion(v))
	case d.c.registered == 0:
		return unsupported("queue: %s reaches pinned memory at another address than the CPU only", d.info.UUID)
	}
	return nil
}

// Table is the queue for timed loops.
func (q *Queue) Table() *abi.Queue { return q.table }

// Close releases the queue, once all that was put on it is done. One that waits for a word that nobody writes is given
// up after two seconds, with an error that wraps abi.ErrTimeout, and left to the end of the process; the device frees
// nothing from then on, since that would wait too. A second Close does nothing.
func (q *Queue) Close() error {
	if !q.dev.drop(q) {
		return nil
	}
	var e C.struct_p2p_error
	C.cuda_queue_close((*C.struct_p2p_queue)(q.table.Pointer()), &e)
	q.table = nil
	return failure("close queue", &e)
}
