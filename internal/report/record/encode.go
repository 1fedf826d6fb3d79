package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Encode writes v as JSON in the layout of [Write]: indented, but a list or object that holds no other on one line,
// and a newline at the end. Nothing is written when v cannot be expressed.
func Encode(w io.Writer, v any) error {
	var compact bytes.Buffer
	enc := json.NewEncoder(&compact)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("record: write: %w", err)
	}
	if _, err := w.Write(layOut(bytes.TrimSpace(compact.Bytes()))); err != nil {
		return fmt.Errorf("record: write: %w", err)
	}
	return nil
}
