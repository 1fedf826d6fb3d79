// Package transport defines the interfaces between the measurement and the packages that move bytes between ranks.
//
// Each rank opens a Transport, which returns an Endpoint. Endpoints exchange addresses as opaque bytes, connect, and
// then run batches. A batch is one call: C code runs the warm-up and all iterations of a size and stores the samples in
// a slice of the caller. There is no Go call per message.
//
// The package holds interfaces and plain data only. Implementations are in the packages below it; each passes the suite
// in package transporttest, and the command lists them.
package transport

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Op is an operation. docs/measurement.md defines the samples of each operation.
type Op string

// The operations.
const (
	OpLatency  Op = "latency"  // one message, rank 0 → rank 1, until rank 0 knows that rank 1 has received it
	OpStream   Op = "stream"   // a window of messages, rank 0 → rank 1, until rank 0 knows that rank 1 has received all
	OpBidir    Op = "bidir"    // a window in each direction at the same time, until both ranks have received all
	OpPingPong Op = "pingpong" // half the round-trip time of a message
)

// Ops lists the operations in the order of the tables.
var Ops = []Op{OpLatency, OpStream, OpBidir, OpPingPong}

// Env is the environment in which a rank opens a transport.
type Env struct {
	Run     string                             // names the run; unique on this host
	Rank    int                                // this process
	Devices []gpu.Info                         // the device of every rank
	Device  gpu.Device                         // this rank's, opened
	Open    func(gpu.Info) (gpu.Device, error) // opens another rank's device in this process; the caller closes it
	Wait    *abi.Ctx                           // clock, progress page and deadline for every wait
	CPUs    []int                              // by rank: CPU of the timing thread; -1: not pinned
	Region  uint64                             // largest Batch.Region of the run
	Timeout time.Duration                      // longest wait without progress
}

// Transport moves messages between ranks.
type Transport interface {
	// Probe returns nil if the transport can run between these devices on this machine. Its error states the cause, and
	// wraps gpu.ErrUnsupported if the machine cannot run the transport.
	Probe(devices []gpu.Info) error
	// Accepts returns an error if these devices cannot run the batch, as far as that is known before anything is
	// opened. It ignores the number of iterations. The error says what can be run instead.
	Accepts(devices []gpu.Info, b Batch) error
	// Ranks returns the ranks, of n, that run a batch. For a baseline in one process they are [0].
	Ranks(n int) []int
	// Open allocates the resources of this rank.
	Open(ctx context.Context, env Env) (Endpoint, error)
}

// Endpoint is one rank's end of a transport.
type Endpoint interface {
	// Address returns the data that other ranks need for Connect; nil: none.
	Address() []byte
	// Connect connects to the other ranks; peers[r] is rank r's Address.
	Connect(ctx context.Context, peers [][]byte) error
	// Describe returns what will run in fact. It is valid after Connect.
	Describe() Path
	// Run runs one batch on this rank. All ranks of Transport.Ranks call it with the same batch.
	Run(ctx context.Context, b Batch, samples []int64) (Result, error)
	// Counters returns the values of the counters in Path.Counters: counts since Connect, and current values of the
	// others. A counter that does not apply is absent.
	Counters() map[string]uint64
	// Close releases all resources, also after a failed Connect or Run.
	Close() error
}

// Faults is the name of the counter of injected faults that took effect.
const Faults = "faults"

// Path describes what runs in fact, which may differ from the request.
type Path struct {
	Path       string            `json:"path"`                // "direct"
	Engine     string            `json:"engine"`              // "ce"
	Completion string            `json:"completion"`          // completion point of latency, stream and bidir
	Knobs      map[string]string `json:"knobs,omitempty"`     // effective settings, by flag name
	ExportUS   *float64          `json:"export_us,omitempty"` // cold costs of this endpoint, µs
	OpenUS     *float64          `json:"open_us,omitempty"`
	ConnectUS  *float64          `json:"connect_us,omitempty"`
	// ThroughHost means that the payload goes through CPU memory or a NIC and not over a link between the devices.
	ThroughHost bool `json:"through_host,omitempty"`
	// Ways is the number of pairs of ranks that transfer a window each at the same time in stream; 0: one.
	Ways int `json:"ways,omitempty"`
	// Warnings say where this rank deviates from the request, and why.
	Warnings []string `json:"warnings,omitempty"`
	// Counters describe the endpoint's counters.
	Counters Counters `json:"counters,omitempty"`
	// Over names, for the titles of tables, what carries the payload if that is not the link between the devices: "NIC
	// mlx5_0", "MTU 4096".
	Over []string `json:"over,omitempty"`
	// OnlyRatios says why absolute figures are meaningless and only ratios within one run count; "": figures are valid.
	OnlyRatios string `json:"only_ratios,omitempty"`
	// Notes are lines below the tables.
	Notes []Note `json:"notes,omitempty"`
}

