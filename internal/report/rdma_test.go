package report

import (
	"regexp"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
)

func TestGoldenRDMA(t *testing.T) {
	for name, d := range map[string]record.Document{"rdma": reporttest.Pooled(), "rdma-fan": reporttest.Fanned()} {
		for _, format := range Formats {
			if name == "rdma" || format == "table" || format == "md" {
				reporttest.Golden(t, name+"."+format, rendered(t, d, format, Options{}))
			}
		}
		reporttest.CheckMarkdownTables(t, rendered(t, d, "md", Options{}))
		for line := range strings.Lines(rendered(t, d, "table", Options{})) {
			if w := reporttest.Narrow.StringWidth(strings.TrimSuffix(line, "\n")); w > 120 {
				t.Errorf("%s: %d columns: %s", name, w, line)
			}
		}
	}
}

// The sum of a fan is over all pairs, and the table says so.
func TestFanTable(t *testing.T) {
	text := rendered(t, reporttest.Fanned(), "table", Options{})
	for _, want := range []string{"fan in of 3 ranks", "GB/s sum = all pairs", "GB/s/dir +GB/s sum", "soft-RoCE"} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
}

// A connection with fewer than 100 messages has no p99, and its table says so.
func TestConnectionWithoutTail(t *testing.T) {
	d := reporttest.Pooled()
	d.Cells = d.Cells[7:]
	text := rendered(t, d, "table", Options{})
	_, table, _ := strings.Cut(text, "connections:")
	if !regexp.MustCompile(`8M +16 +\S+ +\S+\* `).MatchString(table) || !strings.Contains(text, "* p99 of fewer than 100 samples is the maximum") {
		t.Errorf("no star in:\n%s", text)
	}
}

// There is no table of connections for a single connection or a single message in flight.
func TestNoConnectionTable(t *testing.T) {
	d := reporttest.Pooled()
	d.Cells = d.Cells[:4] // latency
	if text := rendered(t, d, "table", Options{}); strings.Contains(text, "connections:") {
		t.Errorf("latency has a table of connections:\n%s", text)
	}
	d = reporttest.Pooled()
	for i := range d.Cells {
		d.Cells[i].Conns = d.Cells[i].Conns[:1]
	}
	if text := rendered(t, d, "table", Options{}); strings.Contains(text, "connections:") {
		t.Errorf("one connection has a table:\n%s", text)
	}
}
