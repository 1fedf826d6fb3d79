package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// footnotes collects what stands below the tables: each text once, with a number.
type footnotes struct{ texts []string }

func (f *footnotes) number(text string) int {
	if i := slices.Index(f.texts, text); i >= 0 {
		return i + 1
	}
	f.texts = append(f.texts, text)
	return len(f.texts)
}

// marks notes what has to be said about the cell and returns its marks: " [1][2]".
func (f *footnotes) marks(c record.Cell) string {
	var texts []string
	if c.Invalid != nil {
		texts = append(texts, "INVALID: "+*c.Invalid)
	}
	texts = append(texts, c.Warnings...)
	for _, v := range c.Vs {
		if v.NA != "" {
			texts = append(texts, v.Name+" is n/a: "+v.NA)
		}
	}
	var b strings.Builder
	for _, t := range texts {
		fmt.Fprintf(&b, " [%d]", f.number(t))
	}
	return b.String()
}

// title says what a block is: two lines.
func (b *block) title(d record.Document) []string {
	first := b.cells[0]
	window := ""
	if b.windowed() {
		window = "a sample is a window of messages"
	}
	return []string{
		fmt.Sprintf("%s  %s", b.op, joined(b.transport+" "+b.path, "engine "+b.engine, devices(d, b.device),
			"complete at: "+first.Completion)),
		joined(b.meaning(), window),
	}
}

// meaning defines the block's figures.
func (b *block) meaning() string {
	switch b.op {
	case "stream":
		return "GB/s = window × size / p50, one direction"
	case "bidir":
		return "GB/s per dir = window × size / p50; sum = both directions"
	case "pingpong":
		return "µs is half a round trip; GB/s = size / p50, one message in flight"
	}
	return "GB/s = size / p50, one message in flight"
}

// devices names the devices and the way between them.
func devices(d record.Document, kind string) string {
	if len(d.Env.Ranks) < 2 {
		return kind
	}
	a, b := d.Env.Ranks[0].Device, d.Env.Ranks[1].Device
	text := fmt.Sprintf("%s %d → %s %d", a.Name, a.Index, b.Name, b.Index)
	if a.UUID == b.UUID {
		text = fmt.Sprintf("%s %d shared by both ranks", a.Name, a.Index)
	}
	if kind == "host" {
		text = "CPU memory"
		if a.UUID != b.UUID {
			text += fmt.Sprintf(" NUMA %d → %d", a.NUMA, b.NUMA)
		}
		return text
	}
	if l := d.Env.Link; l != nil {
		text += " over " + l.Type
		if l.Detail != "" {
			text += " (" + l.Detail + ")"
		}
	}
	return text
}

// closing is the lines below all tables: how the figures were taken.
func closing(d record.Document) []string {
	var out []string
	starred := false
	for _, c := range d.Cells {
		starred = starred || c.N < needP999
	}
	if starred {
		out = append(out, "* the maximum: too few samples for this percentile (p99 needs 100, p99.9 needs 1000)")
	}
	for _, v := range baselineNames(d) {
		out = append(out, fmt.Sprintf("vs %s: %s p50 / this p50; above 1x this path is faster", v, v))
	}
	out = append(out, "payload: "+verification(d))
	if cold := coldCosts(d); cold != "" {
		out = append(out, cold)
	}
	h := d.Env.Harness
	out = append(out, fmt.Sprintf("harness: clock %s, %.0f ns per sample (not subtracted), worst start skew %s µs, first cell after %.0f ms",
		h.Clock, h.OverheadNS, micros(h.WorstSkewUS), h.FirstCellMS))
	out = append(out, machine(d))
	return out
}

func baselineNames(d record.Document) []string {
	var names []string
	for _, b := range blocks(d.Cells) {
		for _, n := range b.baselines() {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

// verification says how much of the payload was compared.
func verification(d record.Document) string {
	var verified, unchecked int
	for _, c := range d.Cells {
		switch {
		case c.Verified == nil:
			unchecked++
		case *c.Verified:
			verified++
		}
	}
	switch {
	case unchecked == len(d.Cells):
		return "not checked"
	case verified == len(d.Cells) && len(d.Cells) > 0 && d.Cells[0].Knobs["check"] == "full":
		return "every byte of every message checked at the receiver, outside the timed part"
	case verified == len(d.Cells):
		return "a sample of the bytes checked at the receiver, outside the timed part"
	}
	return fmt.Sprintf("%d of %d cells verified, %d not checked", verified, len(d.Cells), unchecked)
}

// coldCosts shows the first cell's.
func coldCosts(d record.Document) string {
	if len(d.Cells) == 0 {
		return ""
	}
	c := d.Cells[0].Cold
	parts := []string{}
	for _, p := range []struct {
		name string
		us   *float64
	}{{"export", c.ExportUS}, {"open", c.OpenUS}, {"connect", c.ConnectUS}, {"first operation", c.FirstUS}} {
		if p.us != nil {
			parts = append(parts, p.name+" "+optional(p.us))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "cold, µs: " + strings.Join(parts, ", ")
}

func machine(d record.Document) string {
	e := d.Env
	day := ""
	if !d.Started.IsZero() {
		day = d.Started.UTC().Format("2006-01-02")
	}
	driver := ""
	if e.Driver != "" {
		driver = "driver " + e.Driver
	}
	cpus := ""
	if e.CPU.Count > 0 {
		cpus = fmt.Sprintf("%s, %d CPUs", e.CPU.Model, e.CPU.Count)
	}
	return "machine: " + joined(cpus, e.OS, driver, "p2pbench "+d.Version, day)
}
