package sweep

import (
	"fmt"

	"github.com/p2pbench/p2pbench/internal/knob"
)

// Range lists the sizes from lo to at most hi. Each is the previous one plus step, or times factor if step is 0.
func Range(lo, hi, factor, step uint64) ([]uint64, error) {
	if lo > hi {
		return nil, fmt.Errorf("smallest size %s is above the largest, %s", knob.FormatSize(lo), knob.FormatSize(hi))
	}
	if step == 0 && (factor < 2 || lo == 0) {
		if lo == hi {
			return []uint64{lo}, nil
		}
		return nil, fmt.Errorf("from %s to %s: need a step factor of 2 or more from a size above 0, or a step in bytes",
			knob.FormatSize(lo), knob.FormatSize(hi))
	}
	const maxSizes = 10000
	var out []uint64
	for n := lo; n <= hi; {
		if len(out) == maxSizes {
			return nil, fmt.Errorf("from %s to %s in steps of %d bytes: more than %d sizes", knob.FormatSize(lo), knob.FormatSize(hi),
				step, maxSizes)
		}
		out = append(out, n)
		next := n + step
		if step == 0 {
			if n > hi/factor {
				break
			}
			next = n * factor
		}
		if next < n {
			break
		}
		n = next
	}
	return out, nil
}
