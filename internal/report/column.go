package report

import (
	"fmt"
	"slices"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/stats"
)

// A column is one column of a block, as text.
type column struct {
	over  string // the baseline it belongs to
	head  string
	left  bool // aligned left; numbers are aligned right
	drop  int  // which leave a table that is too wide: 1 first, 0 never
	cells []string
	short float64 // the percentile of which some cell has too few samples, shown with a star
}

// columns lays the block out: size, p50, p99 and GB/s first. Footnotes go to n.
func (b block) columns(n *notes, wide bool) []column {
	cols := []column{
		b.column("size", 0, func(c record.Cell) string { return size(c.Size) }),
		b.percentile(50, 0, func(l record.Latency) float64 { return l.P50 }),
		b.percentile(99, 0, func(l record.Latency) float64 { return l.P99 }),
	}
	cols = append(cols, b.bandwidth()...)
	cols = append(cols,
		b.time("min µs", 4, func(l record.Latency) float64 { return l.Min }),
		b.percentile(90, 2, func(l record.Latency) float64 { return l.P90 }),
		b.percentile(99.9, 3, func(l record.Latency) float64 { return l.P999 }),
		b.time("max µs", 5, func(l record.Latency) float64 { return l.Max }),
	)
	if wide {
		cols = append(cols,
			b.time("mean µs", 0, func(l record.Latency) float64 { return l.Mean }),
			b.column("msg/s", 0, messageRate),
			b.column("skew µs", 0, func(c record.Cell) string { return micros(c.SkewUS) }),
		)
	}
	cols = append(cols, b.column("n", 0, func(c record.Cell) string { return fmt.Sprint(c.N) }))
	cols = append(cols, b.conditions()...)
	for _, name := range b.baselines() {
		cols = append(cols, b.versus(name)...)
	}
	last := b.column("", 0, n.of)
	last.left = true
	for _, text := range last.cells {
		if text != "" {
			return append(cols, last)
		}
	}
	return cols
}

func (b block) column(head string, drop int, text func(record.Cell) string) column {
	col := column{head: head, drop: drop}
	for _, c := range b.cells {
		col.cells = append(col.cells, text(c))
	}
	return col
}

// time is a column of µs, empty where there are no samples.
func (b block) time(head string, drop int, of func(record.Latency) float64) column {
	return b.column(head, drop, func(c record.Cell) string {
		if c.N == 0 {
			return none
		}
		return micros(of(c.Lat))
	})
}

// percentile is a column of µs with a star where the samples do not carry it.
func (b block) percentile(p float64, drop int, of func(record.Latency) float64) column {
	col := b.time(fmt.Sprintf("p%v µs", p), drop, of)
	for i, c := range b.cells {
		if c.N > 0 && !stats.Carries(c.N, p) {
			col.cells[i] += "*"
			col.short = p
		}
	}
	return col
}

func (b block) bandwidth() []column {
	perDir := func(c record.Cell) string { return gbpsOrNone(c.BWPerDir) }
	if b.op() != "bidir" && (b.op() != "stream" || fan(b.cells[0]) == "") {
		return []column{b.column("GB/s", 0, perDir)}
	}
	return []column{
		b.column("GB/s/dir", 0, perDir),
		b.column("GB/s sum", 0, func(c record.Cell) string { return gbpsOrNone(c.BWSum) }),
	}
}

func messageRate(c record.Cell) string {
	if c.N == 0 {
		return none
	}
	return fixed(c.MsgRate, 0)
}

// conditions are columns of whatever the block's cells do not have in common.
func (b block) conditions() []column {
	var cols []column
	if b.varies(window) {
		cols = append(cols, b.column("window", 0, window))
	}
	if slices.ContainsFunc(b.cells, func(c record.Cell) bool { return c.Engine != asked(c) }) {
		cols = append(cols, b.column("engine", 0, used))
	}
	if b.varies(offset) {
		cols = append(cols, b.column("offset", 0, offset))
	}
	for _, k := range b.varyingKnobs() {
		cols = append(cols, b.column(clean(k), 0, knob(k)))
	}
	return cols
}

// versus is the columns of one baseline; one column that says n/a where it has no figures at all.
func (b block) versus(name string) []column {
	show := func(text func(record.Vs) string) func(record.Cell) string {
		return func(c record.Cell) string {
			switch v := baseline(c, name); {
			case v == nil:
				return none
			case v.NA != "":
				return "n/a"
			case v.N == 0:
				return none
			default:
				return text(*v)
			}
		}
	}
	bw := "GB/s"
	if b.op() == "bidir" {
		bw = "GB/s/dir"
	}
	cols := []column{b.column("p50 µs", 0, show(func(v record.Vs) string { return micros(v.Lat.P50) }))}
	if b.describeBaseline(name) != "" {
		cols[0].drop = 7 // the ratio tells
		cols = append(cols,
			b.column(bw, 6, show(func(v record.Vs) string { return gbpsOrNone(v.BWPerDir) })),
			b.column("ratio", 0, show(func(v record.Vs) string { return gbpsOrNone(v.Ratio) })))
	}
	if slices.ContainsFunc(b.cells, func(c record.Cell) bool { return ctas(baseline(c, name)) != none }) {
		cols = append(cols, b.column("CTAs", 1, show(func(v record.Vs) string { return ctas(&v) })))
	}
	for i := range cols {
		cols[i].over = clean(name)
	}
	return cols
}

// ctas is how many thread blocks a window of the baseline was seen to launch.
func ctas(v *record.Vs) string {
	if v == nil {
		return none
	}
	n, seen := v.Counters["nccl_ctas"]
	if !seen {
		return none
	}
	return fmt.Sprint(n)
}
