package sweep

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units are the suffixes of a size: binary without a B, decimal with one.
var units = []struct {
	suffix string
	bytes  uint64
}{
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"K", 1 << 10},
	{"M", 1 << 20},
	{"G", 1 << 30},
	{"T", 1 << 40},
	{"KIB", 1 << 10},
	{"MIB", 1 << 20},
	{"GIB", 1 << 30},
	{"TIB", 1 << 40},
	{"B", 1},
	{"", 1},
}

// ParseSize reads a number of bytes: "4096", "4K" and "4KiB" (4,096), "4KB" (4,000), "1.5M". Case does not matter.
func ParseSize(s string) (uint64, error) {
	t := strings.TrimSpace(s)
	digits := strings.TrimRight(t, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	suffix := strings.ToUpper(t[len(digits):])
	for _, u := range units {
		if u.suffix == suffix {
			return scaled(s, strings.TrimSpace(digits), u.bytes)
		}
	}
	return 0, fmt.Errorf("size %q: unknown suffix %q: use K, M, G (1024) or KB, MB, GB (1000)", s, t[len(digits):])
}

func scaled(s, digits string, unit uint64) (uint64, error) {
	if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
		if n > math.MaxInt64/unit {
			return 0, fmt.Errorf("size %q: more than 2^63 bytes", s)
		}
		return n * unit, nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || !strings.Contains(digits, ".") || strings.ContainsAny(digits, "+-xXeEpP_") {
		return 0, fmt.Errorf("size %q: not a number of bytes such as 64, 4K or 1.5M", s)
	}
	bytes := f * float64(unit)
	if bytes != math.Trunc(bytes) || bytes >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q: not a whole number of bytes", s)
	}
	return uint64(bytes), nil
}

// ParseSizes reads a list such as "8,4K,1M".
func ParseSizes(s string) ([]uint64, error) {
	var out []uint64
	for part := range strings.SplitSeq(s, ",") {
		n, err := ParseSize(part)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// FormatSize writes bytes the way ParseSize reads them, in the largest binary unit that divides it.
func FormatSize(n uint64) string {
	for _, u := range []struct {
		s string
		n uint64
	}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if n >= u.n && n%u.n == 0 {
			return strconv.FormatUint(n/u.n, 10) + u.s
		}
	}
	return strconv.FormatUint(n, 10)
}

// Range lists the sizes from lo to hi: times factor if factor > 1, else plus step. hi itself is included when it is
// hit.
func Range(lo, hi, factor, step uint64) ([]uint64, error) {
	if lo > hi {
		return nil, fmt.Errorf("smallest size %s is above the largest, %s", FormatSize(lo), FormatSize(hi))
	}
	if step == 0 && (factor < 2 || lo == 0) {
		if lo == hi {
			return []uint64{lo}, nil
		}
		return nil, fmt.Errorf("from %s to %s: need a step factor of 2 or more from a size above 0, or a step in bytes",
			FormatSize(lo), FormatSize(hi))
	}
	const most = 10000
	var out []uint64
	for n := lo; n <= hi; {
		if len(out) == most {
			return nil, fmt.Errorf("from %s to %s in steps of %d bytes: more than %d sizes", FormatSize(lo), FormatSize(hi),
				step, most)
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
