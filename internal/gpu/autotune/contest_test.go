package autotune

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// scripted is a contest between candidates with given times; it records the turns.
func scripted(times [][]uint64, c Contest) (*Contest, *[]int) {
	var turns []int
	c.Candidates = len(times)
	c.Turn = func(i int) ([]uint64, error) {
		turns = append(turns, i)
		return times[i], nil
	}
	return &c, &turns
}

func TestFastest(t *testing.T) {
	for _, c := range []struct {
		times [][]uint64
		want  int
	}{
		{[][]uint64{{5}}, 0},
		{[][]uint64{{1000, 1000, 1000}, {900, 900, 900}}, 1},
		{[][]uint64{{1009, 1009, 1009}, {1000, 1000, 1000}}, 0}, // equal within the margin: the first
		{[][]uint64{{10, 10, 5000}, {20, 20, 20}}, 0},           // an outlier does not decide
		{[][]uint64{{30, 30}, {20, 20}, {20, 20}}, 1},
	} {
		contest, turns := scripted(c.times, Contest{First: Rounds{Most: 2}})
		got, median, err := contest.Fastest()
		if err != nil || got != c.want || median != c.times[got][0] {
			t.Errorf("%v: %d, %d ns, %v, want %d", c.times, got, median, err, c.want)
		}
		if len(*turns) != 2*len(c.times) || (*turns)[0] != 0 || (*turns)[len(*turns)-1] != 0 {
			t.Errorf("%v: turns of %v, want there and back", c.times, *turns)
		}
	}
}

// Ranks that share their times make the same choice, by the times of the slowest rank.
func TestFastestOfAllRanks(t *testing.T) {
	contest, _ := scripted([][]uint64{{10}, {20}}, Contest{First: Rounds{Most: 2}})
	contest.Share = func(times [][]uint64) error {
		times[0][0], times[0][1] = 90, 90
		return nil
	}
	if got, median, err := contest.Fastest(); got != 1 || median != 20 || err != nil {
		t.Errorf("%d, %d ns, %v", got, median, err)
	}
	broken := errors.New("a rank is gone")
	contest.Share = func([][]uint64) error { return broken }
	if _, _, err := contest.Fastest(); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// Candidates that are close have further turns if the budget permits.
func TestMoreTurnsOfTheClose(t *testing.T) {
	for name, c := range map[string]struct {
		ns     uint64
		budget time.Duration
		more   bool
	}{
		"short": {1000, time.Millisecond, true}, "long": {1e6, time.Millisecond, false},
	} {
		contest, turns := scripted([][]uint64{{2 * c.ns}, {c.ns + c.ns/20}, {c.ns}}, Contest{
			First: Rounds{Most: 2}, More: Rounds{Most: 8, Group: 4, Budget: c.budget},
		})
		got, _, err := contest.Fastest()
		if err != nil || got != 2 {
			t.Errorf("%s: %d, %v", name, got, err)
		}
		if extra := (*turns)[6:]; (len(extra) == 16) != c.more || slices.Contains(extra, 0) {
			t.Errorf("%s: further turns of %v", name, extra)
		}
	}
}

// No group of rounds begins after the budget is used up.
func TestBudget(t *testing.T) {
	contest, turns := scripted([][]uint64{{1000}, {3000}}, Contest{First: Rounds{Most: 100, Group: 4, Budget: 30 * time.Microsecond}})
	if _, _, err := contest.Fastest(); err != nil || len(*turns) != 2*8 {
		t.Errorf("%d turns, %v, want two groups of four rounds", len(*turns), err)
	}
}
