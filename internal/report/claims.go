package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/claim"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

// ClaimFormats names the formats that [RenderClaims] knows; the first is the default.
var ClaimFormats = []string{"table", "json", "md"}

// RenderClaims writes claims and their verdicts in one of [ClaimFormats]: one line for each claim and size, below it
// what each claim says, what was run and what came of it.
func RenderClaims(w io.Writer, d claim.Document, format string) error {
	var out bytes.Buffer
	var err error
	switch format {
	case "table":
		err = writeClaims(&out, d)
	case "md":
		writeMarkdownClaims(&out, d)
	case "json":
		err = claim.Write(&out, d.WithoutSamples())
	default:
		return fmt.Errorf("report: unknown format %q: use one of %s", format, strings.Join(ClaimFormats, ", "))
	}
	if err == nil {
		err = show(w, out, format)
	}
	if err != nil {
		return fmt.Errorf("report: %s: %w", format, err)
	}
	return nil
}

// ListClaims writes which claims there are.
func ListClaims(w io.Writer, claims []claim.Claim) error {
	var out bytes.Buffer
	widest := 0
	for _, c := range claims {
		widest = max(widest, width(c.ID))
	}
	for _, c := range claims {
		writeWrapped(&out, fmt.Sprintf("%-*s  ", widest, c.ID), c.Title)
	}
	_, err := w.Write(out.Bytes())
	return err
}

const claimsLegend = "A and B: p50 in µs of the test's operation. factor = B ÷ A, in brackets the interval that both medians' " +
	"95 % intervals leave; for an A alone, its round trip ÷ the published one. A line without a verdict is only shown."

func writeClaims(out *bytes.Buffer, d claim.Document) error {
	if len(d.Claims) > 0 {
		if err := writeGrid(out, claimColumns(d)); err != nil {
			return err
		}
		writeWrapped(out, "  ", claimsLegend)
	}
	for _, c := range d.Claims {
		out.WriteByte('\n')
		writeWrapped(out, clean(c.ID)+": ", verdictText(c, c.Verdict, c.Why))
		for _, f := range claimFacts(c) {
			writeWrapped(out, fmt.Sprintf("  %-13s ", f.label), f.text)
		}
	}
	out.WriteByte('\n')
	for _, f := range claimCircumstances(d) {
		writeWrapped(out, fmt.Sprintf("%-8s ", f.label), f.text)
	}
	return nil
}

func writeMarkdownClaims(out *bytes.Buffer, d claim.Document) {
	if len(d.Claims) > 0 {
		writeMarkdownGrid(out, claimColumns(d))
		fmt.Fprintf(out, "%s\n\n", escapeMarkdown(claimsLegend))
	}
	for _, c := range d.Claims {
		fmt.Fprintf(out, "### %s\n\n%s\n\n", escapeMarkdown(c.ID), escapeMarkdown(verdictText(c, c.Verdict, c.Why)))
		for _, f := range claimFacts(c) {
			label := strings.TrimLeft(f.label, " ")
			fmt.Fprintf(out, "%s- %s: %s\n", f.label[:len(f.label)-len(label)], escapeMarkdown(label), escapeMarkdown(f.text))
		}
		out.WriteByte('\n')
	}
	for _, f := range claimCircumstances(d) {
		fmt.Fprintf(out, "- %s: %s\n", f.label, escapeMarkdown(f.text))
	}
}

// line is one row of the table: a size of a test, or a test that has no figures.
type line struct {
	id      string
	row     claim.Row
	verdict string
	empty   bool
	soft    bool // only ratios mean anything
}

func claimLines(d claim.Document) []line {
	var lines []line
	for _, c := range d.Claims {
		for _, o := range c.Tests {
			id := c.ID
			if o.Name != "" {
				id += ":" + o.Name
			}
			for _, r := range o.Rows {
				lines = append(lines, line{id: id, row: r, verdict: verdictWord(c, r.Verdict), soft: slices.ContainsFunc(o.Cells, soft)})
			}
			if len(o.Rows) == 0 {
				lines = append(lines, line{id: id, verdict: verdictWord(c, o.Verdict), empty: true})
			}
		}
	}
	return lines
}

