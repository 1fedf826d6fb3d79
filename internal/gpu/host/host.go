// Package host implements devices on CPU memory: p2pbench measures them on machines without a GPU, and most tests run
// on them.
//
// Each NUMA node is a device. Processes share memory by a memfd, whose file descriptor is passed over a Unix socket. A
// memfd has no name in a file system, does not depend on the size of /dev/shm, and disappears with its processes.
package host

/*
#cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
#cgo CFLAGS: -I${SRCDIR}/../.. -DP2P_SHARED_HEADERS=0xde87138d
#include "host.h"
*/
import "C"

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/cgroup"
	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Kind is the value of --device that selects this package.
const Kind = gpu.KindHost

type driver struct{ sys string }

// Driver returns the driver for CPU memory, with one device per NUMA node.
func Driver() gpu.Driver { return driver{sys: "/sys"} }

func (driver) Kind() string { return Kind }

func (d driver) Devices() ([]gpu.Info, error) {
	dirs, _ := filepath.Glob(filepath.Join(d.sys, "devices/system/node/node[0-9]*"))
	var nodes []int
	for _, dir := range dirs {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		cpus, _ := os.ReadFile(filepath.Join(dir, "cpulist"))
		if err == nil && strings.TrimSpace(string(cpus)) != "" {
			nodes = append(nodes, n)
		}
	}
	slices.Sort(nodes)
	if len(nodes) == 0 {
		nodes = []int{0} // a kernel without NUMA
	}
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return nil, fmt.Errorf("host: sysinfo: %w", err)
	}
	infos := make([]gpu.Info, len(nodes))
	for i, n := range nodes {
		infos[i] = gpu.Info{
			Kind: Kind, Index: i, Name: "CPU memory", UUID: fmt.Sprintf("host-%d", n), Arch: "cpu", NUMA: n,
			Memory: si.Totalram * uint64(si.Unit) / uint64(len(nodes)), CTAs: mostCTAs,
			Warp: 1, CopyEngine: engineCPU,
		}
	}
	return infos, nil
}

func (driver) Accepts(_ gpu.Info, engine string, handle gpu.HandleKind) error {
	if engine != "" && engine != "auto" && !slices.Contains(engines, engine) {
		return gpu.UnknownEngine(Kind, engine, engines)
	}
	return acceptHandle(handle)
}

func acceptHandle(kind gpu.HandleKind) error {
	if kind != "" && kind != gpu.HandleAuto && kind != gpu.HandleMemFD {
		return gpu.UnknownHandle(Kind, kind, []gpu.HandleKind{gpu.HandleMemFD})
	}
	return nil
}

func (d driver) Open(uuid string) (gpu.Device, error) {
	infos, err := d.Devices()
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		if i.UUID == uuid {
			return &device{info: i}, nil
		}
	}
	return nil, fmt.Errorf("host: no device %q: %w", uuid, gpu.ErrUnsupported)
}

func (driver) Link(a, b gpu.Info) gpu.Link {
	l := gpu.Link{Type: "CPU memory", Peer: true}
	if a.NUMA != b.NUMA {
		l.Detail = fmt.Sprintf("NUMA node %d to %d", a.NUMA, b.NUMA)
	}
	return l
}

type device struct{ info gpu.Info }

func (d *device) Info() gpu.Info { return d.info }

func (d *device) Close() error { return nil }

// Free returns the available memory of the machine, or less if the control group allows less.
func (d *device) Free() (uint64, error) { return available("/proc/meminfo", cgroup.Own()) }

// Alloc maps whole pages as shared memory, like Memory does, so that the source and the destination of a copy have the
// same cost. In a private mapping, pages that were never written would all be the kernel's page of zeroes, which stays
// in the cache, and other rules would apply to huge pages.
func (d *device) Alloc(bytes uint64) (gpu.Buffer, error) {
	free, err := d.Free()
	if err != nil {
		return nil, err
	}
	if bytes > free {
		return nil, fmt.Errorf("host: alloc: %d bytes asked for, %d available", bytes, free)
	}
	bytes = roundUp(bytes)
	mem, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("host: allocate %d bytes: mmap: %w", bytes, err)
	}
	return &buffer{mem: mem}, nil
}

func roundUp(bytes uint64) uint64 {
	page := uint64(os.Getpagesize())
	return max((bytes+page-1)/page*page, page)
}

type buffer struct{ mem []byte }

func (b *buffer) Addr() uintptr { return uintptr(unsafe.Pointer(&b.mem[0])) }

func (b *buffer) Size() uint64 { return uint64(len(b.mem)) }

func (b *buffer) Close() error {
	if b.mem == nil {
		return nil
	}
	err := unix.Munmap(b.mem)
	b.mem = nil
	return err
}

// The engines: cpu copies with libc's memcpy, and with non-temporal stores above a size that depends on the cache; the
// others always use one of the two.
const (
	engineCPU    = "cpu"
	engineMemcpy = "cpu-memcpy"
	engineNT     = "cpu-nt"
)

var engines = []string{engineCPU, engineMemcpy, engineNT}

func (d *device) Engines() []string { return slices.Clone(engines) }

func (d *device) Engine(name string) (gpu.Engine, error) {
	var from uint64 // non-temporal stores from this size
	switch name {
	case engineCPU:
		from = ntFrom("/sys/devices/system/cpu/cpu0/cache")
	case engineMemcpy:
		from = math.MaxUint64
	case engineNT:
	default:
		return nil, gpu.UnknownEngine(Kind, name, engines)
	}
	g := C.p2p_host_engine_new(C.size_t(from))
	if g == nil {
		return nil, fmt.Errorf("host: engine %s: out of memory", name)
	}
	return &engine{name: name, c: g}, nil
}

type engine struct {
	name string
	c    *C.struct_p2p_engine
}

func (e *engine) Name() string { return e.name }

func (e *engine) Table() *abi.Engine { return abi.EngineAt(unsafe.Pointer(e.c)) }

func (e *engine) Close() error {
	if e.c != nil {
		C.p2p_host_engine_free(e.c)
		e.c = nil
	}
	return nil
}
