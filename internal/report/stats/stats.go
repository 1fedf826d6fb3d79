// Package stats computes the figures of reports from samples: nearest-rank percentiles, and a distribution-free
// confidence interval of the median.
//
// Nothing is trimmed, smoothed or interpolated: every percentile and every bound of an interval is a measured value.
// The functions are pure. Parameters named sorted must be in ascending order.
//
// The package does not compare sets of samples; the regression gate does.
package stats

import (
	"cmp"
	"math"
	"slices"

	"github.com/montanaflynn/stats"
)

// Summary describes a set of samples, in the samples' unit. The zero Summary describes no samples.
type Summary struct {
	N    int
	Min  int64
	P50  int64
	P90  int64
	P99  int64
	P999 int64
	Max  int64
	Mean float64
}

// Summarise returns the summary of samples, which it does not modify.
func Summarise(samples []int64) Summary {
	n := len(samples)
	if n == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	return Summary{
		N:    n,
		Min:  sorted[0],
		P50:  Percentile(sorted, 50),
		P90:  Percentile(sorted, 90),
		P99:  Percentile(sorted, 99),
		P999: Percentile(sorted, 99.9),
		Max:  sorted[n-1],
		Mean: mean(sorted),
	}
}

// mean is clamped to the extremes, which the rounded float64 sum may exceed by one unit in the last place.
func mean(sorted []int64) float64 {
	m, _ := stats.Mean(stats.LoadRawData(sorted)) // its only error is an empty input
	return min(max(m, float64(sorted[0])), float64(sorted[len(sorted)-1]))
}

// Percentile returns the nearest-rank percentile p, in percent: the smallest sample that at least p % of the samples do
// not exceed. It returns the zero value for no samples.
func Percentile[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	return sorted[Rank(len(sorted), p)-1]
}

// Rank returns the 1-based position of the nearest-rank percentile p among n sorted samples, ⌈p/100·n⌉, within [1, n];
// 0 if n is 0. (Hyndman and Fan, Sample quantiles in statistical packages, 1996: definition 1.)
//
// The binary fraction nearest to 99.9 is slightly above it: for n = 41000 the ceiling of the product would be 40960
// instead of 40959. A product within the rounding error of an integer therefore counts as that integer.
// (PercentileNearestRank of montanaflynn/stats has this error, and sorts at every call.)
func Rank(n int, p float64) int {
	if n <= 0 {
		return 0
	}
	const rounding = 1e-13 // relative; several hundred units in the last place
	exact := p / 100 * float64(n)
	rank := math.Ceil(exact)
	if near := math.Round(exact); math.Abs(exact-near) <= rounding*near {
		rank = near
	}
	switch {
	case math.IsNaN(rank) || rank < 1:
		return 1
	case rank >= float64(n):
		return n
	}
	return int(rank)
}

// Carries reports whether n samples are enough for percentile p, which means that it is not their maximum.
func Carries(n int, p float64) bool { return n > 0 && (p >= 100 || Rank(n, p) < n) }

// MinSamples returns the smallest number of samples that is enough for percentile p: 100 for p99, 1,000 for p99.9.
func MinSamples(p float64) int {
	if p >= 100 {
		return 1
	}
	n := max(1, int(100/(100-p))-1)
	for !Carries(n, p) {
		n++
	}
	return n
}
