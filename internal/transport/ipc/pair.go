package ipc

/*
#include <stdlib.h>
#include <string.h>
#include "ipc.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// pair is both ranks as threads of rank 0's process (--same-process). In rank 1's process it is empty.
type pair struct {
	env    transport.Env
	sides  []*side
	other  gpu.Device // rank 1's
	link   unsafe.Pointer
	joined bool
	path   transport.Path
}

func openPair(o Options, env transport.Env) (transport.Endpoint, error) {
	p := &pair{env: env}
	if env.Rank != 0 {
		return p, nil
	}
	if err := p.open(o); err != nil {
		return nil, errors.Join(fmt.Errorf("ipc: open: %w", err), p.Close())
	}
	return p, nil
}

func (p *pair) open(o Options) (err error) {
	if p.other, err = p.env.Open(p.env.Devices[1]); err != nil {
		return err
	}
	if !p.env.Device.Reaches(p.env.Devices[1]) || !p.other.Reaches(p.env.Devices[0]) {
		return fmt.Errorf("the devices do not reach each other's memory: %w", gpu.ErrUnsupported)
	}
	for rank, d := range []gpu.Device{p.env.Device, p.other} {
		ctx := p.env.Wait.OfRank(rank, o.wait())
		s, err := openSide(o, rank, d, p.env.Region, ctx)
		if err != nil {
			return err
		}
		p.sides = append(p.sides, s)
	}
	bytes := (C.p2p_ipc_link_bytes(&p.sides[0].end.cfg) + 4095) / 4096 * 4096
	if p.link = C.aligned_alloc(4096, bytes); p.link == nil {
		return errors.New("out of memory")
	}
	C.memset(p.link, 0, bytes)
	return nil
}

func (p *pair) Address() []byte { return nil }

func (p *pair) Connect(context.Context, [][]byte) error {
	if len(p.sides) == 0 {
		return nil
	}
	begin := time.Now()
	for _, s := range p.sides {
		s.end.link = (*C.struct_ipc_link)(p.link)
	}
	C.p2p_ipc_join(p.sides[0].end, p.sides[1].end)
	err := p.both(func(s *side) error {
		if err := abi.Call(func(e *C.struct_p2p_error) { C.p2p_ipc_connect(s.end, 0, e) }); err != nil {
			return err
		}
		return abi.Call(func(e *C.struct_p2p_error) { C.p2p_ipc_ready(s.end, e) })
	})
	for _, s := range p.sides {
		if err == nil {
			err = s.choose(p.env.Region) // one after the other, so that they do not disturb each other
		}
	}
	if err != nil {
		return fmt.Errorf("ipc: connect: %w", err)
	}
	p.joined = true
	p.path = p.sides[0].describe()
	p.path.ConnectUS = transport.Since(begin)
	return nil
}

// both runs f for rank 1 on another thread and for rank 0 on this one. If one fails, the other is stopped, and the
// first failure is returned.
func (p *pair) both(f func(*side) error) error {
	type outcome struct {
		rank int
		err  error
	}
	ends := make(chan outcome, 2)
	try := func(rank int) {
		err := f(p.sides[rank])
		if err != nil {
			C.p2p_ipc_stop(p.sides[1-rank].end)
		}
		ends <- outcome{rank, err}
	}
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, and its pinning with it
		p.pin(1)
		try(1)
	}()
	try(0)
	first, second := <-ends, <-ends
	if first.err == nil || (errors.Is(first.err, abi.ErrAborted) && second.err != nil) {
		first = second
	}
	if first.err != nil {
		return fmt.Errorf("thread of rank %d: %w", first.rank, first.err)
	}
	return nil
}

// pin pins the calling thread to the CPU of the rank, whose own process is idle. It is not an error if that fails.
func (p *pair) pin(rank int) {
	if cpu := p.env.CPUs[rank]; cpu >= 0 {
		_ = abi.CPUsOf(cpu).Pin()
	}
}

func (p *pair) Describe() transport.Path { return p.path }

func (p *pair) Run(_ context.Context, b transport.Batch, samples []int64) (transport.Result, error) {
	if !p.joined {
		return transport.Result{}, fmt.Errorf("ipc: run: not connected: %w", abi.ErrInvalid)
	}
	results := make([]transport.Result, 2)
	theirs := make([]int64, len(samples))
	b.Barrier = 0 // the threads wait for each other's credit
	err := p.both(func(s *side) (err error) {
		into := samples
		if s.rank == 1 {
			into = theirs
		}
		results[s.rank], err = s.run("direct", b, into)
		return err
	})
	r := results[0]
	r.Checked += results[1].Checked
	for i := range results[1].Samples { // bidir: the longer time of both ranks
		samples[i] = max(samples[i], theirs[i])
	}
	return r, err
}

func (p *pair) Counters() map[string]uint64 {
	if len(p.sides) == 0 {
		return nil
	}
	sum := p.sides[0].counters()
	counters.Join(sum, p.sides[1].counters())
	return sum
}

func (p *pair) Close() error {
	var errs []error
	for _, s := range p.sides {
		errs = append(errs, s.Close())
	}
	p.sides = nil
	if p.other != nil {
		errs = append(errs, p.other.Close())
		p.other = nil
	}
	C.free(p.link)
	p.link = nil
	return errors.Join(errs...)
}
