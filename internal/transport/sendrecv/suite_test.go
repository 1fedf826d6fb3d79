package sendrecv_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/sendrecv"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

func TestMain(m *testing.M) {
	transporttest.Main(m, func(options json.RawMessage) (transport.Transport, error) {
		var o scantOptions
		if err := json.Unmarshal(options, &o); err != nil {
			return nil, err
		}
		tr, err := sendrecv.New(o.Options)
		return scant{tr, o}, err
	})
}

// scantOptions may name a rank that runs another batch than the one it is told to.
type scantOptions struct {
	sendrecv.Options
	Less *int         `json:"less,omitempty"`
	Op   transport.Op `json:"op,omitempty"` // "": as told
}

// scant is the transport with such a rank: of a message it knows the first 512 bytes only, of a window the
// first message, and it may do another operation.
type scant struct {
	transport.Transport
	o scantOptions
}

func (s scant) Open(ctx context.Context, env transport.Env) (transport.Endpoint, error) {
	ep, err := s.Transport.Open(ctx, env)
	if err == nil && s.o.Less != nil && *s.o.Less == env.Rank {
		return scantEnd{ep, s.o.Op}, nil
	}
	return ep, err
}

type scantEnd struct {
	transport.Endpoint
	op transport.Op
}

func (e scantEnd) Run(ctx context.Context, b transport.Batch, samples []int64) (transport.Result, error) {
	b.Size, b.Window = min(b.Size, 512), 1
	if e.op != "" {
		b.Op = e.op
	}
	return e.Endpoint.Run(ctx, b, samples)
}

// cpus are n times the first device of the host.
func cpus(t *testing.T, n int) []gpu.Info {
	t.Helper()
	devices := make([]gpu.Info, n)
	for i := range devices {
		devices[i] = transporttest.Require(t, host.Driver(), 1)[0]
	}
	return devices
}

func subject(t *testing.T, devices []gpu.Info, o sendrecv.Options) transporttest.Subject {
	t.Helper()
	s := transporttest.Subject{Arm: transporttest.Arm(t, "sendrecv", o), Devices: devices}
	for r := range devices {
		s.Ranks = append(s.Ranks, r)
	}
	return s
}

// team is workers that run the subject's batches until the test ends.
type team struct {
	ranks int
	run   func(transport.Batch) (outcome, error)
	kill  func(rank int)
	path  transport.Path // of rank 0
}

// outcome is a batch as all ranks saw it.
type outcome struct {
	samples  []int64
	checked  uint64
	engine   string
	counters map[string]uint64
}

func launch(t *testing.T, s transporttest.Subject, region uint64, timeout time.Duration) *team {
	t.Helper()
	workers, err := s.Launch(t, region, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := workers.Close(); err != nil {
			t.Error(err)
		}
	})
	return &team{
		ranks: len(s.Ranks), kill: workers.Kill, path: workers.Paths[0][0],
		run: func(b transport.Batch) (outcome, error) {
			out, err := workers.Run(t.Context(), 0, s.Ranks, b)
			return outcome{samples: out.Samples, checked: out.Checked, engine: out.Engine, counters: out.Counters}, err
		},
	}
}

func batch(op transport.Op, size uint64, window int) transport.Batch {
	return transport.Batch{Op: op, Size: size, Window: window, Warmup: 2, Iters: 5, Seed: 7, Check: transport.CheckFull}
}

// must runs the batch on all ranks: every sample is there, and every byte was compared.
func (w *team) must(t *testing.T, b transport.Batch) outcome {
	t.Helper()
	out, err := w.run(b)
	if err != nil {
		t.Fatalf("%+v: %v", b, err)
	}
	if len(out.samples) != b.Iters {
		t.Errorf("%+v: %d samples", b, len(out.samples))
	}
	for i, ns := range out.samples {
		if ns <= 0 {
			t.Errorf("%+v: sample %d lasted %d ns", b, i, ns)
		}
	}
	senders := uint64(1)
	if b.Op == transport.OpBidir || b.Op == transport.OpPingPong {
		senders = uint64(w.ranks)
	}
	if want := uint64(b.Warmup+b.Iters) * uint64(b.Window) * b.Size * senders; b.Check == transport.CheckFull && out.checked != want {
		t.Errorf("%+v: %d bytes were compared, want %d", b, out.checked, want)
	}
	return out
}

// TestHost runs the suite on every variant, and on every form of a launch. Threads of the CPU play the kernels, so
// blocks are few.
func TestHost(t *testing.T) {
	for name, o := range map[string]sendrecv.Options{
		"auto":            {CTAs: 1},
		"ws":              {Variant: "ws", CTAs: 2, SenderWarps: 2},
		"ws, steps":       {Variant: "ws", CTAs: 2, LLMax: &zero},
		"ws, no overlap":  {Variant: "ws", CTAs: 2, Overlap: "off"},
		"stable":          {Variant: "stable", CTAs: 2},
		"put":             {Variant: "put", CTAs: 2, SenderWarps: 2},
		"put, persistent": {Variant: "put", CTAs: 2, Launch: "persistent"},
		"ll":              {Variant: "ll", CTAs: 2},
		"ll128":           {Variant: "ll128", CTAs: 2},
		"ce":              {Variant: "ce"},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject(t, cpus(t, 2), o)
			s.Graph = o.Launch == ""
			transporttest.Run(t, s)
		})
	}
}

// TestForms runs every operation on every variant in every form, timed by the device and by the host.
func TestForms(t *testing.T) {
	devices := cpus(t, 2)
	for _, variant := range knob.Words(&sendrecv.Options{}, "variant") {
		for _, launched := range knob.Words(&sendrecv.Options{}, "launch") {
			for _, timing := range knob.Words(&sendrecv.Options{}, "timing") {
				o := sendrecv.Options{Variant: variant, Launch: launched, Timing: timing}
				if _, err := sendrecv.New(o); err != nil {
					continue // TestOptions knows which
				}
				t.Run(variant+" "+launched+" "+timing, func(t *testing.T) { everyOp(t, devices, o, 0, 8, 30001, 65536) })
			}
		}
	}
}

// everyOp runs a few messages of those sizes in every operation that the options have.
func everyOp(t *testing.T, devices []gpu.Info, o sendrecv.Options, sizes ...uint64) {
	t.Helper()
	w := launch(t, subject(t, devices, o), 70000*4, 30*time.Second)
	first := uint64(0)
	for _, op := range transport.Ops {
		if op == transport.OpPingPong && o.Variant == "stable" && o.Launch == "persistent" {
			continue // TestRefusals knows why
		}
		for _, size := range sizes {
			b := batch(op, size, 1)
			if op == transport.OpStream || op == transport.OpBidir {
				b.Window = 3
			}
			b.First, first = first, first+7
			w.must(t, b)
		}
	}
}
