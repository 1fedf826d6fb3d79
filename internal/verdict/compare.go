package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Schema is the version of [Result]; docs/json.md describes it.
const Schema = "p2pbench-verdict/1"

// The figures that can be judged.
const (
	P50  = "p50"
	P99  = "p99"
	GBps = "GB/s"
)

// Metrics names them; the first is the default.
var Metrics = []string{P50, P99, GBps}

// Side is the runs of one side.
type Side struct {
	Name string
	Runs []Run
}

// Sessions are the side's runs by session, in the order of their first runs.
func (s Side) Sessions() [][]Run {
	var all [][]Run
	for _, places := range bySession(s.Runs) {
		var runs []Run
		for _, i := range places {
			runs = append(runs, s.Runs[i])
		}
		Side{Runs: runs}.sort()
		all = append(all, runs)
	}
	slices.SortFunc(all, func(a, b []Run) int { return a[0].Started.Compare(b[0].Started) })
	return all
}

// Options say how sides are compared.
type Options struct {
	Rule
	Alpha    float64  // family-wise
	Looks    int      // at the runs, fixed beforehand: each has Alpha ÷ Looks
	Metrics  []string // none: p50, from which GB/s follows
	Settings bool     // the sides differ in settings on purpose
}

// alpha is one look's share.
func (o Options) alpha() float64 { return o.Alpha / float64(max(o.Looks, 1)) }

// Result is a comparison.
type Result struct {
	Schema   string     `json:"schema"`
	Version  string     `json:"version"` // of the p2pbench that made the comparison
	Started  time.Time  `json:"started"`
	Command  []string   `json:"command"`
	Verdict  Verdict    `json:"verdict"`
	Why      string     `json:"why"`
	Decide   []string   `json:"decide"` // the command that would decide; empty: decided
	Rule     ResultRule `json:"rule"`
	Base     SideResult `json:"base"`
	Head     SideResult `json:"head"`
	Design   string     `json:"design"` // "interleaved" or "sessions"
	Differ   []string   `json:"differ"` // what the sides differ in on purpose
	Rows     []Row      `json:"rows"`   // the worst first
	Warnings []string   `json:"warnings"`
	Exit     int        `json:"exit"`
}

// ResultRule is the rule of the comparison.
type ResultRule struct {
	Alpha     float64  `json:"alpha"` // of this look
	Looks     int      `json:"looks"`
	Threshold float64  `json:"threshold"`
	Effect    float64  `json:"effect"`
	Metrics   []string `json:"metrics"`
}

// SideResult describes a side.
type SideResult struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Runs     int    `json:"runs"`
	Sessions int    `json:"sessions"`
}

// Row is one figure of one cell.
type Row struct {
	Key
	Metric  string  `json:"metric"`
	Base    float64 `json:"base"` // median over runs; µs or GB/s
	Head    float64 `json:"head"`
	Slower  float64 `json:"slower_percent"` // estimated change of the time; GB/s: of the time per byte
	Low     float64 `json:"low_percent"`    // 95 % bounds that hold for all rows together
	High    float64 `json:"high_percent"`
	Visible float64 `json:"visible_percent"` // the smallest change that could have been called a regression
	Verdict Verdict `json:"verdict"`
	change  Change
}

// The designs.
const (
	interleaved = "interleaved"
	sessions    = "sessions"
)

// MinSessions is the number of sessions of base that is needed to estimate how much sessions differ.
const MinSessions = 3

// Compare judges head against base. Its error is an *[IncomparableError] or a *[TooFewError].
func Compare(base, head Side, o Options) (Result, error) {
	if err := o.Check(); err != nil {
		return Result{}, err
	}
	r := Result{
		Schema: Schema, Decide: []string{}, Differ: []string{}, Warnings: []string{}, Command: []string{},
		Rule: ResultRule{o.alpha(), max(o.Looks, 1), o.Threshold, o.Effect, o.metrics()},
	}
	if err := r.match(base, head, o); err != nil {
		return Result{}, err
	}
	r.Base, r.Head = describe(base), describe(head)
	t, design := layOut(base, head)
	r.Design = design
	if err := r.fill(&t, base, head, o); err != nil {
		return Result{}, err
	}
	changes, err := t.Changes(o.alpha())
	if err != nil {
		return Result{}, err
	}
	enough := true
	if design == sessions {
		enough = widen(changes, t, base, head, o.alpha())
	}
	r.judge(changes, o, enough)
	return r, nil
}

