package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// fakeTeam returns fixed samples: arm a's iterations last pace[a] ns each.
type fakeTeam struct {
	pace     []int64
	calls    []string // "arm size iterations warm-up first" of each batch
	outcome  func(call, arm int, b transport.Batch, o *worker.Outcome) error
	finishes error
}

func (f *fakeTeam) Run(_ context.Context, arm int, ranks []int, b transport.Batch) (worker.Outcome, error) {
	f.calls = append(f.calls, fmt.Sprintf("%d: size %d, %d after %d from %d on %v", arm, b.Size, b.Iters, b.Warmup, b.First, ranks))
	o := worker.Outcome{
		FirstNS: 10 * f.pace[arm], Skew: 100 * time.Nanosecond, Health: make([]*gpu.Health, 2),
		Checked: uint64(b.Warmup+b.Iters) * b.Size, Counters: map[string]uint64{"opens": uint64(arm + 1)},
	}
	for range b.Iters {
		o.Samples = append(o.Samples, f.pace[arm])
	}
	if f.outcome == nil {
		return o, nil
	}
	err := f.outcome(len(f.calls)-1, arm, b, &o)
	return o, err
}

func (f *fakeTeam) Finish(context.Context) ([]float64, error) {
	f.calls = append(f.calls, "finish")
	return []float64{0.25, 0.75}, f.finishes
}

func us(v float64) *float64 { return &v }

// job is a run of the fake team.
func job(t *testing.T, team *fakeTeam, change func(*Spec)) Job {
	t.Helper()
	p := expand(t, change)
	j := Job{Plan: p, Team: team, Opened: make([]worker.Opened, len(p.Ranks)), Began: time.Now()}
	for a := range p.Arms {
		ranks := []int{0, 1}
		if a > 0 {
			ranks = []int{0}
		}
		j.Ranks = append(j.Ranks, ranks)
		j.Paths = append(j.Paths, []transport.Path{
			{Path: "direct", Engine: "ce", Completion: "receiver", OpenUS: us(20), ExportUS: us(1), ConnectUS: us(300)},
			{Path: "direct", Engine: "ce", Completion: "receiver", OpenUS: us(2), ExportUS: us(10), ConnectUS: us(100)},
		})
	}
	for r := range j.Opened {
		j.Opened[r] = worker.Opened{Device: p.Ranks[r], Clock: "TSC", Overhead: float64(20 + r), CPU: r}
	}
	return j
}

