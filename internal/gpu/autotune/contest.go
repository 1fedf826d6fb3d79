package autotune

import (
	"fmt"
	"slices"
	"time"
)

const (
	// Candidates whose times differ by no more than this part are equal: the first of them is taken.
	margin = 0.01
	// Those within this part of the fastest one's time are close to it.
	closeBy = 0.10
)

// Contest compares candidates. They take turns, in the reverse order every other round, so that whatever else changes
// meets all of them alike. The medians of their times decide.
type Contest struct {
	Candidates int
	// Turn runs a candidate once and gives its times in ns: one of each operation that it did.
	Turn func(candidate int) ([]uint64, error)
	// Share makes each time the longest that any rank has, where ranks take part together; nil: there is one.
	Share func(times [][]uint64) error
	// First are the rounds in which all candidates have a turn, More further ones of those that are close to the fastest.
	// The zero More is none.
	First, More Rounds
	// Pause is how long a turn waits before it begins; Rounds.Budget counts it.
	Pause time.Duration
}

// Rounds says how many rounds there are.
type Rounds struct {
	Skip   int           // rounds of the first group that the caller has done already, as a warm-up
	Most   int           // in all, with those skipped
	Group  int           // the budget is looked at when a group of so many is complete
	Budget time.Duration // no group begins that would exceed it; 0: any. Ranks that share their times must not have one
}

// Fastest is the first candidate that is as fast as any, and its median time in ns.
func (c *Contest) Fastest() (candidate int, median uint64, err error) {
	times := make([][]uint64, c.Candidates)
	all := make([]int, c.Candidates)
	for i := range all {
		all[i] = i
	}
	medians, err := c.run(times, all, c.First)
	if err != nil {
		return 0, 0, err
	}
	if near := within(medians, closeBy); c.worthMore(near, medians) {
		if medians, err = c.run(times, near, c.More); err != nil {
			return 0, 0, err
		}
	}
	best := within(medians, margin)[0]
	return best, medians[best], nil
}

// Failure is the error of a candidate's turn.
type Failure struct {
	Candidate int
	Err       error
}

func (f *Failure) Error() string { return fmt.Sprintf("candidate %d: %v", f.Candidate, f.Err) }

// Unwrap gives the turn's own error.
func (f *Failure) Unwrap() error { return f.Err }

// run adds the times of rounds among some candidates, and gives the medians of all.
func (c *Contest) run(times [][]uint64, among []int, r Rounds) ([]uint64, error) {
	var round time.Duration // what one costs
	for n := r.Skip; n < r.Most && (r.Budget == 0 || n%r.Group != 0 || time.Duration(n)*round < r.Budget); n++ {
		round = 0
		for k := range among {
			i := among[k]
			if n%2 == 1 {
				i = among[len(among)-1-k]
			}
			took, err := c.Turn(i)
			if err != nil {
				return nil, &Failure{Candidate: i, Err: err}
			}
			times[i] = append(times[i], took...)
			// The shortest of its turns: where the CPU was away in many of them, they are needed most.
			round += time.Duration(slices.Min(times[i])) + c.Pause
		}
	}
	if c.Share != nil {
		if err := c.Share(times); err != nil {
			return nil, err
		}
	}
	return mediansOf(times), nil
}

// worthMore reports whether further turns of those that are near are needed, and can be had for what they may cost.
func (c *Contest) worthMore(near []int, medians []uint64) bool {
	var round time.Duration
	for _, i := range near {
		round += time.Duration(medians[i]) + c.Pause
	}
	return len(near) > 1 && c.More.Most > 0 && time.Duration(c.More.Group)*round <= c.More.Budget
}

func mediansOf(times [][]uint64) []uint64 {
	medians := make([]uint64, len(times))
	for i, t := range times {
		sorted := slices.Sorted(slices.Values(t))
		medians[i] = sorted[len(sorted)/2]
	}
	return medians
}

// within lists those that take no more than that part longer than the fastest.
func within(medians []uint64, part float64) []int {
	most := float64(slices.Min(medians)) * (1 + part)
	var near []int
	for i, m := range medians {
		if float64(m) <= most {
			near = append(near, i)
		}
	}
	return near
}
