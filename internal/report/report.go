// Package report renders the document of a run in one of several text formats.
//
// table is for people and fits 120 columns unless all columns are requested; md is the same for GitHub. json is the
// document without its raw samples. csv has one row per cell with full precision, as in RFC 4180 (lines end in CR LF).
// benchfmt is Go's benchmark format, for benchstat.
//
// The lines above each table define its figures; footnotes below the tables hold warnings. A percentile with too few
// samples is marked with a star. The package computes no figures, so views of one document agree.
//
// The package neither measures nor compares runs.
package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Formats lists the formats of [Render]; the first is the default.
var Formats = []string{"table", "json", "csv", "md", "benchfmt"}

// Options selects variants of a format.
type Options struct {
	Wide bool // table and md: all columns, at any width
	// Tables, if not nil, replaces the layout of table and md. It returns nil to keep this package's layout, and adds
	// footnotes to the notes.
	Tables func(record.Document, *Notes) []Table
}

// Table is a table that another package has laid out.
type Table struct {
	Title   []string // the first line has the subject after ": "
	Columns []Column
}

// tables returns the tables that another package has laid out; nil: none.
func (o Options) tables(d record.Document, n *Notes) []Table {
	if o.Tables == nil {
		return nil
	}
	return o.Tables(d, n)
}

// Render writes the document in one of [Formats]. Control characters in its strings are replaced: see [Printable].
func Render(w io.Writer, d record.Document, format string, o Options) error {
	var out bytes.Buffer
	var err error
	switch format {
	case "table":
		err = writeTable(&out, d, o)
	case "json":
		err = record.Write(&out, d.WithoutSamples()) // escapes control characters
	case "csv":
		err = writeCSV(&out, d) // replaces control characters in each cell
	case "md":
		writeMarkdown(&out, d, o)
	case "benchfmt":
		writeBenchfmt(&out, d)
	default:
		return fmt.Errorf("report: unknown format %q: use one of %s", format, strings.Join(Formats, ", "))
	}
	if err == nil {
		err = show(w, out, format)
	}
	if err != nil {
		return fmt.Errorf("report: %s: %w", format, err)
	}
	return nil
}

// show writes a view. It keeps the CR LF of CSV.
func show(w io.Writer, view bytes.Buffer, format string) error {
	text := view.Bytes()
	if format != "csv" {
		text = printableLines(text)
	}
	_, err := w.Write(text)
	return err
}

// ops are the operations in the order of the tables; unknown ones follow.
var ops = []string{"latency", "stream", "bidir", "pingpong"}

// opOrder returns an operation's position among the blocks.
func opOrder(op string) int {
	if i := slices.Index(ops, op); i >= 0 {
		return i
	}
	return len(ops)
}

// overWindow reports whether a sample of the operation is a window of messages.
func overWindow(op string) bool { return op == "stream" || op == "bidir" }
