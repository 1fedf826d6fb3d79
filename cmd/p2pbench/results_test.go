package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

const resultsFolder = "../../docs/results"

// kept holds the documents of a folder of docs/results.
type kept struct {
	runs   []record.Document
	claims []claim.Document
}

// readKept reads every document of a folder.
func readKept(t *testing.T, folder string) kept {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d documents, %v", folder, len(files), err)
	}
	var all kept
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if isClaims(data) {
			d, err := claim.Read(bytes.NewReader(data))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all.claims = append(all.claims, d)
			continue
		}
		d, err := record.Read(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all.runs = append(all.runs, d)
	}
	return all
}

func folders(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(resultsFolder, "20*"))
	if err != nil || len(all) < 9 {
		t.Fatalf("%d folders in %s, %v", len(all), resultsFolder, err)
	}
	return all
}

// Every document in docs/results can be rendered in every format, and has samples only if its table needs them.
func TestKeptResults(t *testing.T) {
	for _, folder := range folders(t) {
		files, _ := filepath.Glob(filepath.Join(folder, "*.json")) // the pattern is well-formed
		for _, file := range files {
			formats := report.Formats
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if isClaims(data) {
				formats = claim.Formats
			}
			views := map[string]string{}
			for _, format := range formats {
				var view bytes.Buffer
				if err := render(&view, file, viewSettings{Format: format}); err != nil || view.Len() == 0 {
					t.Errorf("%s as %s: %d bytes, %v", file, format, view.Len(), err)
				}
				views[format] = view.String()
			}
			if !bytes.Contains(data, []byte(`"samples_ns"`)) && !bytes.Contains(data, []byte(`"histogram_ns"`)) {
				continue
			}
			small, view := filepath.Join(t.TempDir(), "small.json"), new(bytes.Buffer)
			if err := os.WriteFile(small, []byte(views["json"]), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := render(view, small, viewSettings{Format: "table"}); err != nil || view.String() == views["table"] {
				t.Errorf("%s: has samples that its table does not need (%v): scripts/keep-results takes them out", file, err)
			}
		}
	}
}

// Every figure in a table of a page that cites docs/results is in a document there.
func TestFiguresOfPages(t *testing.T) {
	var all kept
	rows := 0
	for _, folder := range folders(t) {
		here := readKept(t, folder)
		all.runs, all.claims = append(all.runs, here.runs...), append(all.claims, here.claims...)
		rows += here.checkPage(t, filepath.Join(folder, "README.md"))
	}
	if rows < 700 {
		t.Errorf("%d rows on the pages of %s: were their tables found?", rows, resultsFolder)
	}
	if n := all.checkPage(t, "../../README.md"); n < 10 {
		t.Errorf("%d rows in README.md: was its table found?", n)
	}
}

var apart = regexp.MustCompile(` {2,}`)

// checkPage searches the documents for the rows of the page's tables and returns their number.
func (k kept) checkPage(t *testing.T, page string) (rows int) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var heads []string // headings of the current table; nil: outside a table
	last := ""
	for n, line := range strings.Split(string(text), "\n") {
		fields := apart.Split(strings.TrimSpace(line), -1)
		ruled := strings.HasPrefix(line, "──")
		switch {
		case ruled:
			heads = apart.Split(strings.TrimSpace(last), -1)
		case len(fields) < 3:
			heads = nil
		}
		last = line
		if heads == nil || ruled {
			continue
		}
		rows++
		switch {
		case heads[0] == "size" && strings.HasSuffix(heads[1], " µs") && !k.hasCell(heads, fields):
			t.Errorf("%s:%d: no document has %q", page, n+1, line)
		case heads[0] == "claim" && !k.hasRow(fields):
			t.Errorf("%s:%d: no claim's row is %q", page, n+1, line)
		}
	}
	return rows
}

// figures are the columns of a table that are checked: those of the cell, not of its baselines.
func figures(c record.Cell) map[string]float64 {
	of := map[string]float64{
		"min µs": c.Lat.Min, "p50 µs": c.Lat.P50, "p90 µs": c.Lat.P90, "p99 µs": c.Lat.P99, "p99.9 µs": c.Lat.P999,
		"max µs": c.Lat.Max, "n": float64(c.N), "window": float64(c.Window),
	}
	for head, v := range map[string]*float64{"GB/s": c.BWPerDir, "GB/s/dir": c.BWPerDir, "GB/s sum": c.BWSum} {
		if v != nil {
			of[head] = *v
		}
	}
	return of
}

