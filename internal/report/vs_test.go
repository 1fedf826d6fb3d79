package report

import (
	"encoding/csv"
	"regexp"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
)

// beside returns a document with two sizes and four baselines: NCCL in three forms, one of which has no counters for
// one size.
func beside() record.Document {
	d := reporttest.GPUs()
	d.Cells = nil
	for i, us := range []float64{7.8, 98765.43} {
		samples := reporttest.Sampling(300, us)
		c := reporttest.IPC("latency", 1<<(10*(i+1)), 1, 300, us)
		for _, name := range []string{"nccl", "nccl-graph", "nccl:4", "memcpy"} {
			c = reporttest.Against(c, name, "some engine", samples)
		}
		for j, n := range []uint64{2, 2, 4} {
			c.Vs[j].Counters = map[string]uint64{"nccl_ctas": n << i, "messages": 300}
		}
		d.Cells = append(d.Cells, c)
	}
	delete(d.Cells[1].Vs[1].Counters, "nccl_ctas")
	return d
}

func TestCTAsOfBaselines(t *testing.T) {
	wide := rendered(t, beside(), "table", Options{Wide: true})
	if !regexp.MustCompile(`(?m)^ size .*( ratio +CTAs.*){3} ratio$`).MatchString(wide) {
		t.Errorf("want CTAs beside three baselines:\n%s", wide)
	}
	if !regexp.MustCompile(`(?m)^ +1K .* 2 .* 2 .* 4 `).MatchString(wide) || !regexp.MustCompile(`(?m)^ +1M .* 4 .* - .* 8 `).MatchString(wide) {
		t.Errorf("want 2, 2 and 4 CTAs, then 4, unknown and 8:\n%s", wide)
	}
	md := rendered(t, beside(), "md", Options{})
	if !strings.Contains(md, "| nccl CTAs |") || !strings.Contains(md, "| nccl:4 CTAs |") || strings.Contains(md, "memcpy CTAs") {
		t.Errorf("want CTAs of NCCL's:\n%s", md)
	}
	if text := rendered(t, reporttest.GPUs(), "table", Options{Wide: true}); strings.Contains(text, "CTAs") {
		t.Errorf("nobody counted CTAs:\n%s", text)
	}
	rows, err := csv.NewReader(strings.NewReader(rendered(t, beside(), "csv", Options{}))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, name := range rows[0] {
		if strings.HasPrefix(name, "vs_") && strings.HasSuffix(name, "_nccl_ctas") {
			got = append(got, name, rows[1][i], rows[2][i])
		}
	}
	want := "vs_nccl_counter_nccl_ctas 2 4 vs_nccl-graph_counter_nccl_ctas 2  vs_nccl:4_counter_nccl_ctas 4 8"
	if strings.Join(got, " ") != want {
		t.Errorf("csv: %q, want %q", got, want)
	}
}

// For any number of baselines the table fits, each baseline keeps its ratio, and dropped columns are named.
func TestManyBaselinesFit(t *testing.T) {
	text := rendered(t, beside(), "table", Options{})
	for line := range strings.Lines(text) {
		if w := reporttest.Narrow.StringWidth(strings.TrimSuffix(line, "\n")); w > 120 {
			t.Errorf("%d columns: %s", w, line)
		}
	}
	if n := strings.Count(text, " ratio"); n < 4 || !strings.Contains(text, "left out to fit: nccl CTAs, nccl-graph CTAs, nccl:4 CTAs, p90 µs") {
		t.Errorf("%d ratios:\n%s", n, text)
	}
}
