package dynlib_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/dynlib"
)

// A library with a temporary failure is tried again, one with a conclusive failure is not.
func TestOnce(t *testing.T) {
	cause := errors.New("no such file")
	for name, c := range map[string]struct {
		err   error
		calls int // of three
	}{
		"loaded":           {nil, 1},
		"not there":        {&dynlib.Error{Library: "lib", Cause: cause}, 3},
		"another failure":  {cause, 3},
		"lacks a function": {&dynlib.Error{Library: "lib", Symbol: "f", Cause: cause}, 1},
		"wrapped":          {fmt.Errorf("pkg: %w", &dynlib.Error{Library: "lib", Symbol: "f", Cause: cause}), 1},
		"too old":          {dynlib.Library{Name: "lib"}.TooOld("lib", "1.2", "1.3", "update it"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			var once dynlib.Once[string]
			calls := 0
			for range 3 {
				v, err := once.Do(func() (string, error) {
					calls++
					return "1.2", c.err
				})
				if !errors.Is(err, c.err) || v != "1.2" {
					t.Errorf("%q, %v", v, err)
				}
			}
			if calls != c.calls {
				t.Errorf("loaded %d times, want %d", calls, c.calls)
			}
		})
	}
}

func TestError(t *testing.T) {
	err := dynlib.Library{Name: "lib"}.TooOld("this is lib", "1.2", "1.3", "update it")
	if want := "this is lib 1.2, 1.3 or newer is needed: update it"; err.Error() != want || !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("%v, want %q, which wraps ErrUnsupported", err, want)
	}
	cause := errors.New("no such file")
	if err := error(&dynlib.Error{Cause: cause}); err.Error() != cause.Error() || !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}
