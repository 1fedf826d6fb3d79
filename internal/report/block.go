package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// block holds the cells of one table: those whose figures have the same definition.
type block struct {
	env        record.Env
	transports map[string]record.Transport
	cells      []record.Cell // at least one
}

// blocks groups a document's cells by operation, in the order of ops, then by transport, path and engine, in the order
// of the document.
func blocks(d record.Document) []block {
	type key struct {
		op, transport, path, engine, device, completion string
		ranks                                           int
	}
	var all []block
	index := map[key]int{}
	for _, c := range d.Cells {
		k := key{c.Op, c.Transport, c.Path, asked(c), c.Device, c.Completion, c.Ranks}
		i, ok := index[k]
		if !ok {
			i = len(all)
			index[k] = i
			all = append(all, block{env: d.Env, transports: d.Transports})
		}
		all[i].cells = append(all[i].cells, c)
	}
	slices.SortStableFunc(all, func(a, b block) int { return cmp.Compare(opOrder(a.op()), opOrder(b.op())) })
	return all
}

// asked returns the requested engine: with "auto" all sizes are in one table, whichever engine was chosen.
func asked(c record.Cell) string { return cmp.Or(c.Knobs["engine"], c.Engine) }

// used returns the engine that moved the cell's messages.
func used(c record.Cell) string { return Clean(c.Engine) }

func (b block) op() string { return b.cells[0].Op }

// described returns the description of the block's transport.
func (b block) described() record.Transport { return b.transports[b.cells[0].Transport] }

// title returns the lines above a block: subject, definitions of the figures, baselines.
func (b block) title(wide bool) []string {
	lines := []string{b.subject(), b.definition()}
	if text := b.baselineText(); text != "" {
		lines = append(lines, text)
	}
	if text := b.commonKnobs(); wide && text != "" {
		lines = append(lines, "knobs: "+text)
	}
	return lines
}

func (b block) subject() string {
	c := b.cells[0]
	parts := []string{Clean(c.Transport)}
	add := func(label, value string) {
		if value != "" {
			parts = append(parts, strings.TrimSpace(label+" "+Clean(value)))
		}
	}
	add("path", c.Path)
	add("engine", asked(c))
	if ring(c) {
		add("ring of", fmt.Sprint(c.Ranks))
	}
	if how := fan(c); how != "" {
		add("", fmt.Sprintf("fan %s of %d ranks", how, c.Ranks))
	}
	add("", b.devices())
	if over := b.described().Over; len(over) > 0 {
		for _, text := range over {
			add("", text)
		}
	} else if l := b.env.Link; l != nil && c.Device != "host" { // CPU memory has no link
		add("link", l.Type)
	}
	add("completion", c.Completion)
	if by := c.Knobs["timing"]; by != "" && !b.varies(knob("timing")) {
		add("timed by the", by)
	}
	add("", b.launch())
	if !b.varies(offset) && c.Offset != 0 {
		add("offset", offset(c))
	}
	return Clean(c.Op) + ": " + strings.Join(parts, ", ")
}

// fan returns "out" if rank 0 sends to all others, "in" if all others send to rank 0, and "" otherwise.
func fan(c record.Cell) string {
	if how := c.Knobs["fan"]; how != "pair" {
		return how
	}
	return ""
}

// ring reports whether each rank sends to the next rank.
func ring(c record.Cell) bool { return c.Knobs["ring"] == "true" }

// launch describes the number of messages in flight, and how they are launched if not one by one.
func (b block) launch() string {
	c := b.cells[0]
	windows := "window " + window(c)
	if b.varies(window) {
		windows = "window by row"
	}
	switch started(c) {
	case "graph":
		if b.varies(started) { // a column shows it
			return windows
		}
		if b.varies(window) {
			return "graph of a window, by row"
		}
		return "graph of " + window(c)
	case "persistent":
		if !b.varies(started) {
			return "persistent kernel, " + b.bursts(windows)
		}
	}
	return windows
}

// bursts describes the bursts of a persistent kernel, or else the windows.
func (b block) bursts(windows string) string {
	burst := b.cells[0].Knobs["burst"]
	switch {
	case b.op() != "pingpong" || burst == "" || b.varies(func(c record.Cell) string { return c.Knobs["burst"] }):
		return windows
	case burst == "1":
		return "one round trip per barrier"
	}
	return "in bursts of up to " + burst
}

// started returns how a window is launched: "graph", "persistent" or another word.
func started(c record.Cell) string {
	if c.Knobs["cudagraph"] == "window" {
		return "graph"
	}
	return c.Knobs["launch"]
}

