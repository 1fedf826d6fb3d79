package rdma

/*
#include "rdma.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/loop"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

// Run runs one batch.
func (ep *endpoint) Run(_ context.Context, b transport.Batch, samples []int64) (transport.Result, error) {
	if err := ep.accepts(b); err != nil {
		return transport.Result{}, fmt.Errorf("rdma: run: %w", err)
	}
	call, err := loop.Prepare(b, ep.env.Region, false, samples)
	if err != nil {
		return transport.Result{}, fmt.Errorf("rdma: %w", err)
	}
	trouble := ep.watch()
	C.p2p_rdma_run(ep.end, (*C.struct_p2p_batch)(call.Batch()), (*C.int64_t)(unsafe.SliceData(samples)),
		(*C.struct_p2p_result)(call.Result()), (*C.struct_p2p_error)(call.Error()))
	event := trouble()
	r, err := call.Outcome("rdma " + ep.path.Path)
	if err != nil {
		return r, ep.explain(err, event)
	}
	r.Conns = ep.stats()
	return r, nil
}

func (ep *endpoint) accepts(b transport.Batch) error {
	switch {
	case ep.closed:
		return fmt.Errorf("it is closed: %w", abi.ErrInvalid)
	case b.Size > ep.nic.largest():
		return fmt.Errorf("messages of %d bytes: %s takes at most %d: %w", b.Size, ep.nic, ep.nic.largest(), abi.ErrInvalid)
	case !ep.ready:
		return fmt.Errorf("not connected: %w", abi.ErrInvalid)
	case ep.end.broken != 0:
		return fmt.Errorf("an earlier batch failed: %w", abi.ErrInvalid)
	}
	if err := ep.o.accepts(b); err != nil {
		return fmt.Errorf("%w: %w", err, abi.ErrInvalid)
	}
	return nil
}

// watch polls asynchronous events of the device while a batch runs, and ends the batch after an error. The function
// that it returns stops the polling and returns the event; "": none.
func (ep *endpoint) watch() func() string {
	const pause = 100 * time.Millisecond
	var event string
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for event == "" {
			text, ok := ep.context.Event()
			if ok {
				event = text
				atomic.StoreUint32((*uint32)(&ep.end.trouble), 1)
			}
			select {
			case <-stop:
				return
			case <-time.After(pause):
			}
		}
	})
	return func() string {
		close(stop)
		done.Wait()
		if event == "" {
			event, _ = ep.context.Event()
		}
		return event
	}
}

// explain adds completion status and device event to the error of a batch. A flushed work request is the consequence of
// another failure, so this rank waits, to let the rank with the cause report first.
func (ep *endpoint) explain(err error, event string) error {
	const delay = 200 * time.Millisecond
	var c *abi.Error
	if status := int(ep.end.status); status != 0 && errors.As(err, &c) && c.Native == status {
		err = fmt.Errorf("%w: %s", err, verbs.WCStatus(status))
		if status == C.IBV_WC_WR_FLUSH_ERR {
			time.Sleep(delay)
		}
	}
	if event != "" {
		err = fmt.Errorf("%w: %s: %s", err, ep.nic, event)
	}
	return err
}

// stats returns messages, busy time and latencies of the connections on which this rank sends.
func (ep *endpoint) stats() []transport.ConnStat {
	var out []transport.ConnStat
	for k := range ep.cOut() {
		c := &ep.cOut()[k]
		if c.messages == 0 {
			continue
		}
		s := transport.ConnStat{Rank: ep.env.Rank, Conn: k, Messages: uint64(c.messages), BusyNS: int64(c.busy_ns)}
		for bin, n := range sliceOf(c.bins, C.RDMA_BINS) {
			if n > 0 {
				least, next := C.p2p_rdma_bin(C.uint32_t(bin)), C.p2p_rdma_bin(C.uint32_t(bin+1))
				s.Latency = append(s.Latency, [2]int64{int64((least + next) / 2), int64(n)})
			}
		}
		out = append(out, s)
	}
	return out
}

// sliceOf is the n values at p.
func sliceOf[T any, N ~uint32 | ~int](p *T, n N) []T { return unsafe.Slice(p, int(n)) }