// Note is a line below the tables.
type Note struct {
	Label string `json:"label"` // one word
	Text  string `json:"text"`
}

// Since returns the time since begin in µs, for the cold costs of Path.
func Since(begin time.Time) *float64 {
	return new(float64(time.Since(begin)) / float64(time.Microsecond))
}

// Check says how much of the payload the receiver compares, outside the timed part.
type Check string

// The kinds of check.
const (
	CheckFull   Check = "full"   // every byte of every message
	CheckSample Check = "sample" // every byte of the last iteration, a sample of the others
	CheckOff    Check = "off"    // nothing
)

// Batch is the work of one call of Endpoint.Run.
type Batch struct {
	Op     Op     `json:"op"`
	Size   uint64 `json:"size"`   // bytes of a message
	Offset uint64 `json:"offset"` // bytes from the start of the allocation to the first message
	Window int    `json:"window"` // messages in flight; 1 for latency and pingpong
	Warmup int    `json:"warmup"` // iterations before the samples, at least 0
	Iters  int    `json:"iters"`  // samples, at least 1; one per window in stream and bidir
	First  uint64 `json:"first"`  // number of the first iteration; numbers are unique in a cell
	Seed   uint64 `json:"seed"`
	Cell   uint64 `json:"cell"` // index of the cell in the run; payloads differ between cells and between operations
	Check  Check  `json:"check"`
	Graph  bool   `json:"graph"` // launch each window's copies as one recorded graph
	// Barrier is the number, from 1, of the barrier at which all ranks start; 0: no barrier.
	Barrier uint64 `json:"barrier"`
}

// slotAlign, in bytes, keeps the messages of a window on separate pages of the GPU's copy engine and separate cache
// lines.
const slotAlign = 512

// Stride is the distance in bytes between messages of a window.
func (b Batch) Stride() uint64 { return (b.Size + slotAlign - 1) / slotAlign * slotAlign }

// Region returns the size in bytes of the buffer that the batch needs on each rank; math.MaxUint64 on overflow.
func (b Batch) Region() uint64 {
	high, low := bits.Mul64(b.Stride(), uint64(max(b.Window, 1)))
	sum, carry := bits.Add64(low, b.Offset, 0)
	if high != 0 || carry != 0 || b.Stride() < b.Size {
		return math.MaxUint64
	}
	return sum
}

// Result is the result of a batch on one rank.
type Result struct {
	// Entered is the CLOCK_MONOTONIC_RAW time in ns at which this rank left the barrier.
	Entered int64 `json:"entered"`
	// FirstNS is the duration of the first iteration, including warm-up iterations; 0 on a rank that takes no samples.
	FirstNS int64 `json:"first_ns"`
	// Samples is the number of samples stored: Batch.Iters, or 0 on a rank that does not time.
	Samples int `json:"samples"`
	// Engine is the engine that moved the messages, if the path chooses by size; "": Path.Engine.
	Engine string `json:"engine,omitempty"`
	// Checked is the number of payload bytes compared.
	Checked uint64 `json:"checked"`
	// Conns are the connections over which this rank sent; nil if the path has no connections.
	Conns []ConnStat `json:"conns,omitempty"`
}

// ConnStat holds the statistics of one connection in the samples of a batch.
type ConnStat struct {
	Rank     int    `json:"rank"` // the sender
	Conn     int    `json:"conn"` // index among the sender's connections
	Messages uint64 `json:"messages"`
	// BusyNS is the sum over samples of the time from the start of a sample to the connection's last completion in it.
	BusyNS int64 `json:"busy_ns"`
	// Latency is a histogram of the time from post to completion at the sender: {ns, count} in ascending order of ns,
	// with a relative error of at most 1/32.
	Latency [][2]int64 `json:"latency"`
}

// CorruptError reports a wrong payload byte at the receiver.
type CorruptError struct {
	Path      string `json:"path"`
	Op        Op     `json:"op"`
	Size      uint64 `json:"size"`
	Iteration uint64 `json:"iteration"` // Batch.First + index, warm-up included
	Slot      int    `json:"slot"`      // message within the window
	Offset    uint64 `json:"offset"`    // offset of the first wrong byte in the message
	Expected  byte   `json:"expected"`
	Got       byte   `json:"got"`
	Count     uint64 `json:"count"` // number of wrong bytes in the message
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("data corruption: %s %s, size %d, iteration %d, message %d: offset %d expected 0x%02x, got 0x%02x (%d bytes wrong)",
		e.Path, e.Op, e.Size, e.Iteration, e.Slot, e.Offset, e.Expected, e.Got, e.Count)
}
