package knob

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units are the suffixes of a size: K, M, G, T are binary; KB, MB, GB, TB are decimal.
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

// parseSize parses a Size. Its errors do not repeat the text.
func parseSize(s string) (uint64, error) {
	t := strings.TrimSpace(s)
	digits := strings.TrimRight(t, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	suffix := strings.ToUpper(t[len(digits):])
	for _, u := range units {
		if u.suffix == suffix {
			return scaled(strings.TrimSpace(digits), u.bytes)
		}
	}
	if digits == "" {
		return 0, errNoSize
	}
	return 0, fmt.Errorf("unknown suffix %q: use K, M, G (1024) or KB, MB, GB (1000)", t[len(digits):])
}

var errNoSize = errors.New("not a number of bytes such as 64, 4K or 1.5M")

func scaled(digits string, unit uint64) (uint64, error) {
	if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
		if n > math.MaxInt64/unit {
			return 0, errors.New("more than 2^63 bytes")
		}
		return n * unit, nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || !strings.Contains(digits, ".") || strings.ContainsAny(digits, "+-xXeEpP_") {
		return 0, errNoSize
	}
	bytes := f * float64(unit)
	if bytes != math.Trunc(bytes) || bytes >= math.MaxInt64 {
		return 0, errors.New("not a whole number of bytes")
	}
	return uint64(bytes), nil
}

// FormatSize formats a number of bytes in the syntax of Size, in the largest binary unit that divides it.
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
