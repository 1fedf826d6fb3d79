package sweep

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// A baseline's counters are those of its endpoint in this cell, gauges are current values, and its engine is that of
// its batches.
func TestCountersOfBaselines(t *testing.T) {
	sent := []uint64{0, 0}
	team := &fakeTeam{pace: []int64{1000, 2000}}
	team.outcome = func(_, arm int, b transport.Batch, o *worker.Outcome) error {
		sent[arm] += uint64(b.Warmup + b.Iters)
		o.Counters = map[string]uint64{"messages": sent[arm]}
		if arm == 1 {
			o.Counters["nccl_ctas"], o.Engine = b.Size, "nccl 2.28.9 a_kernel"
		}
		return nil
	}
	j := job(t, team, func(s *Spec) { withBaseline(s); s.Sizes, s.Iters, s.Warmup = []uint64{8, 64}, 40, 4 })
	for _, paths := range j.Paths {
		paths[0].Counters = transport.Counters{{Name: "messages", Kind: transport.Count}, {Name: "nccl_ctas", Kind: transport.Max}}
	}
	j.Paths[1][0].Knobs = map[string]string{"ctas": "4"}
	for i, c := range run(t, j).Cells {
		const messages = 40 + 4 + 3*1 // later blocks have one warm-up iteration
		v := c.Vs[0]
		if d := cmp.Diff(map[string]uint64{"messages": messages, "nccl_ctas": []uint64{8, 64}[i]}, v.Counters); d != "" {
			t.Errorf("cell %d: want (-), got (+):\n%s", i, d)
		}
		if v.Engine != "nccl 2.28.9 a_kernel" || v.Knobs["ctas"] != "4" {
			t.Errorf("cell %d: engine %q, knobs %v", i, v.Engine, v.Knobs)
		}
		if _, theirs := c.Counters["nccl_ctas"]; theirs || c.Counters["messages"] != messages || c.Engine != "ce" {
			t.Errorf("cell %d: the subject has %v, engine %s", i, c.Counters, c.Engine)
		}
	}
}
