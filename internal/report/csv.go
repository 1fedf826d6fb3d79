package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// csvColumns are the columns that every cell has; baselines follow, five columns each.
var csvColumns = []struct {
	name  string
	value func(record.Cell) string
}{
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
	{"n", func(c record.Cell) string { return strconv.Itoa(c.N) }},
	{"completion", func(c record.Cell) string { return c.Completion }},
	{"min_us", func(c record.Cell) string { return full(c.Lat.Min) }},
	{"p50_us", func(c record.Cell) string { return full(c.Lat.P50) }},
	{"p90_us", func(c record.Cell) string { return full(c.Lat.P90) }},
	{"p99_us", func(c record.Cell) string { return full(c.Lat.P99) }},
	{"p999_us", func(c record.Cell) string { return full(c.Lat.P999) }},
	{"max_us", func(c record.Cell) string { return full(c.Lat.Max) }},
	{"mean_us", func(c record.Cell) string { return full(c.Lat.Mean) }},
	{"bw_GBps_per_dir", func(c record.Cell) string { return fullOrEmpty(c.BWPerDir) }},
	{"bw_GBps_sum", func(c record.Cell) string { return fullOrEmpty(c.BWSum) }},
	{"msg_rate", func(c record.Cell) string { return full(c.MsgRate) }},
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
	{"skew_us", func(c record.Cell) string { return full(c.SkewUS) }},
	{"warnings", func(c record.Cell) string { return strings.Join(c.Warnings, "; ") }},
}

func renderCSV(w io.Writer, d record.Document, _ Options) error {
	names := baselineNames(d)
	var header []string
	for _, c := range csvColumns {
		header = append(header, c.name)
	}
	for _, n := range names {
		for _, what := range []string{"p50_us", "p99_us", "bw_GBps_per_dir", "ratio", "na"} {
			header = append(header, "vs_"+n+"_"+what)
		}
	}
	out := csv.NewWriter(w)
	if err := out.Write(header); err != nil {
		return err
	}
	for _, cell := range d.Cells {
		var row []string
		for _, c := range csvColumns {
			row = append(row, c.value(cell))
		}
		for _, n := range names {
			row = append(row, csvVersus(cell, n)...)
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func csvVersus(c record.Cell, name string) []string {
	v, ok := versus(c, name)
	if !ok || v.NA != "" {
		return []string{"", "", "", "", v.NA}
	}
	return []string{full(v.Lat.P50), full(v.Lat.P99), fullOrEmpty(v.BWPerDir), fullOrEmpty(v.Ratio), ""}
}

func fullOrEmpty(f *float64) string {
	if f == nil {
		return ""
	}
	return full(*f)
}
