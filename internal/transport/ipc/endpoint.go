package ipc

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#include <stdlib.h>
#include "ipc.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/best"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/link"
	"github.com/p2pbench/p2pbench/internal/transport/loop"
)

// endpoint is one rank's end: two buffers of its own, the peer's inbox mapped, and the link.
type endpoint struct {
	env    transport.Env
	choice []gpu.Engine // to choose from; empty once the choice is made
	engine gpu.Engine
	source gpu.Buffer
	inbox  gpu.Buffer
	peer   gpu.Buffer // the peer's inbox
	link   *link.Link
	end    *C.struct_ipc_end
	path   transport.Path
}

func (t *ipc) Open(_ context.Context, env transport.Env) (_ transport.Endpoint, err error) {
	if len(env.Devices) != 2 {
		return nil, fmt.Errorf("ipc: open: %d ranks: it takes two", len(env.Devices))
	}
	ep := &endpoint{env: env, path: transport.Path{
		Path: "direct", Completion: "receiver", Knobs: map[string]string{},
	}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("ipc: open: %w", err), ep.Close())
		}
	}()
	for _, name := range t.engines(env.Device) {
		e, err := env.Device.Engine(name)
		if err != nil {
			return nil, err
		}
		ep.choice = append(ep.choice, e)
	}
	if ep.source, err = env.Device.Alloc(env.Region, gpu.HandleAuto); err != nil {
		return nil, err
	}
	if ep.inbox, err = env.Device.Alloc(env.Region, t.handle()); err != nil {
		return nil, err
	}
	ep.link, err = link.Open(env.Run, env.Rank)
	return ep, err
}

func (ep *endpoint) Address() []byte { return ep.link.Address() }

func (ep *endpoint) Connect(ctx context.Context, peers [][]byte) (err error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, ep.env.Timeout)
	defer cancel()
	own, err := ep.inbox.Export()
	if err != nil {
		return fmt.Errorf("ipc: export: %w", err)
	}
	defer closeFD(own.FD)
	ep.path.ExportUS = since(begin)
	theirs, err := ep.exchange(ctx, peers[0], own)
	if err != nil {
		return fmt.Errorf("ipc: connect: %w", err)
	}
	opening := time.Now()
	if ep.peer, err = ep.env.Device.Import(theirs); err != nil {
		return fmt.Errorf("ipc: open the peer's memory: %w", err)
	}
	ep.path.OpenUS = since(opening)
	if err := ep.choose(); err != nil {
		return fmt.Errorf("ipc: %w", err)
	}
	maps.Copy(ep.path.Knobs, map[string]string{
		"path": "direct", "handle": string(own.Kind), "engine": ep.engine.Name(), "completion": "done-seq",
	})
	ep.setEnd()
	ep.path.ConnectUS = since(begin)
	return nil
}

// exchange swaps handles with the peer and maps the link.
func (ep *endpoint) exchange(ctx context.Context, server []byte, own gpu.Handle) (gpu.Handle, error) {
	b, err := json.Marshal(own)
	if err != nil {
		return gpu.Handle{}, err
	}
	m, err := ep.link.Connect(ctx, server, link.Message{Payload: b, FD: own.FD}, int(C.sizeof_struct_ipc_link))
	if err != nil {
		return gpu.Handle{}, err
	}
	theirs := gpu.Handle{FD: m.FD}
	if err := json.Unmarshal(m.Payload, &theirs); err != nil {
		closeFD(m.FD)
		return gpu.Handle{}, fmt.Errorf("handle from the peer: %w", err)
	}
	return theirs, nil
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// choose settles on the engine: the only one, or for each size the fastest between these very buffers.
func (ep *endpoint) choose() error {
	engines := ep.choice
	ep.choice = nil
	if len(engines) == 1 {
		ep.engine = engines[0]
	} else {
		b, err := best.New(engines, ep.env.Wait, ep.peer.Addr(), ep.source.Addr(), min(ep.env.Region, largestTried))
		if err != nil {
			return err
		}
		ep.engine = b
		ep.path.Knobs["chosen"] = b.Choices()
	}
	ep.path.Engine = ep.engine.Name()
	return nil
}

// largestTried bounds what trying engines costs; beyond it the order no longer changes.
const largestTried = 256 << 20

func (ep *endpoint) setEnd() {
	ep.end = (*C.struct_ipc_end)(C.calloc(1, C.sizeof_struct_ipc_end))
	*ep.end = C.struct_ipc_end{
		engine: (*C.struct_p2p_engine)(ep.engine.Table().Pointer()),
		ctx:    (*C.struct_p2p_ctx)(ep.env.Wait.Pointer()),
		link:   (*C.struct_ipc_link)(ep.link.Memory()),
		source: cBytes(ep.source), inbox: cBytes(ep.inbox), peer: cBytes(ep.peer),
		rank: C.uint32_t(ep.env.Rank),
	}
}

// cBytes is a device address as C code holds it; Go never follows it.
func cBytes(b gpu.Buffer) *C.uint8_t {
	a := b.Addr()
	return *(**C.uint8_t)(unsafe.Pointer(&a))
}

func (ep *endpoint) Describe() transport.Path { return ep.path }

func (ep *endpoint) Run(_ context.Context, b transport.Batch, samples []int64) (transport.Result, error) {
	if ep.end == nil {
		return transport.Result{}, fmt.Errorf("ipc: run: not connected: %w", abi.ErrInvalid)
	}
	call, err := loop.Prepare(b, ep.inbox.Size(), ep.engine.Table().Records(), samples)
	if err != nil {
		return transport.Result{}, fmt.Errorf("ipc: %w", err)
	}
	engine := ep.engine.Name()
	if auto, ok := ep.engine.(*best.Engine); ok {
		auto.Use(b.Window)
		engine = auto.For(b.Size, b.Window)
	}
	C.p2p_ipc_run(ep.end, (*C.struct_p2p_batch)(call.Batch()), (*C.int64_t)(unsafe.SliceData(samples)),
		(*C.struct_p2p_result)(call.Result()), (*C.struct_p2p_error)(call.Error()))
	r, err := call.Outcome("ipc direct/" + engine)
	r.Engine = engine
	return r, err
}

func (ep *endpoint) Counters() map[string]uint64 {
	if ep.end == nil {
		return nil
	}
	return map[string]uint64{
		"path_direct": uint64(ep.end.messages), "opens": 1, "published": 1, "mapped_bytes": ep.peer.Size(),
	}
}

func (ep *endpoint) Close() error {
	var errs []error
	for _, b := range []*gpu.Buffer{&ep.peer, &ep.inbox, &ep.source} {
		if *b != nil {
			errs = append(errs, (*b).Close())
			*b = nil
		}
	}
	for _, e := range ep.choice {
		errs = append(errs, e.Close())
	}
	ep.choice = nil
	if ep.engine != nil {
		errs = append(errs, ep.engine.Close())
		ep.engine = nil
	}
	if ep.link != nil {
		errs = append(errs, ep.link.Close())
		ep.link = nil
	}
	C.free(unsafe.Pointer(ep.end))
	ep.end = nil
	return errors.Join(errs...)
}

func since(t time.Time) *float64 {
	us := float64(time.Since(t)) / float64(time.Microsecond)
	return &us
}