// hasCell reports whether the row is that of a cell: its size, and every column that figures knows. The first column of
// a name is the cell's own, since those of baselines follow.
func (k kept) hasCell(heads, fields []string) bool {
	for _, d := range k.runs {
		for _, c := range d.Cells {
			of := figures(c)
			same := sizeText(c.Size) == fields[0]
			for i, head := range heads[:min(len(heads), len(fields))] {
				if v, known := of[head]; known {
					same = same && rounds(v, fields[i])
					delete(of, head)
				}
			}
			if same {
				return true
			}
		}
	}
	return false
}

// hasRow reports whether the row is that of a claim: name, size and both medians.
func (k kept) hasRow(fields []string) bool {
	for _, d := range k.claims {
		for _, c := range d.Claims {
			for _, o := range c.Tests {
				name := strings.TrimSuffix(c.ID+":"+o.Name, ":")
				if name != fields[0] {
					continue
				}
				if fields[1] == "-" && len(o.Rows) == 0 {
					return true
				}
				for _, r := range o.Rows {
					if sizeText(r.Size) == fields[1] && isMedian(r.A, fields[2]) && isMedian(r.B, fields[3]) {
						return true
					}
				}
			}
		}
	}
	return false
}

func isMedian(m *claim.Median, text string) bool {
	if m == nil {
		return text == "-"
	}
	return rounds(m.P50, text)
}

// rounds reports whether text is v rounded to the digits of text. A star marks a percentile that is the maximum.
func rounds(v float64, text string) bool {
	text = strings.TrimRight(text, "*")
	got, err := strconv.ParseFloat(text, 64)
	_, decimals, _ := strings.Cut(text, ".")
	return err == nil && math.Abs(got-v) <= 0.5001*math.Pow10(-len(decimals))
}

func sizeText(n uint64) string {
	for _, u := range []struct {
		name  string
		bytes uint64
	}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return fmt.Sprintf("%d%s", n/u.bytes, u.name)
		}
	}
	return strconv.FormatUint(n, 10)
}

// scripts/keep-results removes the samples and keeps what any view of the result needs.
func TestKeepResults(t *testing.T) {
	dir := t.TempDir()
	run, claims := filepath.Join(dir, "run.json"), filepath.Join(dir, "claims.json")
	preset := filepath.Join(resultsFolder, "2026-11-21-h200x2-paths", "preset-relay.json") // computes its own quantiles
	exitsWith(t, exitOK, "ipc", "--device", "host", "--sizes", "8,1K", "--op", "latency,bidir", "--vs", "memcpy", "-n", "200", "-q", "--out", run)
	exitsWith(t, exitOK, "claims", "run", "mpich-7862/stale-safe", "--device", "host", "--quick", "-q", "--out", claims)

	folder := filepath.Join(dir, "kept")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("../../scripts/keep-results", folder, run, preset, claims)
	c.Env = append(os.Environ(), "P2PBENCH="+exe, asCommand+"=1")
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), preset+": its table needs the samples: kept") {
		t.Fatalf("%v: %s", err, out)
	}
	for file, samples := range map[string]bool{run: false, preset: true, claims: false} {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(folder, filepath.Base(file))
		small, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(whole, []byte(`"samples_ns"`)) || bytes.Contains(small, []byte(`"samples_ns"`)) != samples {
			t.Errorf("%s: samples before: %v, after: %v", file, bytes.Contains(whole, []byte(`"samples_ns"`)), !samples)
		}
		for _, format := range claim.Formats {
			var before, after bytes.Buffer
			if err := render(&before, file, viewSettings{Format: format}); err != nil {
				t.Fatal(err)
			}
			if err := render(&after, name, viewSettings{Format: format}); err != nil || before.String() != after.String() {
				t.Errorf("%s as %s: not the same once kept (%v)", file, format, err)
			}
		}
	}
}
