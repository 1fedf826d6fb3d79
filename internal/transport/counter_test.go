package transport_test

import (
	"maps"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport"
)

var kinds = transport.Counters{
	{Name: "messages", Kind: transport.Count},
	{Name: "mapped", Kind: transport.Gauge},
	{Name: "stride", Kind: transport.Max},
	{Name: "free", Kind: transport.Min},
}

// Counts and gauges are summed over ranks; Max and Min take the maximum and minimum. A rank may lack counters.
func TestJoin(t *testing.T) {
	a := map[string]uint64{"messages": 2, "mapped": 2, "stride": 2, "free": 2, "undescribed": 2}
	b := map[string]uint64{"messages": 3, "mapped": 3, "stride": 3, "free": 3, "undescribed": 3, "other": 1}
	want := map[string]uint64{"messages": 5, "mapped": 5, "stride": 3, "free": 2, "undescribed": 5, "other": 1}
	for _, order := range [][]map[string]uint64{{a, b}, {b, a}} {
		got := map[string]uint64{}
		for _, values := range order {
			kinds.Join(got, values)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// A cell has the counts of its own batches, and the values of other counters at its end.
func TestAdvance(t *testing.T) {
	total := map[string]uint64{}
	before := map[string]uint64{"messages": 10, "mapped": 9, "stride": 9, "free": 9}
	kinds.Advance(total, before, map[string]uint64{"messages": 14, "mapped": 8, "stride": 7, "free": 6})
	kinds.Advance(total, map[string]uint64{"messages": 14}, map[string]uint64{"messages": 15, "mapped": 4, "stride": 3, "free": 2})
	if want := (map[string]uint64{"messages": 5, "mapped": 4, "stride": 3, "free": 2}); !maps.Equal(total, want) {
		t.Errorf("%v, want %v", total, want)
	}
}
