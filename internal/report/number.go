package report

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// None is shown in place of a missing figure.
const None = "-"

// Size formats bytes in the largest binary unit that divides them: 1K, 1536, 3M, 1000001.
func Size(n uint64) string {
	unit := ""
	for _, u := range []string{"K", "M", "G", "T"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n /= 1024
		unit = u
	}
	return strconv.FormatUint(n, 10) + unit
}

// Micros formats µs: with three decimals below 1, without decimals from 1,000 on.
func Micros(us float64) string {
	switch {
	case us != 0 && us < 0.9995:
		return Fixed(us, 3)
	case us < 999.995:
		return Fixed(us, 2)
	}
	return Fixed(us, 0)
}

// GBps formats GB/s and other figures that may be small: two decimals, or three significant digits below 0.1.
func GBps(v float64) string {
	switch {
	case v == 0 || v >= 0.0995:
		return Fixed(v, 2)
	case v >= 0.0001:
		return Fixed(v, 2-int(math.Floor(math.Log10(v))))
	}
	return strconv.FormatFloat(v, 'e', 2, 64)
}

// GBpsOrNone formats GB/s, or [None] for nil.
func GBpsOrNone(v *float64) string {
	if v == nil {
		return None
	}
	return GBps(*v)
}

// full formats a figure with the fewest digits that identify its value.
func full(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Fixed formats v with a fixed number of decimals.
func Fixed(v float64, decimals int) string { return strconv.FormatFloat(v, 'f', decimals, 64) }

// Printable replaces [record.Hidden] characters by spaces.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if record.Hidden(r) {
			return ' '
		}
		return r
	}, s)
}

// printableLines applies Printable to each line.
func printableLines(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r != '\n' && record.Hidden(r) {
			return ' '
		}
		return r
	}, text)
}

// Clean makes text from a document safe to print: one line, without control characters.
func Clean(s string) string { return strings.Join(strings.Fields(Printable(s)), " ") }
