package report

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// writeMarkdown writes what the table shows in GitHub's dialect, with all columns whatever the width.
func writeMarkdown(out *bytes.Buffer, d record.Document, o Options) {
	var n notes
	if v, ok := viewOf(d, &n); ok {
		v.writeMarkdown(out)
	} else {
		for _, b := range blocks(d) {
			writeMarkdownBlock(out, b, &n, o.Wide)
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
		fmt.Fprintf(out, "- %s: %s\n", f.label, escapeMarkdown(f.text))
	}
}

func writeMarkdownBlock(out *bytes.Buffer, b block, n *notes, wide bool) {
	title := b.title(wide)
	head, rest, _ := strings.Cut(title[0], ": ")
	fmt.Fprintf(out, "### %s\n\n%s\n", escapeMarkdown(head), escapeMarkdown(rest))
	for _, line := range title[1:] {
		fmt.Fprintf(out, "<br>%s\n", escapeMarkdown(line))
	}
	out.WriteByte('\n')
	cols := b.columns(n, wide)
	n.stand(cols)
	writeMarkdownGrid(out, cols)
	writeMarkdownConnections(out, b, n)
}

// writeMarkdownGrid writes a table and an empty line.
func writeMarkdownGrid(out *bytes.Buffer, cols []column) {
	for _, c := range cols {
		fmt.Fprintf(out, "| %s ", escapeMarkdown(strings.TrimSpace(c.over+" "+c.head)))
	}
	out.WriteString("|\n")
	for _, c := range cols {
		if c.left {
			out.WriteString("|:---")
		} else {
			out.WriteString("|---:")
		}
	}
	out.WriteString("|\n")
	for row := range cols[0].cells {
		for _, c := range cols {
			fmt.Fprintf(out, "| %s ", escapeMarkdown(c.cells[row]))
		}
		out.WriteString("|\n")
	}
	out.WriteByte('\n')
}

// escapeMarkdown keeps text what it is, also within a table.
func escapeMarkdown(s string) string {
	return strings.NewReplacer(
		`\`, `\\`, `|`, `\|`, `*`, `\*`, `_`, `\_`, "`", "\\`", `<`, `&lt;`, `>`, `&gt;`, `&`, `&amp;`, `[`, `\[`, `~`, `\~`,
	).Replace(s)
}
