// Package knob derives settings from the tags of an options struct: flag, values, default, bounds, help text, and the
// other settings that a setting requires. The tags give the flags of the command line, the check of each value, the
// error for a setting that would have no effect, and the knobs of a result.
//
// A field is a setting if it has a knob tag:
//
//	knob:"NAME"       the flag's name; "NAME,n" adds a shorthand
//	values:"a b c"    the accepted words; the first one is the default
//	default:"64"      the default, if it is not the first of values
//	range:"1..64"     inclusive bounds of a number, a size or a duration; either may be omitted
//	of:"path=get"     the setting requires these values of another setting: "path=direct,get", "variant!=ce", or "vs" for
//	                  any value; separated by spaces, all conditions must hold
//	arg:"N"           the name of the value in the help text
//	group:"expert"    the group in the help text
//	help:"..."        the help text
//	unset:"auto"      a word that means: not set
//	free:"true"       Fill sets no default; the value is chosen later
//	hidden:"true"     not in the help text
//
// Fields are strings (also of a named type), bools, ints, Sizes, uint64s, float64s, durations, lists of these, or
// pointers to one of them. The zero value of a field means that it is not set; a setting for which zero is a valid
// value is a pointer. A method Check() error of the field's type makes checks that tags cannot express. Structs without
// the tag are searched for settings.
package knob

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Field is one setting of an options struct.
type Field struct {
	Name, Short, Arg, Group, Help string
	Values                        []string // accepted words; nil: not limited to words
	Default                       string   // "": none
	Unset                         string   // a word that leaves the field unset; "": none
	Free, Hidden                  bool
	Of                            []Condition

	bounds [2]string
	value  reflect.Value
}

// Condition requires that another setting has one of some values.
type Condition struct {
	Name   string
	Values []string // nil: any value, if the setting is set
	Not    bool     // all values except these
}

// Scope holds, by name, values of settings that are not fields or whose field does not hold the final value, such as
// the operations of a run. A condition holds if it holds for one of the values, or if its name is neither in the scope
// nor a field.
type Scope map[string][]string

// Fields lists the settings of the structs that options point to, in order of declaration. It panics on a malformed
// tag.
func Fields(options ...any) []Field {
	var fields []Field
	for _, o := range options {
		v := reflect.ValueOf(o)
		if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
			panic(fmt.Sprintf("knob: %T is no pointer to a struct", o))
		}
		fields = appendFields(fields, v.Elem())
	}
	return fields
}

func appendFields(fields []Field, v reflect.Value) []Field {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, ok := f.Tag.Lookup("knob")
		switch {
		case ok:
			fields = append(fields, newField(tag, f.Tag, v.Field(i)))
		case f.Type.Kind() == reflect.Struct && (f.IsExported() || f.Anonymous):
			fields = appendFields(fields, v.Field(i))
		}
	}
	return fields
}

func newField(tag string, tags reflect.StructTag, v reflect.Value) Field {
	f := Field{
		Arg: tags.Get("arg"), Group: tags.Get("group"), Help: tags.Get("help"), Default: tags.Get("default"),
		Unset: tags.Get("unset"), Values: strings.Fields(tags.Get("values")), Free: tags.Get("free") != "", Hidden: tags.Get("hidden") != "",
		value: v,
	}
	f.Name, f.Short, _ = strings.Cut(tag, ",")
	if lo, hi, ok := strings.Cut(tags.Get("range"), ".."); ok {
		f.bounds = [2]string{lo, hi}
	}
	if f.Default == "" && len(f.Values) > 0 && !f.Free {
		f.Default = f.Values[0]
	}
	for c := range strings.FieldsSeq(tags.Get("of")) {
		f.Of = append(f.Of, newCondition(f.Name, c))
	}
	return f
}

func newCondition(field, text string) Condition {
	name, values, ok := strings.Cut(text, "=")
	if !ok {
		return Condition{Name: name}
	}
	name, not := strings.CutSuffix(name, "!")
	if name == "" || values == "" {
		panic(fmt.Sprintf("knob: %s: of:%q: want NAME, NAME=VALUE,... or NAME!=VALUE,...", field, text))
	}
	return Condition{name, strings.Split(values, ","), not}
}

// IsSet reports whether the field is not zero.
func (f Field) IsSet() bool {
	if f.value.Kind() == reflect.Slice {
		return f.value.Len() > 0
	}
	return !f.value.IsZero()
}

// String returns the field's value in the syntax of Set; "" if it is not set.
func (f Field) String() string {
	if !f.IsSet() {
		return ""
	}
	return text(f.value)
}

// current returns the field's value, or its default, or the word for unset.
func (f Field) current() string {
	if f.IsSet() {
		return f.String()
	}
	return cmp.Or(f.Default, f.Unset)
}

// Set parses a value into the field. Its errors say what would be right but do not name the flag.
func (f Field) Set(s string) error {
	if strings.TrimSpace(s) == "" {
		return fmt.Errorf("the value is empty: %s", f.want())
	}
	if f.Unset != "" && s == f.Unset {
		f.value.SetZero()
		return nil
	}
	v := reflect.New(f.value.Type()).Elem()
	if err := parse(v, strings.TrimSpace(s)); err != nil {
		if f.Unset != "" {
			err = fmt.Errorf("%w, or %s", err, f.Unset)
		}
		return err
	}
	f.value.Set(v)
	if err := f.check(); err != nil {
		f.value.SetZero()
		return err
	}
	return nil
}

