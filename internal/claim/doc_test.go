package claim

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Every key that only the document of claims has is in its chapter of docs/json.md.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, ok := strings.Cut(string(text), "\n## Claims\n")
	chapter, _, ended := strings.Cut(chapter, "\n## ")
	if !ok || !ended || !strings.Contains(chapter, "`"+Schema+"`") {
		t.Fatalf("docs/json.md has no chapter on %s", Schema)
	}
	keys := 0
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() || typ.PkgPath() != reflect.TypeFor[Document]().PkgPath() {
			return
		}
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			keys++
			if !strings.Contains(chapter, "`"+key+"`") {
				t.Errorf("%s.%s: docs/json.md does not mention `%s`", typ.Name(), typ.Field(i).Name, key)
			}
			walk(typ.Field(i).Type)
		}
	}
	walk(reflect.TypeFor[Document]())
	if keys < 30 {
		t.Errorf("walked over %d keys only", keys)
	}
}
