package verdict

import (
	"cmp"
	"math"
	"slices"
)

// layOut orders the runs by time and determines whether they were interleaved. The values are filled in later.
func layOut(base, head Side) (Trial, string) {
	type labelled struct {
		run  Run
		head bool
	}
	var all []labelled
	for _, r := range base.Runs {
		all = append(all, labelled{r, false})
	}
	for _, r := range head.Runs {
		all = append(all, labelled{r, true})
	}
	inTime := slices.Clone(all)
	slices.SortStableFunc(inTime, func(a, b labelled) int { return a.run.Started.Compare(b.run.Started) })
	var t Trial
	for _, l := range inTime {
		t.Head = append(t.Head, l.head)
	}
	if t.Blocks = blocksOf(t.Head); t.Blocks != nil {
		base.sort()
		head.sort()
		return t, interleaved
	}
	t.Head = t.Head[:0]
	for _, l := range all {
		t.Head = append(t.Head, l.head)
	}
	return t, sessions
}

// sort sorts the runs by time.
func (s Side) sort() {
	slices.SortStableFunc(s.Runs, func(a, b Run) int { return a.Started.Compare(b.Started) })
}

// blocksOf finds the blocks of interleaved runs: the shortest sequences with equally many of each side, joined with their
// neighbours up to the size of a block. It is nil if the sides were not interleaved.
func blocksOf(head []bool) []int {
	var sizes []int
	excess, from := 0, 0
	for i, h := range head {
		if h {
			excess++
		} else {
			excess--
		}
		if excess != 0 {
			continue
		}
		size := i + 1 - from
		from = i + 1
		switch last := len(sizes) - 1; {
		case size > BlockSize:
			return nil
		case last >= 0 && sizes[last]+size <= BlockSize:
			sizes[last] += size
		default:
			sizes = append(sizes, size)
		}
	}
	if excess != 0 || len(sizes) < 2 {
		return nil
	}
	var blocks []int
	for b, size := range sizes {
		blocks = append(blocks, slices.Repeat([]int{b}, size)...)
	}
	return blocks
}

// bySession returns the indices of the runs of each session.
func bySession(runs []Run) map[string][]int {
	all := map[string][]int{}
	for i, r := range runs {
		all[r.Session] = append(all[r.Session], i)
	}
	return all
}

// widen widens the bounds by the spread between sessions, which the runs of one session do not show. It reports whether
// there are enough sessions to estimate it.
//
// The spread between sessions is that of their medians, a cell's own or the root mean square of all cells', whichever is
// larger. Bounds move by q·spread·√(1/sessions of base + 1/sessions of head). A few sessions do not show whether cells
// vary together or independently, so q is the larger of Student's quantiles for both cases: a single figure with the
// degrees of freedom of the sessions, or one figure per cell, tested as a family.
func widen(changes []Change, t Trial, base, head Side, alpha float64) bool {
	ofBase, ofHead := bySession(base.Runs), bySession(head.Runs)
	if len(ofBase) < MinSessions {
		return false
	}
	freedom := len(ofBase) + len(ofHead) - 2
	spreads := make([]float64, len(t.Values))
	var squares float64
	for i, values := range t.Values {
		sum := scatter(values[:len(base.Runs)], ofBase) + scatter(values[len(base.Runs):], ofHead)
		spreads[i] = math.Sqrt(sum / float64(freedom))
		squares += sum / float64(freedom) / float64(len(spreads))
	}
	m := len(changes)
	q := max(studentQuantile(alpha, freedom), studentQuantile(alpha/float64(m), freedom*m))
	q *= math.Sqrt(1/float64(len(ofBase)) + 1/float64(len(ofHead)))
	for i := range changes {
		by := q * max(spreads[i], math.Sqrt(squares))
		changes[i].Low -= by
		changes[i].High += by
	}
	return true
}

// scatter is the sum of squared deviations of the medians of sessions from their mean.
func scatter(values []float64, sessions map[string][]int) float64 {
	var medians []float64
	for _, places := range sessions {
		var of []float64
		for _, i := range places {
			of = append(of, values[i])
		}
		slices.Sort(of)
		medians = append(medians, median(of))
	}
	slices.SortFunc(medians, cmp.Compare[float64]) // the sum of floats depends on their order
	var mean, sum float64
	for _, m := range medians {
		mean += m / float64(len(medians))
	}
	for _, m := range medians {
		sum += (m - mean) * (m - mean)
	}
	return sum
}

// studentQuantile is the value that Student's t with that many degrees of freedom exceeds with probability p < ½.
func studentQuantile(p float64, freedom int) float64 {
	lo, hi := 0.0, 1.0
	for studentTail(hi, freedom) > p {
		hi *= 2
	}
	for range 60 {
		if mid := (lo + hi) / 2; studentTail(mid, freedom) > p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// studentTail is the probability that t is exceeded. (Abramowitz and Stegun, 26.7.3 and 26.7.4.)
func studentTail(t float64, freedom int) float64 {
	theta := math.Atan(t / math.Sqrt(float64(freedom)))
	sin, cos := math.Sincos(theta)
	term, sum := 1.0, 0.0
	if freedom%2 == 1 {
		term = cos
	}
	for k := freedom % 2; k < freedom-1; k += 2 {
		sum += term
		term *= cos * cos * float64(k+1) / float64(k+2)
	}
	if freedom%2 == 1 {
		return 0.5 - (theta+sin*sum)/math.Pi
	}
	return 0.5 - sin*sum/2
}