func run(t *testing.T, j Job) record.Document {
	t.Helper()
	d, err := j.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The arms alternate, A B B A A B B A; the numbers of iterations continue, so that no payload repeats; only the first
// block has the full warm-up; and a baseline in one process runs on rank 0 only.
func TestInterleaving(t *testing.T) {
	team := &fakeTeam{pace: []int64{1000, 2000}}
	run(t, job(t, team, func(s *Spec) { withBaseline(s); s.Iters, s.Warmup = 40, 20 }))
	want := []string{
		"0: size 8, 10 after 20 from 0 on [0 1]", "1: size 8, 10 after 20 from 0 on [0]",
		"1: size 8, 10 after 5 from 30 on [0]", "0: size 8, 10 after 5 from 30 on [0 1]",
		"0: size 8, 10 after 5 from 45 on [0 1]", "1: size 8, 10 after 5 from 45 on [0]",
		"1: size 8, 10 after 5 from 60 on [0]", "0: size 8, 10 after 5 from 60 on [0 1]",
		"finish",
	}
	if d := cmp.Diff(want, team.calls); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
}

func TestNoWarmupMeansNone(t *testing.T) {
	team := &fakeTeam{pace: []int64{1000, 2000}}
	run(t, job(t, team, func(s *Spec) { withBaseline(s); s.Iters, s.Warmup = 8, 0 }))
	for _, c := range team.calls {
		if c != "finish" && !strings.Contains(c, "after 0 ") {
			t.Errorf("%s: warms up", c)
		}
	}
}

func TestCell(t *testing.T) {
	team := &fakeTeam{pace: []int64{2000, 1000}}
	j := job(t, team, func(s *Spec) {
		withBaseline(s)
		s.Missing = []Missing{{Name: "nccl", Why: "no libnccl.so.2"}}
		s.Ops, s.Sizes, s.Iters, s.Warmup, s.Window, s.Offset, s.Seed = []transport.Op{transport.OpStream}, []uint64{1000}, 40, 4, 5, 3, 9
	})
	j.Paths[0][0].Knobs = map[string]string{"handle": "memfd"}
	d := run(t, j)
	if len(d.Cells) != 1 {
		t.Fatalf("%d cells", len(d.Cells))
	}
	c := d.Cells[0]
	type figures struct {
		Transport, Path, Engine, Device, Op, Completion string
		Size, Offset                                    uint64
		Ranks, Window, Warmup, Iters, N                 int
		P50, Skew                                       float64
	}
	got := figures{
		c.Transport, c.Path, c.Engine, c.Device, c.Op, c.Completion, c.Size, c.Offset, c.Ranks, c.Window, c.Warmup, c.Iters,
		c.N, c.Lat.P50, c.SkewUS,
	}
	want := figures{"ipc", "direct", "ce", "host", "stream", "receiver", 1000, 3, 2, 5, 4, 40, 40, 2, 0.1}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	if !is(c.BWPerDir, 2.5) || !is(c.BWSum, 2.5) || !near(c.MsgRate, 2.5e6) {
		t.Errorf("%v, %v GB/s, %v messages/s", show(c.BWPerDir), show(c.BWSum), c.MsgRate)
	}
	if len(c.SamplesNS) != 40 {
		t.Errorf("%d samples are kept, want all 40", len(c.SamplesNS))
	}
	// The receiver exports, the sender opens and waits; the first iteration is the very first, in µs.
	if d := cmp.Diff(record.Cold{ExportUS: us(10), OpenUS: us(20), ConnectUS: us(300), FirstUS: us(20)}, c.Cold); d != "" {
		t.Errorf("cold: want (-), got (+):\n%s", d)
	}
	// 40 samples and 4 + 3 × 1 iterations of warm-up, 5 messages each, of the subject only.
	wantCounters := map[string]uint64{"payload_bytes": 47 * 5 * 1000, "checked_bytes": 47 * 1000, "opens": 1}
	if d := cmp.Diff(wantCounters, c.Counters); d != "" {
		t.Errorf("counters: want (-), got (+):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"check": "full", "seed": "9", "handle": "memfd"}, c.Knobs); d != "" {
		t.Errorf("knobs: want (-), got (+):\n%s", d)
	}
	if len(c.Vs) != 2 || c.Vs[0].Name != "memcpy" || c.Vs[0].N != 40 || !is(c.Vs[0].Ratio, 0.5) || !is(c.Vs[0].BWPerDir, 5) {
		t.Errorf("memcpy is twice as fast: want a ratio of 0.5 and 5 GB/s, got %+v", c.Vs)
	}
	if len(c.Vs) == 2 && (c.Vs[1].Name != "nccl" || c.Vs[1].NA != "no libnccl.so.2" || c.Vs[1].Ratio != nil) {
		t.Errorf("what is missing is n/a, got %+v", c.Vs[1])
	}
	if c.Verified == nil || !*c.Verified || c.Invalid != nil || len(c.Warnings) > 0 {
		t.Errorf("verified %v, invalid %v, warnings %v", c.Verified, c.Invalid, c.Warnings)
	}
}

// Without a check verified is null and there is no counter checked_bytes.
func TestUncheckedCell(t *testing.T) {
	d := run(t, job(t, &fakeTeam{pace: []int64{1000, 1000}}, func(s *Spec) { withBaseline(s); s.Check = transport.CheckOff }))
	c := d.Cells[0]
	if _, ok := c.Counters["checked_bytes"]; ok || c.Verified != nil || c.Vs[0].Verified != nil {
		t.Errorf("verified %v, vs %v, counters %v", c.Verified, c.Vs[0].Verified, c.Counters)
	}
}

func TestPingPongIsOneWay(t *testing.T) {
	d := run(t, job(t, &fakeTeam{pace: []int64{1000}}, func(s *Spec) { s.Ops = []transport.Op{transport.OpPingPong} }))
	if c := d.Cells[0]; c.Completion != "oneway" {
		t.Errorf("completion %q, want oneway", c.Completion)
	}
}

// In a ring every rank sends, and rank 0's receiver is rank 1.
func TestRing(t *testing.T) {
	j := job(t, nil, func(s *Spec) {
		s.Ops, s.Sizes, s.Window = []transport.Op{transport.OpBidir}, []uint64{1000}, 1
		s.Devices = []gpu.Info{cpu0, cpu0, cpu0}
	})
	j.Ranks[0] = []int{0, 1, 2}
	j.Paths[0] = append(j.Paths[0], transport.Path{ExportUS: us(99)})
	j.Team = &threeRanks{}
	d := run(t, j)
	c := d.Cells[0]
	if c.Ranks != 3 || !is(c.BWPerDir, 1) || !is(c.BWSum, 3) {
		t.Errorf("%d ranks, %v GB/s each, %v in sum: want 3, 1, 3", c.Ranks, show(c.BWPerDir), show(c.BWSum))
	}
	if c.Cold.ExportUS == nil || *c.Cold.ExportUS != 10 {
		t.Errorf("export %v, want rank 1's", show(c.Cold.ExportUS))
	}
	if len(d.Env.Ranks) != 3 || d.Env.Ranks[2].CPUSeconds != 3 {
		t.Errorf("ranks %+v", d.Env.Ranks)
	}
}

// threeRanks is a fake team of three.
type threeRanks struct{ fakeTeam }

func (f *threeRanks) Run(ctx context.Context, arm int, ranks []int, b transport.Batch) (worker.Outcome, error) {
	f.pace = []int64{1000}
	o, err := f.fakeTeam.Run(ctx, arm, ranks, b)
	o.Health = make([]*gpu.Health, 3)
	return o, err
}

func (f *threeRanks) Finish(context.Context) ([]float64, error) { return []float64{1, 2, 3}, nil }

func TestDocument(t *testing.T) {
	team := &fakeTeam{pace: []int64{1000}, outcome: func(call, _ int, _ transport.Batch, o *worker.Outcome) error {
		o.Skew = time.Duration(call+1) * time.Microsecond
		return nil
	}}
	j := job(t, team, func(s *Spec) { s.Sizes = []uint64{8, 64, 8} })
	j.Opened[1].Warnings = []string{"rank 1: cannot pin"}
	j.Link = gpu.Link{Type: "PCIe", Count: 1, Detail: "x16"}
	var seen []string
	j.Progress = func(i, n int, c Cell) { seen = append(seen, fmt.Sprintf("%d/%d %d", i, n, c.Size)) }
	d := run(t, j)
	if want := []string{"0/3 8", "1/3 64", "2/3 8"}; !slices.Equal(seen, want) {
		t.Errorf("progress %v, want %v", seen, want)
	}
	if d.Schema != record.Schema || !slices.Equal(d.Warnings, []string{"rank 1: cannot pin"}) {
		t.Errorf("schema %q, warnings %q", d.Schema, d.Warnings)
	}
	if d.Env.Link == nil || d.Env.Link.Type != "PCIe" || d.Env.Link.Detail != "x16" {
		t.Errorf("link %+v", d.Env.Link)
	}
	h := d.Env.Harness
	if h.Clock != "TSC" || h.OverheadNS != 21 || h.WorstSkewUS != 3 || h.FirstCellMS <= 0 {
		t.Errorf("harness %+v: want the worst rank's overhead and the worst cell's skew", h)
	}
	if len(d.Env.Ranks) != 2 || d.Env.Ranks[1].CPUSeconds != 0.75 || d.Env.Ranks[1].CPU != 1 {
		t.Errorf("ranks %+v", d.Env.Ranks)
	}
}

// Cells measured before an error are kept.
func TestPartialDocument(t *testing.T) {
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		team  *fakeTeam
		cells int
	}{
		"at once":         {&fakeTeam{outcome: failAt(0, lost)}, 0},
		"in cell 2":       {&fakeTeam{outcome: failAt(1, lost)}, 1},
		"in cell 3":       {&fakeTeam{outcome: failAt(2, lost)}, 2},
		"at the farewell": {&fakeTeam{finishes: lost}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			c.team.pace = []int64{1000}
			d, err := job(t, c.team, func(s *Spec) { s.Sizes = []uint64{8, 16, 32} }).Run(t.Context())
			if !errors.Is(err, lost) || len(d.Cells) != c.cells {
				t.Errorf("%d cells, %v; want %d, %v", len(d.Cells), err, c.cells, lost)
			}
		})
	}
}

