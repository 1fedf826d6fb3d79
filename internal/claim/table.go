package claim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

// viewRow holds the cells of one size; nil: not measured.
type viewRow struct {
	size                          uint64
	trip, windows, received, both *record.Cell // pingpong, stream, latency, bidir
}

func (r viewRow) cells() []*record.Cell {
	return slices.DeleteFunc([]*record.Cell{r.trip, r.windows, r.received, r.both}, func(c *record.Cell) bool { return c == nil })
}

// Tables lays out a document of a preset as the table of the pull request: columns by its definitions, columns by
// p2pbench's definitions, and the published figures. It returns nil for a document without a preset. Footnotes are
// added to n.
func Tables(d record.Document, n *report.Notes) []report.Table {
	p, ok := PresetNamed(d.Preset)
	rows := viewRows(d)
	if !ok || len(rows) == 0 {
		return nil
	}
	if p.Path == "rdma" {
		return []report.Table{anpTable(d, p, n)}
	}
	l := layout{rows: rows, notes: n, published: onMI325X, window: 8}
	switch p.Name {
	case "torchcomms-2728", "torchcomms-2728-one-way", "torchcomms-2728-one-way-16":
		l.published, l.window = onH100, 1
		l.torchcomms()
	case "uccl-876-compare":
		l.compare()
	case "uccl-876-relay":
		l.roundTrips(UCCLRelay, false, false)
	case "uccl-876-anchor":
		l.roundTrips(UCCLAnchor, true, true)
	default:
		l.roundTrips(UCCLSweep, false, true)
	}
	l.remarks()
	return []report.Table{{Title: viewTitle(d, p, l.published), Columns: l.cols}}
}

func viewRows(d record.Document) []viewRow {
	var rows []viewRow
	for i, c := range d.Cells {
		at := slices.IndexFunc(rows, func(r viewRow) bool { return r.size == c.Size })
		if at < 0 {
			at = len(rows)
			rows = append(rows, viewRow{size: c.Size})
		}
		switch c.Op {
		case "pingpong":
			rows[at].trip = &d.Cells[i]
		case "stream":
			rows[at].windows = &d.Cells[i]
		case "latency":
			rows[at].received = &d.Cells[i]
		case "bidir":
			rows[at].both = &d.Cells[i]
		}
	}
	slices.SortStableFunc(rows, func(a, b viewRow) int { return cmp.Compare(a.size, b.size) })
	return rows
}

func viewTitle(d record.Document, p Preset, hardware string) []string {
	c := d.Cells[0]
	parts := []string{
		report.Clean(c.Transport), "path " + report.Clean(c.Path), "engine " + report.Clean(cmp.Or(c.Knobs["engine"], c.Engine)),
		report.Clean(report.Devices(d)),
	}
	if l := d.Env.Link; l != nil && c.Device != "host" {
		parts = append(parts, "link "+report.Clean(l.Type))
	}
	return []string{
		p.Title + " (preset " + p.Name + "): " + strings.Join(parts, ", "),
		fmt.Sprintf("%d iterations after %d of warm-up; \"PR\": columns by the pull request's definitions, from this run's samples; "+
			"\"p2pbench\": by p2pbench's definitions; \"%s\": published for %s, for orientation",
			c.Iters, c.Warmup, hardware[strings.LastIndex(hardware, " ")+1:], hardware),
	}
}

// The groups of columns.
const (
	byPR  = "PR"
	byOwn = "p2pbench"
)

// Hardware of the published figures. The last word is the heading of their columns.
const (
	onMI325X = "AMD MI325X"
	onH100   = "NVIDIA H100"
)

// layout makes the columns of a preset's table.
type layout struct {
	rows      []viewRow
	notes     *report.Notes
	cols      []report.Column
	published string // hardware
	window    int    // messages per window in the pull request
}

// addPublished adds a column of published figures.
func (l *layout) addPublished(head string, drop int, text func(viewRow) string) {
	l.add(l.published[strings.LastIndex(l.published, " ")+1:], head, "", drop, text)
}

// add adds a column. definition, if not empty, becomes a footnote of its heading.
func (l *layout) add(over, head, definition string, drop int, text func(viewRow) string) {
	if definition != "" {
		head += " " + l.notes.Ref(definition)
	}
	c := report.Column{Over: over, Head: head, Drop: drop}
	for _, r := range l.rows {
		c.Cells = append(c.Cells, text(r))
	}
	l.cols = append(l.cols, c)
}

