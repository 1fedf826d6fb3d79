// Package gpu defines what a device is, a GPU or CPU memory used as a device, and how devices are found.
//
// The package holds interfaces and plain data only. Packages below it (host, cuda) implement them; the command names
// the concrete ones. A feature that only some devices have, such as health counters, is a small interface of its own,
// found by type assertion. A method that a device cannot support returns an error that wraps [ErrUnsupported].
package gpu

import (
	"errors"
	"fmt"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// ErrUnsupported is wrapped by every error that means "this machine, driver or device cannot do that", as opposed to
// "that failed".
var ErrUnsupported = errors.New("unsupported")

// Info identifies a device. Kind and UUID together identify it in every process of the machine. Index does not:
// processes may see different subsets of the devices, in different orders.
type Info struct {
	Kind   string `json:"kind"`             // "cuda", "hip" or "host"
	Index  int    `json:"index"`            // ordinal in the process that asked
	Name   string `json:"name"`             // "NVIDIA H200"
	UUID   string `json:"uuid"`             // "GPU-3f0c…"; host: "host-0"
	PCI    string `json:"pci,omitempty"`    // "0000:3b:00.0"
	Arch   string `json:"arch,omitempty"`   // "sm_90"
	NUMA   int    `json:"numa"`             // NUMA node, -1 if unknown
	Memory uint64 `json:"memory"`           // total bytes
	CTAs   int    `json:"ctas,omitempty"`   // thread blocks of a kernel that always run concurrently; 0: unknown
	Driver string `json:"driver,omitempty"` // "580.159.04 (CUDA 13.0)"
	Warp   int    `json:"warp,omitempty"`   // threads of a warp; 1 on a CPU; 0: the device runs no kernels
	// CopyEngine names the engine that copies without a kernel, on its own stream if the device has streams.
	CopyEngine string `json:"copy_engine,omitempty"`
}

// Same reports whether a and b are one physical device.
func (i Info) Same(b Info) bool { return i.Kind == b.Kind && i.UUID == b.UUID }

// KindHost is the kind of CPU memory.
const KindHost = "host"

// OnCPU reports whether the device is CPU memory. CPUs can read it, several ranks may share it, and CPU threads emulate
// the thread blocks of its kernels.
func (i Info) OnCPU() bool { return i.Kind == KindHost }

// Link describes the connection from one device to another.
type Link struct {
	Type   string `json:"type"`             // "NVLink", "PCIe", "same GPU", "CPU memory"
	Count  int    `json:"count,omitempty"`  // number of parallel links, if the type has several
	Peer   bool   `json:"peer"`             // direct loads and stores are possible
	Detail string `json:"detail,omitempty"` // "18 × NVLink 4, 26.562 GB/s each"
	// Counted means that the devices' Health counts the bytes on this link, at least all of the payload.
	Counted bool `json:"counted,omitempty"`
}

// Driver finds the devices of one kind.
type Driver interface {
	// Kind is the value of --device that selects this driver.
	Kind() string
	// Devices lists the devices that this process can see. If the machine has no such driver or device, the error wraps
	// ErrUnsupported and states the cause and a remedy.
	Devices() ([]Info, error)
	// Accepts checks, without opening the device, that it has an engine and a kind of handle of these names; "" and
	// "auto" are always accepted. The error lists the available names and wraps ErrUnsupported.
	Accepts(i Info, engine string, handle HandleKind) error
	// Open opens the device with that UUID in this process.
	Open(uuid string) (Device, error)
	// Link describes the connection between two devices of this driver.
	Link(a, b Info) Link
}

// Device is an opened device. Methods may be called from any goroutine, one at a time.
type Device interface {
	Info() Info
	// Alloc returns a buffer of at least the given number of bytes, private to this process. Memory that other
	// processes map is allocated through Memory.
	Alloc(bytes uint64) (Buffer, error)
	// Free returns the number of bytes that Alloc can still allocate.
	Free() (uint64, error)
	// Engines names the engines of this device. "auto" selects the first, unless the device is a Chooser.
	Engines() []string
	// Engine opens an engine. The error for an unknown name lists the known ones.
	Engine(name string) (Engine, error)
	// Memory opens memory that processes share by that kind of handle. Timed loops allocate, export and map through its
	// table. HandleAuto lets the device choose the kind.
	Memory(kind HandleKind) (Memory, error)
	// Reaches reports whether this device's engines can read and write the other device's memory directly.
	Reaches(other Info) bool
	// StoresLines returns nil if stores to the other device's memory are atomic in units of 128 bytes: an aligned line
	// that eight neighbouring threads of a kernel store with one instruction becomes visible as a whole. Otherwise the
	// error states why not, and wraps ErrUnsupported.
	StoresLines(to Info) error
	// Close releases the device. Its buffers, memories and engines must be closed first.
	Close() error
}

// Buffer is an allocation of device memory. Its size is never 0: Alloc rounds up.
type Buffer interface {
	// Addr is the device address, valid in this process.
	Addr() uintptr
	// Size is the size in bytes.
	Size() uint64
	// Close frees the memory. A second Close does nothing.
	Close() error
}

// Memory allocates device memory that processes can share by one kind of handle.
type Memory interface {
	// Kind is the kind of handle. If "auto" chose it, why gives the reason.
	Kind() (kind HandleKind, why string)
	// Table is the function table for timed loops, valid until Close.
	Table() *abi.Memory
	// Close frees all remaining allocations and unmaps all remaining mappings.
	Close() error
}

// HandleKind names a way to share memory between processes.
type HandleKind string

// The kinds of memory handle.
const (
	HandleAuto   HandleKind = "auto"
	HandleMemFD  HandleKind = "memfd"  // host: a Linux memfd, passed over a Unix socket
	HandleLegacy HandleKind = "legacy" // cuda: cuIpcGetMemHandle, 64 bytes
	HandleVMM    HandleKind = "vmm-fd" // cuda: cuMemExportToShareableHandle, POSIX file descriptor
	HandleFabric HandleKind = "fabric" // cuda: cuMemExportToShareableHandle, 64 bytes, valid on other nodes too
)

// EngineCE is the name of the copy engine on devices of every vendor.
const EngineCE = "ce"

// Engine copies on a device by one method, on its own stream if the device has streams.
type Engine interface {
	// Name is the name that the engine was opened by, or the engine that "auto" chose.
	Name() string
	// Table is the function table for timed loops, valid until Close.
	Table() *abi.Engine
	Close() error
}

// Launcher is implemented by devices that run kernels or emulate them.
type Launcher interface {
	// Queue opens a new queue.
	Queue() (Queue, error)
}

// Queue is a device's ordered list of work, which runs asynchronously to the host: kernels, copies, writes of words and
// waits for words.
type Queue interface {
	// Table is the function table for timed loops, valid until Close.
	Table() *abi.Queue
	// Close releases the queue, which must be idle. A second Close does nothing.
	Close() error
}

// Recorder is implemented by devices that can record the work that a library enqueues on one of their streams.
type Recorder interface {
	// Recorder is the function table for recordings, valid until the process ends.
	Recorder() (*abi.Recorder, error)
}

// Inspector is implemented by devices that can report how their kernels were compiled.
type Inspector interface {
	// Kernels describes every kernel of the device, as the driver loaded it.
	Kernels() ([]Kernel, error)
}

// Kernel is a kernel as the driver loaded it.
type Kernel struct {
	Name      string `json:"name"`
	Registers int    `json:"registers"`    // per thread
	Local     int    `json:"local_bytes"`  // per thread: spilled registers and arrays, in device memory
	Shared    int    `json:"shared_bytes"` // per block, static shared memory
	Threads   int    `json:"max_threads"`  // per block
	Target    string `json:"target"`       // target of the kernel's image: "sm_90"
}

// DMABufs is implemented by devices whose memory other kinds of devices can access by a dma-buf.
type DMABufs interface {
	// DMABuf exports a buffer of this device, from its first byte, as a dma-buf file descriptor, which the caller
	// closes. The error wraps ErrUnsupported if the driver or the operating system's kernel does not support dma-buf.
	DMABuf(b Buffer) (fd int, err error)
}

// Chooser is implemented by devices on which "auto" measures several engines and selects one for each size.
type Chooser interface {
	// Candidates names the engines to measure. The first is preferred unless another is clearly faster.
	Candidates() []string
}

// Waiter is implemented by devices with waits that no caller supplies a context for, such as the self-test of an engine
// that is being opened.
type Waiter interface {
	// WaitWith makes these waits, in engines opened from now on, use the deadline, progress page and abort flag of x,
	// which must outlive the engines.
	WaitWith(x *abi.Ctx)
}

// Monitor is implemented by devices that report their health.
type Monitor interface {
	Health() (Health, error)
}

// Health is a snapshot of a device's state. A value is nil if the machine does not report it.
type Health struct {
	SMClockMHz    *uint32  `json:"sm_clock_mhz,omitempty"`
	MaxSMClockMHz *uint32  `json:"max_sm_clock_mhz,omitempty"`
	MemClockMHz   *uint32  `json:"mem_clock_mhz,omitempty"`
	TemperatureC  *uint32  `json:"temperature_c,omitempty"`
	PowerW        *float64 `json:"power_w,omitempty"`
	ECCErrors     *uint64  `json:"ecc_uncorrected,omitempty"` // since the driver was loaded
	// Throttle lists the reasons for which clocks are reduced now, except idleness and application settings.
	Throttle []string `json:"throttle,omitempty"`
	// LinkTxBytes and LinkRxBytes count the payload sent and received over all links to other devices, from an
	// unspecified starting point.
	LinkTxBytes *uint64 `json:"link_tx_bytes,omitempty"`
	LinkRxBytes *uint64 `json:"link_rx_bytes,omitempty"`
}

// UnknownHandle returns the error for a kind of handle that a device does not have.
func UnknownHandle(kind string, handle HandleKind, known []HandleKind) error {
	return fmt.Errorf("%s: no memory handle %q: use one of %v: %w", kind, handle, known, ErrUnsupported)
}

// UnknownEngine returns the error for an engine name that a device does not have.
func UnknownEngine(kind, name string, known []string) error {
	return fmt.Errorf("%s: no engine %q: use one of %v: %w", kind, name, known, ErrUnsupported)
}
