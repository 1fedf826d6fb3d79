package report

import (
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// field is a column of the CSV.
type field struct {
	name string
	text func(record.Cell) string
}

// writeCSV writes a header and one row per cell. Missing values are empty. The fixed columns are followed by those of
// all baselines, counters and knobs in the document.
func writeCSV(w io.Writer, d record.Document) error {
	fields := slices.Concat(identityFields(), figureFields(), stateFields(), coldFields(), connectionFields(d), baselineFields(d),
		mapFields(d, "counter_", func(c record.Cell) map[string]string { return counterTexts(c.Counters) }),
		mapFields(d, "knob_", func(c record.Cell) map[string]string { return c.Knobs }))
	out := csv.NewWriter(w)
	out.UseCRLF = true
	row := make([]string, len(fields))
	for i, f := range fields {
		row[i] = harmless(f.name)
	}
	if err := out.Write(row); err != nil {
		return err
	}
	for _, c := range d.Cells {
		for i, f := range fields {
			row[i] = harmless(f.text(c))
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// harmless makes text safe for terminals and spreadsheets, which execute text that begins with one of = + - @ as a
// formula. Numbers are unchanged.
func harmless(text string) string {
	text = Printable(text)
	if strings.HasPrefix(text, "-") && strings.Trim(text[1:], "0123456789.") == "" {
		return text
	}
	if strings.IndexAny(strings.TrimLeft(text, " "), "=+-@") == 0 {
		return "'" + text
	}
	return text
}

func identityFields() []field {
	return []field{
		{"transport", func(c record.Cell) string { return c.Transport }},
		{"path", func(c record.Cell) string { return c.Path }},
		{"engine", func(c record.Cell) string { return c.Engine }},
		{"device", func(c record.Cell) string { return c.Device }},
		{"op", func(c record.Cell) string { return c.Op }},
		{"size", func(c record.Cell) string { return strconv.FormatUint(c.Size, 10) }},
		{"offset", func(c record.Cell) string { return strconv.FormatUint(c.Offset, 10) }},
		{"ranks", func(c record.Cell) string { return strconv.Itoa(c.Ranks) }},
		{"window", func(c record.Cell) string { return strconv.Itoa(c.Window) }},
		{"warmup", func(c record.Cell) string { return strconv.Itoa(c.Warmup) }},
		{"iters", func(c record.Cell) string { return strconv.Itoa(c.Iters) }},
		{"n", func(c record.Cell) string { return strconv.Itoa(c.N) }},
		{"completion", func(c record.Cell) string { return c.Completion }},
	}
}

func figureFields() []field {
	var fields []field
	for _, f := range latencies {
		fields = append(fields, field{f.name + "_us", func(c record.Cell) string { return sampled(c.N, f.of(c.Lat)) }})
	}
	return append(fields,
		field{"bw_GBps_per_dir", func(c record.Cell) string { return fullOrEmpty(c.BWPerDir) }},
		field{"bw_GBps_sum", func(c record.Cell) string { return fullOrEmpty(c.BWSum) }},
		field{"msg_rate", func(c record.Cell) string { return sampled(c.N, c.MsgRate) }})
}

// latencies returns the figures of a summary by their keys in the document.
var latencies = []struct {
	name string
	of   func(record.Latency) float64
}{
	{"min", func(l record.Latency) float64 { return l.Min }},
	{"p50", func(l record.Latency) float64 { return l.P50 }},
	{"p90", func(l record.Latency) float64 { return l.P90 }},
	{"p99", func(l record.Latency) float64 { return l.P99 }},
	{"p999", func(l record.Latency) float64 { return l.P999 }},
	{"max", func(l record.Latency) float64 { return l.Max }},
	{"mean", func(l record.Latency) float64 { return l.Mean }},
}

func stateFields() []field {
	return []field{
		{"verified", func(c record.Cell) string {
			if c.Verified == nil {
				return ""
			}
			return strconv.FormatBool(*c.Verified)
		}},
		{"invalid", func(c record.Cell) string {
			if c.Invalid == nil {
				return ""
			}
			return *c.Invalid
		}},
		{"warnings", func(c record.Cell) string { return strings.Join(c.Warnings, "; ") }},
		{"skew_us", func(c record.Cell) string { return full(c.SkewUS) }},
	}
}

func coldFields() []field {
	return []field{
		{"export_us", func(c record.Cell) string { return fullOrEmpty(c.Cold.ExportUS) }},
		{"open_us", func(c record.Cell) string { return fullOrEmpty(c.Cold.OpenUS) }},
		{"connect_us", func(c record.Cell) string { return fullOrEmpty(c.Cold.ConnectUS) }},
		{"first_us", func(c record.Cell) string { return fullOrEmpty(c.Cold.FirstUS) }},
	}
}

// connectionFields returns the minimum and maximum over connections; no fields if no cell has connections.
func connectionFields(d record.Document) []field {
	if !slices.ContainsFunc(d.Cells, func(c record.Cell) bool { return len(c.Conns) > 0 }) {
		return nil
	}
	fields := []field{
		{"connections", func(c record.Cell) string { return strconv.Itoa(len(c.Conns)) }},
		{"jain_fairness", func(c record.Cell) string { return fullOrEmpty(c.Fairness) }},
	}
	for _, f := range []struct {
		name string
		of   func(record.Connection) float64
	}{
		{"p50_us", func(c record.Connection) float64 { return c.P50 }},
		{"p99_us", func(c record.Connection) float64 { return c.P99 }},
		{"max_us", func(c record.Connection) float64 { return c.Max }},
		{"GBps", rateOf},
	} {
		for _, end := range []struct {
			name string
			of   func([]float64) float64
		}{{"min", slices.Min[[]float64]}, {"max", slices.Max[[]float64]}} {
			fields = append(fields, field{"conn_" + end.name + "_" + f.name, func(c record.Cell) string {
				if len(c.Conns) == 0 || f.name == "GBps" && c.Size == 0 {
					return ""
				}
				values := make([]float64, len(c.Conns))
				for i, conn := range c.Conns {
					values[i] = f.of(conn)
				}
				return full(end.of(values))
			}})
		}
	}
	return fields
}

func baselineFields(d record.Document) []field {
	var fields []field
	for _, name := range (block{cells: d.Cells}).baselines() {
		add := func(suffix string, text func(record.Vs) string) {
			fields = append(fields, field{"vs_" + name + "_" + suffix, func(c record.Cell) string {
				if v := baseline(c, name); v != nil {
					return text(*v)
				}
				return ""
			}})
		}
		add("engine", func(v record.Vs) string { return v.Engine })
		add("n", func(v record.Vs) string { return strconv.Itoa(v.N) })
		for _, f := range latencies {
			add(f.name+"_us", func(v record.Vs) string { return sampled(v.N, f.of(v.Lat)) })
		}
		add("bw_GBps_per_dir", func(v record.Vs) string { return fullOrEmpty(v.BWPerDir) })
		add("ratio", func(v record.Vs) string { return fullOrEmpty(v.Ratio) })
		add("na", func(v record.Vs) string { return v.NA })
		fields = append(fields, mapFields(d, "vs_"+name+"_counter_", func(c record.Cell) map[string]string {
			if v := baseline(c, name); v != nil {
				return counterTexts(v.Counters)
			}
			return nil
		})...)
	}
	return fields
}

func mapFields(d record.Document, prefix string, of func(record.Cell) map[string]string) []field {
	names := map[string]bool{}
	for _, c := range d.Cells {
		for k := range of(c) {
			names[k] = true
		}
	}
	var fields []field
	for _, k := range slices.Sorted(maps.Keys(names)) {
		fields = append(fields, field{prefix + k, func(c record.Cell) string { return of(c)[k] }})
	}
	return fields
}

func counterTexts(counters map[string]uint64) map[string]string {
	texts := make(map[string]string, len(counters))
	for k, v := range counters {
		texts[k] = strconv.FormatUint(v, 10)
	}
	return texts
}

// sampled formats v, or "" without samples.
func sampled(n int, v float64) string {
	if n == 0 {
		return ""
	}
	return full(v)
}

func fullOrEmpty(v *float64) string {
	if v == nil {
		return ""
	}
	return full(*v)
}