// definition defines µs and GB/s for this block.
func (b block) definition() string {
	switch b.op() {
	case "latency":
		return "one message in flight; GB/s = size ÷ p50, one direction"
	case "stream":
		if fan(b.cells[0]) != "" {
			return "µs of a whole window of every pair of ranks; GB/s/dir = window × size ÷ p50, one pair; GB/s sum = all pairs"
		}
		return "µs of a whole window; GB/s = window × size ÷ p50, one direction"
	case "bidir":
		if ring(b.cells[0]) {
			return "µs of a whole window from each rank to the next; GB/s/dir = window × size ÷ p50, sent by one rank; GB/s sum = sent by " +
				"all ranks"
		}
		return "µs of a whole window each way; GB/s/dir = window × size ÷ p50, one direction; GB/s sum = both directions"
	case "pingpong":
		return "µs of half a round trip, one message in flight; GB/s = size ÷ p50, one direction at a time"
	}
	return "GB/s of one direction, from the median sample"
}

// devices returns the names of the ranks' devices: "2 × NVIDIA H200".
func (b block) devices() string {
	c := b.cells[0]
	var names []string
	seen := map[string]bool{}
	for _, r := range b.env.Ranks[:min(max(c.Ranks, 0), len(b.env.Ranks))] {
		if r.Device.Kind == c.Device {
			names = append(names, cmp.Or(r.Device.Name, r.Device.Kind))
			seen[r.Device.UUID] = true
		}
	}
	switch same := len(slices.Compact(slices.Clone(names))) == 1; {
	case len(names) == 0:
		return c.Device
	case len(names) == 1 || same && c.Device == "host":
		return names[0]
	case same && len(seen) == 1:
		return fmt.Sprintf("%d ranks on one %s", len(names), names[0])
	case same && len(seen) < len(names):
		return fmt.Sprintf("%d ranks on %d × %s", len(names), len(seen), names[0])
	case same:
		return fmt.Sprintf("%d × %s", len(names), names[0])
	case len(names) == 2:
		return names[0] + " → " + names[1]
	}
	return strings.Join(names, " + ")
}

// baselines returns the names of the block's baselines, in the order of the cells.
func (b block) baselines() []string {
	var names []string
	for _, c := range b.cells {
		for _, v := range c.Vs {
			if !slices.Contains(names, v.Name) {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

// baselineText describes each baseline with figures: name, engine and number of samples.
func (b block) baselineText() string {
	var parts []string
	for _, name := range b.baselines() {
		if text := b.describeBaseline(name); text != "" {
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("baselines, interleaved: %s; ratio = baseline p50 ÷ %s p50, above 1: %[2]s is faster",
		strings.Join(parts, ", "), Clean(b.cells[0].Transport))
}

func (b block) describeBaseline(name string) string {
	var engine string
	var least, most int
	for _, c := range b.cells {
		if v := baseline(c, name); v != nil && v.NA == "" {
			if most == 0 {
				least = v.N
			}
			least, most, engine = min(least, v.N), max(most, v.N), v.Engine
		}
	}
	switch {
	case most == 0:
		return ""
	case engine != "":
		name += " " + engine
	}
	if least != most {
		return fmt.Sprintf("%s (n %d–%d)", Clean(name), least, most)
	}
	return fmt.Sprintf("%s (n %d)", Clean(name), most)
}

// transportOf returns the transport of a baseline.
func (b block) transportOf(name string) string {
	for _, c := range b.cells {
		if v := baseline(c, name); v != nil && v.Transport != "" {
			return v.Transport
		}
	}
	return ""
}

// baseline returns the cell's baseline of that name, or nil.
func baseline(c record.Cell, name string) *record.Vs {
	for i := range c.Vs {
		if c.Vs[i].Name == name {
			return &c.Vs[i]
		}
	}
	return nil
}

func window(c record.Cell) string { return fmt.Sprint(c.Window) }
func offset(c record.Cell) string { return Size(c.Offset) }

// varies reports whether text differs between cells of the block.
func (b block) varies(text func(record.Cell) string) bool {
	return slices.ContainsFunc(b.cells, func(c record.Cell) bool { return text(c) != text(b.cells[0]) })
}

// varyingKnobs returns the settings in which the cells differ.
func (b block) varyingKnobs() []string {
	return slices.DeleteFunc(b.knobs(), func(k string) bool { return !b.varies(knob(k)) })
}

func (b block) commonKnobs() string {
	var parts []string
	for _, k := range b.knobs() {
		if !b.varies(knob(k)) {
			parts = append(parts, Clean(k+"="+b.cells[0].Knobs[k]))
		}
	}
	return strings.Join(parts, " ")
}

// knobs returns the names of all settings, sorted.
func (b block) knobs() []string {
	all := map[string]bool{}
	for _, c := range b.cells {
		for k := range c.Knobs {
			all[k] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func knob(name string) func(record.Cell) string {
	return func(c record.Cell) string { return cmp.Or(Clean(c.Knobs[name]), None) }
}
