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
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0x944b92ef
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

// minDriver is the oldest driver that has all functions used here, by the CUDA version it was made for.
const minDriver = 11040

var (
	driverLibrary = dynlib.Library{
		Name: "libcuda", Files: []string{"libcuda.so.1"}, Variable: "P2PBENCH_LIBCUDA",
		Advice: "install the NVIDIA driver, or a newer one",
	}
	nvmlLibrary = dynlib.Library{Name: "NVML", Files: []string{"libnvidia-ml.so.1"}, Variable: "P2PBENCH_LIBNVML"}

	driverLoaded, nvmlLoaded dynlib.Once[struct{}]
)

// libcuda loads the driver library and starts it.
func libcuda() error { return load(&driverLoaded, startDriver) }

// libnvml loads NVML and starts it.
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
		return unsupported("%s: %w", op, lacking(c))
	}
	return fmt.Errorf("cuda: %s: %w", op, err)
}

// lacking makes an [*dynlib.Error] of an error about a function that the driver lacks; others stay as they are.
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
