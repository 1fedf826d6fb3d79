package verdict

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// trialsOf is how many comparisons a simulation makes. P2PBENCH_LONG=1: as many as a published rate takes.
func trialsOf() int {
	switch {
	case os.Getenv("P2PBENCH_LONG") == "1":
		return 1000
	case testing.Short():
		return 15
	}
	return 40
}

// machine makes logarithms of figures: runs of a log-normal spread, of which a share is common to all cells.
type machine struct {
	cells         int
	spread, share float64
	outliers      float64 // probability that a run is 10 to 40 % slower
	drift         float64 // spread between blocks
}

func random(seed int) *rand.Rand { return rand.New(rand.NewPCG(7, uint64(seed))) }

// trial has so many runs a side; the head of its first cells is slower by their effects, which are logarithms.
func (m machine) trial(runs int, inBlocks bool, g *rand.Rand, effects ...float64) Trial {
	var t Trial
	if inBlocks {
		t.Head, t.Blocks = InBlocks(runs / 2)
	} else {
		t.Head = append(make([]bool, runs), slices.Repeat([]bool{true}, runs)...)
	}
	t.Values = make([][]float64, m.cells)
	drift := 0.0
	for run := range t.Head {
		if run%BlockSize == 0 {
			drift = m.drift * g.NormFloat64()
		}
		common := drift + m.spread*math.Sqrt(m.share)*g.NormFloat64()
		if g.Float64() < m.outliers {
			common += 0.1 + 0.3*g.Float64()
		}
		for c := range t.Values {
			v := common + m.spread*math.Sqrt(1-m.share)*g.NormFloat64()
			if c < len(effects) && t.Head[run] {
				v += effects[c]
			}
			t.Values[c] = append(t.Values[c], v)
		}
	}
	return t
}

var usual = Rule{Threshold: 0.05, Effect: 0.10}

// rates are how often any cell is called a regression, how often the first is, and how often all pass.
func (m machine) rates(t *testing.T, trials, runs int, inBlocks bool, effects ...float64) (alarm, found, passed float64) {
	t.Helper()
	g := random(runs)
	for range trials {
		changes, err := m.trial(runs, inBlocks, g, effects...).changes(0.05, 999)
		if err != nil {
			t.Fatal(err)
		}
		regresses := func(c Change) bool { return usual.Judge(c) == Regress }
		if slices.ContainsFunc(changes, regresses) {
			alarm += 1 / float64(trials)
		}
		if regresses(changes[0]) {
			found += 1 / float64(trials)
		}
		if !slices.ContainsFunc(changes, func(c Change) bool { return usual.Judge(c) != Pass }) {
			passed += 1 / float64(trials)
		}
	}
	return alarm, found, passed
}

// Equal sides are called a regression in at most 5 % of comparisons, whatever the machine; a cell that is 10 % slower is
// found as often as the design says, and hardly ever passed.
func TestFalseAlarmsAndPower(t *testing.T) {
	trials := trialsOf()
	doubt := 1.645 * math.Sqrt(0.05*0.95/float64(trials))
	for _, c := range []struct {
		name     string
		machine  machine
		runs     int
		inBlocks bool
		power    float64
	}{
		{"quiet", machine{20, 0.03, 0.5, 0, 0}, 10, false, 0.99},
		{"quiet, in blocks", machine{20, 0.03, 0.5, 0, 0}, 10, true, 0.98},
		{"noisy", machine{20, 0.05, 0.5, 0, 0}, 16, false, 0.95},
		{"noisy, in blocks", machine{20, 0.05, 0.5, 0, 0}, 16, true, 0.94},
		{"outliers, in blocks", machine{20, 0.03, 0.5, 0.05, 0}, 16, true, 0.93},
		{"drift, in blocks", machine{20, 0.03, 0.5, 0, 0.05}, 10, true, 0.98},
		{"cells of their own", machine{20, 0.05, 0, 0, 0}, 10, false, 0},
		{"one cell", machine{1, 0.05, 0, 0, 0}, 8, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			alarm, _, passed := c.machine.rates(t, trials, c.runs, c.inBlocks)
			_, found, wrong := c.machine.rates(t, trials, c.runs, c.inBlocks, math.Log1p(usual.Effect))
			t.Logf("%d comparisons: false alarms %.1f %%, passed %.1f %%; 10 %% slower: found %.1f %%, passed %.1f %%",
				trials, 100*alarm, 100*passed, 100*found, 100*wrong)
			if alarm > 0.05+doubt {
				t.Errorf("false alarms: %v", alarm)
			}
			if wrong > 0.05+doubt {
				t.Errorf("passed, and 10 %% slower: %v", wrong)
			}
			if found < c.power-2*doubt {
				t.Errorf("power: %v, want %v", found, c.power)
			}
		})
	}
}

