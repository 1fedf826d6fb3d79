package claim

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Formats names the formats that [Render] knows; the first is the default.
var Formats = []string{"table", "json", "md"}

// Render writes claims and their verdicts in one of [Formats]: a table with a row per test and size, then for each
// claim its text, commands and verdicts.
func Render(w io.Writer, d Document, format string) error {
	switch {
	case format == "json":
		return Write(w, d.WithoutSamples())
	case !slices.Contains(Formats, format):
		return fmt.Errorf("claim: unknown format %q: use one of %s", format, strings.Join(Formats, ", "))
	}
	p := report.Page{Columns: d.columns(), Legend: legend, Facts: d.facts()}
	for _, c := range d.Claims {
		p.Sections = append(p.Sections, report.Section{Head: c.ID, Text: c.text(c.Verdict, c.Why), Facts: c.facts()})
	}
	return p.Write(w, format)
}

// ListSchema is the schema of the JSON list of claims.
const ListSchema = "p2pbench-claims-list/1"

type list struct {
	Schema string   `json:"schema"`
	Claims []listed `json:"claims"`
}

type listed struct {
	ID        string       `json:"id"`
	Title     string       `json:"title"`
	Source    string       `json:"source"`
	Published string       `json:"published"`
	Differs   string       `json:"differs"`
	Tests     []listedTest `json:"tests"`
}

type listedTest struct {
	Name   string   `json:"name"`
	A      Side     `json:"a"`
	B      *Side    `json:"b"` // null: A runs alone
	Expect []string `json:"expect"`
}

// listArm returns the arm of a test on GPUs, nil if there is none.
func listArm(t Test, a Arm) *Side {
	if a.Label == "" {
		return nil
	}
	return &Side{Label: a.Label, Command: append([]string{"p2pbench"}, t.Command(a, true)...)}
}

// ListJSON writes the claims as JSON: their texts, and of each test the commands of its arms on GPUs.
func ListJSON(w io.Writer, claims []Claim) error {
	l := list{Schema: ListSchema, Claims: []listed{}}
	for _, c := range claims {
		out := listed{
			ID: c.ID, Title: c.Title, Source: c.Source, Published: c.Published, Differs: strings.TrimSpace(c.Differs),
			Tests: []listedTest{},
		}
		for _, t := range c.Tests {
			test := listedTest{Name: t.Name, A: *listArm(t, t.A), B: listArm(t, t.B), Expect: []string{}}
			for _, e := range t.Expect {
				test.Expect = append(test.Expect, fmt.Sprint(e))
			}
			out.Tests = append(out.Tests, test)
		}
		l.Claims = append(l.Claims, out)
	}
	return record.Encode(w, l)
}

// List writes the IDs and titles of claims.
func List(w io.Writer, claims []Claim) error {
	var facts []report.Fact
	for _, c := range claims {
		facts = append(facts, report.Fact{Label: c.ID, Text: c.Title})
	}
	return report.WriteList(w, facts)
}

const legend = "A, B: p50 in µs of the test's operation. factor = B ÷ A; in brackets, the range that the 95 % intervals of both medians " +
	"allow. Without arm B: factor = A's round trip ÷ the published one. Rows without a verdict are for information."

// line is a row of the table: a size of a test, or a test without figures.
type line struct {
	id      string
	row     Row
	verdict string
	empty   bool
	ratios  bool // absolute figures are meaningless
}

func (d Document) lines() []line {
	var lines []line
	for _, c := range d.Claims {
		for _, o := range c.Tests {
			id := c.ID
			if o.Name != "" {
				id += ":" + o.Name
			}
			for _, r := range o.Rows {
				lines = append(lines, line{id: id, row: r, verdict: c.word(r.Verdict), ratios: o.OnlyRatios != ""})
			}
			if len(o.Rows) == 0 {
				lines = append(lines, line{id: id, verdict: c.word(o.Verdict), empty: true})
			}
		}
	}
	return lines
}

