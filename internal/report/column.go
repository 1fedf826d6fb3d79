package report

import (
	"fmt"
	"slices"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/stats"
)

// Column is a column of a table, as text.
type Column struct {
	Over  string // heading above several columns, such as the name of a baseline
	Head  string
	Left  bool // left-aligned; numbers are right-aligned
	Drop  int  // order in which columns are dropped from a table that is too wide: 1 first, 0 never
	Cells []string
	short float64 // percentile for which some cell has too few samples, marked with a star; 0: none
}

// columns returns the columns of the block: size, p50, p99 and GB/s first. Footnotes are added to n.
func (b block) columns(n *Notes, wide bool) []Column {
	cols := []Column{
		b.column("size", 0, func(c record.Cell) string { return Size(c.Size) }),
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
			b.column("skew µs", 0, func(c record.Cell) string { return Micros(c.SkewUS) }),
		)
	}
	cols = append(cols, b.column("n", 0, func(c record.Cell) string { return fmt.Sprint(c.N) }))
	cols = append(cols, b.conditions()...)
	cols = append(cols, b.counterColumns(b.described().Counters, func(c record.Cell) map[string]uint64 { return c.Counters })...)
	for _, name := range b.baselines() {
		cols = append(cols, b.versus(name)...)
	}
	last := b.column("", 0, n.Of)
	last.Left = true
	for _, text := range last.Cells {
		if text != "" {
			return append(cols, last)
		}
	}
	return cols
}

func (b block) column(head string, drop int, text func(record.Cell) string) Column {
	col := Column{Head: head, Drop: drop}
	for _, c := range b.cells {
		col.Cells = append(col.Cells, text(c))
	}
	return col
}

// time returns a column of µs; cells without samples are empty.
func (b block) time(head string, drop int, of func(record.Latency) float64) Column {
	return b.column(head, drop, func(c record.Cell) string {
		if c.N == 0 {
			return None
		}
		return Micros(of(c.Lat))
	})
}

// percentile returns a column of µs, with a star where there are too few samples.
func (b block) percentile(p float64, drop int, of func(record.Latency) float64) Column {
	col := b.time(fmt.Sprintf("p%v µs", p), drop, of)
	for i, c := range b.cells {
		if c.N > 0 && !stats.Carries(c.N, p) {
			col.Cells[i] += "*"
			col.short = p
		}
	}
	return col
}

func (b block) bandwidth() []Column {
	perDir := func(c record.Cell) string { return GBpsOrNone(c.BWPerDir) }
	if b.op() != "bidir" && (b.op() != "stream" || fan(b.cells[0]) == "") {
		return []Column{b.column("GB/s", 0, perDir)}
	}
	return []Column{
		b.column("GB/s/dir", 0, perDir),
		b.column("GB/s sum", 0, func(c record.Cell) string { return GBpsOrNone(c.BWSum) }),
	}
}

func messageRate(c record.Cell) string {
	if c.N == 0 {
		return None
	}
	return Fixed(c.MsgRate, 0)
}

// conditions returns columns of the properties in which the block's cells differ.
func (b block) conditions() []Column {
	var cols []Column
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
		cols = append(cols, b.column(Clean(k), 0, knob(k)))
	}
	return cols
}

// versus returns the columns of a baseline; a single column of n/a if it has no figures.
func (b block) versus(name string) []Column {
	show := func(text func(record.Vs) string) func(record.Cell) string {
		return func(c record.Cell) string {
			switch v := baseline(c, name); {
			case v == nil:
				return None
			case v.NA != "":
				return "n/a"
			case v.N == 0:
				return None
			default:
				return text(*v)
			}
		}
	}
	bw := "GB/s"
	if b.op() == "bidir" {
		bw = "GB/s/dir"
	}
	cols := []Column{b.column("p50 µs", 0, show(func(v record.Vs) string { return Micros(v.Lat.P50) }))}
	if b.describeBaseline(name) != "" {
		cols[0].Drop = 7 // the ratio remains
		cols = append(cols,
			b.column(bw, 6, show(func(v record.Vs) string { return GBpsOrNone(v.BWPerDir) })),
			b.column("ratio", 0, show(func(v record.Vs) string { return GBpsOrNone(v.Ratio) })))
	}
	cols = append(cols, b.counterColumns(b.transports[b.transportOf(name)].Counters, func(c record.Cell) map[string]uint64 {
		if v := baseline(c, name); v != nil {
			return v.Counters
		}
		return nil
	})...)
	for i := range cols {
		cols[i].Over = Clean(name)
	}
	return cols
}