// All cells' true changes lie above Low together, and below High together, in 95 % of comparisons.
func TestBoundsHoldTogether(t *testing.T) {
	const trials = 200
	m := machine{12, 0.04, 0.3, 0, 0.02}
	effects := make([]float64, m.cells)
	for i := range effects {
		effects[i] = float64(i-3) * 0.1
	}
	for _, inBlocks := range []bool{false, true} {
		g, below, above := random(3), 0, 0
		if !inBlocks {
			m.drift = 0
		}
		for range trials {
			changes, err := m.trial(8, inBlocks, g, effects...).changes(0.05, 999)
			if err != nil {
				t.Fatal(err)
			}
			low, high := false, false
			for i, c := range changes {
				low, high = low || effects[i] < c.Low, high || effects[i] > c.High
			}
			if low {
				below++
			}
			if high {
				above++
			}
		}
		most := int(0.05*trials + 2*math.Sqrt(0.05*0.95*trials))
		if below > most || above > most {
			t.Errorf("blocks %v: of %d comparisons Low was wrong in %d and High in %d; want at most %d", inBlocks, trials, below, above, most)
		}
	}
}

// With one cell and one block, the estimate is the median of all differences and the bounds are those of the tables: of 5
// and 5 runs the one-sided 5 % point of Mann and Whitney's U is 4, so the 21st of 25 differences.
func TestOneCell(t *testing.T) {
	base, head := []float64{1.1, 0.7, 0.95, 1.3, 0.81}, []float64{1.4, 0.9, 1.27, 1.06, 1.61}
	got, err := Trial{
		Head:   []bool{false, false, false, false, false, true, true, true, true, true},
		Values: [][]float64{slices.Concat(base, head)},
	}.Changes(0.05)
	if err != nil {
		t.Fatal(err)
	}
	var d []float64
	for _, a := range base {
		for _, b := range head {
			d = append(d, b-a)
		}
	}
	slices.Sort(d)
	for _, f := range []struct {
		name      string
		got, want float64
	}{{"estimate", got[0].Estimate, d[12]}, {"low", got[0].Low, d[4]}, {"high", got[0].High, d[20]}} {
		if math.Abs(f.got-f.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", f.name, f.got, f.want)
		}
	}
}

// A change of one side moves the estimate and the bounds by just as much; swapping the sides mirrors them; the same runs
// have the same bounds.
func TestChangesMove(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	for _, inBlocks := range []bool{false, true} {
		trial := machine{4, 0.05, 0.5, 0.1, 0.05}.trial(8, inBlocks, random(1))
		was, err := trial.Changes(0.05)
		if err != nil {
			t.Fatal(err)
		}
		again, err := trial.Changes(0.05)
		if err != nil || !cmp.Equal(was, again) {
			t.Errorf("the same runs: %v, %v and %v", err, was, again)
		}
		for run, head := range trial.Head {
			for c := range trial.Values {
				if head {
					trial.Values[c][run]++
				}
			}
		}
		moved, err := trial.Changes(0.05)
		if err != nil {
			t.Fatal(err)
		}
		for i := range was {
			if !near(moved[i].Estimate, was[i].Estimate+1) || usual.Judge(moved[i]) != Regress {
				t.Errorf("blocks %v, cell %d: %+v, and %+v when moved by 1", inBlocks, i, was[i], moved[i])
			}
		}
		for run := range trial.Head {
			trial.Head[run] = !trial.Head[run]
		}
		swapped, err := trial.Changes(0.05)
		if err != nil {
			t.Fatal(err)
		}
		for i := range moved {
			if !near(swapped[i].Estimate, -moved[i].Estimate) {
				t.Errorf("blocks %v, cell %d: %+v, and %+v with the sides swapped", inBlocks, i, moved[i], swapped[i])
			}
		}
	}
}

// Clocks tick: equal values are no evidence, and cells that never differ pass.
func TestTies(t *testing.T) {
	var trial Trial
	trial.Head, trial.Blocks = InBlocks(4)
	trial.Values = [][]float64{make([]float64, 16), make([]float64, 16)}
	for run, head := range trial.Head {
		if head && run < 3 {
			trial.Values[1][run] = math.Log(2)
		}
	}
	changes, err := trial.Changes(0.05)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range changes {
		if usual.Judge(c) == Regress || math.Abs(c.Estimate) > 1e-9 || i == 0 && usual.Judge(c) != Pass {
			t.Errorf("cell %d: %+v is %s", i, c, usual.Judge(c))
		}
	}
}

