package view

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
	"github.com/p2pbench/p2pbench/internal/verdict"
)

// result is a comparison with a row of each verdict.
func result() verdict.Result {
	row := func(op string, size uint64, metric string, base, slower, low, high float64, v verdict.Verdict) verdict.Row {
		return verdict.Row{
			Key: verdict.Key{Transport: "ipc", Op: op, Size: size}, Metric: metric, Base: base, Head: base * (1 + slower/100),
			Slower: slower, Low: low, High: high, Visible: max(5, slower-low), Verdict: v,
		}
	}
	r := verdict.Result{
		Schema: verdict.Schema, Version: "1.2.3", Started: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC),
		Command: []string{"p2pbench", "compare", "main", "head"}, Verdict: verdict.Regress, Why: "1 of 4 figures are slower",
		Decide: []string{"p2pbench", "ab", "--runs", "20", "--", "ipc", "--launcher", "it's me"},
		Rule:   verdict.ResultRule{Alpha: 0.025, Looks: 2, Threshold: 0.05, Effect: 0.1, Metrics: []string{"p50", "GB/s"}},
		Base:   verdict.SideResult{Name: "main", Version: "1.2.2", Runs: 30, Sessions: 3}, Head: verdict.SideResult{Name: "head", Version: "1.2.3", Runs: 10, Sessions: 1},
		Design: "sessions", Differ: []string{`engine is "ce" in base and "sm" in head`}, Warnings: []string{"the machine was busy"},
		Rows: []verdict.Row{
			row("latency", 1<<20, verdict.P50, 40.3, 14.9, 12.2, 17.8, verdict.Regress),
			row("stream", 4096, verdict.P99, 1391, 3.1, -9.9, 18, verdict.Ambiguous),
			row("latency", 8, verdict.P50, 0.057, 0.2, -1, 1.5, verdict.Pass),
			row("stream", 1<<20, verdict.GBps, 26.1, -4, -5, -2, verdict.Pass),
		},
		Exit: 1,
	}
	r.Rows[2].Offset, r.Rows[3].Head = 3, 27.2
	return r
}

func render(t *testing.T, r verdict.Result, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := Render(&b, r, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFormats(t *testing.T) {
	for _, format := range Formats {
		t.Run(format, func(t *testing.T) {
			reporttest.Golden(t, format, render(t, result(), format))
			var full reporttest.FullDisk
			if err := Render(full, result(), format); !errors.Is(err, reporttest.ErrFull) {
				t.Errorf("a full disk: %v", err)
			}
		})
	}
	if err := Render(io.Discard, result(), "csv"); err == nil || !strings.Contains(err.Error(), "use one of table, json") {
		t.Error(err)
	}
}

// Prometheus' own linter has nothing to say of the text file.
func TestOpenMetricsLint(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(render(t, hostile(), "openmetrics"))).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v: %+v", err, problems)
	}
}

// hostile is a result whose names and texts want to be more than that.
func hostile() verdict.Result {
	r := result()
	reporttest.Spoil(reflect.ValueOf(&r).Elem(), "<&]]>\"\\|%\xff\n::error::"+reporttest.Obeyed, "`*{\r\n# EOF\n", "Schema", "Verdict", "Metric", "Metrics", "Design")
	return r
}

// No format obeys what names and texts hold.
func TestHostile(t *testing.T) {
	for _, format := range Formats {
		t.Run(format, func(t *testing.T) {
			text := render(t, hostile(), format)
			for _, r := range text {
				if r != '\n' && record.Hidden(r) {
					t.Fatalf("%U is shown: %q", r, text)
				}
			}
			switch format {
			case "json":
				if err := json.Unmarshal([]byte(text), new(verdict.Result)); err != nil {
					t.Error(err)
				}
			case "md":
				reporttest.CheckMarkdownTables(t, text)
			case "junit":
				if err := xml.Unmarshal([]byte(text), new(junitSuites)); err != nil {
					t.Error(err)
				}
			case "github":
				line := regexp.MustCompile(`^::(error|warning|notice) title=[^:,]*::[^\r]*$`)
				for _, l := range strings.Split(strings.TrimSpace(text), "\n") {
					if !line.MatchString(l) || strings.Count(l, "\n") > 0 {
						t.Errorf("%q", l)
					}
				}
				if n := strings.Count(text, "\n"); n != 3 {
					t.Errorf("%d lines", n)
				}
			case "openmetrics":
				if strings.Count(text, "\n# EOF") != 1 || !strings.HasSuffix(text, "\n# EOF\n") {
					t.Errorf("ends early: %q", text)
				}
			}
		})
	}
}

// GitHub shows ten annotations of a kind, and the rest stands in the table.
func TestAnnotationsAreFew(t *testing.T) {
	r := result()
	for range 50 {
		r.Rows = append(r.Rows, r.Rows[0])
	}
	if n := strings.Count(render(t, r, "github"), "::error "); n > 10 {
		t.Errorf("%d errors", n)
	}
}
