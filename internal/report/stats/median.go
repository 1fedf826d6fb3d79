package stats

import "math"

// MedianRanks returns the 1-based ranks, among n sorted samples, of the narrowest symmetric interval that contains the
// population's median with at least the given confidence (0.95), and the confidence of that interval. ok is false if
// even the interval from the smallest to the largest of n samples has less confidence.
//
// A sample lies below the median with probability ½, so the number that do is binomial, and
//
//	P(X(k) ≤ median ≤ X(n+1−k)) ≥ 1 − 2·P(Bin(n, ½) ≤ k−1)
//
// for every distribution of the samples, with equality if it is continuous. (Conover, Practical Nonparametric
// Statistics, 3rd ed., 1999, section 3.2; David and Nagaraja, Order Statistics, 3rd ed., 2003, section 7.1.) This
// requires independent samples. Iterations of one process are not independent: the interval describes the median of
// that run, and does not predict the next run.
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

// tailStart returns P(Bin(n, ½) ≤ j) for a j ten standard deviations below n/2, where the omitted terms are negligible:
// less than 1e-21 (Hoeffding).
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
