package claim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Verdict is the result of a claim, of a test, or of one size of a test.
type Verdict string

// The verdicts, worst first.
const (
	NotReproduced Verdict = "not reproduced"
	NotMeasurable Verdict = "not measurable"
	Reproduced    Verdict = "reproduced"
	Shown         Verdict = "" // a figure without an expectation
)

// worst returns the worst of the verdicts: a claim is reproduced if all of its parts are.
func worst(all []Verdict) Verdict {
	for _, v := range []Verdict{NotReproduced, NotMeasurable, Reproduced} {
		if slices.Contains(all, v) {
			return v
		}
	}
	return Shown
}

// Run is the result of running a test's arms.
type Run struct {
	Cells   []record.Cell // with their samples
	Absent  string        // why there are no figures: not possible on this machine, or the run failed; "": there are figures
	Hung    bool          // Absent describes an expired deadline
	Corrupt string        // error of the data check; "": none
	// OnlyRatios says why absolute figures mean nothing; "": they do.
	OnlyRatios string
}

// Outcome is the figures and the verdict of a test.
type Outcome struct {
	Name    string        `json:"name"`
	Op      string        `json:"op"`
	A       Side          `json:"a"`
	B       *Side         `json:"b"`
	Expect  []string      `json:"expect"`
	Verdict Verdict       `json:"verdict"`
	Why     string        `json:"why"`
	Rows    []Row         `json:"rows"`
	Cells   []record.Cell `json:"cells"`
	// OnlyRatios says why absolute figures mean nothing; "": they do.
	OnlyRatios string `json:"only_ratios,omitempty"`
}

// Side is an arm with the command that ran.
type Side struct {
	Label   string   `json:"label"`
	Command []string `json:"command"`
}

// Row is the figures and the verdict of one size of a test.
type Row struct {
	Size   uint64  `json:"size"`
	A      *Median `json:"a"`
	B      *Median `json:"b"`
	Factor *Factor `json:"factor"`
	// Published is the published factor; PublishedUS is the published round trip of arm A in µs.
	Published   *float64 `json:"published"`
	PublishedUS *float64 `json:"published_us"`
	Verdict     Verdict  `json:"verdict"`
	Why         string   `json:"why"`
}

// Median is an arm's median in µs with its 95 % confidence interval.
type Median struct {
	P50  float64 `json:"p50_us"`
	Low  float64 `json:"low_us"`
	High float64 `json:"high_us"`
	N    int     `json:"n"`
}

// Factor is the ratio of two times. Low and High are its bounds from the intervals of both medians.
type Factor struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Judge returns the outcome of a run. The caller sets the commands of both sides.
func (t Test) Judge(r Run) Outcome {
	o := Outcome{
		Name: t.Name, Op: t.Op, A: Side{Label: t.A.Label}, Expect: []string{}, Rows: []Row{}, Cells: []record.Cell{}, OnlyRatios: r.OnlyRatios,
	}
	o.Cells = append(o.Cells, r.Cells...)
	if t.Paired() {
		o.B = &Side{Label: t.B.Label}
	}
	for _, e := range t.Expect {
		o.Expect = append(o.Expect, e.String())
	}
	switch {
	case r.Hung && t.mustEnd():
		o.Verdict, o.Why = NotReproduced, r.Absent
	case r.Absent != "":
		o.Verdict, o.Why = NotMeasurable, r.Absent
	case t.MustBeCaught() && r.Corrupt != "":
		o.Verdict, o.Why = Reproduced, "the payload check detected wrong data: "+r.Corrupt
	case t.MustBeCaught():
		o.Verdict, o.Why = NotReproduced, "every received byte is correct: there was no wrong data to detect"
	case r.Corrupt != "":
		o.Verdict, o.Why = NotReproduced, r.Corrupt
	default:
		t.judgeSizes(&o)
	}
	return o
}

// MustBeCaught reports whether the data check must detect wrong data in arm A.
func (t Test) MustBeCaught() bool {
	return slices.ContainsFunc(t.Expect, func(e Expectation) bool { return e == Caught{} })
}

func (t Test) mustEnd() bool {
	return slices.ContainsFunc(t.Expect, func(e Expectation) bool { return e == Ends{} })
}

func (t Test) judgeSizes(o *Outcome) {
	var verdicts []Verdict
	var good []string
	for _, size := range t.Sizes {
		row, notes := t.judgeSize(size, o.Cells)
		o.Rows = append(o.Rows, row)
		verdicts = append(verdicts, row.Verdict)
		if row.Verdict == Reproduced && good == nil {
			good = notes
		}
	}
	o.Verdict = worst(verdicts)
	if o.Verdict == Reproduced {
		o.Why = t.summary(o.Rows, good)
		return
	}
	if i := slices.IndexFunc(o.Rows, func(r Row) bool { return r.Verdict == o.Verdict }); i >= 0 {
		o.Why = sizeText(o.Rows[i].Size) + ": " + o.Rows[i].Why
	}
}

