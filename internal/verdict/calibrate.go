package verdict

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// CalibrationSchema is the version of [Calibration]; docs/json.md describes it.
const CalibrationSchema = "p2pbench-calibration/1"

// Calibration is the spread of identical runs, and the number of runs that a comparison therefore needs.
type Calibration struct {
	Schema  string     `json:"schema"`
	Version string     `json:"version"`
	Started time.Time  `json:"started"`
	Command []string   `json:"command"`
	Rule    ResultRule `json:"rule"`
	Runs    int        `json:"runs"`
	RunSecs float64    `json:"run_seconds"` // duration of a run
	Trials  int        `json:"trials"`      // simulated comparisons for each number of runs
	Most    int        `json:"most"`        // largest number of runs per side that was tried
	// ToFind is the number of runs per side that detects the effect in any one cell in 90 % of comparisons; ToPass the
	// number that passes equal sides as often. 0: more than were tried.
	ToFind int      `json:"to_find"`
	ToPass int      `json:"to_pass"`
	Use    []string `json:"use"` // the command with enough runs for both; empty: there is none
	Tried  []Tried  `json:"tried"`
	Rows   []Spread `json:"rows"` // the noisiest first
}

// Tried is the outcome of comparisons with that number of runs per side, as shares.
type Tried struct {
	Runs        int     `json:"runs"`
	Found       float64 `json:"found"` // of the effect, in the worst cell
	Passed      float64 `json:"passed"`
	FalseAlarms float64 `json:"false_alarms"`
}

// Spread is the spread of a figure of a cell between runs.
type Spread struct {
	Key
	Metric  string  `json:"metric"`
	Median  float64 `json:"median"`         // µs or GB/s
	Percent float64 `json:"spread_percent"` // standard deviation of the logarithm
	ToFind  int     `json:"to_find"`        // 0: more runs than were tried
}

// NewCalibration simulates comparisons from consecutive runs, of which each takes the given time.
func NewCalibration(runs []Run, each time.Duration, o Options, in Search) (Calibration, error) {
	side := Side{Name: "runs", Runs: runs}
	r := Result{}
	if err := r.match(side, side, o); err != nil {
		return Calibration{}, err
	}
	side.sort()
	t := Trial{Head: make([]bool, len(runs))}
	if err := r.fill(&t, side, side, o); err != nil {
		return Calibration{}, err
	}
	powers, err := Noise(t.Values).Search(o.Rule, o.alpha(), in)
	if err != nil {
		return Calibration{}, err
	}
	c := Calibration{
		Schema: CalibrationSchema, Command: []string{}, Use: []string{}, Runs: len(runs), RunSecs: each.Seconds(), Trials: in.Trials, Most: in.Most,
		Rule: ResultRule{o.alpha(), max(o.Looks, 1), o.Threshold, o.Effect, o.metrics()},
	}
	for _, p := range powers.All {
		c.Tried = append(c.Tried, Tried{p.Runs, p.Worst(), p.Passes, p.FalseAlarms})
	}
	enough := func(wanted func(Power) float64) int {
		p, _ := powers.Enough(wanted)
		return p.Runs
	}
	c.ToFind, c.ToPass = enough(Power.Worst), enough(func(p Power) float64 { return p.Passes })
	for i, row := range r.Rows {
		c.Rows = append(c.Rows, Spread{
			Key: row.Key, Metric: row.Metric, Median: row.Base, Percent: 100 * deviation(t.Values[i]),
			ToFind: enough(func(p Power) float64 { return p.Found[i] }),
		})
	}
	slices.SortStableFunc(c.Rows, func(a, b Spread) int { return cmp.Compare(b.Percent, a.Percent) })
	return c, nil
}

// deviation is the standard deviation of a sample.
func deviation(values []float64) float64 {
	var mean, sum float64
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(max(len(values)-1, 1)))
}
