package knob

import (
	"math"
	"strings"
	"testing"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]uint64{
		"0": 0, "1": 1, "4096": 4096, "4K": 4096, "4k": 4096, "4KiB": 4096, "4kib": 4096, "4KB": 4000, "4kb": 4000,
		"3M": 3 << 20, "3MiB": 3 << 20, "3MB": 3e6, "2G": 2 << 30, "2GB": 2e9, "2GiB": 2 << 30, "1T": 1 << 40,
		"1TB": 1e12, "1TiB": 1 << 40, "7B": 7, "7b": 7, " 8 ": 8, "8 K": 8192, "1.5K": 1536, "1.5KB": 1500, "0.5M": 1 << 19,
		"0.25G": 1 << 28, "9223372036854775807": math.MaxInt64, "8388607T": 8388607 << 40,
	} {
		if got, err := parseSize(s); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
}

func TestParseSizeRefuses(t *testing.T) {
	for s, why := range map[string]string{
		"":     "not a number",
		"K":    "not a number",
		"-1":   "not a number",
		"+1":   "not a number",
		"-1K":  "not a number",
		"1e3":  "not a number",
		"1_0":  "not a number",
		"1,5K": "not a number",
		"0x10": "not a number",
		".":    "not a number",
		"1..5": "not a number",
		"1.3":  "not a whole number",
		"1.3K": "not a whole number", "0.1B": "not a whole number",
		"8Q":   `unknown suffix "Q": use K, M, G (1024) or KB, MB, GB (1000)`,
		"8KBs": "unknown suffix", "8iB": "unknown suffix", "8E": "unknown suffix", "nan": "not a number", "Inf": "not a number",
		"9223372036854775808": "more than 2^63", "18446744073709551615": "more than 2^63", "8388608T": "more than 2^63",
		"9999999999G":          "more than 2^63",
		"18446744073709551616": "not a number", "9999999.5T": "not a whole number",
	} {
		got, err := parseSize(s)
		if err == nil {
			t.Errorf("%q: %d, want an error", s, got)
			continue
		}
		if !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %q does not say %q", s, err, why)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 1: "1", 1000: "1000", 1023: "1023", 1024: "1K", 1025: "1025", 1536: "1536", 10240: "10K", 1 << 20: "1M",
		3 << 19: "1536K", 1 << 30: "1G", 5 << 29: "2560M", 1 << 40: "1024G", math.MaxInt64: "9223372036854775807",
	} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// Formatted sizes can be parsed.
func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"0", "4K", "1.5M", "8Q", "9223372036854775807", "8388608T", " 1 k", "1.9999999999999999999T"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseSize(s)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: more than one line: %q", s, err)
			}
			return
		}
		if n > math.MaxInt64 {
			t.Errorf("%q: %d is more than 2^63", s, n)
		}
		if again, err := parseSize(FormatSize(n)); err != nil || again != n {
			t.Errorf("%q: %d is printed as %q, which reads %d, %v", s, n, FormatSize(n), again, err)
		}
	})
}
