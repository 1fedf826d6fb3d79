package knob

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written as "4096", "4K" and "4KiB" (4,096), "4KB" (4,000) or "1.5M". Case does not matter.
type Size uint64

func (s Size) String() string { return FormatSize(uint64(s)) }

var (
	sizeType     = reflect.TypeFor[Size]()
	durationType = reflect.TypeFor[time.Duration]()
)

// parse parses s into v.
func parse(v reflect.Value, s string) error {
	switch {
	case v.Kind() == reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if err := parse(p.Elem(), s); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case v.Type() == sizeType:
		n, err := parseSize(s)
		v.SetUint(n)
		return err
	case v.Type() == durationType:
		d, err := time.ParseDuration(s)
		if err != nil {
			return errors.New("want a duration such as 500ms or 10s")
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return errors.New("want true or false")
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(s)
		if err != nil {
			return errors.New("want a whole number")
		}
		v.SetInt(int64(n))
	case reflect.Uint64:
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return errors.New("want a whole number, 0 or more")
		}
		v.SetUint(n)
	case reflect.Float64:
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return errors.New("want a number")
		}
		v.SetFloat(x)
	case reflect.Slice:
		return parseList(v, s)
	default:
		panic(fmt.Sprintf("knob: unsupported type %s", v.Type()))
	}
	return nil
}

func parseList(v reflect.Value, s string) error {
	parts := strings.Split(s, ",")
	list := reflect.MakeSlice(v.Type(), len(parts), len(parts))
	for i, part := range parts {
		part = strings.TrimSpace(part)
		if part == "" {
			return errors.New("an entry of the list is empty: remove the comma or add a value")
		}
		err := parse(list.Index(i), part)
		switch {
		case err != nil && len(parts) > 1:
			return fmt.Errorf("%s: %w", part, err)
		case err != nil:
			return err
		}
	}
	v.Set(list)
	return nil
}

// text formats v in the syntax of parse.
func text(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		return text(v.Elem())
	}
	if v.Kind() == reflect.Slice {
		return strings.Join(words(v), ",")
	}
	return fmt.Sprint(v.Interface())
}

// words returns the entries of a list, or the value itself, as text.
func words(v reflect.Value) []string {
	if v.Kind() != reflect.Slice {
		return []string{text(v)}
	}
	out := make([]string, v.Len())
	for i := range out {
		out[i] = text(v.Index(i))
	}
	return out
}

// compare orders two numbers of the same type.
func compare(a, b reflect.Value) int {
	switch {
	case a.CanInt():
		return cmp.Compare(a.Int(), b.Int())
	case a.CanUint():
		return cmp.Compare(a.Uint(), b.Uint())
	case a.CanFloat():
		return cmp.Compare(a.Float(), b.Float())
	}
	panic(fmt.Sprintf("knob: type %s has no order for bounds", a.Type()))
}
