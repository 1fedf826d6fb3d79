package cuda

/*
#include "memory.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// handleKinds lists the kinds of handle of this package, the preferred first.
var handleKinds = []gpu.HandleKind{gpu.HandleLegacy, gpu.HandleVMM, gpu.HandleFabric}

// fabricDriver is the CUDA version of the oldest driver that has fabric handles.
const fabricDriver = 12030

// imexChannels is the folder of the driver's IMEX channels, which control access to fabric handles.
const imexChannels = "/dev/nvidia-caps-imex-channels"

// handleTrial is the result of an attempt to make a handle. Only conclusive results are kept.
type handleTrial struct {
	done bool
	err  error
}

// handles lists the kinds that Memory can open: legacy handles, and file descriptors and fabric handles if this machine
// has them. For fabric handles it makes one.
func (d *Device) handles() []gpu.HandleKind {
	kinds := []gpu.HandleKind{gpu.HandleLegacy}
	if d.c.vmm != 0 {
		kinds = append(kinds, gpu.HandleVMM)
	}
	if d.tryFabric() == nil {
		kinds = append(kinds, gpu.HandleFabric)
	}
	return kinds
}

// nativeKind returns the C constant of the kind, or an error if this device does not have it.
func (d *Device) nativeKind(kind gpu.HandleKind) (C.int, error) {
	switch {
	case kind == gpu.HandleLegacy:
		return C.CUDA_MEMORY_LEGACY, nil
	case kind == gpu.HandleVMM && d.c.vmm != 0:
		return C.CUDA_MEMORY_VMM, nil
	case kind == gpu.HandleVMM:
		return 0, unsupported("no handle kind %q: %s or its driver (for CUDA %s) cannot map memory by file descriptors: use one of %v",
			kind, d.info.UUID, cudaVersion(driverVersion()), d.handles())
	case kind == gpu.HandleFabric:
		return C.CUDA_MEMORY_FABRIC, d.tryFabric()
	}
	return 0, unsupported("no handle kind %q: use one of %v", kind, d.handles())
}

// tryFabric makes a fabric handle. It can fail although the GPU supports them, because this process lacks the
// permission.
func (d *Device) tryFabric() error {
	if d.fabric.done {
		return d.fabric.err
	}
	err := d.makeFabric()
	d.fabric = handleTrial{done: err == nil || errors.Is(err, gpu.ErrUnsupported), err: err}
	return err
}

func (d *Device) makeFabric() error {
	if d.c.fabric == 0 {
		return noFabric(fmt.Sprintf("%s or its driver (for CUDA %s) does not support it", d.info.UUID, cudaVersion(driverVersion())))
	}
	var e C.struct_p2p_error
	C.cuda_memory_try(d.c, C.CUDA_MEMORY_FABRIC, &e)
	err := failure("try a fabric handle", &e)
	var c *abi.Error
	if errors.As(err, &c) && (c.Native == C.CUDA_NOT_PERMITTED || c.Native == C.CUDA_NOT_SUPPORTED) {
		return noFabric(fmt.Sprintf("%v; %s", c, imexState(imexChannels)))
	}
	return err
}

// noFabric returns the error for missing fabric handles, with their requirements.
func noFabric(why string) error {
	return unsupported("no handle kind %q: %s: it needs a driver for CUDA %s or newer, an IMEX channel that this user may open "+
		"(%s/channel0; NVreg_CreateImexChannel0=1 makes the driver create it) and, between machines, the nvidia-imex service",
		gpu.HandleFabric, why, cudaVersion(fabricDriver), imexChannels)
}

// imexState describes the existing channels.
func imexState(dir string) string {
	channels, _ := filepath.Glob(filepath.Join(dir, "channel*")) // the pattern is well-formed
	if len(channels) == 0 {
		return "this machine has no IMEX channel"
	}
	return "IMEX channels here: " + strings.Join(channels, ", ")
}
