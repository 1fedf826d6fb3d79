package verdict

import (
	"math"
	"slices"
)

// cell holds the values of one cell while its change is estimated. Everything follows from one function: the number of
// pairs of runs in which head has the larger value, after a change has been subtracted from head. It is decreasing.
type cell struct {
	values   []float64
	head     []bool
	blocks   []block
	pairs    float64 // of one run of each side
	widest   float64 // more than any change can be
	aligned  []float64
	base, of []float64 // aligned values of base and of head, reused
	sorted   []float64
}

func newCell(values []float64, head []bool, blocks []block) *cell {
	heads := count(head)
	return &cell{
		values: values, head: head, blocks: blocks, pairs: float64(heads * (len(head) - heads)),
		widest: 1 + 4*(slices.Max(values)-slices.Min(values)), aligned: make([]float64, len(values)),
	}
}

// align returns the values less the change of head, each relative to the median of its block, which removes what the runs
// of a block have in common. With a single block that would not change the order, and is omitted.
func (c *cell) align(change float64) []float64 {
	for run, v := range c.values {
		if c.head[run] {
			v -= change
		}
		c.aligned[run] = v
	}
	if len(c.blocks) == 1 {
		return c.aligned
	}
	for _, b := range c.blocks {
		c.sorted = c.sorted[:0]
		for _, run := range b.runs {
			c.sorted = append(c.sorted, c.aligned[run])
		}
		slices.Sort(c.sorted)
		m := median(c.sorted)
		for _, run := range b.runs {
			c.aligned[run] -= m
		}
	}
	return c.aligned
}

// ranks returns the ranks of the aligned values, from 1. Ties are broken in an order that is independent of the labels, so
// that the distribution of rank sums is that of distinct values.
func (c *cell) ranks(change float64) []float64 {
	ranks := make([]float64, len(c.values))
	for i, run := range order(c.align(change), tieOrder(len(c.values))) {
		ranks[run] = float64(i + 1)
	}
	return ranks
}

// wins returns the number of pairs in which head's run has the larger value after the change is subtracted; ties count
// half.
func (c *cell) wins(change float64) float64 {
	c.base, c.of = c.base[:0], c.of[:0]
	for run, v := range c.align(change) {
		if c.head[run] {
			c.of = append(c.of, v)
		} else {
			c.base = append(c.base, v)
		}
	}
	slices.Sort(c.base)
	slices.Sort(c.of)
	won, less, upTo := 0, 0, 0
	for _, v := range c.of {
		for less < len(c.base) && c.base[less] < v {
			less++
		}
		for upTo < len(c.base) && c.base[upTo] <= v {
			upTo++
		}
		won += less + upTo
	}
	return float64(won) / 2
}

// last returns the largest change for which holds is true; holds is true up to some change and false above it. The result
// is exact at 0.
func (c *cell) last(holds func(wins float64) bool) (lo, hi float64) {
	lo, hi = -c.widest, c.widest
	for range 52 {
		if mid := (lo + hi) / 2; holds(c.wins(mid)) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, hi
}

// estimate returns the change at which both sides win equally often: in a single block the median of all differences.
func (c *cell) estimate() float64 {
	lo, _ := c.last(func(wins float64) bool { return wins > c.pairs/2 })
	_, hi := c.last(func(wins float64) bool { return wins >= c.pairs/2 })
	return (lo + hi) / 2
}

// low returns the largest change at which the rank sum of head still exceeds the critical value.
func (c *cell) low(excess float64) float64 {
	lo, _ := c.last(func(wins float64) bool { return wins >= c.pairs/2+excess-rounding })
	return lo
}

// high returns the smallest change at which the rank sum of head falls below the critical value.
func (c *cell) high(shortfall float64) float64 {
	_, hi := c.last(func(wins float64) bool { return wins > c.pairs/2-shortfall+rounding })
	return hi
}

// rounding is less than half a win.
const rounding = 1e-6

// median of sorted values; of an even number, the mean of the two in the middle.
func median(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
