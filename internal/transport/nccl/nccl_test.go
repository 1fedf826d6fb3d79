package nccl_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/nccl"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

func TestMain(m *testing.M) {
	transporttest.Main(m, func(options json.RawMessage) (transport.Transport, error) {
		var o nccl.Options
		if err := json.Unmarshal(options, &o); err != nil {
			return nil, err
		}
		return nccl.New(o)
	})
}

// twoGPUs are two GPUs between which NCCL runs. The test is skipped where there are none, or fails when the environment
// variable P2PBENCH_REQUIRE says that they, or NCCL, must be there.
func twoGPUs(t *testing.T) []gpu.Info {
	t.Helper()
	devices := transporttest.Require(t, cuda.New(), 2)[:2]
	tr, err := nccl.New(nccl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Probe(devices); err != nil {
		if slices.Contains(strings.Split(os.Getenv("P2PBENCH_REQUIRE"), ","), "nccl") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return devices
}

// TestHWNCCL runs the suite between two GPUs.
func TestHWNCCL(t *testing.T) {
	devices := twoGPUs(t)
	for _, o := range []nccl.Options{{}, {Register: true}, {Graph: true, CTAs: 4}, {Timing: nccl.TimingDevice}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			transporttest.Run(t, transporttest.Subject{
				Arm: transporttest.Arm(t, "nccl", o), Devices: devices, Ranks: []int{0, 1}, Free: devices[0].Memory * 9 / 10,
				Graph: true,
			})
		})
	}
}

// TestHWLaunches says how many thread blocks NCCL launches for a window, by its own choice and bounded, size by size. How
// many is NCCL's affair: that they are seen, and that the name of what runs is, is ours.
func TestHWLaunches(t *testing.T) {
	devices := twoGPUs(t)
	for _, o := range []nccl.Options{{}, {CTAs: 4}, {Graph: true}, {Graph: true, CTAs: 4}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			s := transporttest.Subject{Arm: transporttest.Arm(t, "nccl", o), Devices: devices, Ranks: []int{0, 1}}
			team, err := s.Launch(t, 8<<20, 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer closing(t, team)
			for _, op := range []transport.Op{transport.OpLatency, transport.OpStream, transport.OpBidir, transport.OpPingPong} {
				for _, size := range []uint64{1 << 10, 64 << 10, 1 << 20, 8 << 20} {
					out, err := team.Run(t.Context(), 0, []int{0, 1}, batch(op, size))
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%s, %d bytes: %d CTAs, %s", op, size, out.Counters["nccl_ctas"], out.Engine)
					if out.Counters["nccl_ctas"] == 0 || strings.Contains(out.Engine, "unknown") {
						t.Errorf("%s, %d bytes: %d CTAs, %s", op, size, out.Counters["nccl_ctas"], out.Engine)
					}
				}
			}
		})
	}
}