func failAt(call int, err error) func(int, int, transport.Batch, *worker.Outcome) error {
	return func(n, _ int, _ transport.Batch, _ *worker.Outcome) error {
		if n == call {
			return err
		}
		return nil
	}
}

// Throttling makes a cell invalid.
func TestThrottled(t *testing.T) {
	team := &fakeTeam{pace: []int64{1000, 1000}, outcome: func(_, arm int, b transport.Batch, o *worker.Outcome) error {
		o.Health[0] = &gpu.Health{}
		if arm == 0 {
			o.Health[1] = &gpu.Health{}
			if b.Size == 64 {
				o.Health[1].Throttle = []string{"hot"}
			}
		}
		return nil
	}}
	d := run(t, job(t, team, func(s *Spec) { withBaseline(s); s.Sizes = []uint64{8, 64, 512} }))
	for i, c := range d.Cells {
		want := c.Size == 64
		if got := c.Invalid != nil; got != want {
			t.Errorf("cell %d, size %d: invalid %v, want %v", i, c.Size, got, want)
		}
	}
	if reason := d.Cells[1].Invalid; reason != nil && (strings.Count(*reason, "hot") != 1 || !strings.Contains(*reason, "rank 1")) {
		t.Errorf("%q: want rank and reason, once", *reason)
	}
	err := Invalid(d)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "1 of 3 cells") {
		t.Errorf("got %v, want 1 of 3 cells", err)
	}
	if err := Invalid(record.Document{Cells: d.Cells[:1]}); err != nil {
		t.Errorf("a good cell: %v", err)
	}
}

