package record

import (
	"math"
	"testing"
)

func TestJain(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   float64 // 0: none
	}{
		{nil, 0},
		{[]float64{0, 0}, 0},
		{[]float64{5}, 1},
		{[]float64{3, 3, 3, 3}, 1},
		{[]float64{7, 0, 0, 0}, 0.25},
		{[]float64{1, 2}, 0.9},
		{[]float64{1e-9, 2e-9}, 0.9}, // the unit does not matter
	} {
		got := Jain(c.shares)
		if (got == nil) != (c.want == 0) || got != nil && math.Abs(*got-c.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", c.shares, got, c.want)
		}
	}
}
