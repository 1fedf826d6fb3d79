package report

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/stats"
)

// several reports whether any cell used more than one connection at a time.
func (b block) several() bool {
	return overWindow(b.op()) && slices.ContainsFunc(b.cells, func(c record.Cell) bool { return len(c.Conns) > 1 })
}

// connectionTitle defines the columns of the table of connections.
const connectionTitle = "connections: minimum–maximum over connections; p50, p99 and max of a connection's messages, from the post to the " +
	"completion at the sender; GB/s = payload ÷ time until its last completion in each sample; Jain's index: 1 if all rates are equal"

// connectionColumns has a row for each cell with the spread of its connections' figures.
func (b block) connectionColumns() []Column {
	spread := func(of func(record.Connection) float64, text func(float64) string) func(record.Cell) string {
		return func(c record.Cell) string { return SpreadText(c.Conns, of, text) }
	}
	return []Column{
		b.column("size", 0, func(c record.Cell) string { return Size(c.Size) }),
		b.column("connections", 0, func(c record.Cell) string { return fmt.Sprint(len(c.Conns)) }),
		b.column("p50 µs", 0, spread(func(c record.Connection) float64 { return c.P50 }, Micros)),
		b.tails(spread(func(c record.Connection) float64 { return c.P99 }, Micros)),
		b.column("max µs", 1, spread(func(c record.Connection) float64 { return c.Max }, Micros)),
		b.column("GB/s", 0, func(c record.Cell) string {
			if c.Size == 0 {
				return None
			}
			return SpreadText(c.Conns, func(c record.Connection) float64 { return rateOf(c) }, GBps)
		}),
		b.column("Jain", 0, func(c record.Cell) string { return FairnessText(c.Fairness) }),
		b.column("msg/s", 2, messageRate),
	}
}

// tails returns a column of p99, with a star where a connection has too few messages.
func (b block) tails(text func(record.Cell) string) Column {
	const p = 99
	col := b.column("p99 µs", 0, text)
	for i, c := range b.cells {
		if slices.ContainsFunc(c.Conns, func(c record.Connection) bool { return !stats.Carries(int(c.Messages), p) }) {
			col.Cells[i] += "*"
			col.short = p
		}
	}
	return col
}

func rateOf(c record.Connection) float64 {
	if c.GBps == nil {
		return 0
	}
	return *c.GBps
}

// SpreadText formats the minimum and maximum of a figure over connections.
func SpreadText(conns []record.Connection, of func(record.Connection) float64, text func(float64) string) string {
	if len(conns) == 0 {
		return None
	}
	by := func(a, b record.Connection) int { return cmp.Compare(of(a), of(b)) }
	low, high := text(of(slices.MinFunc(conns, by))), text(of(slices.MaxFunc(conns, by)))
	if low == high {
		return low
	}
	return low + "–" + high
}

// FairnessText formats Jain's index.
func FairnessText(v *float64) string {
	if v == nil {
		return None
	}
	return Fixed(*v, 3)
}

// writeConnections writes the block's table of connections, if it has one.
func writeConnections(out *bytes.Buffer, b block, n *Notes, wide bool) error {
	if !b.several() {
		return nil
	}
	writeWrapped(out, "  ", connectionTitle)
	cols := b.connectionColumns()
	if !wide {
		cols, _ = fit(cols, maxWidth)
	}
	n.addStars(cols)
	if err := writeGrid(out, cols); err != nil {
		return err
	}
	out.WriteByte('\n')
	return nil
}

func writeMarkdownConnections(out *bytes.Buffer, b block, n *Notes) {
	if !b.several() {
		return
	}
	fmt.Fprintf(out, "%s\n\n", escapeMarkdown(connectionTitle))
	cols := b.connectionColumns()
	n.addStars(cols)
	writeMarkdownGrid(out, cols)
}
