package record

import (
	"slices"

	"github.com/p2pbench/p2pbench/internal/report/stats"
)

// MaxRawSamples is how many samples a cell keeps one by one; more are kept as a histogram.
const MaxRawSamples = 100_000

// Summarise gives the figures of a cell from its samples. It is the zero Latency for no samples.
func Summarise(samplesNS []int64) Latency {
	s := stats.Summarise(samplesNS)
	return Latency{
		Min:  micros(s.Min),
		P50:  micros(s.P50),
		P90:  micros(s.P90),
		P99:  micros(s.P99),
		P999: micros(s.P999),
		Max:  micros(s.Max),
		Mean: s.Mean / 1e3,
	}
}

// summariseBins is Summarise(SamplesOf(nil, bins)) without writing the n samples out.
func summariseBins(n int, bins []Bin) Latency {
	at := func(p float64) float64 {
		left := int64(stats.Rank(n, p))
		for _, b := range bins {
			if left -= b.Count; left <= 0 {
				return micros(b.NS)
			}
		}
		return 0
	}
	var sum float64
	for _, b := range bins {
		sum += float64(b.NS) * float64(b.Count)
	}
	return Latency{
		Min: at(0), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: at(100),
		Mean: sum / float64(n) / 1e3,
	}
}

func micros(ns int64) float64 { return float64(ns) / 1e3 }

// MedianInterval gives the two samples between which the median lies with at least that confidence (0.95), whatever
// the distribution. It is not ok when the samples are too few for that: fewer than 6 at 0.95.
func MedianInterval(samplesNS []int64, confidence float64) (lo, hi int64, ok bool) {
	l, h, _, ok := stats.MedianRanks(len(samplesNS), confidence)
	if !ok {
		return 0, 0, false
	}
	sorted := slices.Sorted(slices.Values(samplesNS))
	return sorted[l-1], sorted[h-1], true
}

// Keep chooses the form in which a document holds samples: up to [MaxRawSamples] as they are, in the order taken;
// more as a histogram, which loses the order alone. One of the results is nil.
func Keep(samplesNS []int64) ([]int64, []Bin) {
	if len(samplesNS) <= MaxRawSamples {
		return samplesNS, nil
	}
	return nil, Histogram(samplesNS)
}

// Histogram counts equal samples, in ascending order of their value.
func Histogram(samplesNS []int64) []Bin {
	var bins []Bin
	for _, ns := range slices.Sorted(slices.Values(samplesNS)) {
		if last := len(bins) - 1; last >= 0 && bins[last].NS == ns {
			bins[last].Count++
		} else {
			bins = append(bins, Bin{NS: ns, Count: 1})
		}
	}
	return bins
}

// SamplesOf gives a cell's samples from the form it holds them in: samples if there are any (the slice itself, in the
// order taken), else the histogram written out in ascending order. It is nil when the document holds neither. The
// histogram of a document that [Read] accepted has at most as many entries as the cell's N.
func SamplesOf(samples []int64, bins []Bin) []int64 {
	if len(samples) > 0 || len(bins) == 0 {
		return samples
	}
	var n int64
	for _, b := range bins {
		n += b.Count
	}
	all := make([]int64, 0, n)
	for _, b := range bins {
		for range b.Count {
			all = append(all, b.NS)
		}
	}
	return all
}

// WithoutSamples is the document without its raw samples and histograms, as --format json prints it. The receiver
// keeps its own.
func (d Document) WithoutSamples() Document {
	d.Cells = slices.Clone(d.Cells)
	for i := range d.Cells {
		c := &d.Cells[i]
		c.SamplesNS, c.Histogram = nil, nil
		c.Vs = slices.Clone(c.Vs)
		for j := range c.Vs {
			c.Vs[j].SamplesNS, c.Vs[j].Histogram = nil, nil
		}
	}
	return d
}
