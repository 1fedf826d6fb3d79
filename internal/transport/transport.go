// Package transport says what a path is: a way to move bytes from one rank to another that can be timed.
//
// A Transport is opened once per rank and gives an Endpoint; endpoints exchange addresses as opaque bytes, connect,
// and then run batches. A batch is one call: warm-up and all iterations of a size run inside it, in C, and every
// sample lands in a slice of the caller's. There is no Go call per message.
//
// The package holds interfaces and plain data only. Implementations stand below it; each passes the suite in
// transporttest; the command names the concrete ones.
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

// Op is an operation that can be timed. docs/measurement.md defines what each one's samples mean.
type Op string

// The operations.
const (
	OpLatency  Op = "latency"  // one message in flight, rank 0 → rank 1, until rank 0 knows that rank 1 has it
	OpStream   Op = "stream"   // a window of messages, rank 0 → rank 1, until rank 0 knows that rank 1 has all
	OpBidir    Op = "bidir"    // a window each way at the same time, until both ranks have all
	OpPingPong Op = "pingpong" // there and back, halved
)

// Ops lists the operations in the order in which tables show them.
var Ops = []Op{OpLatency, OpStream, OpBidir, OpPingPong}

// Env is what a rank has when it opens a transport.
type Env struct {
	Run     string                             // names the run; unique on this host
	Rank    int                                // this process
	Devices []gpu.Info                         // the device of every rank
	Device  gpu.Device                         // this rank's, opened
	Open    func(gpu.Info) (gpu.Device, error) // opens another rank's device in this process; the caller closes it
	Wait    *abi.Ctx                           // clock, progress page and deadline for every wait
	CPUs    []int                              // that each rank's timing thread is pinned to; -1: it is not
	Region  uint64                             // bytes the largest batch needs at each end: Batch.Region()
	Timeout time.Duration                      // longest wait without progress
}

// Transport is one path.
type Transport interface {
	// Probe says whether the transport can run between these devices on this machine: nil, or an error with the
	// cause in words that wraps gpu.ErrUnsupported when the answer is no.
	Probe(devices []gpu.Info) error
	// Accepts says, before anything is opened, whether these devices can run the batch, by all that is known of them
	// beforehand; how many iterations it has does not count. The error says what could be run instead.
	Accepts(devices []gpu.Info, b Batch) error
	// Ranks says which ranks take part in a batch; a single-process baseline answers [0].
	Ranks(n int) []int
	// Open allocates what this rank needs.
	Open(ctx context.Context, env Env) (Endpoint, error)
}

// Endpoint is one rank's end of a transport.
type Endpoint interface {
	// Address is what the other ranks need to reach this one. nil: they need nothing.
	Address() []byte
	// Connect reaches the other ranks; peers[r] is rank r's Address.
	Connect(ctx context.Context, peers [][]byte) error
	// Describe tells what will really run. Valid after Connect.
	Describe() Path
	// Run runs one batch on this rank; every rank in Transport.Ranks calls it with the same batch.
	Run(ctx context.Context, b Batch, samples []int64) (Result, error)
	// Counters returns the values of the counters that Describe describes: counts since Connect, all others as they are
	// now. A counter that does not apply is absent.
	Counters() map[string]uint64
	// Close releases everything, also after a failed Connect or Run.
	Close() error
}

// Faults is the counter of how often a fault that was asked for struck.
const Faults = "faults"

// Path is what really runs, as opposed to what was asked for.
type Path struct {
	Path       string            `json:"path"`                // "direct"
	Engine     string            `json:"engine"`              // "ce"
	Completion string            `json:"completion"`          // completion point of latency, stream and bidir
	Knobs      map[string]string `json:"knobs,omitempty"`     // settings in force, by flag name
	ExportUS   *float64          `json:"export_us,omitempty"` // cold costs of this endpoint, µs
	OpenUS     *float64          `json:"open_us,omitempty"`
	ConnectUS  *float64          `json:"connect_us,omitempty"`
	// ThroughHost says that the payload goes through CPU memory or a NIC: links between the devices do not carry it.
	ThroughHost bool `json:"through_host,omitempty"`
	// Ways is how many pairs of ranks carry a window each at the same time in stream; 0: one.
	Ways int `json:"ways,omitempty"`
	// Warnings say where this rank does something else than was asked for, and why.
	Warnings []string `json:"warnings,omitempty"`
	// Counters describe the endpoint's counters.
	Counters Counters `json:"counters,omitempty"`
	// Over names what carries the payload where it is not the link between the devices, for the titles of tables:
	// "NIC mlx5_0", "MTU 4096".
	Over []string `json:"over,omitempty"`
	// OnlyRatios says why nothing but ratios within one run means anything; "": absolute figures do.
	OnlyRatios string `json:"only_ratios,omitempty"`
	// Notes stand below the tables.
	Notes []Note `json:"notes,omitempty"`
}

