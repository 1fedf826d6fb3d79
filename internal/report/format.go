package report

import (
	"math"
	"strconv"
	"strings"
)

// size writes bytes in the largest binary unit that divides them: "4K", "1000001".
func size(n uint64) string {
	for _, u := range []struct {
		name  string
		bytes uint64
	}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatUint(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatUint(n, 10)
}

// micros writes µs: three decimals below 10, two below 1000, then one.
func micros(us float64) string {
	switch {
	case us < 10:
		return strconv.FormatFloat(us, 'f', 3, 64)
	case us < 1000:
		return strconv.FormatFloat(us, 'f', 2, 64)
	}
	return strconv.FormatFloat(us, 'f', 1, 64)
}

// optional writes µs that may be absent.
func optional(us *float64) string {
	if us == nil {
		return "-"
	}
	return micros(*us)
}

// gigabytes writes GB/s with at least two figures that mean something; absent is "-".
func gigabytes(bw *float64) string {
	switch {
	case bw == nil:
		return "-"
	case *bw >= 0.1:
		return strconv.FormatFloat(*bw, 'f', 2, 64)
	}
	return strconv.FormatFloat(*bw, 'f', 4, 64)
}

// ratio writes how many times faster than a baseline.
func ratio(r *float64) string {
	if r == nil || math.IsInf(*r, 0) || math.IsNaN(*r) {
		return "-"
	}
	return strconv.FormatFloat(*r, 'f', 2, 64) + "x"
}

// full writes a number as it is.
func full(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// joined is the non-empty parts with commas between.
func joined(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, ", ")
}
