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
	for _, o := range []nccl.Options{{}, {Register: true}, {Graph: true, CTAs: 4}} {
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

func TestOptions(t *testing.T) {
	for ctas, ok := range map[int]bool{-1: false, 0: true, 1: true, 64: true, 65: false} {
		if _, err := nccl.New(nccl.Options{CTAs: ctas}); (err == nil) != ok {
			t.Errorf("%d CTAs: %v", ctas, err)
		}
	}
}

// What Probe refuses without looking for the library.
func TestProbe(t *testing.T) {
	tr, err := nccl.New(nccl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cpu, a, b := gpu.Info{Kind: "host"}, gpu.Info{Kind: "cuda", UUID: "GPU-a"}, gpu.Info{Kind: "cuda", UUID: "GPU-b"}
	for _, c := range []struct {
		devices []gpu.Info
		says    string
	}{
		{[]gpu.Info{a}, "1 ranks"},
		{[]gpu.Info{a, b, a}, "3 ranks"},
		{[]gpu.Info{cpu, cpu}, "a host device"},
		{[]gpu.Info{a, cpu}, "a host device"},
		{[]gpu.Info{a, a}, "GPU-a: NCCL refuses two ranks on one GPU"},
	} {
		err := tr.Probe(c.devices)
		if !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want it to say %q", c.devices, err, c.says)
		}
	}
}
