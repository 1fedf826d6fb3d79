package sweep

import (
	"context"
	"runtime"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// greedyTeam returns the same samples for every batch and records the parent's heap.
type greedyTeam struct {
	samples []int64
	taken   int
	held    uint64
}

func (g *greedyTeam) Run(context.Context, int, []int, transport.Batch) (worker.Outcome, error) {
	g.held = max(g.held, heap())
	g.taken += len(g.samples)
	return worker.Outcome{Samples: g.samples, Health: make([]*gpu.Health, 2)}, nil
}

func (g *greedyTeam) Finish(context.Context) ([]float64, error) { return make([]float64, 2), nil }

// heap returns the bytes in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The parent's memory does not grow with the number of samples, as with -D or a large -n: it keeps values and counts.
func TestManySamplesInLittleMemory(t *testing.T) {
	const values, blocks = 1000, 50
	team := &greedyTeam{samples: make([]int64, record.MaxRawSamples)}
	for i := range team.samples {
		team.samples[i] = int64(i % values)
	}
	j := job(t, nil, func(s *Spec) { s.Iters = blocks * len(team.samples) })
	j.Team, j.Plan.Cells[0].Rounds = team, blocks
	before := heap()
	c := run(t, j).Cells[0]
	oneByOne := uint64(8 * c.N)
	if team.held > before+oneByOne/10 {
		t.Errorf("%d bytes are held for %d samples, which take %d one by one", team.held-before, c.N, oneByOne)
	}
	if c.N != team.taken || len(c.SamplesNS) != 0 || len(c.Histogram) != values {
		t.Errorf("%d samples of %d, %d one by one, %d bins", c.N, team.taken, len(c.SamplesNS), len(c.Histogram))
	}
	for _, b := range c.Histogram {
		if b.Count != int64(team.taken/values) {
			t.Errorf("%d samples of %d ns, want %d", b.Count, b.NS, team.taken/values)
		}
	}
}
