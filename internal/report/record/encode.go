package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// Encode writes v as JSON in the layout of [Write]. [Hidden] characters are escaped. Nothing is written if v cannot be
// encoded.
func Encode(w io.Writer, v any) error {
	var compact bytes.Buffer
	enc := json.NewEncoder(&compact)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("record: write: %w", err)
	}
	if _, err := w.Write(layOut(escapeHidden(bytes.TrimSpace(compact.Bytes())))); err != nil {
		return fmt.Errorf("record: write: %w", err)
	}
	return nil
}

// Hidden reports whether a terminal interprets the character instead of showing it: control and format characters
// (Unicode's Cc and Cf, such as escape sequences and changes of direction), line and paragraph separators.
func Hidden(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

// escapeHidden writes hidden characters of compact JSON as \u escapes. encoding/json does so below U+0020 only.
func escapeHidden(compact []byte) []byte {
	if !bytes.ContainsFunc(compact, Hidden) {
		return compact
	}
	var out bytes.Buffer
	for _, r := range string(compact) {
		switch {
		case !Hidden(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.Bytes()
}
