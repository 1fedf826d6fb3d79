// Package dummy is a transport for tests that no other package refers to. Rank 0 copies each message within its own
// memory and compares it; rank 1 only counts. It shows that a transport's counters, knobs and notes reach the result
// without changes elsewhere.
package dummy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Options are the transport's knobs.
type Options struct {
	Colour string `json:"colour"`
}

// counters describes the endpoint's counters.
var counters = transport.Counters{
	{Name: "messages", Kind: transport.Count},
	{Name: "copies", Kind: transport.Count, Label: "copies made"},
	{Name: "copy_ns", Kind: transport.Count, Unit: transport.Nanoseconds, TimeOf: "copies"},
	{Name: "refusals", Kind: transport.Count, Label: "refusals", OmitZero: true},
	{Name: "held_bytes", Kind: transport.Gauge, Unit: transport.Bytes, Label: "holding"},
	{Name: "largest_bytes", Kind: transport.Max, Unit: transport.Bytes, Label: "largest", Column: "largest"},
	{Name: "rank_bytes", Kind: transport.Min, Unit: transport.Bytes, Label: "least per rank"},
}

type dummy struct{ o Options }

// New makes the transport from its options.
func New(options json.RawMessage) (transport.Transport, error) {
	var d dummy
	if err := json.Unmarshal(options, &d.o); err != nil {
		return nil, fmt.Errorf("dummy: options: %w", err)
	}
	return &d, nil
}

func (*dummy) Name() string { return "dummy" }

func (*dummy) Probe([]gpu.Info) error { return nil }

func (*dummy) Accepts([]gpu.Info, transport.Batch) error { return nil }

func (*dummy) Ranks(n int) []int {
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

func (d *dummy) Open(_ context.Context, env transport.Env) (transport.Endpoint, error) {
	return &endpoint{env: env, path: transport.Path{
		Path: "belt", Engine: "copy", Completion: "receiver", Knobs: map[string]string{"colour": d.o.Colour},
		Counters: counters, Over: []string{"conveyor belt"},
		Notes: []transport.Note{{Label: "belt", Text: "it runs on the spot"}},
	}}, nil
}

type endpoint struct {
	env              transport.Env
	path             transport.Path
	messages, copies uint64
	copyNS, largest  uint64
}

func (*endpoint) Address() []byte { return nil }

func (*endpoint) Connect(context.Context, [][]byte) error { return nil }

func (ep *endpoint) Run(_ context.Context, b transport.Batch, samples []int64) (transport.Result, error) {
	r := transport.Result{Entered: abi.RawNS()}
	ep.largest = b.Size
	messages := uint64(b.Warmup+b.Iters) * uint64(b.Window)
	ep.messages += messages
	if ep.env.Rank != 0 {
		return r, nil
	}
	from, to := bytes.Repeat([]byte{byte(b.Seed)}, int(b.Size)), make([]byte, b.Size)
	for i := range b.Warmup + b.Iters {
		from[0] = byte(b.First) + byte(i)
		begin := time.Now()
		for range b.Window {
			copy(to, from)
		}
		ns := max(time.Since(begin).Nanoseconds(), 1)
		if !bytes.Equal(from, to) {
			return r, &transport.CorruptError{Path: "dummy", Op: b.Op, Size: b.Size, Iteration: b.First + uint64(i)}
		}
		if i == 0 {
			r.FirstNS = ns
		}
		if i >= b.Warmup {
			samples[i-b.Warmup] = ns
		}
		ep.copyNS += uint64(ns)
	}
	ep.copies += messages
	r.Samples, r.Checked = b.Iters, messages*b.Size
	return r, nil
}

func (ep *endpoint) Describe() transport.Path { return ep.path }

func (ep *endpoint) Counters() map[string]uint64 {
	return map[string]uint64{
		"messages": ep.messages, "copies": ep.copies, "copy_ns": ep.copyNS, "refusals": 0,
		"held_bytes": 1 << 20, "largest_bytes": ep.largest, "rank_bytes": 4096 << ep.env.Rank,
	}
}

func (*endpoint) Close() error { return nil }
