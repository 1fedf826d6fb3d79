package ipc

/*
#include "ipc.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rendezvous"
)

// endpoint is the transport in one rank, if every rank is a process.
type endpoint struct {
	env  transport.Env
	o    Options // settled; the path is not "auto"
	side *side
	conn *rendezvous.Conn
	path transport.Path
}

func (t *ipc) Open(_ context.Context, env transport.Env) (_ transport.Endpoint, err error) {
	if len(env.Devices) != 2 {
		return nil, fmt.Errorf("ipc: open: %d ranks: it runs between two", len(env.Devices))
	}
	if t.o.SameProcess {
		return openPair(t.o, env)
	}
	ep := &endpoint{env: env, o: t.o}
	if ep.o.Path == "auto" {
		if ep.o, err = ep.o.resolve(env.Device.Reaches(env.Devices[1-env.Rank])); err != nil {
			return nil, fmt.Errorf("ipc: open: %w", err)
		}
	}
	if ep.side, err = openSide(ep.o, env.Rank, env.Device, env.Region, env.Wait.WithWake(ep.o.wait())); err == nil {
		ep.conn, err = rendezvous.Open(env.Run, env.Rank)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ipc: open: %w", err), ep.Close())
	}
	return ep, nil
}

func (ep *endpoint) Address() []byte { return ep.conn.Address() }

// hello is what the ranks exchange before they share memory.
type hello struct {
	Path   string         `json:"path"`
	Handle gpu.HandleKind `json:"handle"`
	// Tries reports whether this rank has several engines to try. Both ranks map a buffer if either has.
	Tries bool `json:"tries"`
}

func (ep *endpoint) Connect(ctx context.Context, peers [][]byte) (err error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, ep.env.Timeout)
	defer cancel()
	introduce, err := ep.exchangeHello(ctx, peers[0])
	if err != nil {
		return fmt.Errorf("ipc: connect: %w", err)
	}
	end := ep.side.end
	end.link = (*C.struct_ipc_link)(ep.conn.Memory())
	end.socket = C.int32_t(ep.conn.Socket())
	if err := abi.Call(func(e *C.struct_p2p_error) { C.p2p_ipc_connect(end, introduce, e) }); err != nil {
		return fmt.Errorf("ipc: connect: %w", err)
	}
	if err := ep.side.choose(ep.env.Region); err != nil {
		return fmt.Errorf("ipc: %w", err)
	}
	if err := abi.Call(func(e *C.struct_p2p_error) { C.p2p_ipc_ready(end, e) }); err != nil {
		return fmt.Errorf("ipc: connect: %w", err)
	}
	ep.path = ep.side.describe()
	ep.path.ConnectUS = transport.Since(begin)
	return nil
}

// exchangeHello maps the link and checks that the ranks agree. introduce is an argument of p2p_ipc_connect.
func (ep *endpoint) exchangeHello(ctx context.Context, server []byte) (introduce C.int, err error) {
	kind, _ := ep.side.memory.Kind()
	ours := hello{Path: ep.o.Path, Handle: kind, Tries: len(ep.side.choice) > 0}
	own, err := json.Marshal(ours)
	if err != nil {
		return 0, err
	}
	bytes := int(C.p2p_ipc_link_bytes(&ep.side.end.cfg))
	m, err := ep.conn.Connect(ctx, server, rendezvous.Message{Payload: own, FD: -1}, bytes)
	if err != nil {
		return 0, err
	}
	var theirs hello
	if err := json.Unmarshal(m.Payload, &theirs); err != nil {
		return 0, fmt.Errorf("hello of the peer: %w", err)
	}
	if theirs.Path != ours.Path || theirs.Handle != ours.Handle {
		return 0, fmt.Errorf("this rank chose path %s with handle %s, the peer path %s with %s: name them with --path and --handle: %w",
			ep.o.Path, kind, theirs.Path, theirs.Handle, gpu.ErrUnsupported)
	}
	if ours.Tries || theirs.Tries {
		introduce = 1
	}
	return introduce, nil
}

func (ep *endpoint) Describe() transport.Path { return ep.path }

func (ep *endpoint) Run(_ context.Context, b transport.Batch, samples []int64) (transport.Result, error) {
	if ep.path.Path == "" {
		return transport.Result{}, fmt.Errorf("ipc: run: not connected: %w", abi.ErrInvalid)
	}
	return ep.side.run(ep.path.Path, b, samples)
}

func (ep *endpoint) Counters() map[string]uint64 { return ep.side.counters() }

func (ep *endpoint) Close() error {
	var errs []error
	if ep.side != nil {
		errs = append(errs, ep.side.Close())
	}
	if ep.conn != nil {
		errs = append(errs, ep.conn.Close())
		ep.conn = nil
	}
	return errors.Join(errs...)
}

// describe returns the path's description, once connected.
func (s *side) describe() transport.Path {
	p := transport.Path{
		Path: s.o.Path, Engine: s.engine.Name(), Completion: "receiver", ThroughHost: s.o.Path == "relay",
		Knobs: knob.Settings(&s.o), Counters: counters,
	}
	if s.o.wait().Mode == abi.WakeSpin && s.ctx.Yields() {
		p.Knobs["wake"] = "yield"
	}
	p.Knobs["engine"] = p.Engine
	if s.chosen != "" {
		p.Knobs["chosen"] = s.chosen
	}
	if s.end.unconfirmed != 0 {
		p.Knobs["completion"] = "ring-ack"
		p.Warnings = append(p.Warnings, fmt.Sprintf("rank %d: the peer never confirmed the done_seq channel: completion by ring messages instead", s.rank))
	}
	if s.o.Path == "relay" || s.o.SameProcess {
		return p
	}
	kind, why := s.memory.Kind()
	p.Knobs["handle"] = string(kind)
	if why != "" {
		p.Knobs["handle_why"] = why
	}
	p.ExportUS = micros(s.end.first_export_ns)
	p.OpenUS = micros(s.end.first_open_ns)
	return p
}

// micros converts ns; nil if ns is 0.
func micros(ns C.uint64_t) *float64 {
	if ns == 0 {
		return nil
	}
	us := float64(ns) / 1e3
	return &us
}