func (o Options) metrics() []string {
	if len(o.Metrics) == 0 {
		return []string{P50}
	}
	return o.Metrics
}

func describe(s Side) SideResult {
	return SideResult{Name: s.Name, Version: s.Runs[0].Version, Runs: len(s.Runs), Sessions: len(bySession(s.Runs))}
}

// match refuses sides that are not comparable, and records the differences that are allowed.
func (r *Result) match(base, head Side, o Options) error {
	for _, side := range []Side{base, head} {
		if len(side.Runs) == 0 {
			return incomparable("%s: holds no runs", side.Name)
		}
		for _, run := range side.Runs[1:] {
			first := side.Runs[0]
			if d := differ(first, run, nothing); d != "" {
				return incomparable("%s and %s: runs of one side differ: %s", first.Name, run.Name, d)
			}
		}
	}
	a, b := base.Runs[0], head.Runs[0]
	newer := a.Version != b.Version
	d := differ(a, b, func(_ Key, d Difference) bool {
		switch {
		case o.Settings && isSetting(d.Name):
			r.note(&r.Differ, d.String())
		case newer && isSetting(d.Name) && (d.Base == "" || d.Head == ""):
			r.note(&r.Warnings, fmt.Sprintf("%s (the sides are different versions of p2pbench)", d))
		default:
			return false
		}
		return true
	})
	if d != "" {
		return incomparable("%s and %s are not comparable: %s", base.Name, head.Name, d)
	}
	for _, c := range a.Cells {
		if x, y := base.choices(c.Key), head.choices(c.Key); x != y && !o.Settings {
			r.note(&r.Warnings, fmt.Sprintf("%s: auto chose %s in base and %s in head", c.Key, x, y))
		}
	}
	return nil
}

// choices returns the engines that auto chose for a cell.
func (s Side) choices(k Key) string {
	var all []string
	for _, r := range s.Runs {
		if c, _ := r.cell(k); c.Choice != "" && !slices.Contains(all, c.Choice) {
			all = append(all, c.Choice)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " or ")
}

func (r *Result) note(list *[]string, text string) {
	if !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

// nothing: no difference is allowed.
func nothing(Key, Difference) bool { return false }

// differ returns the first difference between runs that is not allowed; "": there is none.
func differ(a, b Run, allowed func(Key, Difference) bool) string {
	for _, d := range differences(a.Facts, b.Facts) {
		if !allowed(Key{}, d) {
			return d.String()
		}
	}
	for _, c := range a.Cells {
		other, ok := b.cell(c.Key)
		if !ok {
			return fmt.Sprintf("%s is missing in %s", c.Key, b.Name)
		}
		for _, d := range differences(c.Facts, other.Facts) {
			if !allowed(c.Key, d) {
				return fmt.Sprintf("%s: %s", c.Key, d)
			}
		}
	}
	for _, c := range b.Cells {
		if _, ok := a.cell(c.Key); !ok {
			return fmt.Sprintf("%s is missing in %s", c.Key, a.Name)
		}
	}
	return ""
}

func (r Run) cell(k Key) (Cell, bool) {
	for _, c := range r.Cells {
		if c.Key == k {
			return c, true
		}
	}
	return Cell{}, false
}

// fill sets the values of the trial and the rows of the result, one per figure and cell.
func (r *Result) fill(t *Trial, base, head Side, o Options) error {
	for _, metric := range o.metrics() {
		for _, c := range base.Runs[0].Cells {
			values := make([]float64, 0, len(t.Head))
			var figures [2][]float64
			at := [2]int{}
			for _, isHead := range t.Head {
				side, i := base, 0
				if isHead {
					side, i = head, 1
				}
				run := side.Runs[at[i]]
				at[i]++
				cell, _ := run.cell(c.Key) // match has found it
				figure, cost, err := cell.figure(metric)
				if err != nil {
					return incomparable("%s: %s: %v", run.Name, c.Key, err)
				}
				values = append(values, cost)
				figures[i] = append(figures[i], figure)
			}
			t.Values = append(t.Values, values)
			r.Rows = append(r.Rows, Row{Key: c.Key, Metric: metric, Base: middle(figures[0]), Head: middle(figures[1])})
		}
	}
	return nil
}

func middle(figures []float64) float64 {
	slices.Sort(figures)
	return median(figures)
}

// figure returns the cell's figure, and the logarithm of the corresponding time.
func (c Cell) figure(metric string) (figure, cost float64, err error) {
	switch metric {
	case P99:
		if c.P99 == 0 {
			return 0, 0, fmt.Errorf("p99 of fewer than %d samples is their maximum: take more iterations, or --metric p50", carriesP99)
		}
		return c.P99, math.Log(c.P99), nil
	case GBps:
		if c.Bytes == 0 {
			return 0, 0, fmt.Errorf("messages without bytes have no GB/s: use --metric p50")
		}
		return float64(c.Bytes) / c.P50 / 1e3, math.Log(c.P50), nil
	}
	return c.P50, math.Log(c.P50), nil
}

// judge sets the bounds of every row and the verdict of the result. If enough is false, nothing can be decided.
func (r *Result) judge(changes []Change, o Options, enough bool) {
	for i, c := range changes {
		row := &r.Rows[i]
		row.change, row.Verdict = c, o.Judge(c)
		row.Slower, row.Low, row.High = Percent(c.Estimate), Percent(c.Low), Percent(c.High)
		row.Visible = Percent(o.Visible(c))
		if !enough {
			row.Verdict = Ambiguous
		}
	}
	slices.SortStableFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(order3(a.Verdict), order3(b.Verdict)), cmp.Compare(b.Slower, a.Slower))
	})
	r.Verdict = r.Rows[0].Verdict
	r.Why = r.why(enough)
}