const (
	quantileNote = "PR, µs: a full round trip, twice a ping-pong sample, which is half a round trip; quantile q is " +
		"sample ⌊q·n⌋, from 0, of the n sorted samples, so that p99 of up to 100 samples is the maximum"
	uniNote = "PR, uni: payload ÷ time of all windows of 8 messages, in 2³⁰ bytes per second, which its benchmark " +
		"prints as GB/s; its iterations are messages, p2pbench's are windows"
	meanNote = "PR, ms: the mean of full round trips, twice that of the ping-pong samples; its benchmark runs them back to " +
		"back between two clock readings, p2pbench times each one and checks it before the next"
	rateNote    = "PR, GB/s: 2 × size ÷ that mean, in 10⁹ bytes per second"
	oneWayNote  = "one-way: p50 of half a round trip, nearest-rank"
	receiveNote = "receiver: p50 of one message until the sender knows that the receiver has it"
	windowNote  = "GB/s: window × size ÷ p50 of a window, in 10⁹ bytes per second"
	ucclNote    = "UCCL's own IPC is not part of p2pbench"
)

// roundTrips adds the columns of the C++ benchmark's tables.
func (l *layout) roundTrips(table []RoundTrip, tail, uni bool) {
	l.add("", "size", "", 0, func(r viewRow) string { return report.Size(r.size) })
	l.add(byPR, "p50 µs", quantileNote, 0, func(r viewRow) string { return l.quantile(r.trip, 0.5) })
	if tail {
		l.add(byPR, "p99 µs", quantileNote, 0, func(r viewRow) string { return l.quantile(r.trip, 0.99) })
	}
	if uni {
		l.add(byPR, "uni GiB/s", uniNote, 0, func(r viewRow) string { return binaryRate(r.windows) })
	}
	l.ours(uni)
	from := func(of func(RoundTrip) float64) func(viewRow) string {
		return func(r viewRow) string {
			i := slices.IndexFunc(table, func(p RoundTrip) bool { return p.Size == r.size })
			if i < 0 || of(table[i]) == 0 {
				return report.None
			}
			return report.Fixed(of(table[i]), 2)
		}
	}
	l.addPublished("p50 µs", 0, from(func(p RoundTrip) float64 { return p.P50 }))
	if tail {
		l.addPublished("p99 µs", 0, from(func(p RoundTrip) float64 { return p.P99 }))
	}
	if uni {
		l.addPublished("uni GiB/s", 0, from(func(p RoundTrip) float64 { return p.Uni }))
	}
}

// compare adds the columns of the Python benchmark's table.
func (l *layout) compare() {
	l.add("", "size", "", 0, func(r viewRow) string { return report.Size(r.size) })
	l.add(byPR, "direct ms", meanNote, 0, func(r viewRow) string { return millis(tripMean(r.trip)) })
	l.add(byPR, "GB/s", rateNote, 0, func(r viewRow) string { return tripRate(r.size, tripMean(r.trip)) })
	l.add(byPR, "UCCL", ucclNote, 0, func(viewRow) string { return "n/a" })
	l.add(byPR, "NCCL ms", "", 0, func(r viewRow) string { return naOr(r.trip, millis(ncclMean(r.trip))) })
	l.add(byPR, "GB/s", "", 0, func(r viewRow) string { return naOr(r.trip, tripRate(r.size, ncclMean(r.trip))) })
	l.ours(false)
	from := func(text func(Compared) string) func(viewRow) string {
		return func(r viewRow) string {
			i := slices.IndexFunc(UCCLCompare, func(p Compared) bool { return p.Size == r.size })
			if i < 0 {
				return report.None
			}
			return text(UCCLCompare[i])
		}
	}
	l.addPublished("UKernel ms", 0, from(func(p Compared) string { return report.Fixed(p.UKernelMS, 3) }))
	l.addPublished("GB/s", 1, from(func(p Compared) string { return report.Fixed(p.UKernelGBs, 2) }))
	l.addPublished("UCCL ms", 0, from(func(p Compared) string { return report.Fixed(p.UCCLMS, 3) }))
	l.addPublished("GB/s", 1, from(func(p Compared) string { return report.Fixed(p.UCCLGBs, 2) }))
	l.addPublished("NCCL ms", 0, from(func(p Compared) string { return report.Fixed(p.NCCLMS, 3) }))
	l.addPublished("GB/s", 1, from(func(p Compared) string { return report.Fixed(p.NCCLGBs, 2) }))
}

