package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// maxWidth is the maximum width of a table in terminal columns without --wide.
const maxWidth = 120

// writeTable writes the tables, the footnotes, and the lines of circumstances.
func writeTable(out *bytes.Buffer, d record.Document, o Options) error {
	var n Notes
	if err := writeTables(out, d, &n, o); err != nil {
		return err
	}
	if len(d.Cells) == 0 {
		out.WriteString("no cell was measured\n\n")
	}
	writeNotes(out, n)
	for _, f := range circumstances(d) {
		writeWrapped(out, fmt.Sprintf("%-8s ", f.Label), f.Text)
	}
	return nil
}

// writeTables writes the tables of Options.Tables, or one table per block.
func writeTables(out *bytes.Buffer, d record.Document, n *Notes, o Options) error {
	if tables := o.tables(d, n); len(tables) > 0 {
		for _, t := range tables {
			if err := t.write(out, n, o.Wide); err != nil {
				return err
			}
		}
		return nil
	}
	for _, b := range blocks(d) {
		t := Table{Title: b.title(o.Wide), Columns: b.columns(n, o.Wide)}
		if err := t.write(out, n, o.Wide); err != nil {
			return err
		}
		if err := writeConnections(out, b, n, o.Wide); err != nil {
			return err
		}
	}
	return nil
}

// write writes the title, the columns, and the names of dropped columns.
func (t Table) write(out *bytes.Buffer, n *Notes, wide bool) error {
	for i, line := range t.Title {
		indent := "  "
		if i == 0 {
			indent = ""
		}
		writeWrapped(out, indent, line)
	}
	cols := t.Columns
	var dropped []string
	if !wide {
		cols, dropped = fit(cols, maxWidth)
	}
	n.addStars(cols)
	if err := writeGrid(out, cols); err != nil {
		return err
	}
	if len(dropped) > 0 {
		writeWrapped(out, "  ", "left out to fit: "+strings.Join(slices.Compact(dropped), ", ")+" (--wide shows all columns)")
	}
	out.WriteByte('\n')
	return nil
}

func writeNotes(out *bytes.Buffer, n Notes) {
	for _, text := range n.starLines() {
		writeWrapped(out, "* ", text)
	}
	for i, text := range n.texts {
		writeWrapped(out, fmt.Sprintf("[%d] ", i+1), text)
	}
	if len(n.stars)+len(n.texts) > 0 {
		out.WriteByte('\n')
	}
}

// fit drops columns, all of one Drop value at a time, until the rest fits or no column can be dropped.
func fit(cols []Column, limit int) (kept []Column, dropped []string) {
	last := 0
	for _, c := range cols {
		last = max(last, c.Drop)
	}
	kept = cols
	for rank := 1; rank <= last && gridWidth(kept) > limit; rank++ {
		var rest []Column
		for _, c := range kept {
			if c.Drop == rank {
				dropped = append(dropped, strings.TrimSpace(c.Over+" "+c.Head))
			} else {
				rest = append(rest, c)
			}
		}
		kept = rest
	}
	return kept, dropped
}

// gridWidth returns the width of the columns in writeGrid.
func gridWidth(cols []Column) int {
	total := 0
	for _, c := range cols {
		widest := max(width(c.Over), width(c.Head))
		for _, text := range c.aligned() {
			widest = max(widest, width(text))
		}
		total += widest + 2 // a space on either side
	}
	return total
}

// aligned pads figures without a star in a column that has stars, so that digits line up.
func (c Column) aligned() []string {
	starred := false
	for _, text := range c.Cells {
		starred = starred || strings.HasSuffix(text, "*")
	}
	if !starred {
		return c.Cells
	}
	texts := make([]string, len(c.Cells))
	for i, text := range c.Cells {
		texts[i] = text
		if !strings.HasSuffix(text, "*") {
			texts[i] += " "
		}
	}
	return texts
}

// writeGrid writes headings, a rule, and rows, without trailing spaces.
func writeGrid(out *bytes.Buffer, cols []Column) error {
	var grid bytes.Buffer
	align := make([]tw.Align, len(cols))
	heads := make([]string, len(cols))
	texts := make([][]string, len(cols))
	twoLines := false
	for _, c := range cols {
		twoLines = twoLines || c.Over != ""
	}
	for i, c := range cols {
		align[i] = tw.AlignRight
		if c.Left {
			align[i] = tw.AlignLeft
		}
		heads[i] = c.Head
		if twoLines {
			heads[i] = c.Over + "\n" + c.Head
		}
		texts[i] = c.aligned()
	}
	t := newGrid(&grid, align)
	t.Header(heads)
	for row := range texts[0] {
		line := make([]string, len(cols))
		for i := range cols {
			line[i] = texts[i][row]
		}
		if err := t.Append(line); err != nil {
			return err
		}
	}
	if err := t.Render(); err != nil {
		return err
	}
	for line := range strings.Lines(grid.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return nil
}

// newGrid returns a table without borders that does not change text. It treats ambiguous characters (×, →) as narrow in
// every locale, so that the output does not depend on the locale.
func newGrid(w io.Writer, align []tw.Align) *tablewriter.Table {
	section := tw.CellConfig{
		Formatting: tw.CellFormatting{AutoFormat: tw.Off, AutoWrap: tw.WrapNone},
		Padding:    tw.CellPadding{Global: tw.PaddingDefault},
		Alignment:  tw.CellAlignment{Global: tw.AlignRight, PerColumn: align},
	}
	return tablewriter.NewTable(w,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Symbols: tw.NewSymbols(tw.StyleLight),
			Settings: tw.Settings{
				Lines:      tw.Lines{ShowTop: tw.Off, ShowBottom: tw.Off, ShowHeaderLine: tw.On, ShowFooterLine: tw.Off},
				Separators: tw.Separators{ShowHeader: tw.On, ShowFooter: tw.Off, BetweenRows: tw.Off, BetweenColumns: tw.Off},
			},
		})),
		tablewriter.WithConfig(tablewriter.Config{
			Header: section, Row: section,
			Behavior: tw.Behavior{TrimSpace: tw.Off, TrimLine: tw.Off, AutoHide: tw.Off},
		}),
		tablewriter.WithEastAsian(tw.Off))
}

// width returns the width of the text in terminal columns.
func width(s string) int { return twwidth.WidthWithOptions(s, twwidth.Options{}) }

// writeWrapped writes text after a prefix, broken at spaces to fit; continuation lines are indented by the prefix's
// width. Long words are not broken.
func writeWrapped(out *bytes.Buffer, prefix, text string) {
	at := width(prefix)
	out.WriteString(prefix)
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case at+1+width(word) > maxWidth:
			at = width(prefix)
			out.WriteString("\n" + strings.Repeat(" ", at))
		default:
			out.WriteByte(' ')
			at++
		}
		out.WriteString(word)
		at += width(word)
	}
	out.WriteByte('\n')
}
