package nccl

/*
#include <stdlib.h>
#include "nccl.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/loop"
	"github.com/p2pbench/p2pbench/internal/transport/rendezvous"
)

// Time limits for the end of a communicator. They are shorter than the time that the parent gives a worker to exit.
const (
	abortTimeout   = time.Second
	destroyTimeout = 2 * time.Second
)

// endpoint is the transport in one rank.
type endpoint struct {
	o          Options
	env        transport.Env
	version    string
	engine     gpu.Engine
	memory     []io.Closer // owns source and inbox
	source     *C.uint8_t
	inbox      *C.uint8_t
	bytes      uint64           // of each
	conn       *rendezvous.Conn // to the other rank; nil: the ranks use barriers only
	streamWait *loop.StreamWait // nil: timing by the host
	// recorder captures NCCL's calls, to launch them as a graph or to find out what they launch.
	recorder *C.struct_p2p_recorder
	id       C.struct_nccl_id // from rank 0: the id of the timed communicator
	twin     C.struct_nccl_id // from rank 0: the id of the second communicator; zero: none is made
	end      *C.struct_nccl_end
	stuck    string // the call from which NCCL has not returned; it may still use all memory of the endpoint
	path     transport.Path
}

func (t *nccl) Open(ctx context.Context, env transport.Env) (_ transport.Endpoint, err error) {
	if err := t.Probe(env.Devices); err != nil {
		return nil, err
	}
	ep := &endpoint{o: t.o, env: env}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("nccl: open: %w", err), ep.Close())
		}
	}()
	if ep.version, err = library(); err != nil {
		return nil, err
	}
	if ep.engine, err = env.Device.Engine(env.Device.Info().CopyEngine); err != nil {
		return nil, err
	}
	if ep.recorder, err = recorder(env.Device); err != nil {
		return nil, err
	}
	if err = ep.allocate(); err != nil {
		return nil, err
	}
	switch {
	case t.o.Timing == TimingDevice:
		err = ep.openStreamWait()
	case !t.o.Ring:
		ep.conn, err = rendezvous.Open(env.Run, env.Rank)
	}
	if err != nil {
		return nil, err
	}
	return ep, ep.makeID(ctx)
}

// recorder returns the device's recorder.
func recorder(d gpu.Device) (*C.struct_p2p_recorder, error) {
	r, ok := d.(gpu.Recorder)
	if !ok {
		return nil, fmt.Errorf("a %s device cannot capture calls: %w", d.Info().Kind, gpu.ErrUnsupported)
	}
	table, err := r.Recorder()
	if err != nil {
		return nil, err
	}
	return (*C.struct_p2p_recorder)(table.Pointer()), nil
}

// openStreamWait opens the queue for timing by the device.
func (ep *endpoint) openStreamWait() (err error) {
	if ep.streamWait, err = loop.OpenStreamWait(ep.engine, ep.env.Device); err != nil {
		return fmt.Errorf("timing by the device: %w", err)
	}
	if ep.queue().stream == nil {
		return fmt.Errorf("timing by the device: a queue without a stream: %w", gpu.ErrUnsupported)
	}
	return nil
}

func (ep *endpoint) queue() *C.struct_p2p_queue {
	return (*C.struct_p2p_queue)(ep.streamWait.Queue(0).Table().Pointer())
}

// allocate allocates both buffers. If they are to be registered and the device supports it, they are memory that NCCL
// can share with the peer as a file descriptor.
func (ep *endpoint) allocate() error {
	if ep.o.Register {
		m, err := ep.env.Device.Memory(gpu.HandleVMM)
		if err == nil {
			ep.memory = append(ep.memory, m)
			return ep.allocateFrom(m)
		}
		if !errors.Is(err, gpu.ErrUnsupported) {
			return err
		}
	}
	for _, p := range []**C.uint8_t{&ep.source, &ep.inbox} {
		b, err := ep.env.Device.Alloc(ep.env.Region)
		if err != nil {
			return err
		}
		ep.memory = append(ep.memory, b)
		*p, ep.bytes = (*C.uint8_t)(abi.Pointer(b.Addr())), b.Size()
	}
	return nil
}

// allocateFrom allocates both buffers from m, which frees them when it is closed.
func (ep *endpoint) allocateFrom(m gpu.Memory) error {
	for _, p := range []**C.uint8_t{&ep.source, &ep.inbox} {
		var r C.struct_p2p_range
		if err := abi.Call(func(e *C.struct_p2p_error) {
			table := (*C.struct_p2p_memory)(m.Table().Pointer())
			C.p2p_nccl_alloc(ep.table(), table, C.size_t(ep.env.Region), &r, e)
		}); err != nil {
			kind, _ := m.Kind()
			return fmt.Errorf("allocate %d bytes as %s: %w", ep.env.Region, kind, err)
		}
		*p, ep.bytes = r.base, uint64(r.length)
	}
	return nil
}

// makeID makes the ids of the communicators on rank 0.
func (ep *endpoint) makeID(ctx context.Context) error {
	if ep.table().stream == nil {
		return fmt.Errorf("engine %s has no stream: %w", ep.engine.Name(), gpu.ErrUnsupported)
	}
	if ep.env.Rank != 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ep.env.Timeout)
	defer cancel()
	ids := []*C.struct_nccl_id{&ep.id}
	if ep.needsTwin() {
		ids = append(ids, &ep.twin)
	}
	for _, id := range ids {
		if err := ep.within(ctx, "ncclGetUniqueId", func() error {
			return abi.Call(func(e *C.struct_p2p_error) { C.p2p_nccl_id(ep.table(), id, e) })
		}); err != nil {
			return moreFromNCCL(err)
		}
	}
	return nil
}

func (ep *endpoint) table() *C.struct_p2p_engine {
	return (*C.struct_p2p_engine)(ep.engine.Table().Pointer())
}

// address is what the other ranks need from a rank: where rank 0 listens, and NCCL's ids.
type address struct {
	Link json.RawMessage `json:"link,omitempty"` // none: the ranks do not connect
	ID   []byte          `json:"id,omitempty"`
	Twin []byte          `json:"twin,omitempty"` // none: no twin is made
}

func (ep *endpoint) Address() []byte {
	var a address
	if ep.conn != nil {
		a.Link = ep.conn.Address()
	}
	if ep.env.Rank == 0 {
		a.ID = C.GoBytes(unsafe.Pointer(&ep.id), C.sizeof_struct_nccl_id)
		if ep.twin != (C.struct_nccl_id{}) {
			a.Twin = C.GoBytes(unsafe.Pointer(&ep.twin), C.sizeof_struct_nccl_id)
		}
	}
	b, _ := json.Marshal(a) // cannot fail: bytes and JSON only
	return b
}

func (ep *endpoint) Connect(ctx context.Context, peers [][]byte) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, ep.env.Timeout)
	defer cancel()
	var server address
	if err := json.Unmarshal(peers[0], &server); err != nil {
		return fmt.Errorf("nccl: connect: address of rank 0: %w", err)
	}
	if len(server.ID) != C.sizeof_struct_nccl_id || len(server.Twin) != 0 && len(server.Twin) != C.sizeof_struct_nccl_id {
		return fmt.Errorf("nccl: connect: address of rank 0: ids of %d and %d bytes, want %d",
			len(server.ID), len(server.Twin), C.sizeof_struct_nccl_id)
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&ep.id)), len(server.ID)), server.ID)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&ep.twin)), len(server.Twin)), server.Twin)
	if ep.conn != nil {
		if _, err := ep.conn.Connect(ctx, server.Link, rendezvous.Message{FD: -1}, int(C.sizeof_struct_nccl_link)); err != nil {
			return fmt.Errorf("nccl: connect: %w", err)
		}
	}
	ep.setEnd()
	if err := ep.makeComm(ctx, &ep.end.timed, ep.id, "the making of the communicator"); err != nil {
		ep.abort()
		return fmt.Errorf("nccl: connect: %w", err)
	}
	ep.describe()
	ep.path.ConnectUS = transport.Since(begin)
	if err := ep.makeTwin(ctx); err != nil {
		ep.abort()
		return fmt.Errorf("nccl: connect: %w", err)
	}
	return nil
}

func flag(on bool) C.uint32_t {
	if on {
		return 1
	}
	return 0
}

func (ep *endpoint) setEnd() {
	ranks, rank := len(ep.env.Devices), ep.env.Rank
	ep.end = (*C.struct_nccl_end)(C.calloc(1, C.sizeof_struct_nccl_end))
	*ep.end = C.struct_nccl_end{
		engine: ep.table(), recorder: ep.recorder,
		ctx:    (*C.struct_p2p_ctx)(ep.env.Wait.Pointer()),
		source: ep.source, inbox: ep.inbox, bytes: C.size_t(ep.bytes),
		rank: C.uint32_t(rank), ranks: C.uint32_t(ranks), per_message: flag(ep.o.PerMessage),
		next: C.uint32_t((rank + 1) % ranks), previous: C.uint32_t((rank + ranks - 1) % ranks),
	}
	if ep.conn != nil {
		ep.end.link = (*C.struct_nccl_link)(ep.conn.Memory())
	}
	if ep.streamWait != nil {
		ep.end.queue, ep.end.stream_wait = ep.queue(), *(*C.struct_p2p_stream_wait)(ep.streamWait.Pointer())
	}
}

// makeComm makes a communicator. It blocks until the other ranks do the same.
func (ep *endpoint) makeComm(ctx context.Context, comm *C.struct_nccl_comm, id C.struct_nccl_id, what string) error {
	registered := C.int(0)
	if ep.o.Register {
		registered = 1
	}
	end, ctas := ep.end, C.int(ep.o.CTAs)
	return moreFromNCCL(ep.within(ctx, what, func() error {
		return abi.Call(func(e *C.struct_p2p_error) { C.p2p_nccl_connect(end, comm, id, ctas, registered, e) })
	}))
}

// within runs f on another thread, because threads that NCCL starts would inherit the calling thread's pinning to one
// CPU. If ctx ends first, f keeps running, and all memory that it may use must stay.
func (ep *endpoint) within(ctx context.Context, what string, f func() error) error {
	begin := time.Now()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the first of f's C calls binds the device to the thread
		defer runtime.UnlockOSThread()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		ep.stuck = what
		return fmt.Errorf("NCCL has not returned from %s after %.1f s: %w", what, time.Since(begin).Seconds(), abi.ErrTimeout)
	}
}

// moreFromNCCL adds to an error of NCCL's how to get more information.
func moreFromNCCL(err error) error {
	if err == nil || !errors.Is(err, abi.ErrDevice) {
		return err
	}
	return fmt.Errorf("%w (NCCL_DEBUG=WARN says more)", err)
}

func (ep *endpoint) describe() {
	ep.path.Path, ep.path.Engine, ep.path.Completion = "nccl", "nccl "+ep.version, "receiver"
	ep.path.Counters = counters
	ep.path.Knobs = settings()
	if ep.o.CTAs == 0 {
		ep.path.Knobs["ctas"] = "auto"
	}
	maps.Copy(ep.path.Knobs, knob.Settings(&ep.o))
	ep.path.Knobs["group"] = "window"
	if ep.o.PerMessage {
		ep.path.Knobs["group"] = "message"
	}
	ep.path.Knobs["register"] = strconv.FormatBool(ep.o.Register)
	if ep.o.Graph {
		ep.path.Knobs["cudagraph"] = "window"
	}
	ep.path.Knobs["protocol"] = "not reported by NCCL" // LL or SIMPLE: every kernel contains both
}

func (ep *endpoint) Describe() transport.Path { return ep.path }

// maxCallsBehindWait is the maximum number of calls that are enqueued behind a stream wait: a driver that holds about a
// thousand commands blocks its caller, which would have ended the stream wait.
const maxCallsBehindWait = 256

// accepts refuses a batch that cannot be run.
func (o Options) accepts(b transport.Batch) error {
	switch {
	case o.Ring && b.Op != transport.OpBidir:
		return fmt.Errorf("nccl: operation %q: a ring has only %s", b.Op, transport.OpBidir)
	case o.Timing == TimingDevice && o.PerMessage && !b.Graph && !o.Graph && b.Window > maxCallsBehindWait:
		return fmt.Errorf("nccl: a window of %d calls is more than the %d that a queue can hold until all ranks are ready: use a smaller window, or graphs",
			b.Window, maxCallsBehindWait)
	}
	return nil
}

func (ep *endpoint) Run(_ context.Context, b transport.Batch, samples []int64) (transport.Result, error) {
	if ep.end == nil || ep.end.timed.handle == nil {
		return transport.Result{}, fmt.Errorf("nccl: run: not connected: %w", abi.ErrInvalid)
	}
	if err := ep.o.accepts(b); err != nil {
		return transport.Result{}, fmt.Errorf("%w: %w", err, abi.ErrInvalid)
	}
	b.Graph = b.Graph || ep.o.Graph
	const records = true // the recorder captures any stream
	call, err := loop.Prepare(b, uint64(ep.end.bytes), records, samples)
	if err != nil {
		return transport.Result{}, fmt.Errorf("nccl: %w", err)
	}
	C.p2p_nccl_run(ep.end, (*C.struct_p2p_batch)(call.Batch()), (*C.int64_t)(unsafe.SliceData(samples)),
		(*C.struct_p2p_result)(call.Result()), (*C.struct_p2p_error)(call.Error()))
	res, err := call.Outcome(ep.path.Engine)
	if errors.Is(err, abi.ErrTimeout) || errors.Is(err, abi.ErrAborted) || errors.Is(err, abi.ErrDevice) {
		ep.abort()
	}
	res.Engine = ep.launched()
	return res, moreFromNCCL(err)
}

// abort ends NCCL's operations in progress: a kernel that waits for the peer would stay on the GPU. It waits only
// briefly, because the error that caused it must be reported.
func (ep *endpoint) abort() {
	if ep.stuck != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	end := ep.end
	_ = ep.within(ctx, "the abort of the communicator", func() error {
		C.p2p_nccl_abort(&end.timed)
		C.p2p_nccl_abort(&end.twin)
		return nil
	})
}

func (ep *endpoint) Close() error {
	var errs []error
	if ep.stuck == "" {
		errs = append(errs, ep.closeComm())
	}
	if ep.stuck != "" {
		return fmt.Errorf("nccl: close: NCCL has not returned from %s: its memory stays until the process ends", ep.stuck)
	}
	errs = append(errs, ep.streamWait.Close())
	ep.streamWait = nil
	if ep.engine != nil {
		errs = append(errs, ep.engine.Close())
		ep.engine = nil
	}
	for _, m := range ep.memory {
		errs = append(errs, m.Close())
	}
	ep.memory = nil
	if ep.conn != nil {
		errs = append(errs, ep.conn.Close())
		ep.conn = nil
	}
	C.free(unsafe.Pointer(ep.end))
	ep.end = nil
	return errors.Join(errs...)
}

// closeComm releases the recorded window, for which NCCL would wait, and destroys the communicators.
func (ep *endpoint) closeComm() error {
	if ep.end == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), destroyTimeout)
	defer cancel()
	end := ep.end
	err := ep.within(ctx, "the end of the communicator", func() error {
		return errors.Join(
			abi.Call(func(e *C.struct_p2p_error) { C.p2p_nccl_forget(end, e) }),
			abi.Call(func(e *C.struct_p2p_error) { C.p2p_nccl_destroy(end, &end.twin, e) }),
			abi.Call(func(e *C.struct_p2p_error) { C.p2p_nccl_destroy(end, &end.timed, e) }),
		)
	})
	if err != nil {
		return fmt.Errorf("nccl: close: %w", err)
	}
	return nil
}
