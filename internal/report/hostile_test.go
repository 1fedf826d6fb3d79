package report

import (
	"encoding/csv"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// obeyed is what terminals obey: an escape sequence, the same in one character, a change of direction, a character that
// cannot be seen beyond the basic plane, an erased one; and what spreadsheets obey.
const obeyed = "\x1b[31m\u009b2J\u202e\U000e0041\x7f\u2028"

// spoil puts text around every string behind v, keys and values of maps included, but not in the fields named.
func spoil(v reflect.Value, before, after string, but ...string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c := reflect.New(v.Type().Elem())
			c.Elem().Set(v.Elem())
			spoil(c.Elem(), before, after, but...)
			v.Set(c)
		}
	case reflect.Slice:
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		for i := range c.Len() {
			spoil(c.Index(i), before, after, but...)
		}
		v.Set(c)
	case reflect.Map:
		c := reflect.MakeMap(v.Type())
		for _, k := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(k))
			spoil(value, before, after, but...)
			c.SetMapIndex(reflect.ValueOf(before+k.String()+after), value)
			c.SetMapIndex(k, value)
		}
		v.Set(c)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !slices.Contains(but, f.Name) {
				spoil(v.Field(i), before, after, but...)
			}
		}
	case reflect.String:
		v.SetString(before + v.String() + after)
	}
}

// spoiled are documents of all kinds in which no string is what it was, except those that choose the view.
func spoiled(before, after string) map[string]record.Document {
	all := presets()
	maps.Copy(all, map[string]record.Document{
		"gpus": gpus(), "host": host(), "settings": settings(), "kernels": kernels(), "ring": circle(), "rdma": pooled(), "fan": fanned(),
		"arms": arms(),
	})
	out := map[string]record.Document{}
	for name, d := range all {
		some, every := d, d
		spoil(reflect.ValueOf(&some).Elem(), before, after, "Op", "Preset", "Started")
		spoil(reflect.ValueOf(&every).Elem(), before, after, "Started")
		out[name], out[name+", every string"] = some, every
	}
	return out
}

// A file from anywhere may be shown: nothing in it reaches the control of the terminal.
func TestNoViewObeys(t *testing.T) {
	hidden := func(r rune) bool { return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }
	for name, d := range spoiled(obeyed, obeyed) {
		for _, format := range Formats {
			text := rendered(t, d, format, Options{Wide: true})
			if format == "csv" {
				text = strings.ReplaceAll(text, "\r\n", "\n")
			}
			if i := strings.IndexFunc(text, hidden); i >= 0 {
				t.Errorf("%s as %s: %q", name, format, text[max(i-20, 0):min(i+20, len(text))])
			}
		}
	}
	doc := judged(t)
	spoil(reflect.ValueOf(&doc).Elem(), obeyed, obeyed, "Started", "Verdict")
	for _, format := range ClaimFormats {
		text := renderedClaims(t, doc, format)
		if i := strings.IndexFunc(text, hidden); i >= 0 {
			t.Errorf("claims as %s: %q", format, text[max(i-20, 0):min(i+20, len(text))])
		}
	}
}

// JSON keeps what other views replace: it is escaped, and comes back.
func TestJSONKeepsWhatItEscapes(t *testing.T) {
	d := spoiled(obeyed, obeyed)["gpus"].WithoutSamples()
	var got record.Document
	if err := json.Unmarshal([]byte(rendered(t, d, "json", Options{})), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d.Cells[0].Warnings, got.Cells[0].Warnings); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(d.Env, got.Env, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// A spreadsheet computes what begins with one of these characters, or runs it.
func TestNoCellOfCSVIsAFormula(t *testing.T) {
	for _, sign := range []string{"=", "+", "-", "@", "\t=", "\r="} {
		for name, d := range spoiled(sign, "x") {
			rows, err := csv.NewReader(strings.NewReader(rendered(t, d, "csv", Options{}))).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				for _, cell := range row {
					if strings.IndexAny(strings.TrimSpace(cell), "=+-@") == 0 {
						t.Errorf("%s: a cell is %q", name, cell)
					}
				}
			}
		}
	}
	for text, want := range map[string]string{"-1": "-1", "-1.5": "-1.5", "-1+1": "'-1+1", "+1": "'+1", "1-1": "1-1", "@a": "'@a", "": ""} {
		if got := harmless(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
