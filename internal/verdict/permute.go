package verdict

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Trial is two sets of runs of one family of cells.
type Trial struct {
	Head   []bool      // by run: of head, not of base
	Blocks []int       // by run: the block in which it was interleaved, with as many of each side; nil: all are one block
	Values [][]float64 // by cell and run: the logarithm of a figure of which less is better
}

// Up to this number of label assignments all are enumerated; of more, this number is drawn.
const (
	maxExact = 20_000
	drawn    = 9_999
)

// Changes gives the change of every cell, with bounds of which each kind holds for all cells together with probability
// 1 − alpha. The result is deterministic. The error is a *[TooFewError], or names a value that is not finite.
func (t Trial) Changes(alpha float64) ([]Change, error) { return t.changes(alpha, drawn) }

func (t Trial) changes(alpha float64, draws int) ([]Change, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	blocks := t.blocks()
	changes := make([]Change, len(t.Values))
	cells := make([]*cell, len(t.Values))
	for i, values := range t.Values {
		cells[i] = newCell(values, t.Head, blocks)
		changes[i].Estimate = cells[i].estimate()
	}
	// Labels are permuted over the values as measured, for the test that nothing changed, and over the values less the
	// estimated change, for the bounds. The larger critical value is used for both.
	as := critical(cells, blocks, alpha, draws, func(int) float64 { return 0 })
	less := critical(cells, blocks, alpha, draws, func(i int) float64 { return changes[i].Estimate })
	up, down := max(as.up, less.up), max(as.down, less.down)
	if math.IsInf(up, 1) || math.IsInf(down, 1) {
		heads := count(t.Head)
		return nil, &TooFewError{Have: min(heads, len(t.Head)-heads), Need: Needed(len(t.Values), alpha, t.Blocks != nil)}
	}
	for i, c := range cells {
		changes[i].Low = min(c.low(up), changes[i].Estimate)
		changes[i].High = max(c.high(down), changes[i].Estimate)
	}
	return changes, nil
}

func (t Trial) check() error {
	heads := count(t.Head)
	switch {
	case heads == 0 || heads == len(t.Head):
		return errors.New("verdict: one side has no runs")
	case t.Blocks != nil && len(t.Blocks) != len(t.Head):
		return fmt.Errorf("verdict: %d runs and the blocks of %d", len(t.Head), len(t.Blocks))
	}
	if blocks := t.blocks(); len(blocks) > 1 {
		for _, b := range blocks {
			if 2*b.heads != len(b.runs) {
				return fmt.Errorf("verdict: a block of %d runs has %d of head: want as many of each side", len(b.runs), b.heads)
			}
		}
	}
	for i, values := range t.Values {
		if len(values) != len(t.Head) {
			return fmt.Errorf("verdict: cell %d has %d values of %d runs", i, len(values), len(t.Head))
		}
		for _, v := range values {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("verdict: cell %d: %v is no logarithm of a figure", i, v)
			}
		}
	}
	return nil
}

func count(labels []bool) (n int) {
	for _, head := range labels {
		if head {
			n++
		}
	}
	return n
}

// block is runs whose labels may be exchanged.
type block struct {
	runs  []int
	heads int
}

func (t Trial) blocks() []block {
	var all []block
	index := map[int]int{}
	for run, head := range t.Head {
		name := 0
		if t.Blocks != nil {
			name = t.Blocks[run]
		}
		i, ok := index[name]
		if !ok {
			i = len(all)
			index[name] = i
			all = append(all, block{})
		}
		all[i].runs = append(all[i].runs, run)
		if head {
			all[i].heads++
		}
	}
	return all
}

// Needed returns the number of runs per side with which a change of one of that many cells can be significant, in blocks
// A B B A or in a single block.
func Needed(cells int, alpha float64, inBlocks bool) int {
	for n := 2; ; n++ {
		assignments := choose(2*n, n)
		if inBlocks {
			if n%2 != 0 {
				continue
			}
			assignments = math.Pow(choose(4, 2), float64(n/2))
		}
		if float64(max(cells, 1))/assignments <= alpha {
			return n
		}
	}
}

func choose(n, k int) float64 {
	c := 1.0
	for i := range k {
		c = c * float64(n-i) / float64(i+1)
	}
	return math.Round(c)
}

