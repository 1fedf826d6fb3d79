package report

import (
	"fmt"
	"io"
	"slices"

	"github.com/mattn/go-runewidth"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// tableWidth is how wide a table may be unless it is asked to be wide.
const tableWidth = 120

func renderTable(w io.Writer, d record.Document, o Options) error {
	var notes footnotes
	for _, b := range blocks(d.Cells) {
		for _, line := range b.title(d) {
			fmt.Fprintln(w, line)
		}
		if err := writeGrid(w, b.fitted(&notes, o)); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for i, text := range notes.texts {
		fmt.Fprintf(w, "[%d] %s\n", i+1, text)
	}
	for _, line := range slices.Concat(closing(d), d.Warnings) {
		fmt.Fprintln(w, line)
	}
	return nil
}

// fitted is the block with as many columns as fit: those that yield first are left out first.
func (b *block) fitted(notes *footnotes, o Options) grid {
	cols := b.columns(notes)
	for {
		g := b.grid(cols)
		next := 0
		for _, c := range cols {
			next = max(next, c.yields)
		}
		if o.Wide || g.width() <= tableWidth || next == 0 {
			return g
		}
		cols = slices.DeleteFunc(cols, func(c column) bool { return c.yields == next })
	}
}

// gap is the padding around a cell, left and right together.
const gap = 2

func (g grid) width() int {
	total := 0
	for i, h := range g.header {
		w := runewidth.StringWidth(h)
		for _, r := range g.rows {
			w = max(w, runewidth.StringWidth(r[i]))
		}
		total += w + gap
	}
	return total
}

func writeGrid(w io.Writer, g grid) error {
	right := tw.CellAlignment{Global: tw.AlignRight}
	t := tablewriter.NewTable(w,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Lines: tw.LinesNone, Separators: tw.SeparatorsNone},
		})),
		tablewriter.WithConfig(tablewriter.Config{
			Header: tw.CellConfig{
				Alignment: right, Formatting: tw.CellFormatting{AutoFormat: tw.Off, AutoWrap: tw.WrapNone},
			},
			Row: tw.CellConfig{Alignment: right, Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone}},
		}))
	t.Header(g.header)
	if err := t.Bulk(g.rows); err != nil {
		return err
	}
	return t.Render()
}