// counted is a link with byte counters.
var counted = gpu.Link{Type: "xGMI", Counted: true}

// The link's counters show whether it carried the payload.
func TestLinkCounters(t *testing.T) {
	for name, c := range map[string]struct {
		link    gpu.Link
		percent uint64 // of the payload that the link carried
		invalid bool
	}{
		"all of it":             {counted, 100, false},
		"and protocol":          {counted, 120, false},
		"nearly all":            {counted, 91, false},
		"half went another way": {counted, 50, true},
		"nothing":               {counted, 0, true},
		"not counted, no claim": {gpu.Link{Type: "PCIe"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var tx uint64 = 1 << 40 // from earlier traffic
			counter := func() *gpu.Health { v := tx; return &gpu.Health{LinkTxBytes: &v} }
			var carried uint64
			team := &fakeTeam{pace: []int64{1000, 1000}, outcome: func(_, arm int, b transport.Batch, o *worker.Outcome) error {
				n := uint64(b.Warmup+b.Iters) * uint64(b.Window) * b.Size
				if arm == 0 {
					n = n * c.percent / 100
					carried += n
				}
				tx += n // the baseline's bytes do not count for the subject
				o.Health[0] = counter()
				return nil
			}}
			j := job(t, team, func(s *Spec) { withBaseline(s); s.Sizes, s.Iters = []uint64{1 << 20}, 20 })
			j.Link = c.link
			j.Opened[0].Health = counter()
			cell := run(t, j).Cells[0]
			if got := cell.Invalid != nil; got != c.invalid {
				t.Errorf("invalid %v, want %v (%v)", got, c.invalid, cell.Counters)
			}
			if c.invalid && !strings.HasPrefix(*cell.Invalid, "xGMI carried ") {
				t.Errorf("invalid: %s", *cell.Invalid)
			}
			if got := cell.Counters["link_tx_bytes"]; got != carried {
				t.Errorf("link_tx_bytes %d, want %d", got, carried)
			}
		})
	}
}

