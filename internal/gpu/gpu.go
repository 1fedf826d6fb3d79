// Package gpu says what a device is and how one is found: a GPU, or CPU memory playing one.
//
// The package holds interfaces and plain data only. Implementations stand below it (host, cuda); the command names
// the concrete ones. What not every device has (memory handles of some kind, health counters) is a small interface
// of its own, found by type assertion; a device that lacks it answers with an error that wraps [ErrUnsupported].
package gpu

import (
	"errors"
	"fmt"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// ErrUnsupported is wrapped by every error that says "this machine, driver or device cannot do that", as opposed to
// "that failed".
var ErrUnsupported = errors.New("unsupported")

// Info identifies a device. Kind and UUID together name it in any process of the machine; Index does not, since
// processes may see different subsets in different order.
type Info struct {
	Kind   string `json:"kind"`             // "cuda", "hip" or "host"
	Index  int    `json:"index"`            // ordinal in the process that asked
	Name   string `json:"name"`             // "NVIDIA H200"
	UUID   string `json:"uuid"`             // "GPU-3f0c…"; host: "host-0"
	PCI    string `json:"pci,omitempty"`    // "0000:3b:00.0"
	Arch   string `json:"arch,omitempty"`   // "sm_90"
	NUMA   int    `json:"numa"`             // NUMA node, -1 if unknown
	Memory uint64 `json:"memory"`           // bytes in all
	CTAs   int    `json:"ctas,omitempty"`   // thread blocks of a kernel that are sure to run at once; 0: not known
	Driver string `json:"driver,omitempty"` // "580.159.04 (CUDA 13.0)"
	Warp   int    `json:"warp,omitempty"`   // threads of a block that run in step; 1 on a CPU; 0: it runs no kernels
	// CopyEngine names the engine that copies without a kernel, on a stream of its own where the device has streams.
	CopyEngine string `json:"copy_engine,omitempty"`
}

// Same reports whether a and b are one physical device.
func (i Info) Same(b Info) bool { return i.Kind == b.Kind && i.UUID == b.UUID }

// KindHost is the kind of CPU memory.
const KindHost = "host"

// OnCPU reports whether the device is CPU memory: CPUs read it, several ranks may share it, and threads of the CPU play
// its kernels.
func (i Info) OnCPU() bool { return i.Kind == KindHost }

// Link describes the way from one device to another.
type Link struct {
	Type   string `json:"type"`             // what people call it: "NVLink", "PCIe", "same GPU", "CPU memory"
	Count  int    `json:"count,omitempty"`  // links side by side, where the type has a number of them
	Peer   bool   `json:"peer"`             // direct loads and stores are possible
	Detail string `json:"detail,omitempty"` // "18 × NVLink 4, 26.562 GB/s each"
	// Counted says that the devices' Health counts what goes this way, at least all of the payload.
	Counted bool `json:"counted,omitempty"`
}

// Driver finds the devices of one kind.
type Driver interface {
	// Kind is the name users give after --device.
	Kind() string
	// Devices lists what this process can see. The error wraps ErrUnsupported, with the cause in words and what
	// would help, when the machine has no such driver or device.
	Devices() ([]Info, error)
	// Accepts says, without opening anything, whether that device has an engine and a kind of handle of these names;
	// "" and "auto" always. The error names what there is and wraps ErrUnsupported.
	Accepts(i Info, engine string, handle HandleKind) error
	// Open makes the device of that UUID usable in this process.
	Open(uuid string) (Device, error)
	// Link describes the way between two devices of this driver.
	Link(a, b Info) Link
}

// Device is an opened device. Methods may be called from any goroutine, one at a time.
type Device interface {
	Info() Info
	// Alloc returns a buffer of at least bytes bytes for this process alone; what another one shall map comes from
	// Memory.
	Alloc(bytes uint64) (Buffer, error)
	// Free says how many bytes Alloc could still hand out.
	Free() (uint64, error)
	// Engines names the ways this device can copy. The first is what "auto" means on a device that is no Chooser.
	Engines() []string
	// Engine opens one of them. An unknown name is an error that lists the known ones.
	Engine(name string) (Engine, error)
	// Memory opens the device's memory of that kind of handle, which is how processes share memory: timed loops
	// allocate, export and map through its table as they go. HandleAuto lets the device choose.
	Memory(kind HandleKind) (Memory, error)
	// Reaches reports whether this device's engines can read and write that device's memory directly.
	Reaches(other Info) bool
	// StoresLines is nil if an aligned line of 128 bytes, which eight neighbouring threads of a kernel store into that
	// device's memory by one instruction, arrives there in one piece. Else the error says why, and wraps ErrUnsupported.
	StoresLines(to Info) error
	// Close releases the device; buffers, memories and engines must be closed before.
	Close() error
}

// Buffer is a piece of device memory. The zero-size buffer is not a buffer: Alloc rounds up.
type Buffer interface {
	// Addr is the address the device uses, valid in this process.
	Addr() uintptr
	// Size is in bytes.
	Size() uint64
	// Close frees the memory. A second Close does nothing.
	Close() error
}

// Memory is memory of a device that can be shared between processes by one kind of handle.
type Memory interface {
	// Kind is the kind that it was opened with, or the choice that "auto" made, and why.
	Kind() (kind HandleKind, why string)
	// Table is the memory as timed loops use it; valid until Close.
	Table() *abi.Memory
	// Close releases and unmaps whatever is left.
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
	HandleFabric HandleKind = "fabric" // cuda: cuMemExportToShareableHandle, 64 bytes that other nodes can open too
)

// EngineCE is the name of the copy engine on the devices that have one, whoever made them.
const EngineCE = "ce"

// Engine is one way of copying on a device, with a stream of its own where the device has streams.
type Engine interface {
	// Name is the name it was opened by, or the choice that "auto" made.
	Name() string
	// Table is the engine as the timed loops call it; valid until Close.
	Table() *abi.Engine
	Close() error
}

// Launcher is implemented by devices that run kernels, or play doing so.
type Launcher interface {
	// Queue opens a queue of its own.
	Queue() (Queue, error)
}

// Queue is work of a device that is done in order while the host goes on: kernels, copies, words that are written and
// waited for.
type Queue interface {
	// Table is the queue as the timed loops use it; valid until Close.
	Table() *abi.Queue
	// Close releases the queue, which must be idle. A second Close does nothing.
	Close() error
}

// Recorder is implemented by devices that can record what a library puts on a stream of theirs.
type Recorder interface {
	// Recorder is the device's table for it, valid until the process ends.
	Recorder() (*abi.Recorder, error)
}

// Inspector is implemented by devices that can tell how their kernels were compiled.
type Inspector interface {
	// Kernels describes every kernel of the device, as its driver loaded it.
	Kernels() ([]Kernel, error)
}

// Kernel is a kernel as the driver loaded it.
type Kernel struct {
	Name      string `json:"name"`
	Registers int    `json:"registers"`    // of a thread
	Local     int    `json:"local_bytes"`  // of a thread: spilled registers and arrays, in device memory
	Shared    int    `json:"shared_bytes"` // of a block, declared
	Threads   int    `json:"max_threads"`  // of a block
	Target    string `json:"target"`       // of the image that it is from: "sm_90"
}

// DMABufs is implemented by devices whose memory devices of other kinds can reach by a dma-buf.
type DMABufs interface {
	// DMABuf makes a descriptor of a buffer of this device, from its first byte on; it is the caller's to close. The
	// error wraps ErrUnsupported where driver or kernel cannot.
	DMABuf(b Buffer) (fd int, err error)
}

// Chooser is implemented by devices on which "auto" is a choice between engines, by measurement and for each size.
type Chooser interface {
	// Candidates names the engines to choose from; the first is kept where another is not clearly faster.
	Candidates() []string
}

// Waiter is implemented by devices that wait on their own, as where an engine that is opened tries itself out.
type Waiter interface {
	// WaitWith gives such waits of engines opened from now on the deadline and the progress page of x, with the
	// parent's order to stop on it. x must outlive the engines.
	WaitWith(x *abi.Ctx)
}

// Monitor is implemented by devices that can say how they are.
type Monitor interface {
	Health() (Health, error)
}

// Health is a snapshot of a device's state. Absent values are nil: the machine does not tell.
type Health struct {
	SMClockMHz    *uint32  `json:"sm_clock_mhz,omitempty"`
	MaxSMClockMHz *uint32  `json:"max_sm_clock_mhz,omitempty"`
	MemClockMHz   *uint32  `json:"mem_clock_mhz,omitempty"`
	TemperatureC  *uint32  `json:"temperature_c,omitempty"`
	PowerW        *float64 `json:"power_w,omitempty"`
	ECCErrors     *uint64  `json:"ecc_uncorrected,omitempty"` // since the driver was loaded
	// Throttle lists the reasons for which clocks are held down now, other than being idle or asked to.
	Throttle []string `json:"throttle,omitempty"`
	// LinkTxBytes and LinkRxBytes count payload sent and received over all links to other devices since some moment in the past.
	LinkTxBytes *uint64 `json:"link_tx_bytes,omitempty"`
	LinkRxBytes *uint64 `json:"link_rx_bytes,omitempty"`
}

// UnknownHandle is the error for a kind of handle a device does not have.
func UnknownHandle(kind string, handle HandleKind, known []HandleKind) error {
	return fmt.Errorf("%s: no memory handle %q: use one of %v: %w", kind, handle, known, ErrUnsupported)
}

// UnknownEngine is the error for an engine name a device does not have.
func UnknownEngine(kind, name string, known []string) error {
	return fmt.Errorf("%s: no engine %q: use one of %v: %w", kind, name, known, ErrUnsupported)
}
