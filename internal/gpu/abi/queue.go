package abi

/*
#include "p2p.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Queue is a struct p2p_queue.
type Queue struct{ c *C.struct_p2p_queue }

// QueueAt wraps the queue table at p, which must stay valid as long as the Queue is used.
func QueueAt(p unsafe.Pointer) *Queue {
	q := (*C.struct_p2p_queue)(p)
	if q.abi != C.P2P_ABI {
		panic(fmt.Sprintf("queue table version %d, want %d: run go generate", q.abi, Version))
	}
	return &Queue{c: q}
}

// Pointer is the struct p2p_queue for C code.
func (q *Queue) Pointer() unsafe.Pointer { return unsafe.Pointer(q.c) }

// CTAs is the number of thread blocks that always run concurrently.
func (q *Queue) CTAs() int { return int(q.c.ctas) }

// Records reports whether the queue can record what is put on it as one unit.
func (q *Queue) Records() bool { return q.c.record_begin != nil }
