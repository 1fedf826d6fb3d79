package sweep

import (
	"time"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// A cell that stops by duration or precision is measured in blocks. With baselines a block lasts about blockTime, so that
// the arms take turns often. An arm alone has ever longer ones, up to longestBlock: what each block costs besides its
// iterations (buffers written before and compared after) shall not fill the time. Precision is looked at after each
// block, and given up after untilTime.
const (
	blockTime    = 50 * time.Millisecond
	longestBlock = time.Second
	untilTime    = 10 * time.Second
	confidence   = 0.95
	// firstBlock is the iterations of a block of which nobody knows how long it lasts.
	firstBlock = 10
	// sharedBlock is the least of an arm that has baselines beside it: a tenth of them may warm up again.
	sharedBlock = 10
	// loneBlock is what an arm alone may have however long it lasts.
	loneBlock = 40
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
	spent   time.Duration // in this arm's samples, with their checks, without warm-up
	last    int           // samples of the latest block
	pace    time.Duration // of its iterations; before the first block that of the warm-up, 0 without one
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
		return p.nextBlock(a, p.cell.Duration-a.spent)
	case p.cell.Until > 0:
		if a.samples.N() >= p.cell.Iters || a.spent >= untilTime || a.precise(p.cell.Until) {
			return 0
		}
		return min(p.nextBlock(a, untilTime-a.spent), p.cell.Iters-a.samples.N())
	}
	per := (p.cell.Iters + p.cell.Rounds - 1) / p.cell.Rounds
	return min(per, largestBlock, p.cell.Iters-a.samples.N())
}

// nextBlock is the iterations of the next block, of which left is all the time there is.
func (p *policy) nextBlock(a *armState, left time.Duration) int {
	if a.pace == 0 {
		return firstBlock
	}
	fit := func(d time.Duration) int { return int(min(d/a.pace, largestBlock)) }
	n := firstBlock
	switch {
	case a.last == 0:
	case len(p.arms) > 1:
		n = max(fit(blockTime), sharedBlock)
	default: // one that doubles finds its pace although each block begins and ends with something else
		n = min(max(fit(blockTime), 2*a.last), max(fit(longestBlock), loneBlock))
	}
	return max(min(n, fit(left)), 1)
}

// warmup is how many iterations come before the samples of a block of so many, in which the arm is warm already.
func (p *policy) warmup(iters int) int {
	if len(p.arms) == 1 {
		return 0
	}
	displaced := min(p.cell.Warmup, max(1, p.cell.Warmup/p.cell.Rounds)) // by the other arms
	if p.cell.timed() {
		displaced = min(displaced, max(1, iters/sharedBlock))
	}
	return displaced
}

// precise reports whether the interval of the median is within ±target of the median.
func (a *armState) precise(target float64) bool {
	lo, hi, ok := a.samples.Distribution().MedianInterval(confidence)
	if !ok {
		return false
	}
	return float64(hi-lo)/2 <= target*float64(hi+lo)/2
}

// warmed notes that an arm's warm-up of so many iterations is over.
func (p *policy) warmed(arm, iters int, spent time.Duration) {
	p.arms[arm].pace = max(spent/time.Duration(iters), 1)
}

// took notes a block: its samples and how long it lasted, with so many iterations of warm-up before them.
func (p *policy) took(arm int, samples []int64, warmup int, spent time.Duration) {
	a := &p.arms[arm]
	a.samples.Add(samples...)
	a.last = len(samples)
	a.pace = max(spent/time.Duration(warmup+len(samples)), 1)
	a.spent += a.pace * time.Duration(len(samples))
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
