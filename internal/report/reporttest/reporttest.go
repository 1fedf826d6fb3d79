// Package reporttest provides documents and helpers for tests of views. Only tests import it.
package reporttest

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-runewidth"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Golden compares a view with a golden file in testdata.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s (-update writes it anew):\n%s", file, diff)
	}
}

// Narrow checks the width in terminal columns with another library than the one that lays out the table.
var Narrow = &runewidth.Condition{StrictEmojiNeutral: true}

// CheckMarkdownTables checks that each row has as many unescaped pipes as the header.
func CheckMarkdownTables(t *testing.T, text string) {
	t.Helper()
	pipe := regexp.MustCompile(`(^|[^\\])\|`)
	want, tables := 0, 0
	for line := range strings.Lines(text) {
		n := len(pipe.FindAllString(strings.ReplaceAll(line, "||", "| |"), -1))
		switch {
		case !strings.HasPrefix(line, "|"):
			want = 0
		case want == 0:
			want = n
			tables++
		case n != want:
			t.Errorf("%d cells, the head has %d: %s", n-1, want-1, line)
		}
	}
	if tables == 0 {
		t.Error("no table")
	}
}

// FullDisk is a writer that fails every write.
type FullDisk struct{}

// ErrFull is the error of FullDisk.
var ErrFull = errors.New("no space left on device")

func (FullDisk) Write([]byte) (int, error) { return 0, ErrFull }

// Obeyed holds text that terminals interpret: an escape sequence, the same as one character, a change of direction, an
// invisible character beyond the basic plane, a backspace; and text that spreadsheets interpret.
const Obeyed = "\x1b[31m\u009b2J\u202e\U000e0041\x7f\u2028"

// Spoil adds text before and after every string reachable from v, including keys and values of maps, except in the
// fields named by but.
func Spoil(v reflect.Value, before, after string, but ...string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c := reflect.New(v.Type().Elem())
			c.Elem().Set(v.Elem())
			Spoil(c.Elem(), before, after, but...)
			v.Set(c)
		}
	case reflect.Slice:
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		for i := range c.Len() {
			Spoil(c.Index(i), before, after, but...)
		}
		v.Set(c)
	case reflect.Map:
		c := reflect.MakeMap(v.Type())
		for _, k := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(k))
			Spoil(value, before, after, but...)
			c.SetMapIndex(reflect.ValueOf(before+k.String()+after), value)
			c.SetMapIndex(k, value)
		}
		v.Set(c)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !slices.Contains(but, f.Name) {
				Spoil(v.Field(i), before, after, but...)
			}
		}
	case reflect.String:
		v.SetString(before + v.String() + after)
	}
}
