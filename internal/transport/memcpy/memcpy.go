// Package memcpy is the baseline without a second process: rank 0 opens both devices and copies between them, with the
// GPU's copy engine or with libc's memcpy. It shows the speed of the hardware without communication between ranks.
//
// Timed by the device, a queue of the source's device copies, behind a stream wait that ends when the whole operation
// is on the queue. A sample is the time between two events, before and after the operation. In bidir each device's
// queue copies the messages that leave that device, one word ends both stream waits, and the sample is the longer time.
// In pingpong one queue copies in both directions.
package memcpy

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0xcbe43ac2
#cgo LDFLAGS: -lpthread
#include <stdlib.h>
#include "memcpy.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/loop"
)

// Options are the baseline's settings, as package knob reads them. A queue, which timing by the device uses, has one
// copy method only.
type Options struct {
	Engine string `json:"engine,omitempty" knob:"engine" of:"timing=host"` // a name that the device knows; "": its default
	Timing string `json:"timing,omitempty" knob:"timing" values:"host device"`
}

// TimingDevice selects timing by the device's events instead of the host's clock.
const TimingDevice = "device"

type memcpy struct{ o Options }

// New makes the transport.
func New(o Options) (transport.Transport, error) {
	if err := knob.Check(nil, &o); err != nil {
		return nil, fmt.Errorf("memcpy: %w", err)
	}
	knob.Fill(nil, &o)
	return &memcpy{o: o}, nil
}

// Ranks is rank 0 alone.
func (*memcpy) Ranks(int) []int { return []int{0} }

func (*memcpy) Probe(devices []gpu.Info) error {
	if len(devices) != 2 || devices[0].Kind != devices[1].Kind {
		return fmt.Errorf("memcpy: it copies between two devices of one kind: %w", gpu.ErrUnsupported)
	}
	return nil
}

// Accepts refuses windows with too many copies behind a stream wait.
func (t *memcpy) Accepts(devices []gpu.Info, b transport.Batch) error {
	if err := t.Probe(devices); err != nil {
		return err
	}
	return accepts(b, t.o.Timing == TimingDevice)
}

// accepts refuses a batch that cannot be run. waits: its copies are enqueued behind a stream wait.
func accepts(b transport.Batch, waits bool) error {
	if waits && !b.Graph && b.Window > maxCopiesBehindWait {
		return fmt.Errorf("memcpy: a window of %d copies is more than the %d that a queue can hold behind a stream wait: use a smaller window, or graphs",
			b.Window, maxCopiesBehindWait)
	}
	return nil
}

func (t *memcpy) Open(_ context.Context, env transport.Env) (_ transport.Endpoint, err error) {
	ep := &endpoint{env: env, timing: t.o.Timing}
	if env.Rank != 0 {
		return ep, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("memcpy: open: %w", err), ep.Close())
		}
	}()
	near, far := env.Device, env.Device
	if !env.Devices[0].Same(env.Devices[1]) {
		if far, err = env.Open(env.Devices[1]); err != nil {
			return nil, err
		}
		ep.opened = far
	}
	for dir, d := range []gpu.Device{near, far} {
		if ep.engine[dir], err = d.Engine(t.engine(d)); err != nil {
			return nil, err
		}
		if ep.source[dir], err = d.Alloc(env.Region); err != nil {
			return nil, err
		}
		if ep.inbox[dir], err = d.Alloc(env.Region); err != nil {
			return nil, err
		}
	}
	if t.o.Timing == TimingDevice {
		if ep.streamWait, err = loop.OpenStreamWait(ep.engine[0], near, far); err != nil {
			return nil, fmt.Errorf("timing by the device: %w", err)
		}
	}
	return ep, nil
}

func (t *memcpy) engine(d gpu.Device) string {
	if t.o.Engine == "" {
		return d.Engines()[0]
	}
	return t.o.Engine
}

// endpoint has the engines and buffers of rank 0, by device. On other ranks it is empty.
type endpoint struct {
	env        transport.Env
	timing     string
	streamWait *loop.StreamWait // nil: timing by the host
	opened     gpu.Device       // the second device, if it is another one
	engine     [2]gpu.Engine
	source     [2]gpu.Buffer
	inbox      [2]gpu.Buffer
	end        *C.struct_memcpy_end
}

func (*endpoint) Address() []byte { return nil }

