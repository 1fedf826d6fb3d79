package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// shownCounters are what a path did for its messages, in the order in which they are shown. The document has more, cell
// by cell.
var shownCounters = []string{
	"path_direct", "path_handshake", "path_relay", "path_get", "control_msgs", "published", "exports", "opens", "closes",
	"hits", "misses", "direct", "evictions", "stale", "overlap_deletes", "bounced", "moved_buffers", "steps", "fences",
	"grants", "misroutes", "rnr", "retries", "nic_bytes",
}

// shownLevels are what a cell had: not sums, but from the least to the most.
var shownLevels = []struct {
	name  string
	label string
	text  func(uint64) string
	of    func(record.Cell) []map[string]uint64
}{
	{"ctas", "ctas", count, ownCounters},
	{"stride", "stride", size, ownCounters},
	{"train", "trains of", count, ownCounters},
	{"nccl_ctas", "nccl_ctas", count, baselineCounters},
	{"qps", "qps", count, ownCounters},
	{"cqs", "cqs", count, ownCounters},
	{"mrs", "mrs", count, ownCounters},
	{"comms", "comms", count, ownCounters},
	{"queue_bytes", "queues of", size, ownCounters},
	{"setup_ns", "set-up of a connection", microsOf, ownCounters},
	{"setup_shared_ns", "of one that shares", microsOf, ownCounters},
	{"inline", "inline up to", size, ownCounters},
}

func microsOf(ns uint64) string { return micros(float64(ns)/1e3) + " µs" }

func count(n uint64) string { return fmt.Sprint(n) }

func ownCounters(c record.Cell) []map[string]uint64 { return []map[string]uint64{c.Counters} }

func baselineCounters(c record.Cell) (all []map[string]uint64) {
	for _, v := range c.Vs {
		all = append(all, v.Counters)
	}
	return all
}

// countersText sums the counters of all cells. A path that no message took is left out, as is what does not apply.
func countersText(cells []record.Cell) string {
	sum, known := map[string]uint64{}, map[string]bool{}
	for _, c := range cells {
		for name, n := range c.Counters {
			sum[name] += n
			known[name] = true
		}
	}
	var parts []string
	for _, name := range shownCounters {
		if !known[name] || strings.HasPrefix(name, "path_") && sum[name] == 0 {
			continue
		}
		text := fmt.Sprintf("%s %d", name, sum[name])
		if ns := sum[strings.TrimSuffix(name, "s")+"_ns"]; ns > 0 && sum[name] > 0 {
			text += fmt.Sprintf(" (%s µs each)", micros(float64(ns)/1e3/float64(sum[name])))
		}
		parts = append(parts, text)
	}
	parts = append(parts, levelTexts(cells)...)
	if mapped := mappedBytes(cells); mapped > 0 {
		parts = append(parts, fmt.Sprintf("mapped %.1f MiB", float64(mapped)/(1<<20)))
	}
	return strings.Join(parts, ", ")
}

// levelTexts are the levels that any of the cells has: "ctas 4", "stride 256K to 2M".
func levelTexts(cells []record.Cell) (parts []string) {
	for _, level := range shownLevels {
		var values []uint64
		for _, c := range cells {
			for _, counters := range level.of(c) {
				if v, ok := counters[level.name]; ok {
					values = append(values, v)
				}
			}
		}
		if len(values) == 0 {
			continue
		}
		text := level.label + " " + level.text(slices.Min(values))
		if most := slices.Max(values); most > slices.Min(values) {
			text += " to " + level.text(most)
		}
		parts = append(parts, text)
	}
	return parts
}

// mappedBytes is the memory of the peers that was mapped after the last cell: a level.
func mappedBytes(cells []record.Cell) uint64 {
	if len(cells) == 0 {
		return 0
	}
	return cells[len(cells)-1].Counters["mapped_bytes"]
}
