// Package report shows a result: the one document of a run in, text in one of several formats out.
//
// The table is for people and fits 120 columns unless all columns are asked for; md is the same for GitHub. json is
// the document without its raw samples. csv has one row per cell, every figure in full, as RFC 4180 wants it (lines
// end in CR LF). benchfmt is Go's benchmark format, for benchstat.
//
// Above each block of a table stands what its figures mean, below the tables what is doubtful about which. A
// percentile that the samples cannot carry is marked with a star. No figure is computed here: views of one document
// cannot disagree.
//
// It neither measures nor compares runs.
package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Formats names the formats that [Render] knows; the first is the default.
var Formats = []string{"table", "json", "csv", "md", "benchfmt"}

// Options chooses among variants of a format.
type Options struct {
	Wide bool // table and md: every column; table: whatever the width
	// Tables lays the cells of a document out otherwise, in table and md: nil leaves them to this package. Footnotes go
	// to the notes.
	Tables func(record.Document, *Notes) []Table
}

// Table is cells that another package has laid out.
type Table struct {
	Title   []string // the first line has the subject behind ": "
	Columns []Column
}

// tables are those of the document that another package lays out; none: this one does.
func (o Options) tables(d record.Document, n *Notes) []Table {
	if o.Tables == nil {
		return nil
	}
	return o.Tables(d, n)
}

// Render writes the document in one of [Formats]. Whatever its strings hold, no view has a character that a terminal
// obeys instead of showing it: see [Printable].
func Render(w io.Writer, d record.Document, format string, o Options) error {
	var out bytes.Buffer
	var err error
	switch format {
	case "table":
		err = writeTable(&out, d, o)
	case "json":
		err = record.Write(&out, d.WithoutSamples()) // escapes
	case "csv":
		err = writeCSV(&out, d) // cell by cell
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

// show writes a view. Lines of CSV end in CR LF.
func show(w io.Writer, view bytes.Buffer, format string) error {
	text := view.Bytes()
	if format != "csv" {
		text = printableLines(text)
	}
	_, err := w.Write(text)
	return err
}

// ops are the operations in the order in which tables show them; others follow.
var ops = []string{"latency", "stream", "bidir", "pingpong"}

// opOrder is an operation's place among the blocks.
func opOrder(op string) int {
	if i := slices.Index(ops, op); i >= 0 {
		return i
	}
	return len(ops)
}

// overWindow reports whether an operation's samples last a window of messages, and not one message.
func overWindow(op string) bool { return op == "stream" || op == "bidir" }
