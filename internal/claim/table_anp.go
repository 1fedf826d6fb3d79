package claim

import (
	"fmt"
	"slices"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

// anpUnshared is the reference arm: the design that the pull request replaces.
const anpUnshared = "unshared, QPs 4"

const (
	anpRatioNote = "ratio: p50 of a window of the arm \"" + anpUnshared + "\" ÷ p50 of this arm; above 1: this arm is faster"
	anpConnNote  = "of a connection's messages, from the post to the completion at the sender: minimum–maximum over " +
		"connections"
	anpJainNote  = "Jain's index of the connections' rates: 1 if all are equal"
	anpSetupNote = "median set-up time of a connection with its own queue pairs / of a connection that shares another's"
)

// armRow is one arm at one size.
type armRow struct {
	size     uint64
	label    string
	n        int
	lat      record.Latency
	bw       *float64
	counters map[string]uint64
	conns    []record.Connection
	fairness *float64
	base     float64 // p50 of the reference arm; 0: none
	na       string
	cell     *record.Cell // the cell of arm A; nil for other arms
}

// anpRows returns the arms at each size, the pull request's arm first.
func anpRows(d record.Document) (rows []armRow) {
	for i, c := range d.Cells {
		base := 0.0
		if i := slices.IndexFunc(c.Vs, func(v record.Vs) bool { return v.Name == anpUnshared }); i >= 0 && c.Vs[i].NA == "" {
			base = c.Vs[i].Lat.P50
		}
		rows = append(rows, armRow{
			size: c.Size, label: fmt.Sprintf("groups %s, depth %s", c.Knobs["groups"], c.Knobs["depth"]), n: c.N, lat: c.Lat,
			bw: c.BWPerDir, counters: c.Counters, conns: c.Conns, fairness: c.Fairness, base: base, cell: &d.Cells[i],
		})
		for _, v := range c.Vs {
			rows = append(rows, armRow{
				size: c.Size, label: v.Name, n: v.N, lat: v.Lat, bw: v.BWPerDir, counters: v.Counters, conns: v.Conns,
				fairness: v.Fairness, base: base, na: v.NA,
			})
		}
	}
	return rows
}

// anpTable is the table of ROCm/amd-anp#20: rows for shared and unshared queue pairs and for the control arms.
func anpTable(d record.Document, p Preset, n *report.Notes) report.Table {
	rows := anpRows(d)
	col := func(head string, drop int, left bool, text func(armRow) string) report.Column {
		c := report.Column{Head: head, Drop: drop, Left: left}
		for _, r := range rows {
			c.Cells = append(c.Cells, text(r))
		}
		return c
	}
	figure := func(text func(armRow) string) func(armRow) string {
		return func(r armRow) string {
			switch {
			case r.na != "":
				return "n/a"
			case r.n == 0:
				return report.None
			}
			return text(r)
		}
	}
	level := func(name string, text func(uint64) string) func(armRow) string {
		return figure(func(r armRow) string {
			v, ok := r.counters[name]
			if !ok {
				return report.None
			}
			return text(v)
		})
	}
	spread := func(of func(record.Connection) float64) func(armRow) string {
		return figure(func(r armRow) string { return report.SpreadText(r.conns, of, report.Micros) })
	}
	setup := func(ns uint64) string { return report.Micros(float64(ns) / 1e3) }
	ratio := n.Ref(anpRatioNote)
	conns := n.Ref(anpConnNote)
	jain := n.Ref(anpJainNote)
	setups := n.Ref(anpSetupNote)
	cols := []report.Column{
		col("size", 0, false, func(r armRow) string { return report.Size(r.size) }),
		col("arm", 0, true, func(r armRow) string { return report.Clean(r.label) }),
		col("QPs", 0, false, level("qps", func(n uint64) string { return fmt.Sprint(n) })),
		col("p50 µs", 2, false, figure(func(r armRow) string { return report.Micros(r.lat.P50) })),
		col("GB/s", 0, false, figure(func(r armRow) string { return report.GBpsOrNone(r.bw) })),
		col("ratio "+ratio, 0, false, figure(func(r armRow) string {
			if r.base == 0 {
				return report.None
			}
			return ratioText(r.base, r.lat.P50)
		})),
		col("p50 "+conns, 1, false, spread(func(c record.Connection) float64 { return c.P50 })),
		col("p99 "+conns, 0, false, spread(func(c record.Connection) float64 { return c.P99 })),
		col("Jain "+jain, 0, false, figure(func(r armRow) string { return report.FairnessText(r.fairness) })),
		col("own "+setups, 0, false, level("setup_ns", setup)),
		col("shared", 0, false, level("setup_shared_ns", setup)),
	}
	over(cols[6:8], "connections µs")
	over(cols[9:11], "set-up µs")
	last := col("", 0, true, func(r armRow) string {
		switch {
		case r.cell != nil:
			own := *r.cell
			own.Vs = nil // baselines have their own rows
			return n.Of(own)
		case r.na != "":
			return n.Ref(r.label + " n/a: " + r.na)
		}
		return ""
	})
	if slices.ContainsFunc(last.Cells, func(text string) bool { return text != "" }) {
		cols = append(cols, last)
	}
	return report.Table{Title: anpTitle(d, p), Columns: cols}
}

// over sets the heading above several columns.
func over(cols []report.Column, head string) {
	for i := range cols {
		cols[i].Over = head
	}
}

func anpTitle(d record.Document, p Preset) []string {
	c := d.Cells[0]
	return []string{
		fmt.Sprintf("%s (preset %s): %s", p.Title, p.Name, report.Subject(d)),
		fmt.Sprintf("%d iterations of each arm after %d of warm-up, interleaved; µs and GB/s of whole windows of %s messages over all "+
			"connections. The pull request published an AllReduce of about 140 GB/s with and without sharing, on AMD Pollara "+
			"NICs: not comparable, except that sharing costs no bandwidth", c.Iters, c.Warmup, fmt.Sprint(c.Window)),
	}
}