// want describes the accepted values for errors.
func (f Field) want() string {
	lo, hi := f.bounds[0], f.bounds[1]
	var text string
	switch {
	case len(f.Values) > 0:
		return "use " + alternatives(f.Values)
	case lo != "" && hi != "":
		text = "want " + lo + " to " + hi
	case lo != "":
		text = "want " + lo + " or more"
	case hi != "":
		text = "want at most " + hi
	default:
		return "give a value or leave the flag out"
	}
	if f.Unset != "" {
		text += ", or " + f.Unset
	}
	return text
}

// check returns an error if the field does not accept its value.
func (f Field) check() error {
	v := f.value
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if len(f.Values) > 0 {
		for _, w := range words(v) {
			if !slices.Contains(f.Values, w) {
				return errors.New(f.want())
			}
		}
	}
	if err := f.inBounds(v); err != nil {
		return err
	}
	if c, ok := v.Interface().(interface{ Check() error }); ok {
		return c.Check()
	}
	return nil
}

func (f Field) inBounds(v reflect.Value) error {
	for i, bound := range f.bounds {
		if bound == "" {
			continue
		}
		b := reflect.New(v.Type()).Elem()
		if err := parse(b, bound); err != nil {
			panic(fmt.Sprintf("knob: %s: range: %v", f.Name, err))
		}
		if c := compare(v, b); c < 0 && i == 0 || c > 0 && i == 1 {
			return errors.New(f.want())
		}
	}
	return nil
}

// Check returns an error for the first setting that has an invalid value, or that has no effect with the other
// settings.
func Check(scope Scope, options ...any) error {
	fields := Fields(options...)
	for _, f := range fields {
		if !f.IsSet() {
			continue
		}
		if err := f.check(); err != nil {
			return fmt.Errorf("--%s %s: %w", f.Name, f, err)
		}
	}
	for _, f := range fields {
		if !f.IsSet() {
			continue
		}
		if c, ok := f.misplaced(fields, scope); ok {
			name := "--" + f.Name
			if s := f.String(); s != "true" {
				name += " " + s
			}
			return fmt.Errorf("%s: %s", name, c)
		}
	}
	return nil
}

// misplaced describes the field's first condition that does not hold.
func (f Field) misplaced(fields []Field, scope Scope) (why string, ok bool) {
	for _, c := range f.Of {
		have := c.of(fields, scope)
		if have == nil || slices.ContainsFunc(have, c.holds) {
			continue
		}
		switch text := strings.Join(have, ","); {
		case c.Values == nil:
			return fmt.Sprintf("it has no effect without --%s: leave it out or add --%s", c.Name, c.Name), true
		case c.Not:
			return fmt.Sprintf("it has no effect with --%s: leave one of them out", strings.TrimSuffix(c.Name+" "+text, " true")), true
		default:
			return fmt.Sprintf("it applies to --%s %s, not to %s: leave it out", c.Name, alternatives(c.Values), text), true
		}
	}
	return "", false
}

// of returns the values of the setting that the condition names; nil: no such setting.
func (c Condition) of(fields []Field, scope Scope) []string {
	if have, ok := scope[c.Name]; ok {
		return have
	}
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == c.Name })
	switch {
	case i < 0:
		return nil
	case c.Values == nil:
		return []string{fields[i].String()}
	}
	return []string{fields[i].current()}
}

// holds reports whether a value meets the condition. The part after a colon is a parameter of the value and is ignored.
func (c Condition) holds(value string) bool {
	if c.Values == nil {
		return value != ""
	}
	kind, _, _ := strings.Cut(value, ":")
	return (slices.Contains(c.Values, value) || slices.Contains(c.Values, kind)) != c.Not
}

// Fill sets every unset setting whose conditions hold to its default.
func Fill(scope Scope, options ...any) {
	fields := Fields(options...)
	for _, f := range fields {
		if f.IsSet() || f.Default == "" || f.Free {
			continue
		}
		if _, misplaced := f.misplaced(fields, scope); misplaced {
			continue
		}
		if err := parse(f.value, f.Default); err != nil {
			panic(fmt.Sprintf("knob: %s: default: %v", f.Name, err))
		}
	}
}

// Settings returns the values of all settings that are set, by flag name.
func Settings(o any) map[string]string {
	out := map[string]string{}
	for _, f := range Fields(o) {
		if f.IsSet() {
			out[f.Name] = f.String()
		}
	}
	return out
}

// Words returns the accepted words of a setting. It panics if there is no such setting.
func Words(o any, name string) []string { return named(o, name).Values }

// Word returns the index of the setting's value in its accepted words, which is its constant in C; 0 if it is not set.
// It panics if there is no such setting.
func Word(o any, name string) int {
	f := named(o, name)
	return max(slices.Index(f.Values, f.String()), 0)
}

func named(o any, name string) Field {
	fields := Fields(o)
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		panic("knob: no setting " + name)
	}
	return fields[i]
}

// alternatives formats words as "a", "a or b", "a, b or c".
func alternatives(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}
