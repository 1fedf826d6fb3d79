package sendrecv

/*
#include "sendrecv.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/autotune"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/loop"
)

// maxIterations leaves room for the barriers of trials, which are counted together with those of the batch.
const maxIterations = math.MaxInt32

// Run runs one batch. If its shape is new and has several candidate plans, all ranks try them first.
func (ep *endpoint) Run(_ context.Context, b transport.Batch, samples []int64) (transport.Result, error) {
	b.Graph = b.Graph || ep.o.Launch == "graph"
	if err := ep.accepts(b, samples); err != nil {
		return transport.Result{}, fmt.Errorf("sendrecv: %w", err)
	}
	p, err := ep.choose(b)
	if err != nil {
		return transport.Result{}, fmt.Errorf("sendrecv: %w", err)
	}
	if err := ep.makeSamples(b); err != nil {
		return transport.Result{}, fmt.Errorf("sendrecv: %w", err)
	}
	r, err := ep.run(b, p, samples, false)
	r.Engine = p.String()
	if err == nil {
		ep.count(b, p)
	}
	return r, err
}

// accepts refuses a batch that cannot be run, before anything is started.
func (ep *endpoint) accepts(b transport.Batch, samples []int64) error {
	if !ep.ready || ep.end == nil {
		return fmt.Errorf("run: not connected: %w", abi.ErrInvalid)
	}
	if ep.end.broken != 0 {
		return fmt.Errorf("run: an earlier batch failed: %w", abi.ErrInvalid)
	}
	if _, err := loop.Prepare(b, ep.region(), ep.records(), samples); err != nil {
		return err
	}
	if b.Warmup+b.Iters > maxIterations {
		return fmt.Errorf("%d iterations, at most %d: %w", b.Warmup+b.Iters, maxIterations, abi.ErrInvalid)
	}
	if err := ep.o.accepts(b, ep.limits); err != nil {
		return fmt.Errorf("%w: %w", err, abi.ErrInvalid)
	}
	return nil
}

// accepts refuses a batch that devices with limits l cannot run.
func (o Options) accepts(b transport.Batch, l limits) error {
	b.Graph = b.Graph || o.Launch == "graph"
	switch {
	case o.Ring && b.Op != transport.OpBidir:
		return fmt.Errorf("%s in a ring: all ranks send at the same time: use bidir, or leave out --ring", b.Op)
	case b.Graph && o.Launch == "persistent":
		return errors.New("a graph with a persistent kernel, which is launched once: leave out --cudagraph or --launch persistent")
	case b.Graph && o.Variant == "ce" && !l.recordedWords:
		return fmt.Errorf("ce: this device cannot record the words that ranks wait for as a graph: use --launch stream: %w", gpu.ErrUnsupported)
	case b.Op == transport.OpPingPong && o.Launch == "persistent" && o.Variant == "stable":
		return errors.New("pingpong with a persistent stable kernel: its sending blocks do not learn when its receiving blocks are done: use --launch stream, or --variant ws")
	case o.Launch == "persistent" && lineRoom(o.Variant) > 0 && b.Size > o.largestResident(l):
		return fmt.Errorf("%s: a persistent kernel carries messages of at most %d bytes with this number of CTAs, not %d: use more --ctas, or --variant put",
			o.Variant, o.largestResident(l), b.Size)
	case len(o.candidates(shapeOf(b), l)) == 0:
		return fmt.Errorf("a window of %d messages of %d bytes is more than the %d commands that a queue can hold until all ranks are ready: use --launch graph, --launch persistent or --timing host",
			b.Window, b.Size, maxCommandsBehindWait)
	}
	return nil
}

// largestResident is the largest message that a variant with lines carries in one launch.
func (o Options) largestResident(l limits) uint64 {
	ctas := o.CTAs
	if ctas == 0 {
		ctas = min(l.ctas, maxLLCTAs)
	}
	return plan{variant: o.Variant, ctas: ctas}.launchBytes()
}

// region is the size of the source and of the inbox, in bytes.
func (ep *endpoint) region() uint64 { return min(ep.source.Size(), ep.layout.Bytes-ep.layout.Inbox) }

// records reports whether the queue can record a window.
func (ep *endpoint) records() bool { return ep.streamWait.Queue(0).Table().Records() }

// makeSamples makes room for the samples that a resident kernel takes in a batch.
func (ep *endpoint) makeSamples(b transport.Batch) error {
	bytes := 8 * (b.Warmup + b.Iters)
	if ep.o.Launch != "persistent" || ep.samples != nil && ep.samples.Len() >= bytes {
		return nil
	}
	if err := ep.bind(); err != nil {
		return err
	}
	old := ep.samples
	ep.samples, ep.end.at.samples = nil, nil
	if err := old.Close(); err != nil {
		return fmt.Errorf("samples of the previous batch: %w", err)
	}
	var err error
	if ep.samples, err = loop.Pin(ep.engine, ep.memory, bytes); err != nil {
		return fmt.Errorf("samples: %w", err)
	}
	ep.end.at.samples = (*C.sr_u64)(ep.samples.At(0))
	return nil
}

var variants = map[string]C.uint32_t{
	"ws": C.SENDRECV_WS, "stable": C.SENDRECV_STABLE, "put": C.SENDRECV_PUT, "ll": C.SENDRECV_LL, "ll128": C.SENDRECV_LL128,
	"ce": C.SENDRECV_CE,
}

func (ep *endpoint) run(b transport.Batch, p plan, samples []int64, trial bool) (transport.Result, error) {
	call, err := loop.Prepare(b, ep.region(), ep.records(), samples)
	if err != nil {
		return transport.Result{}, err
	}
	flag := map[bool]C.uint32_t{true: 1}
	c := C.struct_sendrecv_plan{
		variant: variants[p.variant], bulk: flag[p.bulk], ctas: C.uint32_t(p.ctas),
		sender_warps: C.uint32_t(p.senderWarps), receiver_warps: C.uint32_t(p.receiverWarps),
		stages: C.uint32_t(p.stages), stride: C.uint64_t(p.stride), launch_bytes: C.uint64_t(p.launchBytes()),
		in_lines: flag[p.inLines], overlap: flag[ep.o.Overlap == "on" && ep.o.Launch != "persistent"],
		resident: flag[ep.o.Launch == "persistent"], host_timed: flag[ep.o.Timing == "host"], trial: flag[trial],
		burst: C.uint32_t(ep.burst(b, p)),
	}
	C.p2p_sendrecv_run(ep.end, (*C.struct_p2p_batch)(call.Batch()), &c, (*C.int64_t)(unsafe.SliceData(samples)),
		(*C.struct_p2p_result)(call.Result()), (*C.struct_p2p_error)(call.Error()))
	return call.Outcome("sendrecv " + p.String())
}

// burst is the number of back-to-back round trips: 1 with several blocks, each of which would continue by itself.
func (ep *endpoint) burst(b transport.Batch, p plan) int {
	if ep.o.Launch != "persistent" || b.Op != transport.OpPingPong || p.blocks() > 1 {
		return 1
	}
	room := (ep.region() - b.Offset) / max(b.Stride(), 1)
	return int(min(max(room, 1), uint64(ep.o.Burst)))
}

// count adds the batch to the counters of this rank.
func (ep *endpoint) count(b transport.Batch, p plan) {
	windows := uint64(b.Warmup + b.Iters)
	c := p.cost(b.Size, b.Window)
	both := b.Op == transport.OpBidir || b.Op == transport.OpPingPong
	if both || ep.env.Rank == 0 {
		ep.messages += windows * uint64(b.Window)
		ep.steps += windows * c.steps
		ep.fences += windows * c.sent
	}
	if both || ep.env.Rank != 0 {
		ep.fences += windows * c.received
	}
	ep.last, ep.lastBurst = p, 0
	if ep.o.Launch == "persistent" && b.Op == transport.OpPingPong {
		ep.lastBurst = uint64(ep.burst(b, p))
	}
}

// choose returns the plan for the batch.
func (ep *endpoint) choose(b transport.Batch) (plan, error) {
	s := shapeOf(b)
	if p, ok := ep.chosen[s]; ok {
		return p, nil
	}
	plans := ep.o.candidates(s, ep.limits)
	best := 0
	if len(plans) > 1 {
		var err error
		if best, err = ep.try(b, plans, trialWindows(s)); err != nil {
			ep.end.broken = 1
			return plan{}, fmt.Errorf("trial: %w", err)
		}
	}
	ep.chosen[s] = plans[best]
	return plans[best], nil
}

// try returns the index of the fastest plan. Each plan runs the given number of windows in each of two rounds; a
// window's time is that of the rank on which it takes longest.
func (ep *endpoint) try(b transport.Batch, plans []plan, windows int) (best int, err error) {
	const rounds = 2
	b.Check, b.Warmup, b.Iters = transport.CheckOff, rounds, windows
	if rounds*windows*len(plans) > C.SENDRECV_MAX_VALUES {
		return 0, fmt.Errorf("%d times to compare, at most %d", rounds*windows*len(plans), C.SENDRECV_MAX_VALUES)
	}
	if err := ep.makeSamples(b); err != nil {
		return 0, err
	}
	contest := autotune.Contest{
		Candidates: len(plans), First: autotune.Rounds{Most: rounds}, Share: ep.maxTimes,
		Turn: func(i int) ([]uint64, error) {
			samples, times := make([]int64, windows), make([]uint64, windows) // 0 on a rank that takes none
			_, err := ep.run(b, plans[i], samples, true)
			for w, ns := range samples {
				times[w] = uint64(ns)
			}
			return times, err
		},
	}
	best, _, err = contest.Fastest()
	var f *autotune.Failure
	if errors.As(err, &f) {
		err = fmt.Errorf("%s: %w", plans[f.Candidate], f.Err)
	}
	return best, err
}

// maxTimes replaces each time with the longest of all ranks.
func (ep *endpoint) maxTimes(times [][]uint64) error {
	var values []C.uint64_t
	for _, t := range times {
		for _, ns := range t {
			values = append(values, C.uint64_t(ns))
		}
	}
	if err := ep.allreduceMax(values); err != nil {
		return err
	}
	for _, t := range times {
		for w := range t {
			t[w] = uint64(values[w])
		}
		values = values[len(t):]
	}
	return nil
}
