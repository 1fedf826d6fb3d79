package view

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/verdict"
)

// CalibrationFormats names the formats that [RenderCalibration] knows; the first is the default.
var CalibrationFormats = []string{"table", "json", "md"}

// RenderCalibration writes a calibration in one of [CalibrationFormats].
func RenderCalibration(w io.Writer, c verdict.Calibration, format string) error {
	if format == "json" {
		return record.Encode(w, c)
	}
	col := func(head string, left bool, text func(verdict.Spread) string) report.Column {
		col := report.Column{Head: head, Left: left}
		for _, row := range c.Rows {
			col.Cells = append(col.Cells, report.Clean(text(row)))
		}
		return col
	}
	effect := fmt.Sprintf("%.3g %%", 100*c.Rule.Effect)
	p := report.Page{
		Columns: []report.Column{
			col("cell", true, func(s verdict.Spread) string { return cell(verdict.Row{Key: s.Key}) }),
			col("figure", true, func(s verdict.Spread) string { return s.Metric }),
			col("median", false, func(s verdict.Spread) string { return figure(verdict.Row{Metric: s.Metric}, s.Median) }),
			col("spread", false, func(s verdict.Spread) string { return fmt.Sprintf("%.1f %%", s.Percent) }),
			col("runs to find "+effect, false, func(s verdict.Spread) string { return runs(s.ToFind, c.Most) }),
		},
		Legend: "median: over runs, in µs or GB/s. spread: standard deviation between runs. runs to find: runs a side with which a " +
			"change of this cell alone is called a regression in at least 90 % of comparisons.",
	}
	add := func(label, text string) {
		if text != "" {
			p.Facts = append(p.Facts, report.Fact{Label: label, Text: report.Clean(text)})
		}
	}
	add("measured", fmt.Sprintf("%d runs, %.2f s each", c.Runs, c.RunSecs))
	for _, t := range c.Tried {
		add("tried", fmt.Sprintf("%d runs a side: %s found in %.1f %%, equal sides passed in %.1f %%, false alarms in %.1f %% of %d comparisons",
			t.Runs, effect, 100*t.Found, 100*t.Passed, 100*t.FalseAlarms, c.Trials))
	}
	add("use", strings.Join(quoted(c.Use), " "))
	add("answer", Answer(c))
	return p.Write(w, format)
}

func runs(n, most int) string {
	if n == 0 {
		return fmt.Sprintf("> %d", most)
	}
	return fmt.Sprint(n)
}

// Answer is what a calibration says, in a line.
func Answer(c verdict.Calibration) string {
	effect := fmt.Sprintf("%.3g %%", 100*c.Rule.Effect)
	if c.ToFind == 0 || c.ToPass == 0 {
		return fmt.Sprintf("it takes more than %d runs a side to find %s in every cell and to pass equal sides: quiet the machine, or leave the noisiest cells out", c.Most, effect)
	}
	takes := func(n int) string {
		return (time.Duration(2*float64(n)*c.RunSecs*1e3) * time.Millisecond).Round(time.Second).String()
	}
	return fmt.Sprintf("%d runs a side find %s in any one cell (%s), and %d pass equal sides (%s), each in at least 90 %% of comparisons",
		c.ToFind, effect, takes(c.ToFind), c.ToPass, takes(c.ToPass))
}
