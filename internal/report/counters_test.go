package report

import (
	"testing"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
)

// counted returns a document of cells with these counters, which count describes.
func counted(count []record.Counter, cells ...map[string]uint64) record.Document {
	d := record.Document{}
	if count != nil {
		d.Transports = map[string]record.Transport{"t": {Counters: count}}
	}
	for _, counters := range cells {
		d.Cells = append(d.Cells, record.Cell{Transport: "t", Counters: counters})
	}
	return d
}

func TestCountersText(t *testing.T) {
	described := []record.Counter{
		{Name: "path_b", Kind: "count", Label: "path_b", OmitZero: true},
		{Name: "path_a", Kind: "count", Label: "path_a", OmitZero: true},
		{Name: "exports", Kind: "count", Label: "exports"},
		{Name: "export_ns", Kind: "count", Unit: "ns", TimeOf: "exports"},
		{Name: "opens", Kind: "count", Label: "opens"},
		{Name: "open_ns", Kind: "count", Unit: "ns", TimeOf: "opens"},
		{Name: "sent", Kind: "count", Unit: "bytes", Label: "sent"},
		{Name: "mapped", Kind: "gauge", Unit: "bytes", Label: "mapped"},
		{Name: "setup", Kind: "max", Unit: "ns", Label: "set-up"},
		{Name: "free", Kind: "min", Unit: "bytes", Label: "free"},
		{Name: "widgets", Kind: "of a newer version", Label: "widgets"},
	}
	for name, tt := range map[string]struct {
		d    record.Document
		want string
	}{
		"no cells":    {record.Document{}, ""},
		"no counters": {counted(described, nil), ""},
		"no label":    {counted(described, map[string]uint64{"payload_bytes": 10, "export_ns": 3}), ""},
		"zero":        {counted(described, map[string]uint64{"path_a": 0, "exports": 0, "export_ns": 0}), "exports 0"},
		"of two cells": {
			counted(described,
				map[string]uint64{"path_a": 20, "opens": 1, "open_ns": 3000, "sent": 1 << 20, "mapped": 1 << 20, "setup": 1500, "free": 7, "widgets": 4},
				map[string]uint64{"path_a": 20, "opens": 2, "open_ns": 1500, "sent": 1 << 20, "mapped": 2 << 20, "setup": 1500, "widgets": 4}),
			"path_a 40, opens 3 (1.50 µs each), sent 2097152, mapped 1M to 2M, set-up 1.50 µs, free 7, widgets 4",
		},
		"undescribed": {
			counted(nil, map[string]uint64{"opens": 1, "hits": 7, "stale": 0}, map[string]uint64{"opens": 2}),
			"per cell: hits 7, opens 1 to 2",
		},
		"by size": {reporttest.Kernels(), "steps 307200, fences 326400, ctas 0 to 16, nccl-graph CTAs 2 to 32"},
		"staged":  {reporttest.Circle(), "steps 35200, fences 37400, ctas 4, stride 256K to 2M"},
		"ipc":     {reporttest.Host(), "opens 3"},
	} {
		if got := countersText(tt.d); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
