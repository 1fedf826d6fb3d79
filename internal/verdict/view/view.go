// Package view shows comparisons: as a table for people, as Markdown, and as what continuous integration reads. Whatever
// names and texts of a result hold, none of the formats obeys them.
package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/verdict"
)

// Formats names the formats that [Render] knows; the first is the default.
var Formats = []string{"table", "json", "md", "junit", "github", "openmetrics"}

// Render writes a comparison in one of [Formats].
func Render(w io.Writer, r verdict.Result, format string) error {
	switch format {
	case "table", "md":
		return page(r).Write(w, format)
	case "json":
		return record.Encode(w, r)
	case "junit":
		return writeJUnit(w, r)
	case "github":
		return writeAnnotations(w, r)
	case "openmetrics":
		return writeOpenMetrics(w, r)
	}
	return fmt.Errorf("view: unknown format %q: use one of %s", format, strings.Join(Formats, ", "))
}

const legend = "base and head: medians over runs, in µs or GB/s. slower by: estimated change of the time (of GB/s: of the time per " +
	"byte), in brackets its bounds, each of which holds for all rows together."

func page(r verdict.Result) report.Page {
	col := func(head string, left bool, text func(verdict.Row) string) report.Column {
		c := report.Column{Head: head, Left: left}
		for _, row := range r.Rows {
			c.Cells = append(c.Cells, report.Clean(text(row)))
		}
		return c
	}
	return report.Page{
		Columns: []report.Column{
			col("cell", true, cell),
			col("figure", true, func(row verdict.Row) string { return row.Metric }),
			col("base", false, func(row verdict.Row) string { return figure(row, row.Base) }),
			col("head", false, func(row verdict.Row) string { return figure(row, row.Head) }),
			col("slower by [bounds]", false, change),
			col("verdict", true, func(row verdict.Row) string { return string(row.Verdict) }),
		},
		Legend: legend, Facts: facts(r),
	}
}

// cell names a row's cell in few characters.
func cell(row verdict.Row) string {
	text := row.Transport + " " + row.Op + " " + report.Size(row.Size)
	if row.Offset > 0 {
		text += fmt.Sprintf(" +%d", row.Offset)
	}
	return report.Clean(text)
}

func figure(row verdict.Row, v float64) string {
	if row.Metric == verdict.GBps {
		return report.GBps(v)
	}
	return report.Micros(v)
}

func change(row verdict.Row) string {
	return fmt.Sprintf("%+.1f %% [%+.1f, %+.1f]", row.Slower, row.Low, row.High)
}

// facts stand below the table; the last is the summary.
func facts(r verdict.Result) []report.Fact {
	var all []report.Fact
	add := func(label, text string) {
		if text = report.Clean(text); text != "" {
			all = append(all, report.Fact{Label: label, Text: text})
		}
	}
	side := func(s verdict.SideResult) string {
		text := fmt.Sprintf("%s: p2pbench %s, %d runs", s.Name, s.Version, s.Runs)
		if s.Sessions > 1 {
			text += fmt.Sprintf(" in %d sessions", s.Sessions)
		}
		return text
	}
	add("base", side(r.Base))
	add("head", side(r.Head))
	for _, text := range r.Differ {
		add("differ", text)
	}
	add("judged", rule(r))
	for _, text := range r.Warnings {
		add("warning", text)
	}
	add("decide", strings.Join(quoted(r.Decide), " "))
	add("verdict", Summary(r))
	return all
}

// Summary is the verdict in one line.
func Summary(r verdict.Result) string { return report.Clean(string(r.Verdict) + ": " + r.Why) }

func rule(r verdict.Result) string {
	how := map[string]string{
		"interleaved": "runs took turns; labels permuted within blocks",
		"sessions":    "sides ran at different times; bounds widened by the spread between sessions",
	}[r.Design]
	text := fmt.Sprintf("regress: slower by %.3g %% and more, and not by chance (family-wise α = %.3g %%); pass: not slower by %.3g %%; %s",
		100*r.Rule.Threshold, 100*r.Rule.Alpha, 100*r.Rule.Effect, how)
	if r.Rule.Looks > 1 {
		text += fmt.Sprintf("; one of %d looks", r.Rule.Looks)
	}
	return text
}

// quoted are words as a shell takes them.
func quoted(words []string) []string {
	words = slices.Clone(words)
	for i, w := range words {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return !strings.ContainsRune("%+,-./:=@_", r) && !isWord(r) }) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return words
}

func isWord(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// Sessions shows the sessions of a baseline.
func Sessions(w io.Writer, b verdict.Baseline) error {
	col := func(head string, left bool, text func(verdict.Session) string) report.Column {
		c := report.Column{Head: head, Left: left}
		for _, s := range b.Sessions {
			c.Cells = append(c.Cells, report.Clean(text(s)))
		}
		return c
	}
	p := report.Page{
		Columns: []report.Column{
			col("accepted", true, func(s verdict.Session) string { return s.Accepted.UTC().Format(time.DateTime) }),
			col("measured", true, func(s verdict.Session) string { return s.Started.UTC().Format(time.DateTime) }),
			col("p2pbench", true, func(s verdict.Session) string { return s.Version }),
			col("host", true, func(s verdict.Session) string { return s.Host }),
			col("runs", false, func(s verdict.Session) string { return fmt.Sprint(s.Runs()) }),
			col("cells", false, func(s verdict.Session) string { return fmt.Sprint(len(s.Cells)) }),
			col("reason", true, func(s verdict.Session) string { return s.Reason }),
		},
		Legend: "times in UTC",
	}
	for _, s := range b.Sessions {
		p.Facts = append(p.Facts, report.Fact{Label: "run", Text: report.Clean(strings.Join(quoted(s.Command), " "))})
	}
	return p.Write(w, "table")
}
