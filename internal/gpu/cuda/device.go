package cuda

/*
#include <stdlib.h>
#include "engine.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/kernel"
)

var errClosed = errors.New("cuda: the device is closed")

// Device is an opened GPU.
type Device struct {
	driver *Driver // nil until Driver.Open has added the device
	info   gpu.Info
	image  kernel.Image

	mu    sync.Mutex
	c     *C.struct_cuda_device // nil once closed
	parts []io.Closer           // open buffers, memories and engines, oldest first

	fabric handleTrial
}

func openDevice(info gpu.Info) (*Device, error) {
	image, err := kernel.Pick(kernel.PTX, info.Arch)
	if err != nil {
		return nil, fmt.Errorf("cuda: %s: %w", info.UUID, err)
	}
	if v := driverVersion(); v < image.MinDriver {
		return nil, unsupported("%s: kernels for %s need a driver for CUDA %s, this driver is for %s: update the NVIDIA driver",
			info.UUID, image.Target, cudaVersion(image.MinDriver), cudaVersion(v))
	}
	ptx := C.CString(image.Code)
	defer C.free(unsafe.Pointer(ptx))
	const logBytes = 8 << 10
	log := (*C.char)(C.calloc(1, logBytes))
	defer C.free(unsafe.Pointer(log))
	bulk := C.int(0)
	if image.Has(kernel.CopyBulk) {
		bulk = 1
	}
	d := &Device{info: info, image: image}
	var e C.struct_p2p_error
	C.cuda_device_open(C.int(info.Index), ptx, bulk, &d.c, log, logBytes, &e)
	if err := failure("open "+info.UUID, &e); err != nil {
		if text := strings.TrimSpace(C.GoString(log)); text != "" {
			err = fmt.Errorf("%w: the driver's compiler says: %s", err, text)
		}
		return nil, err
	}
	return d, nil
}

// join lets two opened devices access each other's memory, if the machine supports it.
func (d *Device) join(other *Device) error {
	var e C.struct_p2p_error
	C.cuda_device_peers(d.c, other.c, &e)
	return failure(fmt.Sprintf("join %s and %s", d.info.UUID, other.info.UUID), &e)
}

// Info is the device's description at the time it was opened.
func (d *Device) Info() gpu.Info { return d.info }

// Free returns the number of bytes that Alloc can still allocate.
func (d *Device) Free() (uint64, error) {
	if d.c == nil {
		return 0, errClosed
	}
	var free, total C.size_t
	var e C.struct_p2p_error
	C.cuda_device_memory(d.c, &free, &total, &e)
	return uint64(free), failure("free memory", &e)
}

// keep adds an open buffer, memory or engine to the device's list; drop removes it and reports whether it was there.
func (d *Device) keep(part io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parts = append(d.parts, part)
}

func (d *Device) drop(part io.Closer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.parts, part)
	if i < 0 {
		return false
	}
	d.parts = slices.Delete(d.parts, i, i+1)
	return true
}

// Close closes all buffers, memories and engines that are still open, the newest first, and releases the device. A
// second Close does nothing.
func (d *Device) Close() error {
	if d.c == nil {
		return nil
	}
	if d.driver != nil {
		d.driver.forget(d)
	}
	var errs []error
	for _, part := range slices.Backward(slices.Clone(d.parts)) {
		errs = append(errs, part.Close())
	}
	var e C.struct_p2p_error
	C.cuda_device_close(d.c, &e)
	d.c = nil
	return errors.Join(append(errs, failure("close "+d.info.UUID, &e))...)
}
