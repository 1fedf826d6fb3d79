package cuda

/*
#include "recorder.h"
*/
import "C"

import (
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Recorder records the work that libraries enqueue on the streams of this GPU's engines and queues.
func (d *Device) Recorder() (*abi.Recorder, error) {
	if d.c == nil {
		return nil, errClosed
	}
	return abi.RecorderAt(unsafe.Pointer(C.cuda_recorder())), nil
}
