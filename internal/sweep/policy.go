package sweep

import (
	"time"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// A cell that stops by duration or precision is measured in blocks of about blockTime; precision is looked at after
// each, and given up after untilTime.
const (
	blockTime  = 50 * time.Millisecond
	untilTime  = 10 * time.Second
	confidence = 0.95
	firstBlock = 10
	// largestBlock bounds the samples that a worker holds and sends at once.
	largestBlock = 1 << 20
)

// policy decides how many iterations an arm's next block has, 0 when the arm is done.
type policy struct {
	cell Cell
	arms []armState
}

type armState struct {
	samples record.Samples
	spent   time.Duration // in this arm's blocks, checks included
}

func newPolicy(c Cell, arms int) *policy { return &policy{cell: c, arms: make([]armState, arms)} }

// block is the number of iterations of arm's next block.
func (p *policy) block(arm int) int {
	a := &p.arms[arm]
	switch {
	case p.cell.Duration > 0:
		if a.spent >= p.cell.Duration {
			return 0
		}
		return a.nextBlock(p.cell.Duration - a.spent)
	case p.cell.Until > 0:
		if a.samples.N() >= p.cell.Iters || a.spent >= untilTime || a.precise(p.cell.Until) {
			return 0
		}
		return min(a.nextBlock(untilTime-a.spent), p.cell.Iters-a.samples.N())
	}
	per := (p.cell.Iters + p.cell.Rounds - 1) / p.cell.Rounds
	return min(per, largestBlock, p.cell.Iters-a.samples.N())
}

// nextBlock is as many iterations as fit blockTime, and what is left, by the pace so far.
func (a *armState) nextBlock(left time.Duration) int {
	if a.samples.N() == 0 {
		return firstBlock
	}
	pace := max(a.spent/time.Duration(a.samples.N()), 1)
	return int(min(max(min(blockTime, left)/pace, 1), largestBlock))
}

// precise reports whether the interval of the median is within ±target of the median.
func (a *armState) precise(target float64) bool {
	lo, hi, ok := a.samples.Distribution().MedianInterval(confidence)
	if !ok {
		return false
	}
	return float64(hi-lo)/2 <= target*float64(hi+lo)/2
}

func (p *policy) took(arm int, samples []int64, spent time.Duration) {
	a := &p.arms[arm]
	a.samples.Add(samples...)
	a.spent += spent
}

// order is the arms' order in a round: forwards, then backwards, and so on.
func order(arms, round int) []int {
	out := make([]int, arms)
	for i := range out {
		out[i] = i
		if round%2 == 1 {
			out[i] = arms - 1 - i
		}
	}
	return out
}
