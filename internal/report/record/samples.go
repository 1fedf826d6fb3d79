package record

import (
	"cmp"
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

func micros(ns int64) float64 { return float64(ns) / 1e3 }

// Samples are a cell's samples while they are taken: one by one, in that order, up to [MaxRawSamples]; from there on
// counted by their value, so that they take no more memory than there are different values. All of them last as long
// as their sum, so there are at most √(2·that sum in ns). The zero value has none.
type Samples struct {
	raw    []int64
	counts map[int64]int64 // by ns; nil: raw has them all
	n      int
}

// Add takes samples in. The slice stays the caller's.
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

// N is how many there are.
func (s *Samples) N() int { return s.n }

// Kept is the form in which a document holds them: samples_ns or histogram_ns. One of them is nil.
func (s *Samples) Kept() ([]int64, []Bin) {
	if s.counts == nil {
		return s.raw, nil
	}
	return nil, s.Distribution()
}

// Summary gives their figures.
func (s *Samples) Summary() Latency {
	if s.counts == nil {
		return Summarise(s.raw)
	}
	return s.Distribution().Summary()
}

// Distribution gives them by value.
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

// Distribution is samples by value, in ascending order, each value once. It is walked, never written out: a few bytes
// of a file can stand for any number of samples.
type Distribution []Bin

// DistributionOf gives a cell's samples from the form in which a document holds them: samples if there are any, else
// the histogram itself.
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

// N is how many samples there are.
func (d Distribution) N() int {
	n := 0
	for _, b := range d {
		n += int(b.Count)
	}
	return n
}

// At is the sample at that place in ascending order, from 1 to N, and 0 without samples.
func (d Distribution) At(place int) int64 {
	left := int64(place)
	for _, b := range d {
		if left -= b.Count; left <= 0 {
			return b.NS
		}
	}
	return 0
}

// Percentile is nearest-rank.
func (d Distribution) Percentile(p float64) int64 { return d.At(stats.Rank(d.N(), p)) }

// Summary is [Summarise] of the samples.
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
		Mean: min(max(sum/float64(n)/1e3, at(0)), at(100)), // which rounding could leave
	}
}

// MedianInterval gives the two samples between which the median lies with at least that confidence (0.95), whatever
// they come from. It is not ok when the samples are too few for that: fewer than 6 at 0.95.
func (d Distribution) MedianInterval(confidence float64) (lo, hi int64, ok bool) {
	l, h, _, ok := stats.MedianRanks(d.N(), confidence)
	if !ok {
		return 0, 0, false
	}
	return d.At(l), d.At(h), true
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
