package verdict

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// runsOf makes runs of a document's shape from logarithms of µs.
func runsOf(session string, from time.Time, apart time.Duration, values [][]float64) []Run {
	var runs []Run
	for i := range values[0] {
		r := Run{
			Name: fmt.Sprintf("%s/%d", session, i), Session: session, Version: "1.0", Started: from.Add(time.Duration(i) * apart),
			Facts: []Fact{{"CPU", "fast"}},
		}
		for c, of := range values {
			us, size := 10*math.Exp(of[i]), uint64(1024)<<(c%40)+uint64(c/40)
			r.Cells = append(r.Cells, Cell{
				Key: Key{"ipc", "latency", size, 0}, P50: us, P99: 2 * us, Bytes: size,
				Facts: []Fact{{"path", "direct"}, {"knob seed", "1"}},
			})
		}
		runs = append(runs, r)
	}
	return runs
}

var judged = Options{Rule: usual, Alpha: 0.05}

// Sessions differ, and that is no regression: with three and more sessions of base, equal sides are called one in at most
// 5 % of comparisons, whether cells differ between sessions together or each by itself.
func TestSessionsThatDiffer(t *testing.T) {
	trials := trialsOf()
	doubt := 1.645 * math.Sqrt(0.05*0.95/float64(trials))
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		sessions      int
		spread, share float64
		effect        float64
	}{
		{3, 0.01, 0.5, 0.10}, {3, 0.02, 0.5, 0.25}, {3, 0.03, 0.5, 0.4}, {3, 0.03, 1, 0.4}, {3, 0.03, 0, 0.4}, {6, 0.02, 0.5, 0.2}, {12, 0.03, 0.5, 0.2},
	} {
		m := machine{20, 0.03, 0.5, 0, 0}
		g, alarms, found := random(c.sessions), 0, 0
		session := func(number, runs int) []Run {
			common := g.NormFloat64() * c.spread * math.Sqrt(c.share)
			trial := m.trial(runs/2, false, g)
			for i := range trial.Values {
				own := g.NormFloat64() * c.spread * math.Sqrt(1-c.share)
				for j := range trial.Values[i] {
					trial.Values[i][j] += common + own
				}
			}
			return runsOf(fmt.Sprint(number), day.AddDate(0, 0, number), time.Minute, trial.Values)
		}
		for range trials {
			var base, head Side
			for s := range c.sessions {
				base.Runs = append(base.Runs, session(s, 10)...)
			}
			head.Runs = session(c.sessions, 10)
			if r, err := Compare(base, head, judged); err != nil {
				t.Fatal(err)
			} else if r.Verdict == Regress {
				alarms++
			}
			for i := range head.Runs {
				head.Runs[i].Cells[0].P50 *= 1 + c.effect
			}
			if r, err := Compare(base, head, judged); err != nil {
				t.Fatal(err)
			} else if r.Rows[0].Verdict == Regress && r.Rows[0].Size == 1024 {
				found++
			}
		}
		rate := float64(alarms) / float64(trials)
		t.Logf("%d sessions, spread %.0f %%, %.0f %% common: false alarms %.1f %%, one cell %.0f %% slower found %.1f %%",
			c.sessions, 100*c.spread, 100*c.share, 100*rate, 100*c.effect, 100*float64(found)/float64(trials))
		if rate > 0.05+doubt {
			t.Errorf("%+v: false alarms in %.1f %%", c, 100*rate)
		}
	}
}

func TestStudentQuantile(t *testing.T) {
	for _, c := range []struct {
		p       float64
		freedom int
		want    float64
	}{
		{0.05, 1, 6.3138}, {0.05, 2, 2.9200}, {0.05, 3, 2.3534}, {0.05, 9, 1.8331}, {0.025, 4, 2.7764}, {0.001, 10, 4.1437}, {0.0025, 40, 2.9712}, {0.05, 1000, 1.6464},
	} {
		if got := studentQuantile(c.p, c.freedom); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("p %v, %d: %v, want %v", c.p, c.freedom, got, c.want)
		}
	}
}
