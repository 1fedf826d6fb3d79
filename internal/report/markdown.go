package report

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// writeMarkdown writes the tables in GitHub's dialect, with all columns.
func writeMarkdown(out *bytes.Buffer, d record.Document, o Options) {
	var n Notes
	if tables := o.tables(d, &n); len(tables) > 0 {
		for _, t := range tables {
			t.writeMarkdown(out, &n)
		}
	} else {
		for _, b := range blocks(d) {
			Table{Title: b.title(o.Wide), Columns: b.columns(&n, o.Wide)}.writeMarkdown(out, &n)
			writeMarkdownConnections(out, b, &n)
		}
	}
	if len(d.Cells) == 0 {
		out.WriteString("no cell was measured\n\n")
	}
	for _, text := range n.starLines() {
		fmt.Fprintf(out, "\\* %s\n\n", escapeMarkdown(text))
	}
	for i, text := range n.texts {
		fmt.Fprintf(out, "\\[%d] %s\n\n", i+1, escapeMarkdown(text))
	}
	for _, f := range circumstances(d) {
		fmt.Fprintf(out, "- %s: %s\n", f.Label, escapeMarkdown(f.Text))
	}
}

func (t Table) writeMarkdown(out *bytes.Buffer, n *Notes) {
	head, rest, _ := strings.Cut(t.Title[0], ": ")
	fmt.Fprintf(out, "### %s\n\n%s\n", escapeMarkdown(head), escapeMarkdown(rest))
	for _, line := range t.Title[1:] {
		fmt.Fprintf(out, "<br>%s\n", escapeMarkdown(line))
	}
	out.WriteByte('\n')
	n.addStars(t.Columns)
	writeMarkdownGrid(out, t.Columns)
}

// writeMarkdownGrid writes a table followed by an empty line.
func writeMarkdownGrid(out *bytes.Buffer, cols []Column) {
	for _, c := range cols {
		fmt.Fprintf(out, "| %s ", escapeMarkdown(strings.TrimSpace(c.Over+" "+c.Head)))
	}
	out.WriteString("|\n")
	for _, c := range cols {
		if c.Left {
			out.WriteString("|:---")
		} else {
			out.WriteString("|---:")
		}
	}
	out.WriteString("|\n")
	for row := range cols[0].Cells {
		for _, c := range cols {
			fmt.Fprintf(out, "| %s ", escapeMarkdown(c.Cells[row]))
		}
		out.WriteString("|\n")
	}
	out.WriteByte('\n')
}

// escapeMarkdown escapes text, also for use in a table.
func escapeMarkdown(s string) string {
	return strings.NewReplacer(
		`\`, `\\`, `|`, `\|`, `*`, `\*`, `_`, `\_`, "`", "\\`", `<`, `&lt;`, `>`, `&gt;`, `&`, `&amp;`, `[`, `\[`, `~`, `\~`,
	).Replace(s)
}
