package record

import (
	"bytes"
	"io"
)

// Write writes the document as indented JSON with a newline at its end. A list or object without nested ones is on one
// line, so a cell's samples are one line; short members share lines of up to 120 columns. An empty Schema is written as
// [Schema]; an empty list that the schema does not mark as optional is written as [], never as null. Nothing is written
// if the document contains a NaN or an infinity.
func Write(w io.Writer, d Document) error { return Encode(w, d.filled()) }

// filled returns a copy with empty lists and maps in place of nil.
func (d Document) filled() Document {
	if d.Schema == "" {
		d.Schema = Schema
	}
	d.Command = filledSlice(d.Command)
	d.Warnings = filledSlice(d.Warnings)
	d.Env.Ranks = filledSlice(d.Env.Ranks)
	d.Cells = append([]Cell{}, d.Cells...)
	for i := range d.Cells {
		c := &d.Cells[i]
		c.Vs = filledSlice(c.Vs)
		c.Warnings = filledSlice(c.Warnings)
		if c.Counters == nil {
			c.Counters = map[string]uint64{}
		}
		if c.Knobs == nil {
			c.Knobs = map[string]string{}
		}
	}
	return d
}

func filledSlice[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// lineLength is the number of columns up to which short members of an object share a line.
const lineLength = 120

// layOut indents valid compact JSON.
func layOut(compact []byte) []byte {
	var out bytes.Buffer
	depth := 0
	flat := true // the member that ended last holds no list or object of lists and objects
	newline := func() {
		out.WriteByte('\n')
		for range depth {
			out.WriteString("  ")
		}
	}
	for i := 0; i < len(compact); i++ {
		switch c := compact[i]; c {
		case '"':
			end := stringEnd(compact, i)
			out.Write(compact[i:end])
			i = end - 1
		case '[', '{':
			if end := leafEnd(compact, i); end > 0 {
				writeSpaced(&out, compact[i:end])
				i = end - 1
				continue
			}
			out.WriteByte(c)
			depth++
			newline()
			flat = true
		case ']', '}':
			depth--
			newline()
			out.WriteByte(c)
			flat = false
		case ',':
			out.WriteByte(c)
			if member := flatMember(compact, i+1); flat && member > 0 && column(out.Bytes())+member < lineLength {
				out.WriteByte(' ')
			} else {
				newline()
			}
			flat = true
		case ':':
			out.WriteString(": ")
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// column returns the number of bytes since the last newline.
func column(b []byte) int { return len(b) - 1 - bytes.LastIndexByte(b, '\n') }

// flatMember returns the number of columns of the member at i on one line, with a space before it and a comma after it,
// or 0 if it has nested lists or objects of more than one level.
func flatMember(b []byte, i int) int {
	columns := len(" ,")
	for ; b[i] != ',' && b[i] != ']' && b[i] != '}'; i++ {
		end := i + 1
		switch b[i] {
		case '"':
			end = stringEnd(b, i)
		case ':':
			columns++ // for the space after it
		case '[', '{':
			if end = leafEnd(b, i); end == 0 {
				return 0
			}
			columns += bytes.Count(b[i:end], []byte(",")) + bytes.Count(b[i:end], []byte(":")) // upper bound for the spaces after them
		}
		columns += end - i
		i = end - 1
	}
	return columns
}

// stringEnd returns the index after the string that starts at i.
func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// leafEnd returns the index after the list or object that starts at i, or 0 if it contains another one.
func leafEnd(b []byte, i int) int {
	for i++; ; i++ {
		switch b[i] {
		case '"':
			i = stringEnd(b, i) - 1
		case '[', '{':
			return 0
		case ']', '}':
			return i + 1
		}
	}
}

// writeSpaced writes a list or object on one line.
func writeSpaced(out *bytes.Buffer, leaf []byte) {
	for i := 0; i < len(leaf); i++ {
		switch c := leaf[i]; c {
		case '"':
			end := stringEnd(leaf, i)
			out.Write(leaf[i:end])
			i = end - 1
		case ',', ':':
			out.WriteByte(c)
			out.WriteByte(' ')
		default:
			out.WriteByte(c)
		}
	}
}
