// Package cuda is NVIDIA GPUs as devices, through the driver API (libcuda.so.1) and NVML (libnvidia-ml.so.1), which
// are looked for at run time: a binary with this package in it starts on a machine without either.
//
// P2PBENCH_LIBCUDA and P2PBENCH_LIBNVML name other files to load instead, for drivers in unusual places and for
// tests. The toolkit is not needed: kernels come as PTX from internal/gpu/kernel.
//
// A device copies by one of four engines: "ce", the copy engine; "sm", loads and stores of all SMs; "bulk", the bulk
// copy engine of sm_90 and newer; "proxy", a kernel that stays on the GPU and takes its orders from host memory, with
// no launch per copy. "sm:N", "bulk:N" and "proxy:N" use at most N thread blocks. "ce:N" cuts a copy of 2 MiB and more
// into pieces for up to N streams.
//
// A queue is a stream on which kernels, copies and words in memory are done in order while the host goes on. It takes
// stream memory operations, which drivers for CUDA 11.7 and newer have.
//
// Memory goes to other processes by one of three kinds of handle: "legacy", 64 bytes for memory of cuMemAlloc;
// "vmm-fd", a file descriptor for memory of cuMemCreate; "fabric", 64 bytes for the same, which other nodes can open
// too, and which takes an IMEX channel.
package cuda

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0x43af0714
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "libcuda.h"
#include "libnvml.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// minDriver is the oldest driver that has all functions used here, by the CUDA version it was made for.
const minDriver = 11040

// libcuda loads the driver library and starts it, once.
var libcuda = sync.OnceValue(func() error {
	var why [512]C.char
	if C.cuda_load(&why[0], C.size_t(len(why))) != 0 {
		return unsupported("%s: install the NVIDIA driver, or a newer one", C.GoString(&why[0]))
	}
	if v := driverVersion(); v < minDriver {
		return unsupported("the driver is for CUDA %s, %s or newer is needed: update the NVIDIA driver",
			cudaVersion(v), cudaVersion(minDriver))
	}
	if rc := C.cuInit(0); rc != C.CUDA_OK {
		var e C.struct_p2p_error
		op := C.CString("cuInit")
		defer C.free(unsafe.Pointer(op))
		C.cuda_fail(&e, op, rc)
		return unsupported("%w: %s", abi.ErrorAt(unsafe.Pointer(&e)), initAdvice(int(rc)))
	}
	return nil
})

// libnvml loads NVML and starts it, once.
var libnvml = sync.OnceValue(func() error {
	var why [512]C.char
	if C.nvml_load(&why[0], C.size_t(len(why))) != 0 {
		return unsupported("%s", C.GoString(&why[0]))
	}
	return nil
})

// driverVersion is cuDriverGetVersion's number, 13000 for CUDA 13.0; 0 if it does not say.
func driverVersion() int {
	var v C.int
	if C.cuDriverGetVersion(&v) != C.CUDA_OK {
		return 0
	}
	return int(v)
}

func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// initAdvice says what helps when cuInit fails.
func initAdvice(code int) string {
	switch code {
	case C.CUDA_NO_DEVICE:
		return "is CUDA_VISIBLE_DEVICES empty, or no GPU passed to this container?"
	case 34:
		return "this is the toolkit's stub library: put the driver's own first on the library path"
	case 802:
		return "start nvidia-fabricmanager"
	case 803:
		return "library and kernel module are of different drivers: reload the module or reboot"
	case 804:
		return "remove the forward-compatibility libcuda.so.1 from the library path"
	}
	return "does nvidia-smi work here?"
}

// unsupported makes an error of this package that wraps gpu.ErrUnsupported.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("cuda: "+format+": %w", append(args, gpu.ErrUnsupported)...)
}

// failure is the error that a C call left in e, nil if there is none.
func failure(op string, e *C.struct_p2p_error) error {
	err := abi.ErrorAt(unsafe.Pointer(e))
	var c *abi.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &c) && c.Native == C.CUDA_NOT_SUPPORTED:
		return unsupported("%s: %w", op, err)
	}
	return fmt.Errorf("cuda: %s: %w", op, err)
}
