package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/stats"
)

// writeBenchfmt writes the Go benchmark format (https://go.dev/design/14313-benchmark-format): one line per cell, and
// one per baseline of a cell with /baseline=NAME in its name, so that benchstat -col /baseline compares them. ns/op is
// the mean, as in Go's own benchmarks; in stream and bidir it is that of a window. MB/s is the rate of one direction by
// the median, as in every other view. Percentiles with too few samples are omitted.
//
// Configuration lines hold the properties that make runs incomparable, by which benchstat separates runs, and nothing
// that differs between comparable runs. An invalid cell is a comment, so that no reader uses its figures.
func writeBenchfmt(out *bytes.Buffer, d record.Document) {
	writeConfig(out, d)
	names := benchNames(d.Cells)
	for i, c := range d.Cells {
		switch {
		case c.Invalid != nil:
			fmt.Fprintf(out, "# invalid: %s: %s\n", benchName(c, names[i]), Clean(*c.Invalid))
			continue
		case c.Verified != nil && !*c.Verified:
			fmt.Fprintf(out, "# invalid: %s: the received payload differs from the payload sent\n", benchName(c, names[i]))
			continue
		}
		if !overWindow(c.Op) { // fairness needs several messages in flight
			c.Fairness = nil
		}
		writeResult(out, benchName(c, names[i]), c.N, c.Lat, c.BWPerDir, c.MsgRate, c.Fairness)
		for _, v := range c.Vs {
			writeResult(out, benchName(c, names[i]+"/baseline="+word(v.Name)), v.N, v.Lat, v.BWPerDir, 0, v.Fairness)
		}
	}
}

func writeConfig(out *bytes.Buffer, d record.Document) {
	e := d.Env
	add := func(key, value string) {
		if value = Clean(value); value != "" {
			fmt.Fprintf(out, "%s: %s\n", key, value)
		}
	}
	add("goos", "linux") // p2pbench runs on Linux only
	add("goarch", e.Arch)
	add("pkg", "github.com/p2pbench/p2pbench")
	add("cpu", e.CPU.Model)
	if len(e.Ranks) > 0 {
		add("device", e.Ranks[0].Device.Name)
	}
	add("driver", e.Driver)
	add("link", linkText(e.Link))
	for _, unit := range []string{"p50-ns/op", "p90-ns/op", "p99-ns/op", "p99.9-ns/op", "max-ns/op"} {
		fmt.Fprintf(out, "Unit %s better=lower\n", unit)
	}
	out.WriteString("Unit msg/s better=higher\n")
	if slices.ContainsFunc(d.Cells, func(c record.Cell) bool { return c.Fairness != nil }) {
		out.WriteString("Unit jain better=higher\n")
	}
	out.WriteByte('\n')
}

// benchNames returns a unique name for each cell: it appends the settings in which cells of the same base name differ.
func benchNames(cells []record.Cell) []string {
	same := map[string]*block{}
	names := make([]string, len(cells))
	for i, c := range cells {
		names[i] = baseName(c)
		if same[names[i]] == nil {
			same[names[i]] = &block{}
		}
		same[names[i]].cells = append(same[names[i]].cells, c)
	}
	for i, c := range cells {
		for _, k := range same[names[i]].varyingKnobs() {
			names[i] += "/" + word(k) + "=" + word(knob(k)(c))
		}
	}
	return names
}

// baseName returns a name such as Ipc/op=latency/path=direct/size=1024/engine=ce.
func baseName(c record.Cell) string {
	first, n := utf8.DecodeRuneInString(word(c.Transport))
	name := string(unicode.ToUpper(first)) + word(c.Transport)[n:]
	add := func(key, value string) {
		if value != "" {
			name += "/" + key + "=" + word(value)
		}
	}
	add("op", c.Op)
	add("path", c.Path)
	add("size", fmt.Sprint(c.Size))
	if c.Offset > 0 {
		add("offset", fmt.Sprint(c.Offset))
	}
	if overWindow(c.Op) {
		add("window", fmt.Sprint(c.Window))
	}
	add("engine", c.Engine)
	return name
}

// benchName appends the number of ranks, in place of GOMAXPROCS in Go's own benchmarks.
func benchName(c record.Cell, name string) string {
	return fmt.Sprintf("Benchmark%s-%d", name, max(c.Ranks, 1))
}

func writeResult(out *bytes.Buffer, name string, n int, l record.Latency, bw *float64, rate float64, fairness *float64) {
	if n == 0 {
		return
	}
	fmt.Fprintf(out, "%s %d %s ns/op", name, n, digits(l.Mean*1e3))
	if bw != nil {
		fmt.Fprintf(out, " %s MB/s", digits(*bw*1e3))
	}
	fmt.Fprintf(out, " %s p50-ns/op", digits(l.P50*1e3))
	for _, p := range []struct {
		percent float64
		value   float64
	}{{90, l.P90}, {99, l.P99}, {99.9, l.P999}} {
		if stats.Carries(n, p.percent) {
			fmt.Fprintf(out, " %s p%v-ns/op", digits(p.value*1e3), p.percent)
		}
	}
	fmt.Fprintf(out, " %s max-ns/op", digits(l.Max*1e3))
	if rate > 0 {
		fmt.Fprintf(out, " %s msg/s", digits(rate))
	}
	if fairness != nil {
		fmt.Fprintf(out, " %s jain", digits(*fairness))
	}
	out.WriteByte('\n')
}

// digits rounds to ten digits: the conversion of units makes the last digits noise.
func digits(v float64) string { return fmt.Sprintf("%.10g", v) }

// word converts text to a valid part of a benchmark's name.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == '=' || unicode.IsSpace(r) || record.Hidden(r) {
			return '_'
		}
		return r
	}, s)
}