// order3 is the rank of a verdict, the most severe first.
func order3(v Verdict) int { return slices.Index([]Verdict{Regress, Ambiguous, Pass}, v) }

// Count returns the number of rows with the verdict.
func (r Result) Count(v Verdict) (n int) {
	for _, row := range r.Rows {
		if row.Verdict == v {
			n++
		}
	}
	return n
}

// why explains the verdict in one line.
func (r Result) why(enough bool) string {
	worst, all := r.Rows[0], len(r.Rows)
	visible := 0.0
	for _, row := range r.Rows {
		if row.Verdict == Ambiguous {
			visible = max(visible, row.Visible)
		}
	}
	switch {
	case r.Verdict == Regress:
		return fmt.Sprintf("%d of %d figures are slower; the worst is %s of %s, by %.1f %% [%.1f, %.1f]",
			r.Count(Regress), all, worst.Metric, worst.Key, worst.Slower, worst.Low, worst.High)
	case r.Verdict == Pass:
		return fmt.Sprintf("none of %d figures is slower by %.3g %%", all, 100*r.Rule.Effect)
	case !enough:
		return fmt.Sprintf("base has %d of the %d sessions that it takes to know how much sessions differ; within one, the smallest change that could have been seen is %.1f %%",
			r.Base.Sessions, MinSessions, visible)
	}
	return fmt.Sprintf("%d of %d figures are too noisy to tell; the smallest change that could have been seen in all of them is %.1f %%",
		r.Count(Ambiguous), all, visible)
}

// maxRuns is the largest number of runs per side to suggest.
const maxRuns = 100

// RunsToDecide estimates the number of interleaved runs per side with which every ambiguous row would pass or regress; 0:
// no reasonable number. The width of an interval is inversely proportional to the square root of the number of runs.
func (r Result) RunsToDecide() int {
	runs := float64(min(r.Base.Runs, r.Head.Runs))
	factor := 1.0
	for _, row := range r.Rows {
		if row.Verdict == Ambiguous {
			factor = max(factor, row.widths(r.Rule))
		}
	}
	n := 2 * int(math.Ceil(1.1*runs*factor*factor/2))
	if n > maxRuns {
		return 0
	}
	return max(n, Needed(len(r.Rows), r.Rule.Alpha, true))
}

// widths is the factor by which the row's interval is too wide for a verdict.
func (row Row) widths(rule ResultRule) float64 {
	c, narrower := row.change, math.Inf(1)
	if room := math.Log1p(rule.Effect) - c.Estimate; room > 0 {
		narrower = (c.High - c.Estimate) / room
	}
	if c.Estimate > 0 && c.Estimate >= math.Log1p(rule.Threshold) {
		narrower = min(narrower, (c.Estimate-c.Low)/c.Estimate)
	}
	return narrower
}
