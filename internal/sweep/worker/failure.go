package worker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Classes of failure of a run. A Failure wraps one of them, or gpu.ErrUnsupported.
var (
	ErrHang    = errors.New("hang")
	ErrCrash   = errors.New("a worker ended early")
	ErrCorrupt = errors.New("data corruption")
	ErrFailed  = errors.New("failed")
)

// Failure is the error that ended a run: the rank, the cause and the state of every rank.
type Failure struct {
	Rank   int
	Arm    int // the arm that could not be opened or connected; 0: the first one, or the failure is not of an arm
	Class  error
	Text   string
	States []abi.State // by rank, read before the ranks were aborted
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

// Unwrap returns the class.
func (f *Failure) Unwrap() error { return f.Class }

// classes are the names of the classes in failedReply.
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

// armError is the failure of an arm to open or connect.
type armError struct {
	arm int
	err error
}

func (e *armError) Error() string { return e.err.Error() }
func (e *armError) Unwrap() error { return e.err }

// toWire makes a reply with the class of err.
func toWire(err error) *failedReply {
	f := &failedReply{Class: "failed", Text: err.Error()}
	var ofArm *armError
	if errors.As(err, &ofArm) {
		f.Arm = ofArm.arm
	}
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
