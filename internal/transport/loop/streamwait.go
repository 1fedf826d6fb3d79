package loop

/*
#include "loop.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// StreamWait is one queue on each of one or two devices, and the word of pinned CPU memory for which the queues wait
// before each operation that is timed by the device.
type StreamWait struct {
	queues []gpu.Queue
	memory gpu.Memory
	page   *Pinned
	c      C.struct_p2p_stream_wait
}

// OpenStreamWait opens a queue on each device. The engine belongs to the first device and must stay open.
func OpenStreamWait(engine gpu.Engine, devices ...gpu.Device) (_ *StreamWait, err error) {
	s := &StreamWait{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, d := range devices {
		launcher, ok := d.(gpu.Launcher)
		if !ok {
			return nil, fmt.Errorf("a %s device has no queues: %w", d.Info().Kind, gpu.ErrUnsupported)
		}
		q, err := launcher.Queue()
		if err != nil {
			return nil, err
		}
		s.queues = append(s.queues, q)
	}
	if s.memory, err = devices[0].Memory(gpu.HandleAuto); err != nil {
		return nil, err
	}
	if s.page, err = Pin(engine, s.memory, os.Getpagesize()); err != nil {
		return nil, err
	}
	for i, q := range s.queues {
		s.c.queue[i] = (*C.struct_p2p_queue)(q.Table().Pointer())
	}
	s.c.queues = C.uint32_t(len(s.queues))
	s.c.word = (*C.uint64_t)(s.page.At(0))
	return s, nil
}

// Queue is the queue of device number i.
func (s *StreamWait) Queue(i int) gpu.Queue { return s.queues[i] }

// Pointer is an unused struct p2p_stream_wait, to be copied.
func (s *StreamWait) Pointer() unsafe.Pointer { return unsafe.Pointer(&s.c) }

// Close closes the queues and releases the word, for which no queue may still wait. It may be called on nil.
func (s *StreamWait) Close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, q := range s.queues {
		errs = append(errs, q.Close())
	}
	errs = append(errs, s.page.Close())
	if s.memory != nil {
		errs = append(errs, s.memory.Close())
	}
	*s = StreamWait{}
	return errors.Join(errs...)
}
