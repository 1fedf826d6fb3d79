package knob

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
)

// groupKey is the annotation of a flag that says under which heading help shows it.
const groupKey = "p2pbench/group"

// AddFlags gives the flag set a flag for every setting of the structs that options point to. Parsing fills them in.
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

// Group is the heading under which help shows a flag; "": none.
func Group(flag *pflag.Flag) string {
	if g := flag.Annotations[groupKey]; len(g) > 0 {
		return g[0]
	}
	return ""
}

// flagValue is a setting as pflag sees it.
type flagValue struct{ Field }

// Type is what help calls the value.
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

// String is the value, or the default, as pflag shows it: pflag also asks a zero flagValue, to tell whether a default is worth showing.
func (v flagValue) String() string {
	if !v.value.IsValid() {
		return ""
	}
	if s := v.current(); s != "" || v.value.Kind() != reflect.Bool {
		return s
	}
	return "false"
}
