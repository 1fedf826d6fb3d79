package verdict

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Every key of the documents stands in docs/json.md.
func TestEveryKeyIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" && key != "-" && !strings.Contains(string(data), "`"+key+"`") &&
				!strings.Contains(string(data), `"`+key+`": `) {
				t.Errorf("%s.%s: docs/json.md does not mention `%s`", typ.Name(), f.Name, key)
			}
			walk(f.Type)
		}
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Result](), reflect.TypeFor[Calibration](), reflect.TypeFor[baselineLine]()} {
		walk(typ)
	}
	if len(seen) < 9 {
		t.Errorf("walked over %d types only", len(seen))
	}
}
