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
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/loop"
)

// endpoint is one rank's end: two buffers of its own, the peer's inbox mapped, and the link.
type endpoint struct {
	env    transport.Env
	engine gpu.Engine
	source gpu.Buffer
	inbox  gpu.Buffer
	peer   gpu.Buffer // the peer's inbox
	link   []byte     // struct ipc_link, shared
	server *listener  // rank 0 until Connect is over
	end    *C.struct_ipc_end
	path   transport.Path
}

func (t *ipc) Open(_ context.Context, env transport.Env) (_ transport.Endpoint, err error) {
	if len(env.Devices) != 2 {
		return nil, fmt.Errorf("ipc: open: %d ranks: it takes two", len(env.Devices))
	}
	ep := &endpoint{env: env, path: transport.Path{Path: "direct", Completion: "receiver"}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("ipc: open: %w", err), ep.Close())
		}
	}()
	if ep.engine, err = env.Device.Engine(t.engine(env.Device)); err != nil {
		return nil, err
	}
	if ep.source, err = env.Device.Alloc(env.Region, gpu.HandleAuto); err != nil {
		return nil, err
	}
	if ep.inbox, err = env.Device.Alloc(env.Region, t.handle()); err != nil {
		return nil, err
	}
	ep.path.Engine = ep.engine.Name()
	if env.Rank == 0 {
		ep.server, err = listen(env.Run)
	}
	return ep, err
}

// address is what the peer needs: the name of rank 0's socket.
type address struct {
	Socket string `json:"socket,omitempty"`
}

func (ep *endpoint) Address() []byte {
	var a address
	if ep.server != nil {
		a.Socket = ep.server.name
	}
	b, _ := json.Marshal(a) // cannot fail: strings only
	return b
}

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
	ep.path.Knobs = map[string]string{
		"path": "direct", "handle": string(own.Kind), "engine": ep.engine.Name(), "completion": "done-seq",
	}
	ep.setEnd()
	ep.path.ConnectUS = since(begin)
	return nil
}

// exchange swaps handles with the peer and maps the link, which rank 0 makes.
func (ep *endpoint) exchange(ctx context.Context, server []byte, own gpu.Handle) (gpu.Handle, error) {
	var none gpu.Handle
	if ep.env.Rank == 0 {
		fd, err := newLink(int(C.sizeof_struct_ipc_link))
		if err != nil {
			return none, err
		}
		defer closeFD(fd)
		if ep.link, err = mapLink(fd, int(C.sizeof_struct_ipc_link)); err != nil {
			return none, err
		}
		theirs, err := ep.server.swap(ctx, hello{Run: ep.env.Run, Handle: own}, fd)
		return theirs.Handle, err
	}
	var a address
	if err := json.Unmarshal(server, &a); err != nil {
		return none, fmt.Errorf("address of rank 0: %w", err)
	}
	theirs, fd, err := dial(ctx, a.Socket, hello{Run: ep.env.Run, Handle: own})
	if err != nil {
		return none, err
	}
	defer closeFD(fd)
	ep.link, err = mapLink(fd, int(C.sizeof_struct_ipc_link))
	return theirs.Handle, err
}

func (ep *endpoint) setEnd() {
	ep.end = (*C.struct_ipc_end)(C.calloc(1, C.sizeof_struct_ipc_end))
	*ep.end = C.struct_ipc_end{
		engine: (*C.struct_p2p_engine)(ep.engine.Table().Pointer()),
		ctx:    (*C.struct_p2p_ctx)(ep.env.Wait.Pointer()),
		link:   (*C.struct_ipc_link)(unsafe.Pointer(&ep.link[0])),
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
	C.p2p_ipc_run(ep.end, (*C.struct_p2p_batch)(call.Batch()), (*C.int64_t)(unsafe.SliceData(samples)),
		(*C.struct_p2p_result)(call.Result()), (*C.struct_p2p_error)(call.Error()))
	return call.Outcome("ipc direct/" + ep.engine.Name())
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
	if ep.server != nil {
		errs = append(errs, ep.server.Close())
		ep.server = nil
	}
	for _, b := range []*gpu.Buffer{&ep.peer, &ep.inbox, &ep.source} {
		if *b != nil {
			errs = append(errs, (*b).Close())
			*b = nil
		}
	}
	if ep.engine != nil {
		errs = append(errs, ep.engine.Close())
		ep.engine = nil
	}
	if ep.link != nil {
		errs = append(errs, unix.Munmap(ep.link))
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
