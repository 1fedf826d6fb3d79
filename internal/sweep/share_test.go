package sweep

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// slowTeam makes every batch last, in the time of the synctest bubble.
type slowTeam struct {
	cold    time.Duration // additional time of an arm's first iteration
	block   time.Duration // fixed time of a batch
	each    time.Duration // time of an iteration
	untimed time.Duration // … and so much more outside its sample
	started map[int]bool
	// Of all arms.
	messages int
	busy     time.Duration
}

func (s *slowTeam) Run(_ context.Context, arm int, ranks []int, b transport.Batch) (worker.Outcome, error) {
	if s.started == nil {
		s.started = map[int]bool{}
	}
	if !s.started[arm] {
		s.started[arm] = true
		time.Sleep(s.cold)
	}
	if b.Iters < 1 || b.Warmup < 0 || len(ranks) == 0 {
		return worker.Outcome{}, errors.New("a batch of nothing")
	}
	all := b.Warmup + b.Iters
	time.Sleep(s.block + time.Duration(all)*(s.each+s.untimed))
	o := worker.Outcome{Health: make([]*gpu.Health, 2), FirstNS: int64(s.each)}
	for i := range b.Iters { // a spread with which a precision of 1 % takes several blocks
		o.Samples = append(o.Samples, int64(s.each)*(1000+int64(i*7919%201)-100)/1000)
	}
	s.messages += all
	s.busy += time.Duration(b.Iters) * s.each
	return o, nil
}

func (s *slowTeam) Finish(context.Context) ([]float64, error) { return []float64{0, 0}, nil }

// Cells that end by duration or precision spend most of their time in samples: arms warm up once, and blocks are long
// compared with their fixed cost.
func TestTimeGoesIntoSamples(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for name, c := range map[string]struct {
		team slowTeam
		// Minimum share of the messages, and of the time, in samples.
		share, time float64
	}{
		"small messages":             {slowTeam{each: us, block: ms, cold: 20 * ms}, 0.99, 0.9},
		"medium messages":            {slowTeam{each: 100 * us, block: ms, cold: 20 * ms}, 0.99, 0.9},
		"large messages":             {slowTeam{each: 5 * ms, block: 20 * ms, cold: 50 * ms}, 0.9, 0.85},
		"a long trial at the start":  {slowTeam{each: 200 * us, block: ms, cold: 3 * time.Second}, 0.99, 0.5},
		"much besides every message": {slowTeam{each: 20 * us, untimed: 400 * us, block: 2 * ms}, 0.99, 0.04},
		"much besides every block":   {slowTeam{each: 300 * us, block: 30 * ms}, 0.99, 0.8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				team := c.team
				d, warmup, took := fill(t, &team, func(s *Spec) { s.Duration = 4 * time.Second })
				if warm := team.messages - d.Cells[0].N; warm != warmup {
					t.Errorf("%d messages were no samples, want the warm-up of %d once", warm, warmup)
				}
				if got := float64(d.Cells[0].N) / float64(team.messages); got < c.share {
					t.Errorf("%d samples of %d messages, %.3f: want %v", d.Cells[0].N, team.messages, got, c.share)
				}
				if got := float64(team.busy) / float64(took); got < c.time {
					t.Errorf("%v of %v in samples, %.3f: want %v", team.busy, took, got, c.time)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				team := c.team
				d, warmup, _ := fill(t, &team, func(s *Spec) { s.Until = 0.001 })
				if warm := team.messages - d.Cells[0].N; warm != warmup {
					t.Errorf("until: %d messages were no samples, want the warm-up of %d once", warm, warmup)
				}
			})
			synctest.Test(t, func(t *testing.T) { // other arms displace the caches
				team := c.team
				d, _, _ := fill(t, &team, func(s *Spec) { withBaseline(s); s.Duration = 4 * time.Second })
				n := d.Cells[0].N + d.Cells[0].Vs[0].N
				if got := float64(n) / float64(team.messages); got < 0.8 {
					t.Errorf("two arms: %d samples of %d messages, %.3f: want 0.8", n, team.messages, got)
				}
			})
		})
	}
}

// fill measures one cell and returns its warm-up and duration.
func fill(t *testing.T, team *slowTeam, change func(*Spec)) (record.Document, int, time.Duration) {
	t.Helper()
	j := job(t, nil, func(s *Spec) { s.Sizes = []uint64{1 << 20}; change(s) })
	j.Team = team
	begin := time.Now()
	d := run(t, j)
	return d, j.Plan.Cells[0].Warmup, time.Since(begin)
}

// A cell lasts its duration, without the warm-up and to the precision of a block.
func TestDurationIsKept(t *testing.T) {
	const want = 2 * time.Second
	for _, each := range []time.Duration{time.Microsecond, time.Millisecond, 70 * time.Millisecond, 300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			team := &slowTeam{each: each, cold: time.Second}
			_, warmups, took := fill(t, team, func(s *Spec) { s.Duration = want })
			took -= team.cold + time.Duration(warmups)*each
			if took < want || took > want+want/10+each {
				t.Errorf("iterations of %v: measured for %v after the warm-up, want %v", each, took, want)
			}
		})
	}
}
