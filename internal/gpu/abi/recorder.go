package abi

// #include "recorder.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Recorder is a struct p2p_recorder.
type Recorder struct{ c *C.struct_p2p_recorder }

// RecorderAt wraps the table at p, which must stay valid as long as the Recorder is used.
func RecorderAt(p unsafe.Pointer) *Recorder {
	r := (*C.struct_p2p_recorder)(p)
	if r.abi != C.P2P_ABI {
		panic(fmt.Sprintf("recorder table version %d, want %d: run go generate", r.abi, Version))
	}
	return &Recorder{c: r}
}

// Pointer is the struct p2p_recorder for C code.
func (r *Recorder) Pointer() unsafe.Pointer { return unsafe.Pointer(r.c) }
