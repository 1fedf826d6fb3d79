// Package dynlib loads vendors' libraries at run time, so that the binary also starts on machines without them. A
// package that uses a library lists its functions as described in dynlib.h, and has a [Library] and a [Once].
package dynlib

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <limits.h>
#include <stdlib.h>
#include "load.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// Library describes a library and where to find it.
type Library struct {
	Name     string   // name in errors: "NCCL"
	Files    []string // file names, tried in order; if all fail, the error of the first is reported
	Variable string   // environment variable that names the file to load instead
	Advice   string   // what the user can do if it cannot be loaded
}

// Error is the reason why a library cannot be used. It wraps [gpu.ErrUnsupported].
type Error struct {
	Library string // Library.Name
	Symbol  string // the missing function; "": none
	Have    string // the library's version; "": unknown
	Need    string // the oldest sufficient version; "": unknown
	Cause   error
	Advice  string // what the user can do; "": no known remedy
}

func (e *Error) Error() string {
	if e.Advice == "" {
		return e.Cause.Error()
	}
	return e.Cause.Error() + ": " + e.Advice
}

// Unwrap returns the cause and [gpu.ErrUnsupported].
func (e *Error) Unwrap() []error { return []error{e.Cause, gpu.ErrUnsupported} }

// conclusive reports whether every later attempt in this process will fail in the same way: the library lacks a
// function or is too old. A library that could not be opened or initialised may be available at the next attempt.
func (e *Error) conclusive() bool { return e.Symbol != "" || e.Have != "" && e.Need != "" }

// Open opens the library and fills the table of functions, a struct p2p_library in C. It returns the name of the file,
// with links resolved if possible. A failure is an [*Error].
func (l Library) Open(functions unsafe.Pointer) (file string, err error) {
	files := l.Files
	if name := os.Getenv(l.Variable); name != "" {
		files = []string{name}
	}
	lib, file, err := open(files)
	if err != nil {
		return "", &Error{Library: l.Name, Cause: err, Advice: l.Advice}
	}
	if missing := C.p2p_dynlib_fill(lib, (*C.struct_p2p_library)(functions)); missing != nil {
		name := C.GoString(missing)
		return "", &Error{Library: l.Name, Symbol: name, Cause: fmt.Errorf("%s: no function %s", file, name), Advice: l.Advice}
	}
	var path [C.PATH_MAX]C.char
	C.p2p_dynlib_path(lib, &path[0], C.size_t(len(path)))
	if resolved := C.GoString(&path[0]); resolved != "" {
		file = resolved
	}
	return file, nil
}

// open opens the first file that can be opened.
func open(files []string) (lib unsafe.Pointer, file string, err error) {
	for _, file := range files {
		name := C.CString(file)
		var text [1024]C.char
		lib := C.p2p_dynlib_open(name, &text[0], C.size_t(len(text)))
		C.free(unsafe.Pointer(name))
		if lib != nil {
			return lib, file, nil
		}
		if err == nil {
			err = errors.New(C.GoString(&text[0]))
		}
	}
	return nil, "", err
}

// TooOld returns the error for a library that is too old. Its text begins with product and have.
func (l Library) TooOld(product, have, need, advice string) error {
	return &Error{
		Library: l.Name, Have: have, Need: need, Advice: advice,
		Cause: fmt.Errorf("%s %s, %s or newer is needed", product, have, need),
	}
}

// Once caches the conclusive result of loading a library: success, a missing required function, or a version that is
// too old. It does not cache other failures: the next call tries again.
type Once[T any] struct {
	mu   sync.Mutex
	done bool
	v    T
	err  error
}

// Do returns the cached result, or calls load.
func (o *Once[T]) Do(load func() (T, error)) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return o.v, o.err
	}
	v, err := load()
	var e *Error
	if err == nil || errors.As(err, &e) && e.conclusive() {
		o.done, o.v, o.err = true, v, err
	}
	return v, err
}
