package sweep

import (
	"slices"
	"testing"
	"time"
)

// carryOut runs p to its end with iterations of the given pace and returns the blocks by arm.
func carryOut(t *testing.T, p *policy, arms int, pace func(i int) int64) [][]int {
	t.Helper()
	blocks := make([][]int, arms)
	taken := make([]int, arms)
	for round := 0; ; round++ {
		if round > 1e6 {
			t.Fatal("it does not end")
		}
		idle := true
		for _, arm := range order(arms, round) {
			n := p.block(arm)
			if n == 0 {
				continue
			}
			if n < 0 {
				t.Fatalf("a block of %d iterations", n)
			}
			idle = false
			samples := make([]int64, n)
			var spent time.Duration
			for i := range samples {
				samples[i] = pace(taken[arm] + i)
				spent += time.Duration(samples[i])
			}
			taken[arm] += n
			p.took(arm, samples, 0, spent)
			blocks[arm] = append(blocks[arm], n)
		}
		if idle {
			return blocks
		}
	}
}

func sum(blocks []int) (n int) {
	for _, b := range blocks {
		n += b
	}
	return n
}

func steady(int) int64 { return int64(time.Microsecond) }

func TestFixedNumberOfIterations(t *testing.T) {
	for _, c := range []struct {
		iters, rounds int
		want          []int
	}{
		{10, 1, []int{10}},
		{100, 4, []int{25, 25, 25, 25}},
		{10, 4, []int{3, 3, 3, 1}},
		{4, 4, []int{1, 1, 1, 1}},
		{9, 4, []int{3, 3, 3}},
		{1, 1, []int{1}},
	} {
		p := newPolicy(Cell{Iters: c.iters, Rounds: c.rounds}, 2)
		for arm, blocks := range carryOut(t, p, 2, steady) {
			if !slices.Equal(blocks, c.want) {
				t.Errorf("%d in %d rounds, arm %d: blocks %v, want %v", c.iters, c.rounds, arm, blocks, c.want)
			}
			if n := p.arms[arm].samples.N(); n != c.iters {
				t.Errorf("%d in %d rounds, arm %d: %d samples", c.iters, c.rounds, arm, n)
			}
		}
	}
}

func TestDuration(t *testing.T) {
	const duration = 430 * time.Millisecond // not a multiple of a block
	for name, each := range map[string]time.Duration{
		"fast": 100 * time.Nanosecond, "medium": time.Millisecond, "slower than a block": 80 * time.Millisecond,
		"slower than it all": time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicy(Cell{Duration: duration, Iters: 1000, Rounds: 1}, 1)
			blocks := carryOut(t, p, 1, func(int) int64 { return int64(each) })[0]
			total := time.Duration(sum(blocks)) * each
			if total < duration {
				t.Errorf("stopped after %v of %v: blocks %v", total, duration, blocks)
			}
			if over := total - duration; over > 10*each {
				t.Errorf("went on for %v, %v too long: blocks %v", total, over, blocks)
			}
			if blocks[0] != 10 {
				t.Errorf("the first block had %d iterations, want few: nobody knows yet how long they last", blocks[0])
			}
			for i, n := range blocks[1:] { // the parent reads the devices' health between blocks
				if d := time.Duration(n) * each; d > time.Second && n > 40 {
					t.Errorf("block %d lasts %v: want a second at most", i+1, d)
				}
			}
		})
	}
}

// Both arms are measured for the same time, not for the same number of samples, in short blocks.
func TestDurationOfTwoArms(t *testing.T) {
	p := newPolicy(Cell{Duration: 100 * time.Millisecond, Rounds: 4}, 2)
	for arm, blocks := range carryOut(t, p, 2, steady) {
		for _, n := range blocks {
			if d := time.Duration(n) * time.Microsecond; d > 50*time.Millisecond {
				t.Errorf("arm %d: a block of %v: the other arm waits too long", arm, d)
			}
		}
	}
	for arm := range 2 {
		if spent := p.arms[arm].spent; spent < 100*time.Millisecond || spent > 110*time.Millisecond {
			t.Errorf("arm %d was measured for %v, want 100ms", arm, spent)
		}
	}
}

