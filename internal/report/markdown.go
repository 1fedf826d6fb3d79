package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

func renderMarkdown(w io.Writer, d record.Document, _ Options) error {
	var notes footnotes
	for _, b := range blocks(d.Cells) {
		title := b.title(d)
		fmt.Fprintf(w, "**%s**  \n%s\n\n", escaped(title[0]), escaped(title[1]))
		g := b.grid(b.columns(&notes))
		writeRow(w, g.header)
		fmt.Fprintln(w, "|"+strings.Repeat("---:|", len(g.header)))
		for _, r := range g.rows {
			writeRow(w, r)
		}
		fmt.Fprintln(w)
	}
	for i, text := range notes.texts {
		fmt.Fprintf(w, "- [%d] %s\n", i+1, escaped(text))
	}
	for _, line := range slices.Concat(closing(d), d.Warnings) {
		fmt.Fprintf(w, "- %s\n", escaped(line))
	}
	return nil
}

func writeRow(w io.Writer, cells []string) {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = escaped(c)
	}
	fmt.Fprintf(w, "| %s |\n", strings.Join(out, " | "))
}

// escaped keeps text from being taken for markup.
func escaped(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;", "\n", " ").Replace(s)
}