func (ep *endpoint) Connect(context.Context, [][]byte) error {
	if ep.env.Rank != 0 {
		return nil
	}
	ep.end = (*C.struct_memcpy_end)(C.calloc(1, C.sizeof_struct_memcpy_end))
	ep.end.ctx = (*C.struct_p2p_ctx)(ep.env.Wait.Pointer())
	for dir := range ep.engine {
		ep.end.dir[dir] = C.struct_memcpy_direction{
			engine: cEngine(ep.engine[dir]), far: cEngine(ep.engine[1-dir]),
			source: cBytes(ep.source[dir]), inbox: cBytes(ep.inbox[1-dir]),
		}
	}
	if ep.streamWait != nil {
		ep.end.stream_wait = *(*C.struct_p2p_stream_wait)(ep.streamWait.Pointer())
	}
	cpus, err := abi.ProcessCPUs()
	if err != nil {
		return fmt.Errorf("memcpy: connect: CPUs for the second thread: %w", err)
	}
	cpus = cpus.Without(ep.env.CPUs[ep.env.Rank]) // it must not share the CPU to which the timing thread is pinned
	ep.end.cpu_bytes = C.size_t(len(cpus) * 8)
	ep.end.cpus = C.CBytes(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(cpus))), len(cpus)*8))
	return nil
}

func cEngine(e gpu.Engine) *C.struct_p2p_engine { return (*C.struct_p2p_engine)(e.Table().Pointer()) }

func cBytes(b gpu.Buffer) *C.uint8_t { return (*C.uint8_t)(abi.Pointer(b.Addr())) }

func (ep *endpoint) Describe() transport.Path {
	p := transport.Path{Path: "memcpy", Completion: "receiver", Knobs: map[string]string{}}
	if ep.engine[0] != nil {
		p.Engine = ep.engine[0].Name()
		p.Knobs["engine"] = p.Engine
	}
	p.Knobs["timing"] = ep.timing
	return p
}

// maxCopiesBehindWait is the maximum number of copies that are enqueued behind a stream wait: a driver that holds about
// a thousand commands blocks its caller, which would have ended the stream wait.
const maxCopiesBehindWait = 512

func (ep *endpoint) Run(_ context.Context, b transport.Batch, samples []int64) (transport.Result, error) {
	if ep.end == nil {
		return transport.Result{}, fmt.Errorf("memcpy: run: not connected: %w", abi.ErrInvalid)
	}
	if err := accepts(b, ep.streamWait != nil); err != nil {
		return transport.Result{}, fmt.Errorf("%w: %w", err, abi.ErrInvalid)
	}
	call, err := loop.Prepare(b, ep.inbox[0].Size(), ep.records(), samples)
	if err != nil {
		return transport.Result{}, fmt.Errorf("memcpy: %w", err)
	}
	C.p2p_memcpy_run(ep.end, (*C.struct_p2p_batch)(call.Batch()), (*C.int64_t)(unsafe.SliceData(samples)),
		(*C.struct_p2p_result)(call.Result()), (*C.struct_p2p_error)(call.Error()))
	return call.Outcome("memcpy/" + ep.engine[0].Name())
}

// records reports whether a window can be recorded as one unit.
func (ep *endpoint) records() bool {
	if ep.streamWait != nil {
		return ep.streamWait.Queue(0).Table().Records()
	}
	return ep.engine[0].Table().Records()
}

func (*endpoint) Counters() map[string]uint64 { return nil }

func (ep *endpoint) Close() error {
	if ep.end != nil {
		C.free(ep.end.cpus)
	}
	C.free(unsafe.Pointer(ep.end))
	ep.end = nil
	var errs []error
	errs = append(errs, ep.streamWait.Close()) // first: it waits for copies in progress
	ep.streamWait = nil
	for dir := range ep.engine {
		for _, b := range []*gpu.Buffer{&ep.source[dir], &ep.inbox[dir]} {
			if *b != nil {
				errs = append(errs, (*b).Close())
				*b = nil
			}
		}
		if ep.engine[dir] != nil {
			errs = append(errs, ep.engine[dir].Close())
			ep.engine[dir] = nil
		}
	}
	if ep.opened != nil {
		errs = append(errs, ep.opened.Close())
		ep.opened = nil
	}
	return errors.Join(errs...)
}