// TestHWRing passes windows around a ring of all GPUs.
func TestHWRing(t *testing.T) {
	twoGPUs(t)
	for _, timing := range timings {
		t.Run(timing, func(t *testing.T) {
			s := ring(t, nccl.Options{Timing: timing})
			team, err := s.Launch(t, 8<<20, 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer closing(t, team)
			for _, graph := range []bool{false, true} {
				for _, size := range []uint64{0, 1, 4 << 10, 1<<20 + 1} {
					b := batch(transport.OpBidir, size)
					b.Window, b.Graph = 4, graph
					out, err := team.Run(t.Context(), 0, s.Ranks, b)
					if err != nil {
						t.Fatal(err)
					}
					if want := uint64(b.Warmup+b.Iters) * 4 * size * uint64(len(s.Ranks)); out.Checked != want || len(out.Samples) != b.Iters {
						t.Errorf("%d bytes: %d samples, %d bytes checked, want %d", size, len(out.Samples), out.Checked, want)
					}
				}
			}
		})
	}
}

// TestHWTimings compares what the device says of an operation with what the host says of it: the host's part is in the
// one and not in the other.
func TestHWTimings(t *testing.T) {
	devices := twoGPUs(t)
	const size = 64 << 10
	p50 := map[string]func(transport.Batch) int64{}
	for _, timing := range timings {
		arm := transporttest.Arm(t, "nccl", nccl.Options{Timing: timing})
		team, err := transporttest.Subject{Arm: arm, Devices: devices, Ranks: []int{0, 1}}.Launch(t, size, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer closing(t, team)
		p50[timing] = func(b transport.Batch) int64 {
			out, err := team.Run(t.Context(), 0, []int{0, 1}, b)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(out.Samples)
			return out.Samples[len(out.Samples)/2]
		}
	}
	for _, op := range transport.Ops {
		for _, graph := range []bool{false, true} {
			b := transport.Batch{Op: op, Size: size, Window: 1, Warmup: 20, Iters: 101, Seed: 7, Check: transport.CheckSample, Graph: graph}
			byHost, byDevice := p50["host"](b), p50[nccl.TimingDevice](b)
			t.Logf("%s, graph %v: %d ns by the host, %d ns by the device", op, graph, byHost, byDevice)
			if byDevice <= 0 || 2*byDevice > 3*byHost {
				t.Errorf("%s, graph %v: %d ns by the device, %d ns by the host", op, graph, byDevice, byHost)
			}
		}
	}
}

// ring is a ring of all GPUs.
func ring(t *testing.T, o nccl.Options) transporttest.Subject {
	t.Helper()
	o.Ring = true
	s := transporttest.Subject{Arm: transporttest.Arm(t, "nccl", o), Devices: transporttest.Require(t, cuda.New(), 2)}
	for r := range s.Devices {
		s.Ranks = append(s.Ranks, r)
	}
	return s
}

// timings are the values of Options.Timing.
var timings = knob.Words(&nccl.Options{}, "timing")

func TestOptions(t *testing.T) {
	for timing, ok := range map[string]bool{"": true, "host": true, "device": true, "sundial": false} {
		_, err := nccl.New(nccl.Options{Timing: timing})
		if (err == nil) != ok {
			t.Errorf("timing %q: %v", timing, err)
		}
		if !ok {
			says(t, err, "--timing sundial: use host or device")
		}
	}
	for ctas, ok := range map[int]bool{-1: false, 0: true, 1: true, 64: true, 65: false} {
		if _, err := nccl.New(nccl.Options{CTAs: ctas}); (err == nil) != ok {
			t.Errorf("%d CTAs: %v", ctas, err)
		}
	}
}

// What Probe refuses without looking for the library.
func TestProbe(t *testing.T) {
	cpu, a, b := gpu.Info{Kind: "host"}, gpu.Info{Kind: "cuda", UUID: "GPU-a"}, gpu.Info{Kind: "cuda", UUID: "GPU-b"}
	for _, c := range []struct {
		devices []gpu.Info
		ring    bool
		says    string
	}{
		{[]gpu.Info{a}, false, "1 ranks"},
		{[]gpu.Info{a, b, a}, false, "3 ranks: it runs between two, or around a ring"},
		{[]gpu.Info{cpu, cpu}, false, "a host device"},
		{[]gpu.Info{a, cpu}, false, "a host device"},
		{[]gpu.Info{a, a}, false, "ranks 0 and 1 on GPU-a: NCCL refuses two ranks on one GPU"},
		{[]gpu.Info{a}, true, "1 ranks: a ring has two or more"},
		{[]gpu.Info{a, b, b}, true, "ranks 1 and 2 on GPU-b"},
		{[]gpu.Info{a, b, cpu}, true, "a host device"},
	} {
		tr, err := nccl.New(nccl.Options{Ring: c.ring})
		if err != nil {
			t.Fatal(err)
		}
		err = tr.Probe(c.devices)
		if !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want it to say %q", c.devices, err, c.says)
		}
	}
}