func claimColumns(d claim.Document) []column {
	lines := claimLines(d)
	col := func(head string, left bool, text func(line) string) column {
		c := column{head: head, left: left}
		for _, l := range lines {
			c.cells = append(c.cells, clean(text(l)))
		}
		return c
	}
	p50 := func(l line, m *claim.Median) string {
		if m == nil || l.soft {
			return none
		}
		return micros(m.P50)
	}
	return []column{
		col("claim", true, func(l line) string { return l.id }),
		col("size", false, func(l line) string {
			if l.empty {
				return none
			}
			return size(l.row.Size)
		}),
		col("A µs", false, func(l line) string { return p50(l, l.row.A) }),
		col("B µs", false, func(l line) string { return p50(l, l.row.B) }),
		col("factor [interval]", false, func(l line) string {
			if l.row.Factor == nil {
				return none
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
		return gbps(*l.row.Published)
	case l.row.PublishedUS != nil:
		return micros(*l.row.PublishedUS) + " µs"
	}
	return none
}

// verdictWord is a verdict of a claim, of its tests or sizes. One that is not of what is claimed says so.
func verdictWord(c claim.Result, v claim.Verdict) string {
	if c.Caveat != "" && (v == claim.Reproduced || v == claim.NotReproduced) {
		return string(v) + ", with a caveat"
	}
	return string(v)
}

func verdictText(c claim.Result, v claim.Verdict, why string) string {
	text := verdictWord(c, v)
	if v == claim.NotMeasurable {
		text += " here"
	}
	if why != "" {
		text += ": " + why
	}
	return clean(text)
}

// claimFacts is what stands below a claim's verdict.
func claimFacts(c claim.Result) []fact {
	var facts []fact
	add := func(label, text string) {
		if text = clean(text); text != "" {
			facts = append(facts, fact{label, text})
		}
	}
	add("claim", c.Title)
	add("source", c.Source)
	add("published", c.Published)
	add("here", c.Differs)
	add("caveat", c.Caveat)
	for _, o := range c.Tests {
		add(cmp.Or(clean(o.Name), "test"), verdictText(c, o.Verdict, o.Why))
		add("  A", sideText(o.A))
		if o.B != nil {
			add("  B", sideText(*o.B))
		}
		add("  expected", strings.Join(o.Expect, "; "))
	}
	return facts
}

func sideText(s claim.Side) string { return s.Label + ": " + strings.Join(s.Command, " ") }

// claimCircumstances is what a reader needs to judge the figures.
func claimCircumstances(d claim.Document) []fact {
	facts := []fact{{"verdicts", fmt.Sprintf("%d reproduced, %d not reproduced, %d not measurable here",
		d.Count(claim.Reproduced), d.Count(claim.NotReproduced), d.Count(claim.NotMeasurable))}}
	add := func(label, text string) {
		if text = clean(text); text != "" {
			facts = append(facts, fact{label, text})
		}
	}
	if d.Env != nil {
		add("timing", timingText(d.Env.Harness))
		for _, r := range d.Env.Ranks {
			add(fmt.Sprintf("rank %d", r.Rank), rankText(r))
		}
		add("link", linkText(d.Env.Link))
		add("host", hostText(*d.Env))
	}
	if slices.ContainsFunc(claimLines(d), func(l line) bool { return l.soft }) {
		add("soft", softNote+", which is all that is shown here")
	}
	add("run", runText(record.Document{Version: d.Version, Started: d.Started, Command: d.Command}))
	for _, text := range d.Warnings {
		add("warning", text)
	}
	if d.Exit != 0 {
		add("exit", exitText(d.Exit))
	}
	return facts
}
