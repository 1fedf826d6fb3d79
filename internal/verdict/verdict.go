// Package verdict judges whether one set of runs is slower than another.
//
// A run is one observation: a fresh set of processes, whose value for a cell is the logarithm of one figure (the median,
// p99). Samples within a run share its placement and follow each other; they are never resampled. From two sets of runs
// of the same cells, the cells being one family, [Trial.Changes] gives for each cell the Hodges–Lehmann estimate of the
// change and an interval. The interval is the inversion of Westfall and Young's max-statistic over rank sums, with the
// labels of whole runs permuted: the correlation between cells is kept, and with probability 1 − α no cell's change lies
// below its Low, and with the same probability none lies above its High. (Westfall and Young, Resampling-Based Multiple
// Testing, 1993; Lehmann, Nonparametrics, 1975, chapters 2 and 3.)
//
//	t := verdict.Trial{Head: []bool{false, true, true, false, …}, Blocks: []int{0, 0, 0, 0, …}, Values: values}
//	changes, err := t.Changes(0.05)          // log ratios, head ÷ base; values larger is worse
//	verdict.Rule{Threshold: 0.05, Effect: 0.10}.Judge(changes[0]) // Regress, Pass or Ambiguous
//
// Callers define their own criteria: a regression is Low > 0 and an estimate of at least a threshold; "faster" is High < 0;
// "at least as fast, within a margin" is High < log(1 + margin), which a faster side always satisfies. Runs that
// were interleaved (A B B A …) name their blocks: labels are permuted within a block, and what a block has in common, such
// as a drift of the machine, cancels. [Power] tells from runs of one kind how many are needed.
//
// [Read] makes observations of run files, [Compare] compares two sets of them by these rules, and [Baseline] is the file
// that keeps sessions. The package measures nothing and renders nothing.
package verdict

import (
	"fmt"
	"math"
)

// Verdict is the outcome of a cell or a comparison.
type Verdict string

// The verdicts, the most severe first.
const (
	Regress   Verdict = "regress"
	Ambiguous Verdict = "ambiguous" // neither a regression nor its absence is shown
	Pass      Verdict = "pass"
)

// Change is how much larger head's value is than base's, as a logarithm of a ratio: 0 is no change.
type Change struct {
	Estimate  float64 // Hodges–Lehmann
	Low, High float64 // simultaneous one-sided bounds; Low ≤ Estimate ≤ High
}

// Percent converts the logarithm of a ratio to a change in per cent.
func Percent(log float64) float64 { return 100 * math.Expm1(log) }

// Rule defines regression and pass.
type Rule struct {
	Threshold float64 // smallest estimate that is a regression, as a fraction: 0.05
	Effect    float64 // change that a pass excludes, as a fraction: 0.10
}

// Judge returns the verdict on a cell.
func (r Rule) Judge(c Change) Verdict {
	switch {
	case c.Low > 0 && c.Estimate >= math.Log1p(r.Threshold):
		return Regress
	case c.High < math.Log1p(r.Effect):
		return Pass
	}
	return Ambiguous
}

// Visible is the smallest change that the cell's interval would have shown as a regression, as a logarithm.
func (r Rule) Visible(c Change) float64 { return max(math.Log1p(r.Threshold), c.Estimate-c.Low) }

// Check refuses a rule that no figures can satisfy.
func (r Rule) Check() error {
	switch {
	case !(r.Threshold >= 0 && r.Threshold < 1):
		return fmt.Errorf("threshold: %v is no share: want 0 or more and below 1, such as 0.05", r.Threshold)
	case !(r.Effect > 0 && r.Effect < 1):
		return fmt.Errorf("effect: %v is no share: want more than 0 and below 1, such as 0.1", r.Effect)
	case r.Threshold > r.Effect:
		return fmt.Errorf("threshold: %v is above the effect, %v: a change between them could neither regress nor pass", r.Threshold, r.Effect)
	}
	return nil
}

// TooFewError says that no outcome of so few runs could be significant.
type TooFewError struct {
	Have int // runs of the side that has fewer
	Need int // runs a side that always suffice
}

func (e *TooFewError) Error() string {
	return fmt.Sprintf("too few runs: with %d a side no change could be told from chance: %d a side are needed", e.Have, e.Need)
}
