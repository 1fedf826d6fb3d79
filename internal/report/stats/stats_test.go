package stats

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/montanaflynn/stats"
)

func TestSummarise(t *testing.T) {
	upTo := func(n int64) []int64 { // n, n-1 … 1
		var s []int64
		for i := n; i > 0; i-- {
			s = append(s, i)
		}
		return s
	}
	tests := []struct {
		name    string
		samples []int64
		want    Summary
	}{
		{"none", nil, Summary{}},
		{"one", []int64{7}, Summary{N: 1, Min: 7, P50: 7, P90: 7, P99: 7, P999: 7, Max: 7, Mean: 7}},
		{"two", []int64{9, 4}, Summary{N: 2, Min: 4, P50: 4, P90: 9, P99: 9, P999: 9, Max: 9, Mean: 6.5}},
		{"99: p99 is the maximum", upTo(99), Summary{N: 99, Min: 1, P50: 50, P90: 90, P99: 99, P999: 99, Max: 99, Mean: 50}},
		{"100: p99 is carried", upTo(100), Summary{N: 100, Min: 1, P50: 50, P90: 90, P99: 99, P999: 100, Max: 100, Mean: 50.5}},
		{"999", upTo(999), Summary{N: 999, Min: 1, P50: 500, P90: 900, P99: 990, P999: 999, Max: 999, Mean: 500}},
		{"1000: p99.9 is carried", upTo(1000), Summary{N: 1000, Min: 1, P50: 500, P90: 900, P99: 990, P999: 999, Max: 1000, Mean: 500.5}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.samples)
			if diff := cmp.Diff(tt.want, Summarise(tt.samples)); diff != "" {
				t.Error(diff)
			}
			if !slices.Equal(before, tt.samples) {
				t.Error("the caller's samples were reordered")
			}
		})
	}
}

func TestRank(t *testing.T) {
	tests := []struct {
		n    int
		p    float64
		want int
	}{
		{0, 50, 0},
		{1, 0, 1},
		{1, 50, 1},
		{1, 100, 1},
		{2, 50, 1},
		{2, 50.1, 2},
		{5, 0, 1},
		{5, 20, 1},
		{5, 20.1, 2},
		{5, 100, 5},
		{100, 99, 99},
		{99, 99, 99},
		{101, 99, 100},
		{1000, 99.9, 999},
		{41000, 99.9, 40959},
		{10, -1, 1},
		{10, 101, 10},
		{10, math.NaN(), 1},
		{10, math.Inf(1), 10},
		{10, math.Inf(-1), 1},
	}
	for _, tt := range tests {
		if got := Rank(tt.n, tt.p); got != tt.want {
			t.Errorf("Rank(%d, %v) = %d, want %d", tt.n, tt.p, got, tt.want)
		}
	}
}

// Rank agrees with integer arithmetic for every n up to a few thousand and powers above.
func TestRankIsExact(t *testing.T) {
	check := func(n int64) {
		for _, hundredths := range []int64{1, 2500, 5000, 9000, 9900, 9990, 9999} {
			want := max(1, (n*hundredths+9999)/10000)
			if got := Rank(int(n), float64(hundredths)/100); int64(got) != want {
				t.Fatalf("Rank(%d, %v) = %d, want %d", n, float64(hundredths)/100, got, want)
			}
		}
	}
	for n := int64(1); n <= 5000; n++ {
		check(n)
		check(n * 1000)
	}
	check(1_000_000_000)
}

// Percentile agrees with the library where the library's ceiling is exact.
func TestPercentileAgreesWithLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n < 300; n++ {
		s := make([]float64, n)
		for i := range s {
			s[i] = math.Floor(rng.ExpFloat64() * 20) // with ties
		}
		sorted := slices.Sorted(slices.Values(s))
		for _, p := range []float64{0, 1, 25, 50, 90, 99, 100} {
			want, err := stats.PercentileNearestRank(s, p)
			if err != nil {
				t.Fatal(err)
			}
			if got := Percentile(sorted, p); got != want {
				t.Fatalf("n=%d p=%v: %v, the library says %v", n, p, got, want)
			}
		}
	}
}

func TestPercentileOfNothing(t *testing.T) {
	if got := Percentile([]int64{}, 50); got != 0 {
		t.Errorf("got %d, want 0", got)
	}
}

func TestMinSamples(t *testing.T) {
	for p, want := range map[float64]int{0: 2, 50: 2, 75: 4, 90: 10, 99: 100, 99.9: 1000, 99.99: 10000, 100: 1} {
		if got := MinSamples(p); got != want {
			t.Errorf("MinSamples(%v) = %d, want %d", p, got, want)
		}
		if got := MinSamples(p); !Carries(got, p) || Carries(got-1, p) {
			t.Errorf("MinSamples(%v) = %d is not where Carries changes", p, got)
		}
	}
}

