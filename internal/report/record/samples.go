package record

import (
	"cmp"
	"slices"

	"github.com/p2pbench/p2pbench/internal/report/stats"
)

// MaxRawSamples is the maximum number of samples that a cell keeps individually; more are kept as a histogram.
const MaxRawSamples = 100_000

// Summarise returns the summary of samples in ns; the zero Latency for no samples.
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

func micros(ns int64) float64 { return float64(ns) / 1e3 }

// Samples collects a cell's samples. Up to [MaxRawSamples] it keeps each sample in order; above, it counts equal
// values, so that memory grows with the number of different values. That is at most √(2·s) for a sum of s ns. The zero
// value has no samples.
type Samples struct {
	raw    []int64
	counts map[int64]int64 // by ns; nil: raw holds all samples
	n      int
}

// Add adds samples. It does not keep the slice.
func (s *Samples) Add(samplesNS ...int64) {
	s.n += len(samplesNS)
	if s.counts == nil && s.n <= MaxRawSamples {
		s.raw = append(s.raw, samplesNS...)
		return
	}
	if s.counts == nil {
		s.counts = map[int64]int64{}
		s.count(s.raw)
		s.raw = nil
	}
	s.count(samplesNS)
}

func (s *Samples) count(samplesNS []int64) {
	for _, ns := range samplesNS {
		s.counts[ns]++
	}
}

// N returns the number of samples.
func (s *Samples) N() int { return s.n }

// Kept returns the values of samples_ns and histogram_ns in the document. One of them is nil.
func (s *Samples) Kept() ([]int64, []Bin) {
	if s.counts == nil {
		return s.raw, nil
	}
	return nil, s.Distribution()
}

// Summary returns the summary of the samples.
func (s *Samples) Summary() Latency {
	if s.counts == nil {
		return Summarise(s.raw)
	}
	return s.Distribution().Summary()
}

// Distribution returns the samples by value.
func (s *Samples) Distribution() Distribution {
	if s.counts == nil {
		return DistributionOf(s.raw, nil)
	}
	d := make(Distribution, 0, len(s.counts))
	for ns, count := range s.counts {
		d = append(d, Bin{NS: ns, Count: count})
	}
	slices.SortFunc(d, func(a, b Bin) int { return cmp.Compare(a.NS, b.NS) })
	return d
}

// Distribution is a histogram of samples in ascending order, each value once. It is never expanded: a few bytes of a
// file can represent any number of samples.
type Distribution []Bin

// DistributionOf returns the distribution of samples_ns and histogram_ns of a document: of the samples if there are
// any, else the histogram.
func DistributionOf(samplesNS []int64, histogram []Bin) Distribution {
	if len(samplesNS) == 0 {
		return histogram
	}
	var d Distribution
	for _, ns := range slices.Sorted(slices.Values(samplesNS)) {
		if last := len(d) - 1; last >= 0 && d[last].NS == ns {
			d[last].Count++
		} else {
			d = append(d, Bin{NS: ns, Count: 1})
		}
	}
	return d
}

// N returns the number of samples.
func (d Distribution) N() int {
	n := 0
	for _, b := range d {
		n += int(b.Count)
	}
	return n
}

// At returns the sample of a rank from 1 to N in ascending order; 0 without samples.
func (d Distribution) At(place int) int64 {
	left := int64(place)
	for _, b := range d {
		if left -= b.Count; left <= 0 {
			return b.NS
		}
	}
	return 0
}

// Percentile returns the nearest-rank percentile p.
func (d Distribution) Percentile(p float64) int64 { return d.At(stats.Rank(d.N(), p)) }

// Summary returns the summary of the samples.
func (d Distribution) Summary() Latency {
	n := d.N()
	if n == 0 {
		return Latency{}
	}
	var sum float64
	for _, b := range d {
		sum += float64(b.NS) * float64(b.Count)
	}
	at := func(p float64) float64 { return micros(d.Percentile(p)) }
	return Latency{
		Min: at(0), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: at(100),
		Mean: min(max(sum/float64(n)/1e3, at(0)), at(100)), // rounding could exceed the extremes
	}
}

// MedianInterval returns the two samples between which the median lies with at least the given confidence (0.95), for
// any distribution. ok is false if there are too few samples: fewer than 6 at 0.95.
func (d Distribution) MedianInterval(confidence float64) (lo, hi int64, ok bool) {
	l, h, _, ok := stats.MedianRanks(d.N(), confidence)
	if !ok {
		return 0, 0, false
	}
	return d.At(l), d.At(h), true
}

// WithoutSamples returns a copy of the document without raw samples and histograms, which --format json prints.
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