// ours adds the columns by the definitions of docs/measurement.md.
func (l *layout) ours(rate bool) {
	p50 := func(c *record.Cell) string {
		if c == nil || c.N == 0 {
			return report.None
		}
		return report.Micros(c.Lat.P50)
	}
	l.add(byOwn, "one-way µs", oneWayNote, 0, func(r viewRow) string { return p50(r.trip) })
	if slices.ContainsFunc(l.rows, func(r viewRow) bool { return r.received != nil }) {
		l.add(byOwn, "receiver µs", receiveNote, 2, func(r viewRow) string { return p50(r.received) })
	}
	if rate {
		l.add(byOwn, "GB/s", windowNote, 0, func(r viewRow) string {
			if r.windows == nil {
				return report.None
			}
			return report.GBpsOrNone(r.windows.BWPerDir)
		})
	}
}

// remarks adds the last column: footnotes on the cells of a row.
func (l *layout) remarks() {
	c := report.Column{Left: true}
	said := false
	for _, r := range l.rows {
		var words []string
		for _, cell := range r.cells() {
			for word := range strings.FieldsSeq(l.notes.Of(*cell)) {
				if !slices.Contains(words, word) {
					words = append(words, word)
				}
			}
		}
		if w := cmp.Or(r.windows, r.both); w != nil && w.Window != l.window {
			words = append(words, l.notes.Ref(fmt.Sprintf("windows of %d messages instead of %d", w.Window, l.window)))
		}
		said = said || len(words) > 0
		c.Cells = append(c.Cells, strings.Join(words, " "))
	}
	if said {
		l.cols = append(l.cols, c)
	}
}

// quantile returns quantile q of the full round trip by the pull request's definition.
func (l *layout) quantile(c *record.Cell, q float64) string {
	if c == nil || c.N == 0 {
		return report.None
	}
	samples := record.DistributionOf(c.SamplesNS, c.Histogram)
	if len(samples) == 0 {
		return report.None + l.notes.Ref("needs the samples, which this file does not have: use the file that --out wrote")
	}
	n := samples.N()
	i := min(int(q*float64(n)), n-1)
	return report.Micros(2 * float64(samples.At(i+1)) / 1e3)
}

// binaryRate returns payload ÷ time of all windows, in 2³⁰ bytes per second.
func binaryRate(c *record.Cell) string {
	if c == nil || c.N == 0 || c.Lat.Mean == 0 {
		return report.None
	}
	return report.GBps(float64(c.Size) * float64(c.Window) / (c.Lat.Mean / 1e6) / (1 << 30))
}

// tripMean returns the mean of the full round trip in µs; 0: none.
func tripMean(c *record.Cell) float64 {
	if c == nil {
		return 0
	}
	return 2 * c.Lat.Mean
}

func ncclMean(c *record.Cell) float64 {
	if c == nil {
		return 0
	}
	if v := ncclOf(*c); v != nil {
		return 2 * v.Lat.Mean
	}
	return 0
}

// ncclOf returns the cell's NCCL baseline, with or without graphs, or nil.
func ncclOf(c record.Cell) *record.Vs {
	i := slices.IndexFunc(c.Vs, func(v record.Vs) bool { return strings.HasPrefix(v.Name, "nccl") })
	if i < 0 {
		return nil
	}
	return &c.Vs[i]
}

// naOr returns n/a if NCCL could not run, and text otherwise.
func naOr(c *record.Cell, text string) string {
	if c != nil {
		if v := ncclOf(*c); v != nil && v.NA != "" {
			return "n/a"
		}
	}
	return text
}

// millis formats ms with three decimals, as the pull request does, or with more if the value is small.
func millis(us float64) string {
	switch {
	case us == 0:
		return report.None
	case us < 10:
		return report.GBps(us / 1e3)
	}
	return report.Fixed(us/1e3, 3)
}

func tripRate(size uint64, us float64) string {
	if us == 0 {
		return report.None
	}
	return report.GBps(2 * float64(size) / us / 1e3)
}
