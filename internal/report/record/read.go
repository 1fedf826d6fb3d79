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

// MaxBytes is the maximum size of a document for [Read].
const MaxBytes = 1 << 30

// headBytes is the length of the start that is checked before the rest is read.
const headBytes = 64 << 10

// Read reads one document. It returns a one-line error if the input is malformed, truncated, followed by other data,
// larger than [MaxBytes], of a foreign or newer schema, has a duplicate key, or is inconsistent (see check). Unknown
// keys are skipped, because a newer minor version may add keys. Writing the document with [Write] and reading it again
// gives the same document.
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

// Load reads the bytes of a document of any schema. It returns an error if the first bytes or the size show that it is
// not a document.
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

// Decode decodes a document of the given schema into v. Its errors are those of [Read] except for inconsistent values.
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

// upgrade moves information that older documents, without Transports, hold in knobs.
func (d *Document) upgrade() {
	if d.Transports != nil {
		return
	}
	if reason := OnlyRatios(d.Cells); reason != "" {
		d.Transports = map[string]Transport{d.Cells[0].Transport: {Counters: []Counter{}, OnlyRatios: reason}}
	}
}

// OnlyRatios returns why absolute figures of the cells are meaningless, from the knobs of documents without Transports;
// "": they are meaningful.
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

// checkHead returns an error if a document cannot begin with head.
func checkHead(head []byte) error {
	text := bytes.TrimSpace(head)
	if len(text) == 0 {
		return fmt.Errorf("starts with %d KiB of white space: not a p2pbench result", headBytes>>10)
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(head, &struct{}{}); errors.As(err, &syntax) && !isTruncated(head, syntax) {
		return explain(head, err)
	}
	if text[0] != '{' {
		return fmt.Errorf("starts with %q, expected a JSON object: not a p2pbench result", text[0])
	}
	return nil
}

// explain adds the place of a JSON error, and what was expected there.
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

// isTruncated reports whether the error is at the end of the data. The decoder appends a space, which it reports as the
// error if a number or a word is truncated.
func isTruncated(data []byte, err *json.SyntaxError) bool {
	if err.Offset < int64(len(data)) {
		return false
	}
	return strings.HasPrefix(err.Error(), "unexpected end") ||
		strings.HasPrefix(err.Error(), "invalid character ' '") && data[len(data)-1] != ' '
}

// place returns the line and offset of the byte at which decoding stopped, the one before offset.
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
