// Package cuda implements devices on NVIDIA GPUs, through the driver API (libcuda.so.1) and NVML (libnvidia-ml.so.1).
// Both libraries are loaded at run time: a binary with this package starts on a machine without them.
//
// P2PBENCH_LIBCUDA and P2PBENCH_LIBNVML name other files to load instead, for drivers in unusual places and for tests.
// The CUDA toolkit is not needed: internal/gpu/kernel has the kernels as PTX.
//
// A device has four engines: "ce", the copy engine; "sm", loads and stores of all SMs; "bulk", the bulk copy engine of
// sm_90 and newer; "proxy", a resident kernel that reads copy requests from host memory, without a launch per copy.
// "sm:N", "bulk:N" and "proxy:N" use at most N thread blocks. "ce:N" divides copies of 2 MiB and more among up to N
// streams.
//
// A queue is a stream, which executes kernels, copies, and writes of and waits for words in memory, asynchronously to
// the host. It needs stream memory operations, which drivers for CUDA 11.7 and newer have.
//
// Processes share memory by one of three kinds of handle: "legacy", 64 bytes, for memory of cuMemAlloc; "vmm-fd", a
// file descriptor, for memory of cuMemCreate; "fabric", 64 bytes, for memory of cuMemCreate, which other nodes can
// open, too; it needs an IMEX channel.
package cuda

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0x4ab53077
#include <stdlib.h>
#include "libcuda.h"
#include "libnvml.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/dynlib"
)

// minDriver is the CUDA version of the oldest driver that has all required functions.
const minDriver = 11040

var (
	driverLibrary = dynlib.Library{
		Name: "libcuda", Files: []string{"libcuda.so.1"}, Variable: "P2PBENCH_LIBCUDA",
		Advice: "install the NVIDIA driver, or a newer one",
	}
	nvmlLibrary = dynlib.Library{Name: "NVML", Files: []string{"libnvidia-ml.so.1"}, Variable: "P2PBENCH_LIBNVML"}

	driverLoaded, nvmlLoaded dynlib.Once[struct{}]
)

// libcuda loads and initialises the driver library.
func libcuda() error { return load(&driverLoaded, startDriver) }

// libnvml loads and initialises NVML.
func libnvml() error { return load(&nvmlLoaded, startNVML) }

func load(once *dynlib.Once[struct{}], start func() error) error {
	_, err := once.Do(func() (struct{}, error) { return struct{}{}, start() })
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

func startDriver() error {
	if _, err := driverLibrary.Open(unsafe.Pointer(&C.cuda_library)); err != nil {
		return err
	}
	if v := driverVersion(); v < minDriver {
		return driverLibrary.TooOld("the driver is for CUDA", cudaVersion(v), cudaVersion(minDriver), "update the NVIDIA driver")
	}
	if rc := C.cuInit(0); rc != C.CUDA_OK {
		op := C.CString("cuInit")
		defer C.free(unsafe.Pointer(op))
		err := abi.Call(func(e *C.struct_p2p_error) { C.cuda_fail(e, op, rc) })
		return &dynlib.Error{Library: driverLibrary.Name, Cause: err, Advice: initAdvice(int(rc))}
	}
	return nil
}

func startNVML() error {
	if _, err := nvmlLibrary.Open(unsafe.Pointer(&C.nvml_library)); err != nil {
		return err
	}
	if err := abi.Call(func(e *C.struct_p2p_error) { C.nvml_start(e) }); err != nil {
		return &dynlib.Error{Library: nvmlLibrary.Name, Cause: err}
	}
	return nil
}

// driverVersion returns the result of cuDriverGetVersion, 13000 for CUDA 13.0; 0 if the call fails.
func driverVersion() int {
	var v C.int
	if C.cuDriverGetVersion(&v) != C.CUDA_OK {
		return 0
	}
	return int(v)
}

func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// initAdvice returns a remedy for a failure of cuInit.
func initAdvice(code int) string {
	switch code {
	case C.CUDA_NO_DEVICE:
		return "is CUDA_VISIBLE_DEVICES empty, or no GPU passed to this container?"
	case 34:
		return "this is the toolkit's stub library: put the driver's own first on the library path"
	case 802:
		return "start nvidia-fabricmanager"
	case 803:
		return "library and kernel module are from different driver versions: reload the module or reboot"
	case 804:
		return "remove the forward-compatibility libcuda.so.1 from the library path"
	}
	return "does nvidia-smi work here?"
}

// unsupported returns an error of this package that wraps gpu.ErrUnsupported.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("cuda: "+format+": %w", append(args, gpu.ErrUnsupported)...)
}

// failure returns the error of a C call in e, nil if the call succeeded.
func failure(op string, e *C.struct_p2p_error) error {
	err := abi.ErrorAt(unsafe.Pointer(e))
	var c *abi.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &c) && c.Native == C.CUDA_NOT_SUPPORTED:
		return unsupported("%s: %w", op, lacking(c))
	}
	return fmt.Errorf("cuda: %s: %w", op, err)
}

// lacking converts the error of a function that the driver lacks to a [*dynlib.Error]. It returns other errors
// unchanged.
func lacking(c *abi.Error) error {
	function, _, _ := strings.Cut(c.Text, ":")
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	since := C.cuda_lacks(name)
	if since == nil {
		return c
	}
	return &dynlib.Error{
		Library: driverLibrary.Name, Symbol: function, Have: cudaVersion(driverVersion()), Need: C.GoString(since), Cause: c,
	}
}
