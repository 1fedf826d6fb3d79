package view

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/verdict"
)

// JUnit's elements, of those that all readers know.
type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Timestamp  string          `xml:"timestamp,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
	Out        string          `xml:"system-out"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Failure *junitResult `xml:"failure"`
	Error   *junitResult `xml:"error"`
}

type junitResult struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
}

// writeJUnit writes a test case for each row: a regression is a failure, an ambiguous row an error, since it is no pass.
func writeJUnit(w io.Writer, r verdict.Result) error {
	s := junitSuite{
		Name: "p2pbench", Tests: len(r.Rows), Failures: r.Count(verdict.Regress), Errors: r.Count(verdict.Ambiguous),
		Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05"), Out: Summary(r),
	}
	for _, f := range facts(r) {
		s.Properties = append(s.Properties, junitProperty{f.Label, f.Text})
	}
	for _, row := range r.Rows {
		c := junitCase{Class: report.Clean(row.Transport + "." + row.Op), Name: cell(row) + " " + row.Metric}
		switch row.Verdict {
		case verdict.Regress:
			c.Failure = &junitResult{"regress", "slower by " + change(row)}
		case verdict.Ambiguous:
			c.Error = &junitResult{"ambiguous", unclear(row)}
		}
		s.Cases = append(s.Cases, c)
	}
	var out bytes.Buffer
	out.WriteString(xml.Header)
	enc := xml.NewEncoder(&out)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Suite: s}); err != nil {
		return fmt.Errorf("view: junit: %w", err)
	}
	out.WriteByte('\n')
	_, err := w.Write(out.Bytes())
	return err
}

func unclear(row verdict.Row) string {
	return fmt.Sprintf("slower by %s: the smallest change that could have been seen is %.1f %%", change(row), row.Visible)
}

// maxAnnotations is how many of a kind GitHub shows of a step.
const maxAnnotations = 10

// writeAnnotations writes GitHub's workflow commands: an error for each regression, a warning for each ambiguous row, as
// many as are shown, and a line for the whole.
func writeAnnotations(w io.Writer, r verdict.Result) error {
	var out bytes.Buffer
	shown := map[string]int{}
	annotate := func(kind, title, text string) {
		if shown[kind]++; shown[kind] <= maxAnnotations {
			fmt.Fprintf(&out, "::%s title=%s::%s\n", kind, property(title), message(text))
		}
	}
	for _, row := range r.Rows {
		title := "p2pbench: " + cell(row) + " " + row.Metric
		switch row.Verdict {
		case verdict.Regress:
			annotate("error", title, "slower by "+change(row))
		case verdict.Ambiguous:
			annotate("warning", title, unclear(row))
		}
	}
	text := Summary(r)
	if len(r.Decide) > 0 {
		text += "; to decide: " + report.Clean(strings.Join(quoted(r.Decide), " "))
	}
	fmt.Fprintf(&out, "::notice title=p2pbench::%s\n", message(text))
	_, err := w.Write(out.Bytes())
	return err
}

// message is text as a workflow command takes it.
func message(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(report.Printable(s))
}

// property is a property's value.
func property(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(message(s))
}

// writeOpenMetrics writes a text file as Prometheus' node exporter collects it.
func writeOpenMetrics(w io.Writer, r verdict.Result) error {
	var out bytes.Buffer
	family := func(name, help string) {
		fmt.Fprintf(&out, "# TYPE %s gauge\n# HELP %s %s\n", name, name, help)
	}
	perRow := func(name, help string, value func(verdict.Row) (float64, bool)) {
		family(name, help)
		for _, row := range r.Rows {
			if v, ok := value(row); ok {
				fmt.Fprintf(&out, "%s{%s} %s\n", name, labels(row), number(v))
			}
		}
	}
	share := func(of func(verdict.Row) float64) func(verdict.Row) (float64, bool) {
		return func(row verdict.Row) (float64, bool) { return of(row) / 100, true }
	}
	seconds := func(of func(verdict.Row) float64) func(verdict.Row) (float64, bool) {
		return func(row verdict.Row) (float64, bool) { return of(row) / 1e6, row.Metric != verdict.GBps }
	}
	perRow("p2pbench_slower_ratio", "Estimated change of the time from base to head; 0 is none.", share(func(row verdict.Row) float64 { return row.Slower }))
	perRow("p2pbench_slower_low_ratio", "Lower bound of the change.", share(func(row verdict.Row) float64 { return row.Low }))
	perRow("p2pbench_slower_high_ratio", "Upper bound of the change.", share(func(row verdict.Row) float64 { return row.High }))
	perRow("p2pbench_base_seconds", "Median over the runs of base.", seconds(func(row verdict.Row) float64 { return row.Base }))
	perRow("p2pbench_head_seconds", "Median over the runs of head.", seconds(func(row verdict.Row) float64 { return row.Head }))
	family("p2pbench_figures", "Figures by verdict.")
	for _, v := range []verdict.Verdict{verdict.Regress, verdict.Ambiguous, verdict.Pass} {
		fmt.Fprintf(&out, "p2pbench_figures{verdict=\"%s\"} %d\n", v, r.Count(v))
	}
	family("p2pbench_runs", "Runs by side.")
	fmt.Fprintf(&out, "p2pbench_runs{side=\"base\"} %d\np2pbench_runs{side=\"head\"} %d\n", r.Base.Runs, r.Head.Runs)
	family("p2pbench_compared_timestamp_seconds", "When the sides were compared.")
	fmt.Fprintf(&out, "p2pbench_compared_timestamp_seconds %s\n# EOF\n", number(float64(r.Started.UnixMilli())/1e3))
	_, err := w.Write(out.Bytes())
	return err
}

func labels(row verdict.Row) string {
	quote := func(s string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(report.Printable(s), "?")) + `"`
	}
	return fmt.Sprintf("transport=%s,op=%s,size=\"%d\",offset=\"%d\",metric=%s", quote(row.Transport), quote(row.Op), row.Size, row.Offset, quote(row.Metric))
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