// judgeSize judges one size by all expectations. The notes list those that hold.
func (t Test) judgeSize(size uint64, cells []record.Cell) (Row, []string) {
	row := Row{Size: size}
	i := slices.IndexFunc(cells, func(c record.Cell) bool { return c.Size == size && c.Op == t.Op })
	if i < 0 {
		row.Verdict, row.Why = NotMeasurable, "was not measured"
		return row, nil
	}
	m := measured{cell: cells[i], row: &row}
	if row.Why = t.figures(&m); row.Why != "" {
		row.Verdict = NotMeasurable
		return row, nil
	}
	var verdicts []Verdict
	var texts, good []string
	for _, e := range t.Expect {
		v, text := e.judge(m)
		verdicts, texts = append(verdicts, v), append(texts, text)
		if v == Reproduced && text != "" {
			good = append(good, text)
		}
	}
	row.Verdict = worst(verdicts)
	if row.Verdict == Reproduced && t.onlyShows(verdicts) {
		row.Verdict = Shown
		return row, nil
	}
	if i := slices.Index(verdicts, row.Verdict); i >= 0 && row.Verdict != Reproduced {
		row.Why = texts[i]
	}
	return row, good
}

// onlyShows reports whether the times of other sizes are judged, but those of this size are only shown.
func (t Test) onlyShows(verdicts []Verdict) bool {
	for i, e := range t.Expect {
		if isTimed(e) && verdicts[i] != Shown {
			return false
		}
	}
	return t.timed()
}

// timed reports whether any expectation concerns the factor.
func (t Test) timed() bool { return slices.ContainsFunc(t.Expect, isTimed) }

func isTimed(e Expectation) bool {
	switch e.(type) {
	case Faster, Equal, Near:
		return true
	}
	return false
}

// measured is the cell that is judged.
type measured struct {
	cell record.Cell
	b    *record.Vs // nil: A runs alone
	row  *Row
}

// figures fills in the row. It returns the reason if the figures must not be used.
func (t Test) figures(m *measured) string {
	c := m.cell
	if f, ok := t.Factors[c.Size]; ok {
		m.row.Published = &f
	}
	switch {
	case c.Invalid != nil:
		return *c.Invalid
	case c.N == 0:
		return "no samples were taken"
	}
	a := median(c.N, c.Lat, c.SamplesNS, c.Histogram)
	m.row.A = &a
	if !t.Paired() {
		t.againstPublished(m)
		return ""
	}
	switch {
	case len(c.Vs) == 0:
		return t.B.Label + " was not measured"
	case c.Vs[0].NA != "":
		return c.Vs[0].NA
	case c.Vs[0].N == 0:
		return t.B.Label + ": no samples were taken"
	}
	m.b = &c.Vs[0]
	b := median(m.b.N, m.b.Lat, m.b.SamplesNS, m.b.Histogram)
	m.row.B = &b
	m.row.Factor = quotient(b, a)
	return ""
}

// againstPublished sets the factor of an arm that runs alone: its round trip ÷ the published one.
func (t Test) againstPublished(m *measured) {
	for _, e := range t.Expect {
		n, ok := e.(Near)
		if us := n.RoundTripUS[m.cell.Size]; ok && us > 0 {
			m.row.PublishedUS = &us
			m.row.Factor = quotient(m.row.A.times(2), Median{P50: us, Low: us, High: us})
		}
	}
}

const confidence = 0.95

// median returns an arm's median; its interval is zero if there are too few samples or they were not kept.
func median(n int, lat record.Latency, samples []int64, bins []record.Bin) Median {
	m := Median{P50: lat.P50, N: n}
	if lo, hi, ok := record.DistributionOf(samples, bins).MedianInterval(confidence); ok {
		m.Low, m.High = float64(lo)/1e3, float64(hi)/1e3
	}
	return m
}

func (m Median) times(k float64) Median {
	return Median{P50: k * m.P50, Low: k * m.Low, High: k * m.High, N: m.N}
}

// quotient returns over ÷ under with its interval; nil if one of them has no interval.
func quotient(over, under Median) *Factor {
	if over.High <= 0 || under.High <= 0 || under.P50 <= 0 {
		return nil
	}
	const tick = 1e-3 // 1 ns, the clock's resolution: a sample of 0 lasted less
	return &Factor{
		Value: over.P50 / under.P50,
		Low:   over.Low / max(under.High, tick),
		High:  over.High / max(under.Low, tick),
	}
}

// summary lists what holds, in one line.
func (t Test) summary(rows []Row, good []string) string {
	var factors []float64
	for _, r := range rows {
		if t.timed() && r.Verdict == Reproduced && r.Factor != nil {
			factors = append(factors, r.Factor.Value)
		}
	}
	var texts []string
	switch len(factors) {
	case 0:
	case 1:
		texts = append(texts, "factor "+factorText(factors[0]))
	default:
		texts = append(texts, fmt.Sprintf("factor %s to %s", factorText(slices.Min(factors)), factorText(slices.Max(factors))))
	}
	return strings.Join(append(texts, good...), "; ")
}

func (f Factor) String() string {
	return fmt.Sprintf("%s [%s, %s]", factorText(f.Value), factorText(f.Low), factorText(f.High))
}

// factorText formats three significant digits.
func factorText(v float64) string {
	switch {
	case v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.0995:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
