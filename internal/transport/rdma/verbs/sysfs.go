package verbs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// sysfs is the folder in which the kernel describes devices; tests replace it.
var sysfs = "/sys"

// classFile reads an attribute of a device; "" if it does not have it.
func classFile(device string, path ...string) string {
	text, err := os.ReadFile(filepath.Join(append([]string{sysfs, "class/infiniband", device}, path...)...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func portFile(device string, port int, path ...string) string {
	return classFile(device, append([]string{"ports", strconv.Itoa(port)}, path...)...)
}

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// place returns the device's PCI address, or "", and its NUMA node, or -1.
func place(device string) (pci string, numa int) {
	numa = -1
	if n, err := strconv.Atoi(classFile(device, "device/numa_node")); err == nil {
		numa = n
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(sysfs, "class/infiniband", device, "device"))
	if base := filepath.Base(dir); err == nil && pciAddress.MatchString(base) {
		pci = base
	}
	return pci, numa
}

// rate is the port's rate in Gb/s, from a text such as "100 Gb/sec (4X EDR)"; 0: unknown.
func rate(device string, port int) float64 {
	number, _, _ := strings.Cut(portFile(device, port, "rate"), " Gb/sec")
	gbps, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	return gbps
}

func gidNetdev(device string, port, index int) string {
	return portFile(device, port, "gid_attrs/ndevs", strconv.Itoa(index))
}

// gidTypeOfOld is for libraries that do not report the type. The kernel writes "IB/RoCE v1" for both.
func gidTypeOfOld(device string, p *Port, index int) string {
	if p.LinkLayer == "InfiniBand" {
		return TypeIB
	}
	switch portFile(device, p.Number, "gid_attrs/types", strconv.Itoa(index)) {
	case "RoCE v2":
		return TypeRoCEv2
	case "IB/RoCE v1":
		return TypeRoCEv1
	}
	return ""
}
