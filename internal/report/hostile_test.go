package report

import (
	"encoding/csv"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
)

// spoiled returns documents of all kinds with control characters in every string, except those that select the view.
func spoiled(before, after string) map[string]record.Document {
	all := map[string]record.Document{
		"gpus": reporttest.GPUs(), "host": reporttest.Host(), "settings": reporttest.Settings(), "kernels": reporttest.Kernels(), "ring": reporttest.Circle(), "rdma": reporttest.Pooled(), "fan": reporttest.Fanned(),
	}
	out := map[string]record.Document{}
	for name, d := range all {
		some, every := d, d
		reporttest.Spoil(reflect.ValueOf(&some).Elem(), before, after, "Op", "Preset", "Started")
		reporttest.Spoil(reflect.ValueOf(&every).Elem(), before, after, "Started")
		out[name], out[name+", every string"] = some, every
	}
	return out
}

// Untrusted files may be rendered: no control characters reach the terminal.
func TestNoViewObeys(t *testing.T) {
	hidden := func(r rune) bool { return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }
	for name, d := range spoiled(reporttest.Obeyed, reporttest.Obeyed) {
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
}

// JSON escapes the characters that other views replace, and reading it restores them.
func TestJSONKeepsWhatItEscapes(t *testing.T) {
	d := spoiled(reporttest.Obeyed, reporttest.Obeyed)["gpus"].WithoutSamples()
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

// A spreadsheet evaluates text that begins with one of these characters.
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
