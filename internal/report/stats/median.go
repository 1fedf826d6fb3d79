package stats

import "math"

// MedianRanks gives the 1-based ranks, among n sorted samples, of the narrowest symmetric interval that holds the
// population's median with at least that confidence (0.95), and the confidence it really has. It is not ok when n
// samples are too few even from the smallest to the largest.
//
// A sample lies below the median with probability ½, so the number that do is binomial, and
//
//	P(X(k) ≤ median ≤ X(n+1−k)) ≥ 1 − 2·P(Bin(n, ½) ≤ k−1)
//
// for whatever distribution the samples come from, with equality where it is continuous. (Conover, Practical
// Nonparametric Statistics, 3rd ed., 1999, section 3.2; David and Nagaraja, Order Statistics, 3rd ed., 2003, section
// 7.1.) It holds for independent samples. Iterations of one process are not: the interval says how well they pin down
// the median of that run, not what the next run will show.
func MedianRanks(n int, confidence float64) (lo, hi int, coverage float64, ok bool) {
	if n < 1 || !isConfidence(confidence) {
		return 0, 0, 0, false
	}
	below, term, j := tailStart(n)
	for k := j + 1; 2*k <= n+1; k++ { // below = P(Bin ≤ k−1)
		if c := 1 - 2*below; c >= confidence {
			lo, coverage = k, c
		} else {
			break
		}
		term *= float64(n-k+1) / float64(k)
		below += term
	}
	return lo, n + 1 - lo, coverage, lo > 0
}

// tailStart gives P(Bin(n, ½) ≤ j) for a j so far below n/2 that the terms left out before it do not show: ten
// standard deviations, beyond which lies less than 1e-21 (Hoeffding).
func tailStart(n int) (below, term float64, j int) {
	j = max(0, int(float64(n)/2-10*math.Sqrt(float64(n))/2))
	term = math.Exp(lgamma(n+1) - lgamma(j+1) - lgamma(n-j+1) - float64(n)*math.Ln2)
	return term, term, j
}

func lgamma(n int) float64 {
	v, _ := math.Lgamma(float64(n))
	return v
}

// isConfidence is false for NaN.
func isConfidence(c float64) bool { return c > 0 && c < 1 }
