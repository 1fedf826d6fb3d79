package cuda

/*
#include <stdlib.h>
#include "health.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// throttles names the bits of NVML's mask of clock reductions that the user did not request. The other bits mean
// idleness, application settings, or clocks synchronised with another GPU.
var throttles = []struct {
	bit  uint64
	name string
}{
	{0x04, "sw-power-cap"}, {0x08, "hw-slowdown"}, {0x20, "sw-thermal"}, {0x40, "hw-thermal"}, {0x80, "hw-power-brake"},
}

func throttleNames(mask uint64) []string {
	var names []string
	for _, t := range throttles {
		if mask&t.bit != 0 {
			names = append(names, t.name)
		}
	}
	return names
}

// Health reads the GPU's state from NVML. The error wraps gpu.ErrUnsupported if there is no NVML.
func (d *Device) Health() (gpu.Health, error) {
	if err := libnvml(); err != nil {
		return gpu.Health{}, err
	}
	uuid := C.CString(d.info.UUID)
	defer C.free(unsafe.Pointer(uuid))
	var c C.struct_cuda_health
	var e C.struct_p2p_error
	C.cuda_health_read(uuid, &c, &e)
	if err := failure("health", &e); err != nil {
		return gpu.Health{}, err
	}
	h := gpu.Health{Throttle: throttleNames(uint64(c.reasons))}
	for _, v := range []struct {
		bit  C.unsigned
		from C.unsigned
		to   **uint32
	}{
		{C.CUDA_HAVE_SM_CLOCK, c.sm_clock_mhz, &h.SMClockMHz},
		{C.CUDA_HAVE_MAX_SM_CLOCK, c.max_sm_clock_mhz, &h.MaxSMClockMHz},
		{C.CUDA_HAVE_MEM_CLOCK, c.mem_clock_mhz, &h.MemClockMHz},
		{C.CUDA_HAVE_TEMPERATURE, c.temperature_c, &h.TemperatureC},
	} {
		if c.have&v.bit != 0 {
			*v.to = new(uint32(v.from))
		}
	}
	for _, v := range []struct {
		bit  C.unsigned
		from C.ulonglong
		to   **uint64
	}{
		{C.CUDA_HAVE_ECC, c.ecc, &h.ECCErrors},
		{C.CUDA_HAVE_TX, c.tx_bytes, &h.LinkTxBytes},
		{C.CUDA_HAVE_RX, c.rx_bytes, &h.LinkRxBytes},
	} {
		if c.have&v.bit != 0 {
			*v.to = new(uint64(v.from))
		}
	}
	if c.have&C.CUDA_HAVE_POWER != 0 {
		h.PowerW = new(float64(c.power_mw) / 1000)
	}
	return h, nil
}

// nvlinks returns the number of NVLinks from a towards b and a description. If NVML cannot tell, the number is 0 and
// the text is the reason.
func nvlinks(a, b gpu.Info) (int, string) {
	if err := libnvml(); err != nil {
		return 0, "NVLink unknown: " + err.Error()
	}
	from, to, pci := C.CString(a.UUID), C.CString(b.UUID), C.CString(b.PCI)
	defer C.free(unsafe.Pointer(from))
	defer C.free(unsafe.Pointer(to))
	defer C.free(unsafe.Pointer(pci))
	var l C.struct_cuda_nvlink
	var e C.struct_p2p_error
	C.cuda_nvlink_read(from, to, pci, &l, &e)
	if err := failure("NVLink", &e); err != nil {
		return 0, err.Error()
	}
	if l.count == 0 {
		return 0, ""
	}
	detail := fmt.Sprintf("%d × %s", int(l.count), nvlinkName(a.Arch))
	if l.mb_per_link > 0 {
		detail += fmt.Sprintf(", %.3f GB/s each", float64(l.mb_per_link)/1000)
	}
	return int(l.count), detail
}

// nvlinkName names the generation of NVLink of that GPU architecture. NVML's versions are not generations: one
// generation has several.
func nvlinkName(arch string) string {
	for _, g := range []struct{ arch, name string }{
		{"sm_7", "NVLink 2"}, {"sm_8", "NVLink 3"}, {"sm_9", "NVLink 4"}, {"sm_10", "NVLink 5"},
	} {
		if strings.HasPrefix(arch, g.arch) {
			return g.name
		}
	}
	return "NVLink"
}

// nvmlDriverVersion returns the driver's release, "" without NVML.
func nvmlDriverVersion() string {
	if libnvml() != nil {
		return ""
	}
	var version [96]C.char
	C.cuda_driver_version(&version[0], C.size_t(len(version)))
	return C.GoString(&version[0])
}
