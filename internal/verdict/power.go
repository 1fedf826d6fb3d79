package verdict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
)

// Noise is runs of one kind, by cell and run, in the order in which they took place.
type Noise [][]float64

// Power is what a comparison of so many runs a side finds.
type Power struct {
	Runs        int
	FalseAlarms float64   // how often it calls a cell of equal sides a regression
	Passes      float64   // how often it passes equal sides
	Found       []float64 // by cell: how often it finds that cell's change by the effect, when the others stay
}

// Worst is the smallest of Found.
func (p Power) Worst() float64 {
	worst := 1.0
	for _, f := range p.Found {
		worst = min(worst, f)
	}
	return worst
}

// Blocks of runs are A B B A and B A A B in turn.
var (
	abba = []bool{false, true, true, false}
	baab = []bool{true, false, false, true}
)

// BlockSize is how many runs are in a block, half of them head's.
const BlockSize = 4

// InBlocks gives the labels of so many blocks, and the number of each run's block.
func InBlocks(blocks int) (head []bool, block []int) {
	for b := range blocks {
		labels := abba
		if b%2 == 1 {
			labels = baab
		}
		for _, l := range labels {
			head, block = append(head, l), append(block, b)
		}
	}
	return head, block
}

// At gives the power of comparisons in blocks, so many runs a side, by so many trials. A trial draws blocks of runs that
// followed each other, with replacement, so that it drifts as the machine did, and labels them in turns. A cell's change
// by the effect moves its estimate and its bounds by just as much, so one trial tells of every cell.
func (n Noise) At(runs int, rule Rule, alpha float64, trials int) (Power, error) {
	p := Power{Runs: runs, Found: make([]float64, len(n))}
	if len(n) == 0 || len(n[0]) < BlockSize {
		return p, fmt.Errorf("verdict: power needs at least %d runs", BlockSize)
	}
	results := make([][]Change, trials)
	errs := make([]error, trials)
	var wait sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range trials {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			random := rand.New(rand.NewPCG(uint64(runs), uint64(i)))
			results[i], errs[i] = n.draw(runs, random).changes(alpha, drawnForPower)
		})
	}
	wait.Wait()
	effect, share := math.Log1p(rule.Effect), func(n int) float64 { return float64(n) / float64(trials) }
	alarms, passes, found := 0, 0, make([]int, len(n))
	for i, changes := range results {
		if errs[i] != nil {
			return p, errs[i]
		}
		alarm, pass := false, true
		for cell, c := range changes {
			alarm = alarm || rule.Judge(c) == Regress
			pass = pass && rule.Judge(c) == Pass
			if rule.Judge(Change{c.Estimate + effect, c.Low + effect, c.High + effect}) == Regress {
				found[cell]++
			}
		}
		if alarm {
			alarms++
		}
		if pass {
			passes++
		}
	}
	p.FalseAlarms, p.Passes = share(alarms), share(passes)
	for cell, n := range found {
		p.Found[cell] = share(n)
	}
	return p, nil
}

// drawnForPower is how many assignments a trial draws: fewer than a comparison, of which there is one.
const drawnForPower = 999

func (n Noise) draw(runs int, random *rand.Rand) Trial {
	var t Trial
	t.Head, t.Blocks = InBlocks(runs / (BlockSize / 2))
	t.Values = make([][]float64, len(n))
	for range runs / (BlockSize / 2) {
		from := random.IntN(len(n[0]) - BlockSize + 1)
		for cell, values := range n {
			t.Values[cell] = append(t.Values[cell], values[from:from+BlockSize]...)
		}
	}
	return t
}

// AtLeast is the probability with which a calibrated comparison finds a change, and passes equal sides.
const AtLeast = 0.9

// suffices reports whether a share of so many trials is AtLeast beyond the doubt that they leave (95 %).
func suffices(share float64, trials int) bool {
	return share >= AtLeast+1.645*math.Sqrt(AtLeast*(1-AtLeast)/float64(trials))
}

// Powers are those of comparisons with ever more runs a side.
type Powers struct {
	Trials int
	All    []Power
}

// Search says which numbers of runs a side are tried.
type Search struct {
	Trials int // comparisons that are drawn for each
	Most   int
	At     int // only this one; 0: all up to Most
}

// Search tries ever more runs a side until every cell's change is found and equal sides pass. Its error is a
// *[TooFewError] if the most are too few.
func (n Noise) Search(rule Rule, alpha float64, in Search) (Powers, error) {
	p := Powers{Trials: in.Trials}
	from, most := Needed(len(n), alpha, true), in.Most
	if in.At > 0 {
		from, most = max(from, in.At), in.At
	}
	if from > most {
		return p, &TooFewError{Have: most, Need: from}
	}
	for runs := from; runs <= most; runs += max(2, runs/5/2*2) {
		at, err := n.At(runs, rule, alpha, in.Trials)
		if err != nil {
			return p, err
		}
		p.All = append(p.All, at)
		if suffices(min(at.Worst(), at.Passes), in.Trials) {
			break
		}
	}
	return p, nil
}

// Enough are the fewest runs a side with which what is wanted is AtLeast; not ok: none of those that were tried.
func (p Powers) Enough(wanted func(Power) float64) (Power, bool) {
	for _, at := range p.All {
		if suffices(wanted(at), p.Trials) {
			return at, true
		}
	}
	return Power{}, false
}
