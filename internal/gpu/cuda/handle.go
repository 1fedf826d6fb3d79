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

// handleKinds are the kinds that some GPU and driver have, the preferred first.
var handleKinds = []gpu.HandleKind{gpu.HandleLegacy, gpu.HandleVMM, gpu.HandleFabric}

// fabricDriver is the oldest driver that has fabric handles, by the CUDA version it was made for.
const fabricDriver = 12030

// imexChannels is where the driver puts the channels that guard fabric handles.
const imexChannels = "/dev/nvidia-caps-imex-channels"

// handleTrial is what came out of making a handle. Only what will not change is remembered.
type handleTrial struct {
	done bool
	err  error
}

// handles lists the kinds that Memory can open: legacy handles, and file descriptors and fabric handles where this
// machine has them. Whether it has the latter is tried out.
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

// nativeKind is the kind as C knows it, or why this device cannot have it.
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

// tryFabric makes a fabric handle: the GPU may have them and this process may still not be allowed to make any.
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
		return noFabric(fmt.Sprintf("%s and its driver (for CUDA %s) do not offer it", d.info.UUID, cudaVersion(driverVersion())))
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

// noFabric says why there are no fabric handles, and what they take.
func noFabric(why string) error {
	return unsupported("no handle kind %q: %s: it takes a driver for CUDA %s or newer, an IMEX channel that this user may open "+
		"(%s/channel0; NVreg_CreateImexChannel0=1 makes the driver create it) and, between machines, the nvidia-imex service",
		gpu.HandleFabric, why, cudaVersion(fabricDriver), imexChannels)
}

// imexState says which channels there are.
func imexState(dir string) string {
	channels, _ := filepath.Glob(filepath.Join(dir, "channel*")) // the pattern is well-formed
	if len(channels) == 0 {
		return "this machine has no IMEX channel"
	}
	return "IMEX channels here: " + strings.Join(channels, ", ")
}