// Note is a line below the tables.
type Note struct {
	Label string `json:"label"` // one word
	Text  string `json:"text"`
}

// Since is the time since begin in µs, as Path has its cold costs.
func Since(begin time.Time) *float64 {
	return new(float64(time.Since(begin)) / float64(time.Microsecond))
}

// Check says how much of the payload is compared on the receiver, outside the timed part.
type Check string

// The kinds of check.
const (
	CheckFull   Check = "full"   // every byte of every message
	CheckSample Check = "sample" // every byte of the last iteration, a sample of the others
	CheckOff    Check = "off"    // nothing
)

// Batch is one call's worth of work.
type Batch struct {
	Op     Op     `json:"op"`
	Size   uint64 `json:"size"`   // bytes of a message
	Offset uint64 `json:"offset"` // bytes from the start of the allocation to the first message
	Window int    `json:"window"` // messages in flight; 1 for latency and pingpong
	Warmup int    `json:"warmup"` // iterations before the samples, at least 0
	Iters  int    `json:"iters"`  // samples, at least 1; one per window in stream and bidir
	First  uint64 `json:"first"`  // number of the first iteration; iterations of a cell never repeat a number
	Seed   uint64 `json:"seed"`
	Cell   uint64 `json:"cell"` // its number in the run: payloads of two cells differ, and so do those of two operations
	Check  Check  `json:"check"`
	Graph  bool   `json:"graph"` // start each window's copies as one recorded unit
	// Barrier is the number, counted from 1, of the barrier from which all ranks start together; 0: there is none.
	Barrier uint64 `json:"barrier"`
}

// slotAlign keeps the messages of a window on separate pages of the GPU's copy engine and separate cache lines.
const slotAlign = 512

// Stride is the distance in bytes between two messages of a window.
func (b Batch) Stride() uint64 { return (b.Size + slotAlign - 1) / slotAlign * slotAlign }

// Region is how many bytes the batch touches at each end; math.MaxUint64 when that is more than a uint64 holds.
func (b Batch) Region() uint64 {
	high, low := bits.Mul64(b.Stride(), uint64(max(b.Window, 1)))
	sum, carry := bits.Add64(low, b.Offset, 0)
	if high != 0 || carry != 0 || b.Stride() < b.Size {
		return math.MaxUint64
	}
	return sum
}

// Result is one rank's account of a batch.
type Result struct {
	// Entered is the CLOCK_MONOTONIC_RAW time in ns at which this rank left the barrier.
	Entered int64 `json:"entered"`
	// FirstNS is the duration of the first iteration, warm-up or not; 0 on a rank that takes no samples.
	FirstNS int64 `json:"first_ns"`
	// Samples is how many of the caller's samples were filled: Batch.Iters, or 0 on a rank that only answers.
	Samples int `json:"samples"`
	// Engine is what moved the messages, where the path chooses by size; "": what Path says.
	Engine string `json:"engine,omitempty"`
	// Checked counts the payload bytes that were compared.
	Checked uint64 `json:"checked"`
	// Conns are the connections over which this rank sent; nil: the path has none of its own.
	Conns []ConnStat `json:"conns,omitempty"`
}

// ConnStat is what one connection did in the samples of a batch.
type ConnStat struct {
	Rank     int    `json:"rank"` // that sends
	Conn     int    `json:"conn"` // its number among that rank's
	Messages uint64 `json:"messages"`
	// BusyNS is the time from the start of each sample to the connection's last completion in it, added up.
	BusyNS int64 `json:"busy_ns"`
	// Latency counts the messages by how long each took from its post to its completion at the sender: {ns, count}, ns
	// ascending. Values are at most 1/32 from the true ones.
	Latency [][2]int64 `json:"latency"`
}

// CorruptError reports a payload that arrived wrong.
type CorruptError struct {
	Path      string `json:"path"`
	Op        Op     `json:"op"`
	Size      uint64 `json:"size"`
	Iteration uint64 `json:"iteration"` // Batch.First + index, warm-up included
	Slot      int    `json:"slot"`      // message within the window
	Offset    uint64 `json:"offset"`    // of the first wrong byte within the message
	Expected  byte   `json:"expected"`
	Got       byte   `json:"got"`
	Count     uint64 `json:"count"` // wrong bytes in the message
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("data corruption: %s %s, size %d, iteration %d, message %d: offset %d expected 0x%02x, got 0x%02x (%d bytes wrong)",
		e.Path, e.Op, e.Size, e.Iteration, e.Slot, e.Offset, e.Expected, e.Got, e.Count)
}