func (d Document) columns() []report.Column {
	lines := d.lines()
	col := func(head string, left bool, text func(line) string) report.Column {
		c := report.Column{Head: head, Left: left}
		for _, l := range lines {
			c.Cells = append(c.Cells, report.Clean(text(l)))
		}
		return c
	}
	p50 := func(l line, m *Median) string {
		if m == nil || l.ratios {
			return report.None
		}
		return report.Micros(m.P50)
	}
	return []report.Column{
		col("claim", true, func(l line) string { return l.id }),
		col("size", false, func(l line) string {
			if l.empty {
				return report.None
			}
			return report.Size(l.row.Size)
		}),
		col("A µs", false, func(l line) string { return p50(l, l.row.A) }),
		col("B µs", false, func(l line) string { return p50(l, l.row.B) }),
		col("factor [interval]", false, func(l line) string {
			if l.row.Factor == nil {
				return report.None
			}
			return l.row.Factor.String()
		}),
		col("published", false, publishedText),
		col("verdict", true, func(l line) string { return l.verdict }),
	}
}

func publishedText(l line) string {
	switch {
	case l.row.Published != nil:
		return report.GBps(*l.row.Published)
	case l.row.PublishedUS != nil:
		return report.Micros(*l.row.PublishedUS) + " µs"
	}
	return report.None
}

// word formats a verdict, and mentions the claim's caveat if there is one.
func (c Result) word(v Verdict) string {
	if c.Caveat != "" && (v == Reproduced || v == NotReproduced) {
		return string(v) + ", with a caveat"
	}
	return string(v)
}

// text formats a verdict with its reason.
func (c Result) text(v Verdict, why string) string {
	text := c.word(v)
	if v == NotMeasurable {
		text += " here"
	}
	if why != "" {
		text += ": " + why
	}
	return report.Clean(text)
}

// facts returns the lines below a claim's verdict.
func (c Result) facts() []report.Fact {
	var facts []report.Fact
	add := func(label, text string) {
		if text = report.Clean(text); text != "" {
			facts = append(facts, report.Fact{Label: label, Text: text})
		}
	}
	add("claim", c.Title)
	add("source", c.Source)
	add("published", c.Published)
	add("differences", c.Differs)
	add("caveat", c.Caveat)
	for _, o := range c.Tests {
		add(cmp.Or(report.Clean(o.Name), "test"), c.text(o.Verdict, o.Why))
		add("  A", o.A.text())
		if o.B != nil {
			add("  B", o.B.text())
		}
		add("  expected", strings.Join(o.Expect, "; "))
	}
	return facts
}

func (s Side) text() string { return s.Label + ": " + strings.Join(s.Command, " ") }

// facts returns the lines below the table: machine, timing, caveats, command.
func (d Document) facts() []report.Fact {
	facts := []report.Fact{{Label: "verdicts", Text: fmt.Sprintf("%d reproduced, %d not reproduced, %d not measurable here",
		d.Count(Reproduced), d.Count(NotReproduced), d.Count(NotMeasurable))}}
	if d.Env != nil {
		facts = slices.Concat(facts, report.Timing(d.Env.Harness), report.Machine(*d.Env))
	}
	var reasons []string
	for _, c := range d.Claims {
		for _, o := range c.Tests {
			if o.OnlyRatios != "" && !slices.Contains(reasons, o.OnlyRatios) {
				reasons = append(reasons, o.OnlyRatios)
				text := report.OnlyRatios(report.Clean(o.OnlyRatios)) + "; the table shows ratios only"
				facts = append(facts, report.Fact{Label: "caveat", Text: text})
			}
		}
	}
	return append(facts, report.Ending(record.Document{
		Version: d.Version, Started: d.Started, Command: d.Command, Warnings: d.Warnings, Exit: d.Exit,
	})...)
}
