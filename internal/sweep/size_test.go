package sweep

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestRange(t *testing.T) {
	const huge = uint64(math.MaxUint64)
	for _, c := range []struct {
		lo, hi, factor, step uint64
		want                 []uint64
	}{
		{1024, 65536, 4, 0, []uint64{1024, 4096, 16384, 65536}},
		{1024, 65535, 4, 0, []uint64{1024, 4096, 16384}},
		{8, 8, 2, 0, []uint64{8}},
		{8, 8, 0, 0, []uint64{8}},
		{0, 0, 2, 0, []uint64{0}},
		{0, 30, 1, 10, []uint64{0, 10, 20, 30}},
		{5, 30, 7, 10, []uint64{5, 15, 25}}, // a step goes before a factor
		{1, 1, 1, 5, []uint64{1}},
		{huge - 1, huge, 2, 0, []uint64{huge - 1}}, // no overflow
		{huge / 2, huge, 2, 0, []uint64{huge / 2, huge / 2 * 2}},
		{huge - 5, huge, 0, 4, []uint64{huge - 5, huge - 1}},
	} {
		got, err := Range(c.lo, c.hi, c.factor, c.step)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d to %d × %d + %d: %v, %v; want %v", c.lo, c.hi, c.factor, c.step, got, err, c.want)
		}
	}
}

func TestRangeRefuses(t *testing.T) {
	for _, c := range []struct {
		lo, hi, factor, step uint64
		why                  string
	}{
		{1 << 20, 1 << 10, 2, 0, "smallest size 1M is above the largest, 1K"},
		{1 << 20, 1 << 10, 2, 8, "smallest size 1M is above the largest, 1K"},
		{1, 8, 1, 0, "need a step factor of 2 or more"},
		{1, 8, 0, 0, "need a step factor of 2 or more"},
		{0, 8, 2, 0, "from a size above 0"},
		{1, 1 << 20, 2, 1, "more than 10000 sizes"},
	} {
		got, err := Range(c.lo, c.hi, c.factor, c.step)
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%d to %d × %d + %d: %d sizes, %v; want %q", c.lo, c.hi, c.factor, c.step, len(got), err, c.why)
		}
	}
	if got, err := Range(1, 10000, 0, 1); err != nil || len(got) != 10000 {
		t.Errorf("10000 sizes: %d, %v", len(got), err)
	}
}