// Counters have a resolution of 1 KiB and include protocol overhead: small payloads are not judged.
func TestLinkCountersOfLittle(t *testing.T) {
	var zero uint64
	team := &fakeTeam{pace: []int64{1000}, outcome: func(_, _ int, _ transport.Batch, o *worker.Outcome) error {
		o.Health[0] = &gpu.Health{LinkTxBytes: &zero}
		return nil
	}}
	j := job(t, team, func(s *Spec) { s.Iters = 10 })
	j.Link, j.Opened[0].Health = counted, &gpu.Health{LinkTxBytes: &zero}
	if c := run(t, j).Cells[0]; c.Invalid != nil {
		t.Errorf("invalid: %s", *c.Invalid)
	}
}

// Without link counters the result has no link_tx_bytes.
func TestUnknownLinkCounters(t *testing.T) {
	j := job(t, &fakeTeam{pace: []int64{1000}}, func(s *Spec) { s.Sizes = []uint64{1 << 20} })
	j.Link = counted
	c := run(t, j).Cells[0]
	if _, ok := c.Counters["link_tx_bytes"]; ok || c.Invalid != nil {
		t.Errorf("counters %v, invalid %v", c.Counters, c.Invalid)
	}
}

func TestUntilNotReached(t *testing.T) {
	team := &fakeTeam{pace: []int64{1000}, outcome: func(_, _ int, _ transport.Batch, o *worker.Outcome) error {
		for i := range o.Samples {
			o.Samples[i] = int64(1000 * (1 + i%2))
		}
		return nil
	}}
	d := run(t, job(t, team, func(s *Spec) { s.Until, s.Iters = 0.01, 50 }))
	if w := d.Cells[0].Warnings; len(w) != 1 || !strings.Contains(w[0], "±1 %") || !strings.Contains(w[0], "50 samples") {
		t.Errorf("warnings %q", w)
	}
	calm := run(t, job(t, &fakeTeam{pace: []int64{1000}}, func(s *Spec) { s.Until = 0.01 }))
	if c := calm.Cells[0]; len(c.Warnings) != 0 || c.N >= 1000 {
		t.Errorf("%d samples of no noise at all, warnings %q", c.N, c.Warnings)
	}
}

func TestHost(t *testing.T) {
	h := Host()
	if h.OS == "" || h.Kernel == "" || h.Arch == "" || h.CPU.Count < 1 || h.CPU.NUMANodes < 1 || h.CPU.Model == "" || h.MemoryB == 0 {
		t.Errorf("%+v", h)
	}
}

// A CPU quota that is exhausted during a cell makes only that cell invalid.
func TestThrottledByQuota(t *testing.T) {
	var periods uint64 = 38
	team := &fakeTeam{pace: []int64{1000}}
	team.outcome = func(_, _ int, b transport.Batch, _ *worker.Outcome) error {
		if b.Size == 64 {
			periods++
		}
		return nil
	}
	j := job(t, team, func(s *Spec) { s.Sizes, s.Iters = []uint64{8, 64, 512}, 10 })
	j.Throttled = func() uint64 { return periods }
	for _, c := range run(t, j).Cells {
		n, counted := c.Counters["cpu_throttled_periods"]
		if invalid := c.Invalid != nil; !counted || invalid != (c.Size == 64) || (n > 0) != invalid {
			t.Errorf("size %d: %d periods (%v), invalid %v", c.Size, n, counted, c.Invalid)
		} else if invalid && *c.Invalid != fmt.Sprintf("the control group's quota of CPU time was used up in %d periods", n) {
			t.Errorf("size %d: %s", c.Size, *c.Invalid)
		}
	}
	j.Throttled = nil
	for _, c := range run(t, j).Cells {
		if n, counted := c.Counters["cpu_throttled_periods"]; counted {
			t.Errorf("size %d: %d periods where there is no quota", c.Size, n)
		}
	}
}
