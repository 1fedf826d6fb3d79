package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Fact is a line below the tables.
type Fact struct{ Label, Text string }

// circumstances returns the lines below the tables: check, timing, machine, command, warnings and exit code. Parts that
// the document does not have are omitted.
func circumstances(d record.Document) []Fact {
	var all facts
	all.add("payload", verifiedText(d.Cells))
	all.add("counters", countersText(d))
	all = append(all, Timing(d.Env.Harness)...)
	all.add("cold", coldText(d))
	all = append(all, Machine(d.Env)...)
	for _, name := range slices.Sorted(maps.Keys(d.Transports)) {
		t := d.Transports[name]
		if t.OnlyRatios != "" {
			all.add("caveat", OnlyRatios(t.OnlyRatios))
		}
		for _, n := range t.Notes {
			all.add(Clean(n.Label), n.Text)
		}
	}
	return append(all, Ending(d)...)
}

func verifiedText(cells []record.Cell) string {
	if len(cells) == 0 {
		return ""
	}
	good, bad, full := 0, 0, true
	for _, c := range cells {
		full = full && c.Knobs["check"] == "full"
		switch {
		case c.Verified == nil:
		case *c.Verified:
			good++
		default:
			bad++
		}
	}
	text := fmt.Sprintf("verified in %d of %d cells", good, len(cells))
	if good == len(cells) && full {
		text += ", every byte of every message"
	}
	if bad > 0 {
		text += fmt.Sprintf(", CORRUPT in %d", bad)
	}
	return text
}

func timingText(h record.Harness) string {
	if h.Clock == "" {
		return ""
	}
	text := fmt.Sprintf("clock %s, harness overhead %.1f ns (not subtracted), worst start skew %s µs",
		h.Clock, h.OverheadNS, Micros(h.WorstSkewUS))
	if h.FirstCellMS > 0 {
		text += fmt.Sprintf(", first cell after %.0f ms", h.FirstCellMS)
	}
	return text
}

// coldText lists the start-up time of the slowest rank and the one-time costs of the first cell.
func coldText(d record.Document) string {
	var parts []string
	add := func(label string, us *float64) {
		if us != nil {
			parts = append(parts, fmt.Sprintf("%s %s µs", label, Micros(*us)))
		}
	}
	var process, device float64
	for _, r := range d.Env.Ranks {
		process, device = max(process, r.ProcessUS), max(device, r.DeviceUS)
	}
	if process > 0 || device > 0 {
		parts = append(parts, fmt.Sprintf("process %.1f ms, device %.1f ms", process/1e3, device/1e3))
	}
	if len(d.Cells) > 0 {
		c := d.Cells[0].Cold
		add("export", c.ExportUS)
		add("open", c.OpenUS)
		add("connect", c.ConnectUS)
		add("first operation", c.FirstUS)
	}
	return strings.Join(parts, ", ")
}

func rankText(r record.Rank) string {
	g := r.Device
	parts := []string{g.Name, g.UUID}
	if g.PCI != "" {
		parts = append(parts, "PCI "+g.PCI)
	}
	if r.NUMA >= 0 {
		parts = append(parts, fmt.Sprintf("NUMA %d", r.NUMA))
	}
	if r.CPU >= 0 {
		parts = append(parts, fmt.Sprintf("on CPU %d", r.CPU))
	} else {
		parts = append(parts, "not pinned")
	}
	if r.CPUSeconds > 0 {
		parts = append(parts, fmt.Sprintf("%.2f s of CPU time", r.CPUSeconds))
	}
	if r.After != nil && len(r.After.Throttle) > 0 {
		parts = append(parts, "THROTTLED: "+strings.Join(r.After.Throttle, ", "))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

func linkText(l *record.Link) string {
	switch {
	case l == nil:
		return ""
	case l.Detail != "":
		return fmt.Sprintf("%s (%s)", l.Type, l.Detail)
	case l.Count > 0:
		return fmt.Sprintf("%d × %s", l.Count, l.Type)
	}
	return l.Type
}

func hostText(e record.Env) string {
	var parts []string
	for _, text := range []string{e.Host, e.CPU.Model, e.OS} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	add := func(label, text string) {
		if text != "" {
			parts = append(parts, label+" "+text)
		}
	}
	add("kernel", e.Kernel)
	add("governor", e.CPU.Governor)
	add("driver", e.Driver)
	for _, name := range slices.Sorted(maps.Keys(e.Libraries)) {
		add(name, e.Libraries[name])
	}
	return strings.Join(parts, ", ")
}

func runText(d record.Document) string {
	text := strings.TrimSpace("p2pbench " + d.Version)
	if !d.Started.IsZero() {
		text += ", " + d.Started.UTC().Format(time.RFC3339)
	}
	if len(d.Command) > 0 {
		text += ": " + strings.Join(d.Command, " ")
	}
	return text
}

func exitText(code int) string {
	meaning := map[int]string{
		2: "usage", 3: "invalid", 4: "hang, crash or lost peer", 5: "data corruption",
	}[code]
	if meaning == "" {
		return fmt.Sprint(code)
	}
	return fmt.Sprintf("%d: %s", code, meaning)
}
