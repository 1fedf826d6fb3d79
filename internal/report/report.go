// Package report renders the document of a run: as a table for people, as Markdown, as CSV, as JSON without the
// samples, and in the format of Go benchmarks for benchstat.
//
// It reads [record.Document] and nothing else: it touches no device, and the same view can be made again later from
// the file that --out wrote. Each format is one file of the package.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Formats lists the views, the default first.
var Formats = []string{"table", "json", "csv", "md", "benchfmt"}

// Options are what a view can be asked for.
type Options struct {
	Wide bool // every column, however wide the table becomes
}

// Render writes the document in one of [Formats].
func Render(w io.Writer, d record.Document, format string, o Options) error {
	views := map[string]func(io.Writer, record.Document, Options) error{
		"table": renderTable, "json": renderJSON, "csv": renderCSV, "md": renderMarkdown, "benchfmt": renderBench,
	}
	view, ok := views[format]
	if !ok {
		return fmt.Errorf("report: no format %q: use one of %s", format, strings.Join(Formats, ", "))
	}
	if err := view(w, d, o); err != nil {
		return fmt.Errorf("report: %s: %w", format, err)
	}
	return nil
}

func renderJSON(w io.Writer, d record.Document, _ Options) error {
	return record.Write(w, d.WithoutSamples())
}

// block is the cells that share one table: same operation by the same means, different sizes.
type block struct {
	op, transport, path, engine, device string
	cells                               []record.Cell
}

// blocks groups the cells in the order in which they were measured.
func blocks(cells []record.Cell) []*block {
	var out []*block
	for _, c := range cells {
		i := slices.IndexFunc(out, func(b *block) bool {
			return b.op == c.Op && b.transport == c.Transport && b.path == c.Path && b.engine == c.Engine && b.device == c.Device
		})
		if i < 0 {
			i = len(out)
			out = append(out, &block{op: c.Op, transport: c.Transport, path: c.Path, engine: c.Engine, device: c.Device})
		}
		out[i].cells = append(out[i].cells, c)
	}
	return out
}

// windowed reports whether a sample of the block is a window of messages.
func (b *block) windowed() bool { return b.op == "stream" || b.op == "bidir" }

// baselines lists the names of what the block is compared with.
func (b *block) baselines() []string {
	var names []string
	for _, c := range b.cells {
		for _, v := range c.Vs {
			if !slices.Contains(names, v.Name) {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

// versus is the cell's baseline of that name.
func versus(c record.Cell, name string) (record.Vs, bool) {
	i := slices.IndexFunc(c.Vs, func(v record.Vs) bool { return v.Name == name })
	if i < 0 {
		return record.Vs{}, false
	}
	return c.Vs[i], true
}