// criticals are the critical excess of a rank sum over its expectation, and the critical deficit; +Inf: none is significant.
type criticals struct{ up, down float64 }

// critical permutes the labels of the runs, with the values of the cells less the change of head.
func critical(cells []*cell, blocks []block, alpha float64, draws int, change func(cell int) float64) criticals {
	m := len(cells)
	ranks := make([]float64, m*len(cells[0].values)) // run by run, so that the sums of a run are next to each other
	for i, c := range cells {
		for run, r := range c.ranks(change(i)) {
			ranks[run*m+i] = r
		}
	}
	expected := make([]float64, m)
	for _, b := range blocks {
		for _, run := range b.runs {
			for i, r := range ranks[run*m : run*m+m] {
				expected[i] += r * float64(b.heads) / float64(len(b.runs))
			}
		}
	}
	var up, down []float64
	sums := make([]float64, m)
	exact := assign(blocks, draws, func(heads []int) {
		for i, e := range expected {
			sums[i] = -e
		}
		for _, run := range heads {
			for i, r := range ranks[run*m : run*m+m] {
				sums[i] += r
			}
		}
		hi, lo := math.Inf(-1), math.Inf(1)
		for _, s := range sums {
			hi, lo = max(hi, s), min(lo, s)
		}
		up, down = append(up, hi), append(down, -lo)
	})
	return criticals{quantile(up, alpha, exact), quantile(down, alpha, exact)}
}

// quantile is the smallest statistic that is reached with a probability of at most alpha; +Inf: there is none. The actual
// assignment counts as one more than those drawn.
func quantile(statistics []float64, alpha float64, exact bool) float64 {
	slices.Sort(statistics)
	n, own := len(statistics), 1
	if exact {
		own = 0
	}
	reached := math.Inf(1)
	for i := n - 1; i >= 0; i-- {
		if i > 0 && same(statistics[i-1], statistics[i]) {
			continue
		}
		if float64(n-i+own)/float64(n+own) > alpha {
			break
		}
		reached = statistics[i]
	}
	return reached
}

// same is the tolerance for the rounding of rank sums.
func same(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// assign calls f with the runs of head for every assignment of labels, or for a random sample of them, and reports whether
// it was every one.
func assign(blocks []block, draws int, f func(heads []int)) bool {
	total := 1.0
	for _, b := range blocks {
		total *= choose(len(b.runs), b.heads)
	}
	var heads []int
	if total <= maxExact {
		each(blocks, heads, f)
		return true
	}
	random := rand.New(rand.NewPCG(1, 2)) // fixed: the same runs have the same verdict
	pools := make([][]int, len(blocks))
	for i, b := range blocks {
		pools[i] = slices.Clone(b.runs)
	}
	for range draws {
		heads = heads[:0]
		for i, b := range blocks {
			for k := range b.heads {
				j := k + random.IntN(len(b.runs)-k)
				pools[i][k], pools[i][j] = pools[i][j], pools[i][k]
			}
			heads = append(heads, pools[i][:b.heads]...)
		}
		f(heads)
	}
	return false
}

// each enumerates the assignments of the blocks.
func each(blocks []block, heads []int, f func([]int)) {
	if len(blocks) == 0 {
		f(heads)
		return
	}
	var pick func(from, left int, heads []int)
	pick = func(from, left int, heads []int) {
		if left == 0 {
			each(blocks[1:], heads, f)
			return
		}
		for i := from; i+left <= len(blocks[0].runs); i++ {
			pick(i+1, left-1, append(heads, blocks[0].runs[i]))
		}
	}
	pick(0, blocks[0].heads, heads)
}

// tieOrder is an order of the runs that is independent of their labels.
func tieOrder(runs int) []int { return rand.New(rand.NewPCG(3, uint64(runs))).Perm(runs) }

// order sorts runs by their values, and equal ones by tie.
func order(values []float64, tie []int) []int {
	runs := make([]int, len(values))
	for i := range runs {
		runs[i] = i
	}
	slices.SortFunc(runs, func(a, b int) int {
		return cmp.Or(cmp.Compare(values[a], values[b]), cmp.Compare(tie[a], tie[b]))
	})
	return runs
}