func TestUntilPrecise(t *testing.T) {
	cell := Cell{Until: 0.01, Iters: 100000, Rounds: 1}
	noisy := func(spread int64) func(int) int64 { // evenly from 1 µs - spread to 1 µs + spread, deterministic
		return func(i int) int64 { return 1000 + (int64(i)*7919)%(2*spread+1) - spread }
	}
	p := newPolicy(cell, 1)
	calm := sum(carryOut(t, p, 1, noisy(5))[0])
	if !p.arms[0].precise(0.01) {
		t.Error("stopped before the median was known")
	}
	p = newPolicy(cell, 1)
	wild := sum(carryOut(t, p, 1, noisy(900))[0])
	if !p.arms[0].precise(0.01) {
		t.Error("stopped before the median was known")
	}
	if wild <= calm {
		t.Errorf("%d samples for wide noise, %d for narrow: want more", wild, calm)
	}
}

func TestUntilGivesUp(t *testing.T) {
	twoValues := func(i int) int64 { // the median lies between two distant values for any number of samples
		return []int64{1000, 3000}[i%2]
	}
	p := newPolicy(Cell{Until: 0.01, Iters: 500, Rounds: 1}, 1)
	if n := sum(carryOut(t, p, 1, twoValues)[0]); n != 500 {
		t.Errorf("%d samples, want all 500 that are allowed", n)
	}
	slow := func(i int) int64 { return twoValues(i) * int64(100*time.Microsecond) }
	p = newPolicy(Cell{Until: 0.01, Iters: 100000, Rounds: 1}, 1)
	carryOut(t, p, 1, slow)
	if spent := p.arms[0].spent; spent < untilTime || spent > untilTime+10*300*time.Millisecond {
		t.Errorf("gave up after %v, want %v", spent, untilTime)
	}
}

func TestPrecise(t *testing.T) {
	for _, c := range []struct {
		name    string
		samples []int64
		target  float64
		want    bool
	}{
		{"nothing", nil, 0.5, false},
		{"five are too few for 95 %", []int64{7, 7, 7, 7, 7}, 0.5, false},
		{"six equal ones", []int64{7, 7, 7, 7, 7, 7}, 0.001, true},
		{"six far apart", []int64{10, 20, 30, 40, 50, 60}, 0.5, false},
		{"at the edge: 10 to 30 is 20 ± 50 %", []int64{10, 10, 10, 30, 30, 30}, 0.5, true},
		{"beyond the edge", []int64{10, 10, 10, 30, 30, 30}, 0.49, false},
		{"zeros, of a clock too coarse", []int64{0, 0, 0, 0, 0, 0}, 0.01, true},
	} {
		var a armState
		a.samples.Add(c.samples...)
		if got := a.precise(c.target); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A B, B A, A B: drift affects all arms alike.
func TestOrder(t *testing.T) {
	for _, c := range []struct {
		arms int
		want [][]int
	}{
		{1, [][]int{{0}, {0}}},
		{2, [][]int{{0, 1}, {1, 0}, {0, 1}, {1, 0}}},
		{3, [][]int{{0, 1, 2}, {2, 1, 0}, {0, 1, 2}}},
	} {
		for round, want := range c.want {
			if got := order(c.arms, round); !slices.Equal(got, want) {
				t.Errorf("round %d of %d arms: %v, want %v", round, c.arms, got, want)
			}
		}
	}
}

func near(a, b float64) bool { return a == b || a > b*(1-1e-12) && a < b*(1+1e-12) }

// is reports whether p holds want, or is absent where want is 0.
func is(p *float64, want float64) bool {
	return p == nil && want == 0 || p != nil && want != 0 && near(*p, want)
}

func show(p *float64) any {
	if p == nil {
		return "no"
	}
	return *p
}
