package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Page is the view of a document that is not a run's: one table, sections below it, and lines about the measurement.
type Page struct {
	Columns  []Column
	Legend   string // definitions of the columns
	Sections []Section
	Facts    []Fact
}

// Section is a paragraph below the table with labelled lines. A label that begins with two spaces is subordinate to the
// previous one.
type Section struct {
	Head, Text string
	Facts      []Fact
}

// PageFormats lists the formats of [Page.Write].
var PageFormats = []string{"table", "md"}

// Write writes the page in one of [PageFormats], without control characters, as [Render] does.
func (p Page) Write(w io.Writer, format string) error {
	var out bytes.Buffer
	var err error
	switch format {
	case "table":
		err = p.write(&out)
	case "md":
		p.writeMarkdown(&out)
	default:
		return fmt.Errorf("report: unknown format %q: use one of %s", format, strings.Join(PageFormats, ", "))
	}
	if err == nil {
		err = show(w, out, format)
	}
	if err != nil {
		return fmt.Errorf("report: %s: %w", format, err)
	}
	return nil
}

func (p Page) write(out *bytes.Buffer) error {
	if p.hasRows() {
		if err := writeGrid(out, p.Columns); err != nil {
			return err
		}
		writeWrapped(out, "  ", p.Legend)
	}
	for _, s := range p.Sections {
		out.WriteByte('\n')
		writeWrapped(out, Clean(s.Head)+": ", s.Text)
		for _, f := range s.Facts {
			writeWrapped(out, fmt.Sprintf("  %-13s ", f.Label), f.Text)
		}
	}
	out.WriteByte('\n')
	for _, f := range p.Facts {
		writeWrapped(out, fmt.Sprintf("%-8s ", f.Label), f.Text)
	}
	return nil
}

func (p Page) hasRows() bool {
	return slices.ContainsFunc(p.Columns, func(c Column) bool { return len(c.Cells) > 0 })
}

func (p Page) writeMarkdown(out *bytes.Buffer) {
	if p.hasRows() {
		writeMarkdownGrid(out, p.Columns)
		fmt.Fprintf(out, "%s\n\n", escapeMarkdown(p.Legend))
	}
	for _, s := range p.Sections {
		fmt.Fprintf(out, "### %s\n\n%s\n\n", escapeMarkdown(s.Head), escapeMarkdown(s.Text))
		for _, f := range s.Facts {
			label := strings.TrimLeft(f.Label, " ")
			fmt.Fprintf(out, "%s- %s: %s\n", f.Label[:len(f.Label)-len(label)], escapeMarkdown(label), escapeMarkdown(f.Text))
		}
		out.WriteByte('\n')
	}
	for _, f := range p.Facts {
		fmt.Fprintf(out, "- %s: %s\n", f.Label, escapeMarkdown(f.Text))
	}
}

// WriteList writes a line for each fact, with aligned texts.
func WriteList(w io.Writer, facts []Fact) error {
	var out bytes.Buffer
	widest := 0
	for _, f := range facts {
		widest = max(widest, width(f.Label))
	}
	for _, f := range facts {
		writeWrapped(&out, fmt.Sprintf("%-*s  ", widest, f.Label), f.Text)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// facts is a list of labelled lines; add omits empty texts.
type facts []Fact

func (all *facts) add(label, text string) {
	if text = Clean(text); text != "" {
		*all = append(*all, Fact{label, text})
	}
}

// Timing returns the lines about clock, overhead and skew.
func Timing(h record.Harness) []Fact {
	var all facts
	all.add("timing", timingText(h))
	return all
}

// Machine returns the lines about the machine and its devices.
func Machine(e record.Env) []Fact {
	var all facts
	for _, r := range e.Ranks {
		all.add(fmt.Sprintf("rank %d", r.Rank), rankText(r))
	}
	all.add("link", linkText(e.Link))
	all.add("host", hostText(e))
	return all
}

// Ending returns the lines with command, warnings and exit code.
func Ending(d record.Document) []Fact {
	var all facts
	all.add("run", runText(d))
	for _, text := range d.Warnings {
		all.add("warning", text)
	}
	if d.Exit != 0 {
		all.add("exit", exitText(d.Exit))
	}
	return all
}

// OnlyRatios formats the reason why only ratios are meaningful.
func OnlyRatios(reason string) string {
	return reason + ": only ratios within one run are meaningful, not absolute figures"
}

// Subject returns the title's description of transport, path and devices, for a document with one operation.
func Subject(d record.Document) string {
	b := block{env: d.Env, transports: d.Transports, cells: d.Cells}
	return b.subject()[len(Clean(b.op()))+len(": "):]
}

// Devices returns the names of the ranks' devices: "2 × NVIDIA H200".
func Devices(d record.Document) string { return block{env: d.Env, cells: d.Cells}.devices() }
