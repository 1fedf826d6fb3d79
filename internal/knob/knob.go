// Package knob makes an options struct the one place that says what a setting is: its flag, its values, default,
// bounds and help, and to which other settings it belongs. From the tags of the struct's fields come the command
// line's flags, the check of each value, the refusal of a setting that would do nothing, and the settings that a result
// names.
//
// A field is a setting if it has a knob tag:
//
//	knob:"NAME"       the flag's name; "NAME,n" gives it a shorthand, too
//	values:"a b c"    the words that it takes, the first one by default
//	default:"64"      its default, where that is not the first of values
//	range:"1..64"     bounds of a number, a size or a duration, both included; either may be missing
//	of:"path=get"     it belongs to these values of another setting, and is refused beside others: "path=direct,get",
//	                  "variant!=ce", or "vs": any value that was given; several conditions are separated by spaces, and
//	                  all of them must hold
//	arg:"N"           what help calls its value
//	group:"expert"    under which heading help shows it
//	help:"..."        what it does
//	unset:"auto"      a word that stands for no value
//	free:"true"       without a value, it is chosen later: Fill leaves it alone
//	hidden:"true"     help does not show it
//
// Fields are strings (also of a named type), bools, ints, Sizes, uint64s, float64s, durations, lists of these, or
// pointers to one of them. A field's zero value means that it was not set; a setting whose zero means something is a
// pointer. A type with a method Check() error refuses what the tags cannot. Fields that are structs without the tag are
// walked through.
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
	Values                        []string // words that it takes; nil: not only words
	Default                       string   // "": none
	Unset                         string   // a word that leaves the field unset; "": none
	Free, Hidden                  bool
	Of                            []Condition

	bounds [2]string
	value  reflect.Value
}

// Condition says beside which values of another setting a field means something.
type Condition struct {
	Name   string
	Values []string // nil: any that was given
	Not    bool     // all values but these
}

// Scope holds values of settings that are no fields or whose fields do not have the last word, such as the operations of
// a run, by name. A condition holds if it holds for any of them, and where the name is unknown.
type Scope map[string][]string

// Fields lists the settings of the structs that options point to, in their order. It panics if a tag cannot be read.
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

// IsSet reports whether the field has another value than its zero.
func (f Field) IsSet() bool {
	if f.value.Kind() == reflect.Slice {
		return f.value.Len() > 0
	}
	return !f.value.IsZero()
}

// String is the field's value as Set reads it; "" where it is not set.
func (f Field) String() string {
	if !f.IsSet() {
		return ""
	}
	return text(f.value)
}

// current is the field's value, its default, or the word for none.
func (f Field) current() string {
	if f.IsSet() {
		return f.String()
	}
	return cmp.Or(f.Default, f.Unset)
}

// Set reads a value into the field. Its errors say what would be right, but do not name the flag.
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

// want says in words what the field takes.
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
		return "give one, or leave the flag out"
	}
	if f.Unset != "" {
		text += ", or " + f.Unset
	}
	return text
}

// check refuses a value that the field does not take.
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

// Check refuses the first setting of the structs that has a value it does not take, or that belongs to others than those
// it stands beside, where it would do nothing.
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

// misplaced is the first condition of the field that does not hold, in words.
func (f Field) misplaced(fields []Field, scope Scope) (why string, ok bool) {
	for _, c := range f.Of {
		have := c.of(fields, scope)
		if have == nil || slices.ContainsFunc(have, c.holds) {
			continue
		}
		switch text := strings.Join(have, ","); {
		case c.Values == nil:
			return fmt.Sprintf("it does nothing without --%s: leave it out, or add that", c.Name), true
		case c.Not:
			return fmt.Sprintf("it does nothing with --%s: leave one of them out", strings.TrimSuffix(c.Name+" "+text, " true")), true
		default:
			return fmt.Sprintf("it belongs to --%s %s, and would do nothing with %s: leave it out", c.Name, alternatives(c.Values), text), true
		}
	}
	return "", false
}

// of are the values that the condition looks at; nil: there is no such setting.
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

// holds reports whether the condition is met by a value. What follows a colon is that value's own.
func (c Condition) holds(value string) bool {
	if c.Values == nil {
		return value != ""
	}
	kind, _, _ := strings.Cut(value, ":")
	return (slices.Contains(c.Values, value) || slices.Contains(c.Values, kind)) != c.Not
}

// Fill gives every setting that was left alone its default, where it belongs to what it stands beside.
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

// Settings are the values of the settings that are set, by flag name.
func Settings(o any) map[string]string {
	out := map[string]string{}
	for _, f := range Fields(o) {
		if f.IsSet() {
			out[f.Name] = f.String()
		}
	}
	return out
}

// Words are the values that a setting takes. It panics if there is no such setting.
func Words(o any, name string) []string { return named(o, name).Values }

// Word is the place of the setting's value among those that it takes, which is what C knows it by; 0 where it has none.
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

// alternatives are words as "a", "a or b", "a, b or c".
func alternatives(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}
