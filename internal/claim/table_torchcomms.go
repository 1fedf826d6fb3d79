package claim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

const (
	callNote = "PR, GB/s: size ÷ mean, one direction even if both are in use. The pull request starts a graph of one call 50 to 500 " +
		"times back to back between two events; p2pbench times each start by itself, after a barrier"
	callRatioNote = "PR, ratio: NCCL's mean ÷ the kernel's"
	startNote     = "p2pbench: p50 of one start, the longer time of the two ranks, by the device's clock; ratio = NCCL p50 ÷ ws p50"
	blocksNote    = "CTAs: thread blocks of the kernel / of NCCL, as launched"
	finalNote     = "published ratio: of the final revision, for \"from 8 MB to 1 GB\" and \"small\"; earlier: of an earlier revision"
)

// torchcomms adds the columns of torchcomms #2728, for both directions or for one.
func (l *layout) torchcomms() {
	l.add("", "size", "", 0, func(r viewRow) string { return report.Size(r.size) })
	of := func(text func(c record.Cell) string) func(viewRow) string {
		return func(r viewRow) string {
			c := cmp.Or(r.both, r.windows)
			if c == nil || c.N == 0 {
				return report.None
			}
			return text(*c)
		}
	}
	versus := func(text func(c record.Cell, v record.Vs) string) func(viewRow) string {
		return of(func(c record.Cell) string {
			switch v := ncclOf(c); {
			case v == nil:
				return report.None
			case v.NA != "" || v.N == 0:
				return "n/a"
			default:
				return text(c, *v)
			}
		})
	}
	l.add(byPR, "ws GB/s", callNote, 0, of(func(c record.Cell) string { return callRate(c, c.Lat.Mean) }))
	l.add(byPR, "NCCL GB/s", "", 0, versus(func(c record.Cell, v record.Vs) string { return callRate(c, v.Lat.Mean) }))
	l.add(byPR, "ratio", callRatioNote, 0, versus(func(c record.Cell, v record.Vs) string {
		return ratioText(v.Lat.Mean, c.Lat.Mean)
	}))
	l.add(byOwn, "p50 µs", startNote, 0, of(func(c record.Cell) string { return report.Micros(c.Lat.P50) }))
	l.add(byOwn, "NCCL", "", 0, versus(func(_ record.Cell, v record.Vs) string { return report.Micros(v.Lat.P50) }))
	l.add(byOwn, "ratio", "", 0, versus(func(c record.Cell, v record.Vs) string { return ratioText(v.Lat.P50, c.Lat.P50) }))
	l.add(byOwn, "CTAs", blocksNote, 1, of(func(c record.Cell) string { return blocksText(c) }))
	if slices.ContainsFunc(l.rows, func(r viewRow) bool { return r.both != nil }) {
		l.bothWays()
		return
	}
	l.oneWay()
}

// bothWays adds the published factors, most of which cover a range of sizes.
func (l *layout) bothWays() {
	from := func(table []BothWays) func(viewRow) string {
		return func(r viewRow) string {
			i := slices.IndexFunc(table, func(p BothWays) bool { return p.From <= r.size && r.size <= p.To })
			if i < 0 {
				return report.None
			}
			return rangeText(table[i].Low, table[i].High)
		}
	}
	l.addPublished("ratio "+l.notes.Ref(finalNote), 0, from(TorchcommsBothWays))
	l.addPublished("earlier", 0, from(TorchcommsEarlier))
}

// rangeText formats a range with the number of published decimals: one if neither end has more.
func rangeText(low, high float64) string {
	decimals := 2
	if report.Fixed(low, 2) == report.Fixed(low, 1)+"0" && report.Fixed(high, 2) == report.Fixed(high, 1)+"0" {
		decimals = 1
	}
	if low == high {
		return report.Fixed(low, decimals)
	}
	return report.Fixed(low, decimals) + "–" + report.Fixed(high, decimals)
}

// oneWay adds the published rates for the run's number of thread blocks.
func (l *layout) oneWay() {
	from := func(text func(OneWay) string) func(viewRow) string {
		return func(r viewRow) string {
			i := slices.IndexFunc(TorchcommsOneWay, func(p OneWay) bool {
				return p.Size == r.size && r.windows != nil && fmt.Sprint(p.CTAs) == r.windows.Knobs["ctas"]
			})
			if i < 0 {
				return report.None
			}
			return text(TorchcommsOneWay[i])
		}
	}
	l.addPublished("kernel GB/s", 0, from(func(p OneWay) string { return report.Fixed(p.Ours, 1) }))
	l.addPublished("NCCL GB/s", 0, from(func(p OneWay) string { return report.Fixed(p.NCCL, 1) }))
	l.addPublished("ratio", 0, from(func(p OneWay) string { return report.Fixed(p.Ours/p.NCCL, 2) }))
}

// callRate returns the payload of one direction ÷ the time of a window in µs.
func callRate(c record.Cell, us float64) string {
	if us <= 0 {
		return report.None
	}
	return report.GBps(float64(c.Size) * float64(c.Window) / us / 1e3)
}

func ratioText(theirs, ours float64) string {
	if ours <= 0 {
		return report.None
	}
	return report.Fixed(theirs/ours, 2)
}

func blocksText(c record.Cell) string {
	n, ok := c.Counters["ctas"]
	if !ok {
		return report.None
	}
	theirs := report.None
	if v := ncclOf(c); v != nil {
		if n, seen := v.Counters["nccl_ctas"]; seen {
			theirs = fmt.Sprint(n)
		}
	}
	return fmt.Sprintf("%d / %s", n, theirs)
}
