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

// Levels are not summed: they are what the cells had, from the least to the most.
func TestLevelsAreNotSummed(t *testing.T) {
	for name, tt := range map[string]struct {
		cells []record.Cell
		want  string
	}{
		"by size": {kernels().Cells, "steps 307200, fences 326400, ctas 0 to 16, nccl_ctas 2 to 32"},
		"staged":  {circle().Cells, "steps 35200, fences 37400, ctas 4, stride 256K to 2M"},
		"ipc":     {host().Cells, "opens 3"},
		"none":    {[]record.Cell{{}}, ""},
	} {
		if got := countersText(tt.cells); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
