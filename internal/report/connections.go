package report

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/stats"
)

// several reports whether any of the cells sent over more than one connection at a time.
func (b block) several() bool {
	return overWindow(b.op()) && slices.ContainsFunc(b.cells, func(c record.Cell) bool { return len(c.Conns) > 1 })
}

// connectionTitle says what the columns of the connections are.
const connectionTitle = "connections: from the least to the most that any has; of its messages, from the post to the completion at the " +
	"sender; GB/s = payload ÷ time until its last completion in a sample; Jain's index: 1 where all got the same"

// connectionColumns are a row for each cell: how its connections fared beside each other.
func (b block) connectionColumns() []column {
	spread := func(of func(record.Connection) float64, text func(float64) string) func(record.Cell) string {
		return func(c record.Cell) string { return spreadText(c.Conns, of, text) }
	}
	return []column{
		b.column("size", 0, func(c record.Cell) string { return size(c.Size) }),
		b.column("connections", 0, func(c record.Cell) string { return count(uint64(len(c.Conns))) }),
		b.column("p50 µs", 0, spread(func(c record.Connection) float64 { return c.P50 }, micros)),
		b.tails(spread(func(c record.Connection) float64 { return c.P99 }, micros)),
		b.column("max µs", 1, spread(func(c record.Connection) float64 { return c.Max }, micros)),
		b.column("GB/s", 0, func(c record.Cell) string {
			if c.Size == 0 {
				return none
			}
			return spreadText(c.Conns, func(c record.Connection) float64 { return rateOf(c) }, gbps)
		}),
		b.column("Jain", 0, func(c record.Cell) string { return fairnessText(c.Fairness) }),
		b.column("msg/s", 2, messageRate),
	}
}

// tails are p99, with a star where a connection has too few messages for it.
func (b block) tails(text func(record.Cell) string) column {
	const p = 99
	col := b.column("p99 µs", 0, text)
	for i, c := range b.cells {
		if slices.ContainsFunc(c.Conns, func(c record.Connection) bool { return !stats.Carries(int(c.Messages), p) }) {
			col.cells[i] += "*"
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

// spreadText is a figure from the least to the most that any connection has.
func spreadText(conns []record.Connection, of func(record.Connection) float64, text func(float64) string) string {
	if len(conns) == 0 {
		return none
	}
	by := func(a, b record.Connection) int { return cmp.Compare(of(a), of(b)) }
	low, high := text(of(slices.MinFunc(conns, by))), text(of(slices.MaxFunc(conns, by)))
	if low == high {
		return low
	}
	return low + "–" + high
}

func fairnessText(v *float64) string {
	if v == nil {
		return none
	}
	return fixed(*v, 3)
}

// writeConnections writes the block's second table, where there is one.
func writeConnections(out *bytes.Buffer, b block, n *notes, wide bool) error {
	if !b.several() {
		return nil
	}
	writeWrapped(out, "  ", connectionTitle)
	cols := b.connectionColumns()
	if !wide {
		cols, _ = fit(cols, maxWidth)
	}
	n.stand(cols)
	if err := writeGrid(out, cols); err != nil {
		return err
	}
	out.WriteByte('\n')
	return nil
}

func writeMarkdownConnections(out *bytes.Buffer, b block, n *notes) {
	if !b.several() {
		return
	}
	fmt.Fprintf(out, "%s\n\n", escapeMarkdown(connectionTitle))
	cols := b.connectionColumns()
	n.stand(cols)
	writeMarkdownGrid(out, cols)
}

// soft reports whether the CPU plays the NIC: absolute figures mean nothing then.
func soft(c record.Cell) bool { return c.Knobs["soft"] == "true" }

const softNote = "the CPU plays the NIC (soft-RoCE): a bed for correctness; of the figures only ratios within one run mean anything"

// vendorOnly is what of ROCm ANP takes a vendor's NIC.
const vendorOnly = "not available: UDMA mask (binds queue pairs to halves of the NIC: AMD's driver only), CTS offload (the NIC grants " +
	"messages itself: vendor firmware; --cts pre-granted stands in)"

// rdmaFacts is what is to be said of runs over RDMA below the tables.
func rdmaFacts(cells []record.Cell) (facts []fact) {
	if !slices.ContainsFunc(cells, func(c record.Cell) bool { return c.Transport == "rdma" }) {
		return nil
	}
	if slices.ContainsFunc(cells, soft) {
		facts = append(facts, fact{"soft", softNote})
	}
	return append(facts, fact{"vendor", vendorOnly})
}
