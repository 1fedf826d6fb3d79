package sweep

import (
	"time"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// A cell that ends by duration or precision is measured in blocks. With baselines a block lasts about blockTime, so
// that the arms alternate often. Without baselines blocks grow up to longestBlock, because each block also fills and
// compares the buffers. Precision is checked after each block, until untilTime has passed.
const (
	blockTime    = 50 * time.Millisecond
	longestBlock = time.Second
	untilTime    = 10 * time.Second
	confidence   = 0.95
	// firstBlock is the number of iterations of a block while the time per iteration is unknown.
	firstBlock = 10
	// sharedBlock is the minimum of a block when there are baselines: a tenth as many iterations may be warm-up.
	sharedBlock = 10
	// loneBlock is the number of iterations that a block may have without baselines even if it lasts longer than
	// longestBlock.
	loneBlock = 40
	// largestBlock is the maximum number of samples that a worker holds and sends at once.
	largestBlock = 1 << 20
)

// policy decides how many iterations an arm's next block has.
type policy struct {
	cell Cell
	arms []armState
}

type armState struct {
	samples record.Samples
	spent   time.Duration // time of this arm's samples and their checks, without warm-up
	last    int           // samples of the latest block
	pace    time.Duration // time per iteration in the latest block, or in the warm-up before the first block; 0: unknown
}

func newPolicy(c Cell, arms int) *policy { return &policy{cell: c, arms: make([]armState, arms)} }

// block returns the number of iterations of an arm's next block; 0 when the arm is done.
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

// nextBlock returns the number of iterations of the next block, which must end within left.
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
	default: // doubling, because the fixed costs of a short block make its pace too slow
		n = min(max(fit(blockTime), 2*a.last), max(fit(longestBlock), loneBlock))
	}
	return max(min(n, fit(left)), 1)
}

// warmup returns the warm-up iterations of a later block of iters iterations.
func (p *policy) warmup(iters int) int {
	if len(p.arms) == 1 {
		return 0
	}
	rewarm := min(p.cell.Warmup, max(1, p.cell.Warmup/p.cell.Rounds)) // the other arms have displaced its caches
	if p.cell.timed() {
		rewarm = min(rewarm, max(1, iters/sharedBlock))
	}
	return rewarm
}

// precise reports whether the confidence interval of the median is within ±target of the median.
func (a *armState) precise(target float64) bool {
	lo, hi, ok := a.samples.Distribution().MedianInterval(confidence)
	if !ok {
		return false
	}
	return float64(hi-lo)/2 <= target*float64(hi+lo)/2
}

// warmed records that an arm's warm-up of iters iterations has taken spent.
func (p *policy) warmed(arm, iters int, spent time.Duration) {
	p.arms[arm].pace = max(spent/time.Duration(iters), 1)
}

// took records a block: its samples, and the time it took including warmup iterations.
func (p *policy) took(arm int, samples []int64, warmup int, spent time.Duration) {
	a := &p.arms[arm]
	a.samples.Add(samples...)
	a.last = len(samples)
	a.pace = max(spent/time.Duration(warmup+len(samples)), 1)
	a.spent += a.pace * time.Duration(len(samples))
}

// order returns the order of the arms in a round: forwards in even rounds, backwards in odd ones.
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
