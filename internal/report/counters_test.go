package report

import (
	"testing"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

func TestCountersText(t *testing.T) {
	for _, c := range []struct {
		cells []map[string]uint64
		want  string
	}{
		{nil, ""},
		{[]map[string]uint64{{"payload_bytes": 10}}, ""},
		{
			[]map[string]uint64{
				{"path_get": 20, "path_direct": 0, "opens": 1, "open_ns": 3000, "exports": 0, "export_ns": 0, "hits": 19, "mapped_bytes": 1 << 20},
				{"path_get": 20, "path_direct": 0, "opens": 2, "open_ns": 1500, "exports": 0, "export_ns": 0, "hits": 0, "mapped_bytes": 2 << 20, "unheard_of": 7},
			},
			"path_get 40, exports 0, opens 3 (1.50 µs each), hits 19, mapped 2.0 MiB",
		},
	} {
		var cells []record.Cell
		for _, counters := range c.cells {
			cells = append(cells, record.Cell{Counters: counters})
		}
		if got := countersText(cells); got != c.want {
			t.Errorf("%v: got %q, want %q", c.cells, got, c.want)
		}
	}
}
