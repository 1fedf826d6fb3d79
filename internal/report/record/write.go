package record

import (
	"bytes"
	"io"
)

// Write writes the document as indented JSON with a newline at its end. A list or object that holds no other stays on
// one line, so a cell's samples are one line; short members share lines of up to 120 columns. An empty Schema is written as [Schema]; a list that the schema has not
// marked optional is written as [], never as null. Nothing is written when the document cannot be expressed, which
// means that it holds a NaN or an infinity.
func Write(w io.Writer, d Document) error { return Encode(w, d.filled()) }

// filled replaces what would be null by what is empty, in a copy.
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

// layOut breaks valid compact JSON into lines.
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

// column is the number of bytes since the last newline.
func column(b []byte) int { return len(b) - 1 - bytes.LastIndexByte(b, '\n') }

// flatMember is the number of columns that the member at i takes on a line, with the space before it and the comma
// behind it, or 0 where it holds lists or objects that hold others.
func flatMember(b []byte, i int) int {
	columns := len(" ,")
	for ; b[i] != ',' && b[i] != ']' && b[i] != '}'; i++ {
		end := i + 1
		switch b[i] {
		case '"':
			end = stringEnd(b, i)
		case ':':
			columns++ // a space follows it
		case '[', '{':
			if end = leafEnd(b, i); end == 0 {
				return 0
			}
			columns += bytes.Count(b[i:end], []byte(",")) + bytes.Count(b[i:end], []byte(":")) // likewise, or fewer
		}
		columns += end - i
		i = end - 1
	}
	return columns
}

// stringEnd is the index after the string that starts at i.
func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// leafEnd is the index after the list or object that starts at i, or 0 when it holds another one.
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
