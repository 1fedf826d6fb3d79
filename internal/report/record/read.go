package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// MaxBytes is the size of the largest document that [Read] takes.
const MaxBytes = 1 << 30

// headBytes are looked at before the rest is read, so that what is no document is not read to its end.
const headBytes = 64 << 10

// Read reads one document and refuses, in one line, what is not one: malformed, truncated or followed by something
// else, larger than [MaxBytes], of a foreign or newer schema, with a key twice, or impossible (see check). Keys that it
// does not know are skipped, since a newer minor version may add some. What it accepts, [Write] writes so that Read
// gives the same document again.
func Read(r io.Reader) (Document, error) {
	data, err := Load(r)
	if err != nil {
		return Document{}, err
	}
	var d Document
	if err := Decode(data, Schema, &d); err != nil {
		return Document{}, err
	}
	if err := d.check(); err != nil {
		return Document{}, fmt.Errorf("record: read: %w", err)
	}
	d.upgrade()
	return d.filled(), nil
}

// Load reads what may be a document, of whatever schema, and refuses what is none by its first bytes or its size.
func Load(r io.Reader) ([]byte, error) {
	data, err := readAll(r, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("record: read: %w", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("record: read: the file is empty: not a p2pbench result")
	}
	return data, nil
}

// Decode makes v of a document of that schema, such as [Schema]. It refuses what [Read] refuses, but for impossible
// values.
func Decode(data []byte, schema string, v any) error {
	var head struct {
		Schema any `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("record: read: %w", explain(data, err))
	}
	if err := checkSchema(head.Schema, schema); err != nil {
		return fmt.Errorf("record: read: %w", err)
	}
	if err := checkKeys(data); err != nil {
		return fmt.Errorf("record: read: %w", err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("record: read: %w", explain(data, err))
	}
	return nil
}

// upgrade moves what documents written before Transports said by a knob to where it is now.
func (d *Document) upgrade() {
	if d.Transports != nil {
		return
	}
	if reason := OnlyRatios(d.Cells); reason != "" {
		d.Transports = map[string]Transport{d.Cells[0].Transport: {Counters: []Counter{}, OnlyRatios: reason}}
	}
}

// OnlyRatios is why absolute figures of the cells mean nothing, as documents written before Transports said it; "": they
// do.
func OnlyRatios(cells []Cell) string {
	for _, c := range cells {
		if c.Knobs["soft"] == "true" {
			return "the CPU emulates the NIC (soft-RoCE)"
		}
	}
	return ""
}

// readAll reads up to limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	var data bytes.Buffer
	switch _, err := io.CopyN(&data, r, headBytes); {
	case errors.Is(err, io.EOF):
		return data.Bytes(), nil
	case err != nil:
		return nil, err
	}
	if err := checkHead(data.Bytes()); err != nil {
		return nil, err
	}
	if _, err := io.Copy(&data, io.LimitReader(r, limit-headBytes+1)); err != nil {
		return nil, err
	}
	if int64(data.Len()) > limit {
		return nil, fmt.Errorf("larger than %d MiB: not a p2pbench result", limit>>20)
	}
	return data.Bytes(), nil
}

// checkHead reports why no document begins so.
func checkHead(head []byte) error {
	text := bytes.TrimSpace(head)
	if len(text) == 0 {
		return fmt.Errorf("begins with %d KiB of white space: not a p2pbench result", headBytes>>10)
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(head, &struct{}{}); errors.As(err, &syntax) && !isTruncated(head, syntax) {
		return explain(head, err)
	}
	if text[0] != '{' {
		return fmt.Errorf("begins with %q, expected a JSON object: not a p2pbench result", text[0])
	}
	return nil
}

// explain says where the JSON is wrong, and what was expected there.
func explain(data []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		if isTruncated(data, syntax) {
			return fmt.Errorf("%s: the file is truncated", place(data, syntax.Offset))
		}
		return fmt.Errorf("%s: malformed JSON: %w", place(data, syntax.Offset), err)
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if wrong.Field == "" {
			return fmt.Errorf("not a p2pbench result: a JSON %s, expected an object", wrong.Value)
		}
		return fmt.Errorf("%s: %s: a JSON %s, expected %s", place(data, wrong.Offset), wrong.Field, wrong.Value, wrong.Type)
	}
	return err
}

// isTruncated tells the end of the data from a wrong byte in it. The decoder feeds itself a space after the end, and
// then blames that where a number or a word breaks off.
func isTruncated(data []byte, err *json.SyntaxError) bool {
	if err.Offset < int64(len(data)) {
		return false
	}
	return strings.HasPrefix(err.Error(), "unexpected end") ||
		strings.HasPrefix(err.Error(), "invalid character ' '") && data[len(data)-1] != ' '
}

// place names the line of the byte before offset, which is where decoding stopped.
func place(data []byte, offset int64) string {
	offset = min(max(offset, 0), int64(len(data)))
	return fmt.Sprintf("line %d (byte %d)", 1+bytes.Count(data[:max(offset-1, 0)], []byte("\n")), offset)
}

func checkSchema(found any, expected string) error {
	name, ok := found.(string)
	if !ok || name == "" {
		return fmt.Errorf("no schema: not a p2pbench result (expected %q)", expected)
	}
	if name == expected {
		return nil
	}
	tool, major, _ := strings.Cut(name, "/")
	ours, oursMajor, _ := strings.Cut(expected, "/")
	if n, err := strconv.Atoi(major); err == nil && tool == ours {
		if known, _ := strconv.Atoi(oursMajor); n > known {
			return fmt.Errorf("result was written by a newer p2pbench (schema %s); this one reads %s: upgrade p2pbench", name, expected)
		}
	}
	return fmt.Errorf("foreign schema %q: not a p2pbench result (expected %q)", name, expected)
}
