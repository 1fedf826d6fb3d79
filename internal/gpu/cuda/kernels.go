package cuda

/*
#include <stdlib.h>
#include "device.h"
*/
import "C"

import (
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// Kernels describes the kernels of the GPU's image, in the image's order. It loads all of them.
func (d *Device) Kernels() ([]gpu.Kernel, error) {
	if d.c == nil {
		return nil, errClosed
	}
	list := make([]gpu.Kernel, len(d.image.Kernels))
	for i, name := range d.image.Kernels {
		k, err := d.inspect(name)
		if err != nil {
			return nil, err
		}
		list[i] = k
	}
	return list, nil
}

func (d *Device) inspect(name string) (gpu.Kernel, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var k C.struct_cuda_kernel
	var e C.struct_p2p_error
	C.cuda_device_inspect(d.c, text, &k, &e)
	return gpu.Kernel{
		Name: name, Registers: int(k.registers), Local: int(k.local), Shared: int(k.shared), Threads: int(k.threads),
		Target: d.image.Target,
	}, failure("kernel "+name, &e)
}
