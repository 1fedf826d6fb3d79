// Package sweep turns what was asked for into a plan, and a plan into records: which cells, in which order, with how
// many iterations, and when to stop.
//
// A Spec is what the flags say. Expand makes it a Plan, pure data that can be printed without running anything. Run
// carries a plan out through a team of workers and returns the document.
package sweep

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Spec is what was asked for.
type Spec struct {
	Subject       worker.Arm   // the transport that is measured
	Baselines     []worker.Arm // measured beside it, interleaved
	Missing       []Missing    // baselines that were asked for and cannot run here
	Devices       []gpu.Info   // by rank
	Ops           []transport.Op
	Sizes         []uint64      // bytes
	Offset        uint64        // bytes from the start of the allocation to the first message
	Iters         int           // samples per cell; 0: by size
	Warmup        int           // iterations before each cell's samples; -1: by iterations
	Window        int           // messages in flight in stream and bidir; 0: DefaultWindow, fewer if they are large
	DefaultWindow int           // window where Window is 0; 0: the constant DefaultWindow
	MinWindow     int           // least window where Window is 0, however large the messages; 0: one
	Duration      time.Duration // measure each cell this long instead of a number of iterations; 0: do not
	Until         float64       // stop a cell when the median is known to this fraction (0.01); 0: do not
	Check         transport.Check
	Graph         bool
	Seed          uint64
}

// Missing is a baseline that cannot run here, and why.
type Missing struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Plan is the cells of a run, in order, and what they need.
type Plan struct {
	Arms   []worker.Arm `json:"arms"` // the subject first
	Ranks  []gpu.Info   `json:"ranks"`
	Cells  []Cell       `json:"cells"`
	Region uint64       `json:"region_bytes"` // the largest buffer
	// Missing baselines become n/a in every cell.
	Missing []Missing `json:"missing,omitempty"`
	// Bytes is the memory that rank 0's and rank 1's … device will hold, by rank.
	Bytes []uint64 `json:"memory_bytes"`
}

// Cell is one combination to measure. With baselines, the iterations come in Rounds, and in each round every arm has
// its turn: A B, B A, A B …
type Cell struct {
	Op       transport.Op    `json:"op"`
	Size     uint64          `json:"size"`
	Offset   uint64          `json:"offset"`
	Window   int             `json:"window"`
	Warmup   int             `json:"warmup"`
	Iters    int             `json:"iters"` // per arm; the most when Until is set, a guess when Duration is
	Rounds   int             `json:"rounds"`
	Duration time.Duration   `json:"duration_ns,omitempty"`
	Until    float64         `json:"until,omitempty"`
	Check    transport.Check `json:"check"`
	Graph    bool            `json:"graph,omitempty"`
	Seed     uint64          `json:"seed"`
}

// timed reports whether the clock, or precision, says when the cell ends.
func (c Cell) timed() bool { return c.Duration > 0 || c.Until > 0 }

// What a plan takes where the flags are silent.
const (
	DefaultWindow = 8
	// A window of messages holds at most this many bytes, so that the large sizes fit small machines; one message
	// always does. A window given by the user is taken as it is.
	hostWindowBytes   = 256 << 20
	deviceWindowBytes = 2 << 30
	// A cell moves about this many bytes per arm, within the limits of samples below.
	hostCellBytes   = 2 << 30
	deviceCellBytes = 16 << 30
	// … and has about this many messages, or enough samples for a p99.
	cellMessages  = 1 << 18
	tailIters     = 100
	minIters      = 10
	maxIters      = 1000
	maxUntilIters = 100000
	rounds        = 4 // with baselines: A B B A A B B A
)

// Expand makes the plan. Its errors are the user's to mend and say how.
func Expand(s Spec) (Plan, error) {
	if err := s.validate(); err != nil {
		return Plan{}, err
	}
	p := Plan{Arms: append([]worker.Arm{s.Subject}, s.Baselines...), Ranks: s.Devices, Missing: s.Missing}
	for _, op := range s.Ops {
		for _, size := range s.Sizes {
			c := s.cell(op, size)
			p.Cells = append(p.Cells, c)
			p.Region = max(p.Region, c.Batch().Region())
		}
	}
	p.Bytes = s.memory(p.Region)
	return p, nil
}

