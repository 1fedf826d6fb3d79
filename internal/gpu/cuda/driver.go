package cuda

/*
#include "device.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

// Driver finds NVIDIA GPUs. Devices that one Driver opens can access each other's memory.
type Driver struct {
	mu   sync.Mutex
	open []*Device
}

// New returns a driver. The libraries are loaded at first use.
func New() *Driver { return &Driver{} }

// Kind is "cuda".
func (*Driver) Kind() string { return "cuda" }

// Devices lists the GPUs that this process can see, as limited by CUDA_VISIBLE_DEVICES.
func (*Driver) Devices() ([]gpu.Info, error) {
	if err := libcuda(); err != nil {
		return nil, err
	}
	var n C.int
	if rc := C.cuDeviceGetCount(&n); rc != C.CUDA_OK || n == 0 {
		return nil, unsupported("no device: %s", initAdvice(C.CUDA_NO_DEVICE))
	}
	version := driverString()
	list := make([]gpu.Info, n)
	for i := range list {
		info, err := readInfo(i)
		if err != nil {
			return nil, err
		}
		info.Driver = version
		list[i] = info
	}
	return list, nil
}

func readInfo(ordinal int) (gpu.Info, error) {
	var c C.struct_cuda_info
	var e C.struct_p2p_error
	C.cuda_device_info(C.int(ordinal), &c, &e)
	if err := failure(fmt.Sprintf("device %d", ordinal), &e); err != nil {
		return gpu.Info{}, err
	}
	var id [16]byte
	for i, b := range c.uuid.bytes {
		id[i] = byte(b)
	}
	pci := strings.ToLower(C.GoString(&c.pci[0]))
	return gpu.Info{
		Kind: "cuda", Index: ordinal, Name: C.GoString(&c.name[0]), UUID: formatUUID(id), PCI: pci,
		Arch: fmt.Sprintf("sm_%d%d", int(c.major), int(c.minor)), NUMA: numaNode(pci), Memory: uint64(c.memory), CTAs: int(c.sms),
		Warp: int(c.warp), CopyEngine: gpu.EngineCE,
	}, nil
}

func formatUUID(b [16]byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// numaNode is the NUMA node of a PCI device, -1 if unknown.
func numaNode(pci string) int {
	text, err := os.ReadFile(filepath.Join("/sys/bus/pci/devices", pci, "numa_node"))
	if err != nil {
		return -1
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return -1
	}
	return node
}

// driverString returns the driver's release, if known, and its CUDA version.
func driverString() string {
	version := nvmlDriverVersion()
	if version == "" {
		text, _ := os.ReadFile("/proc/driver/nvidia/version")
		version = moduleVersion(string(text))
	}
	return strings.TrimSpace(fmt.Sprintf("%s (CUDA %s)", version, cudaVersion(driverVersion())))
}

var release = regexp.MustCompile(`Kernel Module.*?\s(\d+(?:\.\d+)+)\s`)

// moduleVersion finds the release in /proc/driver/nvidia/version; "" if there is none.
func moduleVersion(text string) string {
	if m := release.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// find returns the device with that UUID.
func (d *Driver) find(uuid string) (gpu.Info, error) {
	list, err := d.Devices()
	if err != nil {
		return gpu.Info{}, err
	}
	i := slices.IndexFunc(list, func(x gpu.Info) bool { return x.UUID == uuid })
	if i < 0 {
		return gpu.Info{}, unsupported("no device %s among the %d visible to this process: check CUDA_VISIBLE_DEVICES",
			uuid, len(list))
	}
	return list[i], nil
}

// Open creates the GPU's context, loads the kernels, and enables peer access between the GPU and those that this driver
// has already opened.
func (d *Driver) Open(uuid string) (gpu.Device, error) {
	info, err := d.find(uuid)
	if err != nil {
		return nil, err
	}
	dev, err := openDevice(info)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range d.open {
		if err := dev.join(other); err != nil {
			_ = dev.Close()
			return nil, err
		}
	}
	dev.driver = d
	d.open = append(d.open, dev)
	return dev, nil
}

// forget drops a device that is about to be closed.
func (d *Driver) forget(dev *Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = slices.DeleteFunc(d.open, func(x *Device) bool { return x == dev })
}

// peers reports whether a's kernels and copy engines can access b's memory. Both must be from this process's list of
// devices.
func peers(a, b gpu.Info) bool {
	var can C.int
	return C.cuDeviceCanAccessPeer(&can, C.int(a.Index), C.int(b.Index)) == C.CUDA_OK && can != 0
}

// Reaches reports whether this GPU's engines can read and write the other GPU's memory directly; false for a GPU that
// this process does not see.
func (d *Device) Reaches(other gpu.Info) bool {
	if d.info.Same(other) {
		return true
	}
	there, err := New().find(other.UUID)
	return err == nil && other.Kind == d.info.Kind && peers(d.info, there)
}

// StoresLines returns nil if NVLink connects the GPUs: it transfers the stores of a warp to one line as one write,
// which NCCL's LL128 relies on, too. PCIe may split them.
func (d *Device) StoresLines(to gpu.Info) error {
	if d.info.Same(to) {
		return nil
	}
	count, why := nvlinks(d.info, to)
	switch {
	case count > 0:
		return nil
	case why == "":
		why = "no NVLink"
	}
	return fmt.Errorf("cuda: from %s to %s: %s: %w", d.info.UUID, to.UUID, why, gpu.ErrUnsupported)
}

// Link describes the connection between two GPUs. Unknown properties are left out.
func (d *Driver) Link(a, b gpu.Info) gpu.Link {
	if a.Same(b) {
		return gpu.Link{Type: "same GPU", Peer: true}
	}
	l := gpu.Link{Type: "PCIe"}
	here, err := d.find(a.UUID)
	if err != nil {
		l.Detail = err.Error()
		return l
	}
	there, err := d.find(b.UUID)
	if err != nil {
		l.Detail = err.Error()
		return l
	}
	l.Peer = peers(here, there)
	count, detail := nvlinks(here, there)
	if count > 0 {
		l.Type, l.Count, l.Counted = "NVLink", count, true
	}
	l.Detail = detail
	return l
}