func TestMedianRanks(t *testing.T) {
	tests := []struct {
		n          int
		confidence float64
		lo, hi     int
		coverage   float64
	}{ // as in the tables of textbooks
		{6, 0.95, 1, 6, 0.96875},
		{8, 0.95, 1, 8, 0.9921875},
		{9, 0.95, 2, 8, 0.9609375},
		{10, 0.95, 2, 9, 0.978515625},
		{20, 0.95, 6, 15, 0.95861},
		{100, 0.95, 40, 61, 0.96480},
		{8, 0.99, 1, 8, 0.9921875},
		{1, 0.0001, 0, 0, 0},
		{2, 0.5, 1, 2, 0.5},
		{5, 0.95, 0, 0, 0},
		{0, 0.95, 0, 0, 0},
		{100, 0, 0, 0, 0},
		{100, 1, 0, 0, 0},
		{100, math.NaN(), 0, 0, 0},
	}
	for _, tt := range tests {
		lo, hi, coverage, ok := MedianRanks(tt.n, tt.confidence)
		if ok != (tt.lo > 0) {
			t.Errorf("n=%d confidence=%v: ok is %v", tt.n, tt.confidence, ok)
			continue
		}
		if ok && (lo != tt.lo || hi != tt.hi || math.Abs(coverage-tt.coverage) > 1e-5) {
			t.Errorf("n=%d confidence=%v: [%d, %d] %v, want [%d, %d] %v",
				tt.n, tt.confidence, lo, hi, coverage, tt.lo, tt.hi, tt.coverage)
		}
	}
}

// Compared with exact binomial sums: the coverage is correct, and the next narrower interval has too little.
func TestMedianRanksExactly(t *testing.T) {
	for _, n := range []int{6, 7, 31, 32, 99, 400, 401, 3000} {
		exact := func(k int) float64 { // 1 − 2·P(Bin(n, ½) ≤ k−1)
			sum, choose := new(big.Int), big.NewInt(1) // n over 0
			for j := range k {
				sum.Add(sum, choose)
				choose.Mul(choose, big.NewInt(int64(n-j))).Quo(choose, big.NewInt(int64(j+1)))
			}
			p, _ := new(big.Rat).SetFrac(sum, new(big.Int).Lsh(big.NewInt(1), uint(n-1))).Float64()
			return 1 - p
		}
		for _, confidence := range []float64{0.5, 0.9, 0.95, 0.96} {
			lo, hi, coverage, ok := MedianRanks(n, confidence)
			if !ok || lo+hi != n+1 || lo > hi {
				t.Fatalf("n=%d: [%d, %d] ok=%v", n, lo, hi, ok)
			}
			if math.Abs(coverage-exact(lo)) > 1e-9 || exact(lo) < confidence || exact(lo+1) >= confidence && lo+1 <= hi-1 {
				t.Errorf("n=%d confidence=%v: rank %d covers %v, exactly %v; the next rank %v",
					n, confidence, lo, coverage, exact(lo), exact(lo+1))
			}
		}
	}
}

func TestMedianRanksOfMany(t *testing.T) {
	const n = 100_000_000
	lo, hi, coverage, ok := MedianRanks(n, 0.95)
	half := 1.959964 * math.Sqrt(n) / 2
	if !ok || math.Abs(float64(lo)-(n/2-half)) > 2 || lo+hi != n+1 || math.Abs(coverage-0.95) > 1e-3 {
		t.Errorf("[%d, %d] %v %v, want about n/2 ± %.0f", lo, hi, coverage, ok, half)
	}
}

// In a simulation of many small sets from a skewed distribution, at least the stated share of intervals contains the
// median.
func TestMedianIntervalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const sets, n = 4000, 25
	lo, hi, coverage, _ := MedianRanks(n, 0.95)
	held := 0
	for range sets {
		s := make([]float64, n)
		for i := range s {
			s[i] = rng.ExpFloat64()
		}
		slices.Sort(s)
		if s[lo-1] <= math.Ln2 && math.Ln2 <= s[hi-1] {
			held++
		}
	}
	if share := float64(held) / sets; math.Abs(share-coverage) > 0.015 { // 4.6 standard errors
		t.Errorf("%.4f of the intervals hold the median, want %.4f", share, coverage)
	}
}

// The smallest number of samples that gives an interval, by confidence; 0: none.
func TestFewestForAMedian(t *testing.T) {
	for confidence, want := range map[float64]int{0.4: 2, 0.5: 2, 0.9: 5, 0.95: 6, 0.99: 8, 0.999: 11, math.Nextafter(1, 0): 54, 0: 0, 1: 0} {
		for n := range 100 {
			if _, _, _, ok := MedianRanks(n, confidence); ok != (want > 0 && n >= want) {
				t.Errorf("confidence %v, %d samples: %v, want an interval from %d on", confidence, n, ok, want)
			}
		}
	}
}
