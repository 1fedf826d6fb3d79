package sweep

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

var (
	cpu0 = gpu.Info{Kind: "host", Name: "CPU memory", UUID: "host-0"}
	gpu0 = gpu.Info{Kind: "cuda", Name: "GPU", UUID: "GPU-0"}
	gpu1 = gpu.Info{Kind: "cuda", Index: 1, Name: "GPU", UUID: "GPU-1"}
)

// spec returns a complete request, modified by change.
func spec(change func(*Spec)) Spec {
	s := Spec{
		Subject: worker.Arm{Name: "ipc", Transport: "ipc"}, Devices: []gpu.Info{cpu0, cpu0},
		Ops: []transport.Op{transport.OpLatency}, Sizes: []uint64{8}, Warmup: -1, Check: transport.CheckFull, Seed: 1,
	}
	if change != nil {
		change(&s)
	}
	return s
}

func withBaseline(s *Spec) { s.Baselines = []worker.Arm{{Name: "memcpy", Transport: "memcpy"}} }

func expand(t *testing.T, change func(*Spec)) Plan {
	t.Helper()
	p, err := Expand(spec(change))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// shape holds the fields of a cell that this package decides.
type shape struct {
	Op                            transport.Op
	Size                          uint64
	Window, Iters, Warmup, Rounds int
}

func shapes(p Plan) (out []shape) {
	for _, c := range p.Cells {
		out = append(out, shape{c.Op, c.Size, c.Window, c.Iters, c.Warmup, c.Rounds})
	}
	return out
}

func TestExpand(t *testing.T) {
	stream := func(size uint64, change func(*Spec)) func(*Spec) {
		return func(s *Spec) {
			s.Ops, s.Sizes = []transport.Op{transport.OpStream}, []uint64{size}
			if change != nil {
				change(s)
			}
		}
	}
	onGPU := func(s *Spec) { s.Devices = []gpu.Info{gpu0, gpu1} }
	for name, c := range map[string]struct {
		change func(*Spec)
		want   []shape
	}{
		"operations, then sizes, in the order asked for": {
			func(s *Spec) {
				s.Ops = []transport.Op{transport.OpPingPong, transport.OpBidir, transport.OpLatency}
				s.Sizes = []uint64{64, 0}
			},
			[]shape{
				{"pingpong", 64, 1, 1000, 50, 1},
				{"pingpong", 0, 1, 1000, 50, 1},
				{"bidir", 64, 8, 1000, 50, 1},
				{"bidir", 0, 8, 1000, 50, 1},
				{"latency", 64, 1, 1000, 50, 1},
				{"latency", 0, 1, 1000, 50, 1},
			},
		},
		"latency knows no window":   {func(s *Spec) { s.Window = 32 }, []shape{{"latency", 8, 1, 1000, 50, 1}}},
		"default window, whole":     {stream(32<<20, nil), []shape{{"stream", 32 << 20, 8, 10, 2, 1}}},
		"window by bytes":           {stream(64<<20, nil), []shape{{"stream", 64 << 20, 4, 10, 2, 1}}},
		"one message always":        {stream(1<<30, nil), []shape{{"stream", 1 << 30, 1, 10, 2, 1}}},
		"window by the user":        {stream(1<<30, func(s *Spec) { s.Window = 6 }), []shape{{"stream", 1 << 30, 6, 10, 2, 1}}},
		"more on a GPU":             {stream(256<<20, onGPU), []shape{{"stream", 256 << 20, 8, 10, 2, 1}}},
		"capped on a GPU too":       {stream(1<<30, onGPU), []shape{{"stream", 1 << 30, 2, 10, 2, 1}}},
		"another usual window":      {stream(64, func(s *Spec) { s.DefaultWindow = 20 }), []shape{{"stream", 64, 20, 1000, 50, 1}}},
		"… fewer when large":        {stream(64<<20, func(s *Spec) { s.DefaultWindow = 20 }), []shape{{"stream", 64 << 20, 4, 10, 2, 1}}},
		"… and the user's":          {stream(64<<20, func(s *Spec) { s.DefaultWindow, s.Window = 20, 20 }), []shape{{"stream", 64 << 20, 20, 10, 2, 1}}},
		"… and no fewer than these": {stream(64<<20, func(s *Spec) { s.DefaultWindow, s.MinWindow = 2048, 16 }), []shape{{"stream", 64 << 20, 16, 10, 2, 1}}},
		"… as long as it can":       {stream(1<<20, func(s *Spec) { s.DefaultWindow, s.MinWindow = 2048, 16 }), []shape{{"stream", 1 << 20, 256, 10, 2, 1}}},
		"… beyond a window's bound": {stream(8, func(s *Spec) { s.DefaultWindow = MaxSlidingWindow }), []shape{{"stream", 8, MaxSlidingWindow, 100, 5, 1}}},
		"… and none for latency":    {func(s *Spec) { s.DefaultWindow, s.MinWindow = 2048, 16 }, []shape{{"latency", 8, 1, 1000, 50, 1}}},
		"iterations by bytes":       {func(s *Spec) { s.Sizes = []uint64{16 << 20} }, []shape{{"latency", 16 << 20, 1, 128, 6, 1}}},
		"iterations by window":      {stream(1<<20, nil), []shape{{"stream", 1 << 20, 8, 256, 12, 1}}},
		"iterations by messages":    {stream(8, func(s *Spec) { s.DefaultWindow = 2048 }), []shape{{"stream", 8, 2048, 128, 6, 1}}},
		"more iterations on a GPU": {
			func(s *Spec) { onGPU(s); s.Sizes = []uint64{64 << 20} }, []shape{{"latency", 64 << 20, 1, 256, 12, 1}},
		},
		"iterations by the user": {func(s *Spec) { s.Iters = 7 }, []shape{{"latency", 8, 1, 7, 2, 1}}},
		"warm-up by the user":    {func(s *Spec) { s.Warmup = 0 }, []shape{{"latency", 8, 1, 1000, 0, 1}}},
		"rounds with a baseline": {withBaseline, []shape{{"latency", 8, 1, 1000, 50, 4}}},
		"no more rounds than iterations": {
			func(s *Spec) { withBaseline(s); s.Iters = 3 }, []shape{{"latency", 8, 1, 3, 2, 3}},
		},
		"a duration":             {func(s *Spec) { s.Duration = time.Second }, []shape{{"latency", 8, 1, 1000, 50, 1}}},
		"a precision":            {func(s *Spec) { s.Until = 0.01 }, []shape{{"latency", 8, 1, 100000, 50, 1}}},
		"a precision and a most": {func(s *Spec) { s.Until, s.Iters = 0.01, 500 }, []shape{{"latency", 8, 1, 500, 25, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, shapes(expand(t, c.change))); d != "" {
				t.Errorf("want (-), got (+):\n%s", d)
			}
		})
	}
}

func TestExpandPassesOn(t *testing.T) {
	p := expand(t, func(s *Spec) {
		s.Offset, s.Graph, s.Seed, s.Check, s.Duration = 13, true, 99, transport.CheckSample, time.Second
		s.Missing = []Missing{{Name: "nccl", Why: "no library"}}
		withBaseline(s)
	})
	c := p.Cells[0]
	if c.Offset != 13 || !c.Graph || c.Seed != 99 || c.Check != transport.CheckSample || c.Duration != time.Second {
		t.Errorf("%+v", c)
	}
	if len(p.Arms) != 2 || p.Arms[0].Name != "ipc" || p.Arms[1].Name != "memcpy" {
		t.Errorf("arms %+v: want the subject, then the baseline", p.Arms)
	}
	if len(p.Missing) != 1 || p.Missing[0].Name != "nccl" {
		t.Errorf("missing %+v", p.Missing)
	}
}

// The region is that of the largest batch.
func TestExpandRegion(t *testing.T) {
	p := expand(t, func(s *Spec) {
		s.Ops, s.Sizes = []transport.Op{transport.OpLatency, transport.OpStream}, []uint64{5000, 1000}
		s.Window, s.Offset = 4, 100
	})
	if want := uint64(100 + 4*5120); p.Region != want { // messages stand 512 bytes apart
		t.Errorf("region %d, want %d", p.Region, want)
	}
	for _, c := range p.Cells {
		if r := c.Batch().Region(); r > p.Region {
			t.Errorf("%s %d needs %d bytes of %d", c.Op, c.Size, r, p.Region)
		}
	}
	if want := []uint64{2 * p.Region, 2 * p.Region}; cmp.Diff(want, p.Bytes) != "" {
		t.Errorf("memory %v, want %v: a source and an inbox for each rank", p.Bytes, want)
	}
}

func TestExpandRefuses(t *testing.T) {
	for why, change := range map[string]func(*Spec){
		"no operation: use some of":                  func(s *Spec) { s.Ops = nil },
		`no operation "sideways"`:                    func(s *Spec) { s.Ops = append(s.Ops, "sideways") },
		"no message size":                            func(s *Spec) { s.Sizes = nil },
		"-1 iterations: want 1 to 268435456":         func(s *Spec) { s.Iters = -1 },
		"-2 warm-up iterations: want 0 to 268435456": func(s *Spec) { s.Warmup = -2 },
		"window -1: want 1 to 4096":                  func(s *Spec) { s.Window = -1 },
		"window 4097: want 1 to 4096":                func(s *Spec) { s.Window = 4097 },
		"stop at an interval of 1":                   func(s *Spec) { s.Until = 1 },
		"stop at an interval of -0.1":                func(s *Spec) { s.Until = -0.1 },
		"stop at an interval of NaN":                 func(s *Spec) { s.Until = math.NaN() },
		"a number of iterations and a duration":      func(s *Spec) { s.Duration, s.Iters = time.Second, 5 },
		"a duration and a target precision: give ":   func(s *Spec) { s.Duration, s.Until = time.Second, 0.01 },
	} {
		if _, err := Expand(spec(change)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want %q", err, why)
		}
	}
}

// A plan is data: it can be encoded and decoded, and the same request gives the same plan.
func TestPlanIsData(t *testing.T) {
	p := expand(t, withBaseline)
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back Plan
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(p, back); d != "" {
		t.Errorf("written (-), read (+):\n%s", d)
	}
	if d := cmp.Diff(p, expand(t, withBaseline)); d != "" {
		t.Errorf("the same request gives another plan:\n%s", d)
	}
}

func TestFits(t *testing.T) {
	has := func(n uint64) func(gpu.Info) (uint64, error) {
		return func(gpu.Info) (uint64, error) { return n, nil }
	}
	shared := expand(t, func(s *Spec) { s.Sizes = []uint64{1 << 30} })
	apart := expand(t, func(s *Spec) { s.Sizes, s.Devices = []uint64{1 << 30}, []gpu.Info{gpu0, gpu1} })
	compared := expand(t, func(s *Spec) { s.Sizes = []uint64{1 << 30}; withBaseline(s) })
	for _, c := range []struct {
		name string
		plan Plan
		need uint64
	}{
		{"both ranks on one device need twice as much", shared, 4 << 30},
		{"each on its own", apart, 2 << 30},
		{"a baseline has buffers too", compared, 8 << 30},
	} {
		if err := c.plan.Fits(has(c.need)); err != nil {
			t.Errorf("%s: %d bytes are enough, got %v", c.name, c.need, err)
		}
		if err := c.plan.Fits(has(c.need - 1)); err == nil {
			t.Errorf("%s: a byte less than %d is too little", c.name, c.need)
		}
	}
	err := shared.Fits(has(3 << 29))
	want := "rank 0: CPU memory needs 4.0 GiB for sizes up to 1G, and has 1.5 GiB: use smaller sizes or a smaller --window"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	err = apart.Fits(func(i gpu.Info) (uint64, error) { return map[string]uint64{"GPU-0": 1 << 40}[i.UUID], nil })
	if err == nil || !strings.HasPrefix(err.Error(), "rank 1: GPU needs 2.0 GiB") {
		t.Errorf("got %v, want the rank whose device is too small", err)
	}
	lost := errors.New("no such device")
	if err := shared.Fits(func(gpu.Info) (uint64, error) { return 0, lost }); !errors.Is(err, lost) {
		t.Errorf("got %v, want %v", err, lost)
	}
}

// A request whose sum overflows is refused or does not fit.
func TestNothingAbsurdFits(t *testing.T) {
	const most = math.MaxInt64 // ParseSize gives no more
	for _, size := range []uint64{1 << 60, 1 << 61, 1 << 62, most / 2, most - 511, most - 1, most} {
		for _, window := range []int{0, 1, 2, 4, 16, 4096} {
			for _, offset := range []uint64{0, 1, 512, most} {
				for _, baseline := range []func(*Spec){func(*Spec) {}, withBaseline} {
					p, err := Expand(spec(func(s *Spec) {
						s.Ops, s.Sizes = []transport.Op{transport.OpLatency, transport.OpStream}, []uint64{size}
						s.Window, s.Offset = window, offset
						baseline(s)
					}))
					if err == nil {
						err = p.Fits(func(gpu.Info) (uint64, error) { return 64 << 30, nil })
					}
					if err == nil {
						t.Fatalf("size %d, window %d, offset %d: fits 64 GiB, needs %v", size, window, offset, p.Bytes)
					}
				}
			}
		}
	}
}
