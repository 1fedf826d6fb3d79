package rdma

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
)

// nic is a port of an RDMA device, and its address.
type nic struct {
	device verbs.Device
	port   verbs.Port
	gid    verbs.GID
}

func (n nic) String() string {
	if len(n.device.Ports) > 1 {
		return fmt.Sprintf("%s:%d", n.device.Name, n.port.Number)
	}
	return n.device.Name
}

// soft reports whether the CPU emulates the NIC (soft-RoCE).
func (n nic) soft() bool { return n.device.PCI == "" }

// usable refuses devices whose queue pairs cannot be connected here.
func usable(d verbs.Device) error {
	switch d.Transport {
	case "InfiniBand": // RoCE, too
		return nil
	case "iWARP":
		return fmt.Errorf("%s is iWARP, which cannot be connected without rdma_cm", d.Name)
	}
	return fmt.Errorf("%s (%s) has no reliably connected queue pairs", d.Name, d.Transport)
}

// largest is the maximum size of a message: the port's, but below 4 GiB because lengths have 32 bits.
func (n nic) largest() uint64 { return min(n.port.Largest, math.MaxUint32) }

// choose finds the NIC of a rank: the one given by --nics, else one of the nearest to its device, assigned by rank.
func (o Options) choose(all []verbs.Device, rank int, d gpu.Info) (nic, error) {
	if len(o.NICs) > 0 {
		return o.named(all, o.NICs[rank%len(o.NICs)])
	}
	var up []nic
	var down []string
	for _, device := range all {
		if err := usable(device); err != nil {
			down = append(down, err.Error())
			continue
		}
		for _, p := range device.Ports {
			n := nic{device: device, port: p}
			if p.State != "ACTIVE" {
				down = append(down, fmt.Sprintf("%s is %s", n, p.State))
				continue
			}
			up = append(up, n)
		}
	}
	if len(up) == 0 {
		for _, device := range all {
			if device.Err != nil {
				down = append(down, device.Err.Error())
			}
		}
		return nic{}, fmt.Errorf("no port of an RDMA device is up: %s: bring its network interface up (ip link set up), or check its cable: %w",
			strings.Join(down, ", "), gpu.ErrUnsupported)
	}
	nearest := slices.MaxFunc(up, func(a, b nic) int { return cmp.Compare(near(a.device, d), near(b.device, d)) })
	best := near(nearest.device, d)
	up = slices.DeleteFunc(up, func(n nic) bool { return near(n.device, d) < best })
	return o.address(up[rank%len(up)])
}

// named finds a NIC by name, such as "mlx5_0" or "mlx5_0:1".
func (o Options) named(all []verbs.Device, name string) (nic, error) {
	name, number, hasPort := strings.Cut(name, ":")
	var known []string
	for _, device := range all {
		known = append(known, device.Name)
		if device.Name != name {
			continue
		}
		if err := cmp.Or(device.Err, usable(device)); err != nil {
			return nic{}, fmt.Errorf("--nics: %w: %w", err, gpu.ErrUnsupported)
		}
		port := 1
		if hasPort {
			var err error
			if port, err = strconv.Atoi(number); err != nil {
				return nic{}, fmt.Errorf("--nics %s:%s: want a port such as %s:1: %w", name, number, name, gpu.ErrUnsupported)
			}
		}
		p, err := device.Port(port)
		if err != nil {
			return nic{}, fmt.Errorf("--nics: %w: %w", err, gpu.ErrUnsupported)
		}
		n := nic{device: device, port: p}
		if p.State != "ACTIVE" {
			return nic{}, fmt.Errorf("port %d of %s is %s: bring its network interface up (ip link set up), or check its cable: %w",
				port, name, p.State, gpu.ErrUnsupported)
		}
		return o.address(n)
	}
	return nic{}, fmt.Errorf("--nics: no RDMA device %s: there are %s: %w", name, strings.Join(known, ", "), gpu.ErrUnsupported)
}

// address chooses the GID.
func (o Options) address(n nic) (nic, error) {
	var err error
	if o.GID != nil {
		n.gid, err = n.device.GIDAt(n.port.Number, *o.GID)
	} else {
		n.gid, err = n.device.DefaultGID(n.port.Number)
	}
	if err != nil {
		return nic{}, fmt.Errorf("%w: %w", err, gpu.ErrUnsupported)
	}
	return n, nil
}

// near is larger the closer a NIC is to a device: it counts common PCI bridges first, then the NUMA node.
func near(n verbs.Device, d gpu.Info) int {
	score := 0
	if n.PCI != "" && d.PCI != "" {
		score = 2 * shared(bridges(n.PCI), bridges(d.PCI))
	}
	if n.NUMA >= 0 && n.NUMA == d.NUMA {
		score++
	}
	return score
}

// pciDevices is the folder in which the kernel describes PCI devices; tests replace it.
var pciDevices = "/sys/bus/pci/devices"

// bridges are the parts of a PCI device's path in sysfs, from the host bridge on; none if it is unknown.
func bridges(address string) []string {
	path, err := filepath.EvalSymlinks(filepath.Join(pciDevices, strings.ToLower(address)))
	if err != nil {
		return nil
	}
	path, _ = strings.CutPrefix(path, "/sys/devices/")
	return strings.Split(path, string(os.PathSeparator))
}

// shared is the number of common leading parts of two paths.
func shared(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
