package autotune

import (
	"fmt"
	"slices"
	"time"
)

const (
	// Candidates whose times differ by no more than this fraction are equal: the first of them is chosen.
	margin = 0.01
	// Candidates whose time is within this fraction of the fastest one's are measured further.
	closeBy = 0.10
)

// Contest compares the speed of candidates by the medians of their times. Candidates take turns, in reverse order in
// every second round, so that changes of the machine's speed affect all of them equally.
type Contest struct {
	Candidates int
	// Turn runs a candidate once and returns the times of its operations in ns.
	Turn func(candidate int) ([]uint64, error)
	// Share replaces each time by the maximum over the ranks that measure together; nil: there is one rank.
	Share func(times [][]uint64) error
	// First are the rounds in which all candidates have a turn, More are additional rounds of the candidates close to
	// the fastest. The zero value of More means none.
	First, More Rounds
	// Pause is the idle time before a turn; Rounds.Budget includes it.
	Pause time.Duration
}

// Rounds limits the number of rounds.
type Rounds struct {
	Skip   int           // rounds of the first group that the caller has already run as a warm-up
	Most   int           // maximum number of rounds, including Skip
	Group  int           // the budget is checked after every Group rounds
	Budget time.Duration // no group begins that would exceed it; 0: no limit. It must be 0 if ranks share their times
}

// Fastest returns the first candidate that is as fast as any other, and its median time in ns.
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

// Unwrap returns the error of the turn.
func (f *Failure) Unwrap() error { return f.Err }

// run runs rounds of some candidates, appends their times, and returns the medians of all candidates.
func (c *Contest) run(times [][]uint64, among []int, r Rounds) ([]uint64, error) {
	var round time.Duration // duration of one round
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
			// The shortest turn: if other processes delayed many turns, more rounds are needed, not fewer.
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

// worthMore reports whether several candidates are close to the fastest, and one more group of rounds is within the
// budget.
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

// within lists the candidates whose time exceeds the fastest one's by at most that fraction.
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
