package report

import (
	"strconv"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// grid is a block as text: what table and Markdown have in common.
type grid struct {
	header []string
	rows   [][]string
}

// column is one column of a block: how it is headed, what it shows, and how soon it gives way when the table is too
// wide (0: never).
type column struct {
	header string
	value  func(record.Cell) string
	yields int
}

// Samples that a percentile needs to be more than the maximum.
const (
	needP99  = 100
	needP999 = 1000
)

// starred marks a percentile that the samples cannot carry: it holds the maximum.
func starred(value float64, n, need int) string {
	if n < need {
		return micros(value) + "*"
	}
	return micros(value)
}

func (b *block) columns(notes *footnotes) []column {
	cols := []column{{"size", func(c record.Cell) string { return size(c.Size) + notes.marks(c) }, 0}}
	if b.windowed() {
		cols = append(cols, column{"window", func(c record.Cell) string { return strconv.Itoa(c.Window) }, 0})
	}
	cols = append(cols,
		column{"p50 µs", func(c record.Cell) string { return micros(c.Lat.P50) }, 0},
		column{"p99 µs", func(c record.Cell) string { return starred(c.Lat.P99, c.N, needP99) }, 0})
	if b.op == "bidir" {
		cols = append(cols, column{"GB/s per dir", func(c record.Cell) string { return gigabytes(c.BWPerDir) }, 0},
			column{"GB/s sum", func(c record.Cell) string { return gigabytes(c.BWSum) }, 0})
	} else {
		cols = append(cols, column{"GB/s", func(c record.Cell) string { return gigabytes(c.BWPerDir) }, 0})
	}
	cols = append(cols,
		column{"min", func(c record.Cell) string { return micros(c.Lat.Min) }, 2},
		column{"p90", func(c record.Cell) string { return micros(c.Lat.P90) }, 4},
		column{"p99.9", func(c record.Cell) string { return starred(c.Lat.P999, c.N, needP999) }, 3},
		column{"max", func(c record.Cell) string { return micros(c.Lat.Max) }, 1},
		column{"n", func(c record.Cell) string { return strconv.Itoa(c.N) }, 0})
	for _, name := range b.baselines() {
		cols = append(cols, versusColumns(name)...)
	}
	return cols
}

func versusColumns(name string) []column {
	of := func(show func(record.Vs) string) func(record.Cell) string {
		return func(c record.Cell) string {
			v, ok := versus(c, name)
			switch {
			case !ok:
				return ""
			case v.NA != "":
				return "n/a"
			}
			return show(v)
		}
	}
	return []column{
		{name + " p50", of(func(v record.Vs) string { return micros(v.Lat.P50) }), 0},
		{name + " GB/s", of(func(v record.Vs) string { return gigabytes(v.BWPerDir) }), 5},
		{"vs " + name, of(func(v record.Vs) string { return ratio(v.Ratio) }), 0},
	}
}

func (b *block) grid(cols []column) grid {
	var g grid
	for _, c := range cols {
		g.header = append(g.header, c.header)
	}
	for _, cell := range b.cells {
		var row []string
		for _, c := range cols {
			row = append(row, c.value(cell))
		}
		g.rows = append(g.rows, row)
	}
	return g
}
