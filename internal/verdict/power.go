package verdict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
)

// Noise holds identical runs, by cell and run, in chronological order.
type Noise [][]float64

// Power is the power of a comparison with that number of runs per side.
type Power struct {
	Runs        int
	FalseAlarms float64   // share of comparisons of equal sides with a regression
	Passes      float64   // share of comparisons of equal sides that pass
	Found       []float64 // by cell: share of comparisons that detect the effect in that cell alone
}

// Worst is the smallest of Found.
func (p Power) Worst() float64 {
	worst := 1.0
	for _, f := range p.Found {
		worst = min(worst, f)
	}
	return worst
}

// Blocks of runs alternate between A B B A and B A A B.
var (
	abba = []bool{false, true, true, false}
	baab = []bool{true, false, false, true}
)

// BlockSize is the number of runs in a block, half of them of head.
const BlockSize = 4

// InBlocks returns the labels of the runs in that many blocks, and the block number of each run.
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

// At estimates the power of comparisons in blocks with that number of runs per side, from that many trials. A trial draws
// blocks of consecutive runs, with replacement, so that it contains the drift of the machine, and labels them in
// alternation. The effect shifts the estimate and the bounds of a cell equally, so one trial is evaluated for every cell.
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

// drawnForPower is the number of assignments that a trial draws, fewer than a single comparison.
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

// suffices reports whether the lower 95 % confidence bound of a share of that many trials is AtLeast.
func suffices(share float64, trials int) bool {
	return share >= AtLeast+1.645*math.Sqrt(AtLeast*(1-AtLeast)/float64(trials))
}

// Powers are the powers for increasing numbers of runs per side.
type Powers struct {
	Trials int
	All    []Power
}

// Search selects the numbers of runs per side to try.
type Search struct {
	Trials int // simulated comparisons for each number
	Most   int
	At     int // only this one; 0: all up to Most
}

// Search increases the number of runs per side until the effect is detected in every cell and equal sides pass. Its error
// is a *[TooFewError] if the largest number is too small.
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

// Enough returns the smallest number of runs per side for which the wanted share is AtLeast; not ok: no tried number is enough.
func (p Powers) Enough(wanted func(Power) float64) (Power, bool) {
	for _, at := range p.All {
		if suffices(wanted(at), p.Trials) {
			return at, true
		}
	}
	return Power{}, false
}