func TestTooFew(t *testing.T) {
	for _, c := range []struct {
		cells, runs, need int
		inBlocks          bool
	}{
		{20, 2, 6, false},
		{1, 2, 3, false},
		{200, 4, 8, false},
		{20, 4, 8, true},
		{1, 2, 4, true},
	} {
		if got := Needed(c.cells, 0.05, c.inBlocks); got != c.need {
			t.Errorf("%d cells, blocks %v: %d runs are needed, want %d", c.cells, c.inBlocks, got, c.need)
		}
		m := machine{cells: c.cells, spread: 0.03}
		var few *TooFewError
		if _, err := m.trial(c.runs, c.inBlocks, random(1)).Changes(0.05); !errors.As(err, &few) || few.Need != c.need || few.Have != c.runs {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := m.trial(c.need, c.inBlocks, random(1)).Changes(0.05); err != nil {
			t.Errorf("%d runs of %d cells suffice, and %v", c.need, c.cells, err)
		}
	}
}

func TestRefusedTrials(t *testing.T) {
	two := []bool{false, true, true, false}
	for name, trial := range map[string]Trial{
		"no runs":          {},
		"one side":         {Head: []bool{true, true}, Values: [][]float64{{1, 2}}},
		"ragged":           {Head: two, Values: [][]float64{{1, 2, 3}}},
		"blocks of others": {Head: two, Blocks: []int{0}, Values: [][]float64{{1, 2, 3, 4}}},
		"uneven blocks":    {Head: two, Blocks: []int{0, 1, 1, 1}, Values: [][]float64{{1, 2, 3, 4}}},
		"no logarithm":     {Head: two, Values: [][]float64{{1, 2, 3, math.Inf(-1)}}},
		"no number":        {Head: two, Values: [][]float64{{1, 2, 3, math.NaN()}}},
	} {
		var few *TooFewError
		if got, err := trial.Changes(0.05); err == nil || errors.As(err, &few) {
			t.Errorf("%s: %v, %v; want a refusal", name, got, err)
		}
	}
}

// What calibration promises on one set of runs holds on others of the same machine.
func TestPower(t *testing.T) {
	trials := trialsOf()
	m := machine{8, 0.04, 0.5, 0, 0.03}
	noise := Noise(m.trial(20, true, random(5)).Values)
	cal, err := noise.Search(usual, 0.05, Search{Trials: 200, Most: 40})
	if err != nil {
		t.Fatal(err)
	}
	power, ok := cal.Enough(Power.Worst)
	if !ok {
		t.Fatalf("%+v", cal)
	}
	alarm, found, _ := m.rates(t, trials, power.Runs, true, math.Log1p(usual.Effect))
	t.Logf("%d runs a side: found in %.1f %%, predicted %.1f %%", power.Runs, 100*found, 100*power.Found[0])
	if found < 0.85 || alarm < found {
		t.Errorf("%d runs a side find the change in %.1f %%", power.Runs, 100*found)
	}
	if fewer, err := noise.At(power.Runs/2/2*2, usual, 0.05, 100); err == nil && fewer.Worst() >= power.Worst() {
		t.Errorf("half the runs find as much: %+v and %+v", fewer, power)
	}
	loud := Noise(machine{2, 0.8, 0.5, 0, 0}.trial(10, true, random(5)).Values)
	if cal, err = loud.Search(usual, 0.05, Search{Trials: 50, Most: 12}); err != nil {
		t.Fatal(err)
	}
	if p, ok := cal.Enough(Power.Worst); ok {
		t.Errorf("a machine on which figures double: %+v; want no answer", p)
	}
}

func TestRule(t *testing.T) {
	for _, c := range []struct {
		change Change
		want   Verdict
	}{
		{Change{0.06, 0.01, 0.12}, Regress},
		{Change{0.06, 0, 0.12}, Ambiguous},
		{Change{0.04, 0.01, 0.12}, Ambiguous},
		{Change{0.04, 0.01, 0.09}, Pass},
		{Change{0, -0.05, 0.05}, Pass},
		{Change{0, -0.5, 0.5}, Ambiguous},
		{Change{-1, -2, -0.5}, Pass},
	} {
		if got := usual.Judge(c.change); got != c.want {
			t.Errorf("%+v: %s, want %s", c.change, got, c.want)
		}
	}
	for _, r := range []Rule{{-0.1, 0.1}, {0.1, 0.05}, {0, 0}, {0.05, 1}, {math.NaN(), 0.1}, {0.05, math.NaN()}} {
		if r.Check() == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
}
