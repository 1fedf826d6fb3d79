package worker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Classes of failure of a run; a Failure wraps one of them, or gpu.ErrUnsupported for what this machine cannot do.
var (
	ErrHang    = errors.New("hang")
	ErrCrash   = errors.New("a worker ended early")
	ErrCorrupt = errors.New("data corruption")
	ErrFailed  = errors.New("failed")
)

// Failure is the end of a run: which rank, why, and what every rank was doing.
type Failure struct {
	Rank   int
	Class  error
	Text   string
	States []abi.State // by rank, read before anyone was told to stop
}

func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d: %s", f.Rank, f.Text)
	if errors.Is(f.Class, ErrHang) || errors.Is(f.Class, ErrCrash) {
		for r, s := range f.States {
			fmt.Fprintf(&b, "; rank %d was in %s", r, s)
		}
	}
	return b.String()
}

// Unwrap gives the class.
func (f *Failure) Unwrap() error { return f.Class }

// classes name the classes on the wire.
var classes = []struct {
	name  string
	class error
}{
	{"unsupported", gpu.ErrUnsupported},
	{"hang", ErrHang},
	{"stopped", abi.ErrAborted},
	{"corrupt", ErrCorrupt},
	{"failed", ErrFailed},
}

// toWire classes err.
func toWire(err error) *failedReply {
	f := &failedReply{Class: "failed", Text: err.Error()}
	switch {
	case errors.As(err, &f.Corrupt):
		f.Class = "corrupt"
	case errors.Is(err, abi.ErrTimeout):
		f.Class = "hang"
	case errors.Is(err, abi.ErrAborted):
		f.Class = "stopped"
	case errors.Is(err, gpu.ErrUnsupported):
		f.Class = "unsupported"
	}
	return f
}

func (f *failedReply) class() error {
	for _, c := range classes {
		if c.name == f.Class {
			return c.class
		}
	}
	return ErrFailed
}
