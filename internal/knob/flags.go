package knob

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
)

// groupKey is the annotation of a flag that holds its group in the help text.
const groupKey = "p2pbench/group"

// AddFlags adds a flag to fs for every setting of the structs that options point to. Parsing sets the fields.
func AddFlags(fs *pflag.FlagSet, options ...any) {
	for _, f := range Fields(options...) {
		flag := fs.VarPF(flagValue{f}, f.Name, f.Short, f.Help)
		flag.DefValue, flag.Hidden = cmp.Or(f.Default, f.Unset), f.Hidden
		if f.value.Kind() == reflect.Bool {
			flag.NoOptDefVal = "true"
		}
		if f.Group != "" {
			flag.Annotations = map[string][]string{groupKey: {f.Group}}
		}
	}
}

// Group returns a flag's group in the help text; "": none.
func Group(flag *pflag.Flag) string {
	if g := flag.Annotations[groupKey]; len(g) > 0 {
		return g[0]
	}
	return ""
}

// flagValue implements pflag.Value for a setting.
type flagValue struct{ Field }

// Type returns the name of the value in the help text.
func (v flagValue) Type() string {
	switch {
	case v.value.Kind() == reflect.Bool:
		return "bool"
	case v.Arg != "":
		return v.Arg
	case len(v.Values) > 0:
		return strings.Join(v.Values, "|")
	case v.value.Type() == sizeType || v.value.Type() == reflect.PointerTo(sizeType):
		return "size"
	case v.value.Type() == durationType:
		return "duration"
	}
	return "value"
}

// String returns the value or the default. pflag also calls it on a zero flagValue to decide whether to show a default.
func (v flagValue) String() string {
	if !v.value.IsValid() {
		return ""
	}
	if s := v.current(); s != "" || v.value.Kind() != reflect.Bool {
		return s
	}
	return "false"
}