func (s Spec) validate() error {
	switch {
	case len(s.Ops) == 0:
		return fmt.Errorf("no operation: use some of %v", transport.Ops)
	case len(s.Sizes) == 0:
		return fmt.Errorf("no size")
	case s.Iters < 0 || s.Iters > MaxIters:
		return fmt.Errorf("%d iterations: want 1 to %d", s.Iters, MaxIters)
	case s.Warmup < -1 || s.Warmup > MaxIters:
		return fmt.Errorf("%d warm-up iterations: want 0 to %d", s.Warmup, MaxIters)
	case s.Window < 0 || s.Window > MaxWindow:
		return fmt.Errorf("window %d: want 1 to %d", s.Window, MaxWindow)
	case s.DefaultWindow < 0 || s.DefaultWindow > MaxSlidingWindow:
		return fmt.Errorf("window %d: want 1 to %d", s.DefaultWindow, MaxSlidingWindow)
	case s.MinWindow < 0 || s.MinWindow > MaxSlidingWindow:
		return fmt.Errorf("window %d: want 1 to %d", s.MinWindow, MaxSlidingWindow)
	case !(s.Until >= 0 && s.Until < 1): // a NaN is neither
		return fmt.Errorf("stop at an interval of %g: want a fraction above 0 and below 1, such as 1%%", s.Until)
	case s.Duration > 0 && s.Iters > 0:
		return fmt.Errorf("a number of iterations and a duration: give one of them")
	case s.Duration > 0 && s.Until > 0:
		return fmt.Errorf("a duration and a target precision: give one of them")
	}
	for _, op := range s.Ops {
		if !slices.Contains(transport.Ops, op) {
			return fmt.Errorf("no operation %q: use some of %v", op, transport.Ops)
		}
	}
	return nil
}

// MaxWindow bounds the messages in flight. MaxSlidingWindow bounds the messages per sample of a path that keeps only a
// part of them in flight at a time.
const (
	MaxWindow        = 4096
	MaxSlidingWindow = 1 << 16
)

// MaxIters bounds the samples and the warm-up of a cell.
const MaxIters = 1 << 28

func (s Spec) cell(op transport.Op, size uint64) Cell {
	c := Cell{
		Op: op, Size: size, Offset: s.Offset, Window: s.window(op, size), Check: s.Check, Graph: s.Graph, Seed: s.Seed,
		Duration: s.Duration, Until: s.Until, Rounds: 1,
	}
	c.Iters = s.Iters
	if c.Iters == 0 {
		c.Iters = s.iters(size, uint64(c.Window))
	}
	if s.Until > 0 && s.Iters == 0 {
		c.Iters = maxUntilIters
	}
	c.Warmup = s.Warmup
	if c.Warmup < 0 {
		c.Warmup = min(max(c.Iters/20, 2), 50)
	}
	if len(s.Baselines) > 0 {
		c.Rounds = min(rounds, c.Iters)
	}
	return c
}

func (s Spec) onHost() bool { return s.Devices[0].OnCPU() }

func (s Spec) window(op transport.Op, size uint64) int {
	if op == transport.OpLatency || op == transport.OpPingPong {
		return 1
	}
	if s.Window > 0 {
		return s.Window
	}
	most := uint64(deviceWindowBytes)
	if s.onHost() {
		most = hostWindowBytes
	}
	window := uint64(cmp.Or(s.DefaultWindow, DefaultWindow))
	return max(int(min(max(most/max(size, 1), 1), window)), s.MinWindow)
}

func (s Spec) iters(size, window uint64) int {
	budget := uint64(deviceCellBytes)
	if s.onHost() {
		budget = hostCellBytes
	}
	byMessages := max(cellMessages/window, tailIters)
	return int(min(max(budget/max(size*window, 1), minIters), byMessages, maxIters))
}

// memory counts what each rank's device will hold: what every arm asks for, though one process may own it all.
func (s Spec) memory(region uint64) []uint64 {
	var buffers uint64
	for _, a := range append([]worker.Arm{s.Subject}, s.Baselines...) {
		n := a.Regions
		if n == 0 {
			n = 2
		}
		buffers += uint64(n)
	}
	need := uint64(math.MaxUint64)
	if region <= math.MaxUint64/buffers {
		need = buffers * region
	}
	out := make([]uint64, len(s.Devices))
	for r := range out {
		out[r] = need
	}
	return out
}

// Batch is the cell as a batch, but for the number of iterations.
func (c Cell) Batch() transport.Batch {
	return transport.Batch{
		Op: c.Op, Size: c.Size, Offset: c.Offset, Window: c.Window, Warmup: c.Warmup, Seed: c.Seed, Check: c.Check,
		Graph: c.Graph,
	}
}

// Fits says whether the devices have room for the plan. free tells how many bytes a device has.
func (p Plan) Fits(free func(gpu.Info) (uint64, error)) error {
	need := map[string]uint64{}
	for r, d := range p.Ranks {
		sum, carry := bits.Add64(need[d.UUID], p.Bytes[r], 0)
		if carry != 0 {
			sum = math.MaxUint64
		}
		need[d.UUID] = sum
	}
	for r, d := range p.Ranks {
		have, err := free(d)
		if err != nil {
			return err
		}
		if need[d.UUID] > have {
			return fmt.Errorf("rank %d: %s would need %s for sizes up to %s, and has %s: use smaller sizes or a smaller --window",
				r, d.Name, gib(need[d.UUID]), knob.FormatSize(p.largest()), gib(have))
		}
	}
	return nil
}

func (p Plan) missing() []record.Vs {
	var out []record.Vs
	for _, m := range p.Missing {
		out = append(out, record.Vs{Name: m.Name, NA: m.Why})
	}
	return out
}

func (p Plan) largest() uint64 {
	var n uint64
	for _, c := range p.Cells {
		n = max(n, c.Size)
	}
	return n
}

func gib(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
