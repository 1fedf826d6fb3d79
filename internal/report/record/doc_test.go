package record

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The example in docs/json.md is valid and has the layout of Write.
func TestDocumentedExample(t *testing.T) {
	_, rest, ok := strings.Cut(documentation(t), "```json\n")
	example, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("docs/json.md has no example")
	}
	d, err := Read(strings.NewReader(example))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, d); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), example); diff != "" {
		t.Errorf("not as Write would write it:\n%s", diff)
	}
}

// Every key of the schema is in docs/json.md outside the example.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, _, _ := strings.Cut(documentation(t), "## An example")
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(text, "`"+key+"`") && !strings.Contains(text, `"`+key+`": `) {
				t.Errorf("%s.%s: docs/json.md does not mention `%s`", typ.Name(), typ.Field(i).Name, key)
			}
			walk(typ.Field(i).Type)
		}
	}
	walk(reflect.TypeFor[Document]())
	if len(seen) < 10 {
		t.Errorf("walked over %d types only", len(seen))
	}
}
