// Package sweep expands a request into a plan and runs the plan. It decides which cells are measured, in which order,
// with how many iterations, and when a cell ends.
//
// A Spec holds the values of the flags. Expand turns it into a Plan, pure data that can be printed without running
// anything. Run executes a plan with a team of workers and returns the document.
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

// Spec is the request.
type Spec struct {
	Subject       worker.Arm   // the transport that is measured
	Baselines     []worker.Arm // measured in the same run, interleaved
	Missing       []Missing    // requested baselines that cannot run on this machine
	Devices       []gpu.Info   // by rank
	Ops           []transport.Op
	Sizes         []uint64      // bytes
	Offset        uint64        // bytes from the start of the allocation to the first message
	Iters         int           // samples per cell; 0: chosen by size
	Warmup        int           // iterations before each cell's samples; -1: chosen by Iters
	Window        int           // messages in flight in stream and bidir; 0: DefaultWindow, fewer if they are large
	DefaultWindow int           // window where Window is 0; 0: the constant DefaultWindow
	MinWindow     int           // smallest window where Window is 0, for messages of any size; 0: one
	Duration      time.Duration // measure each cell this long instead of a number of iterations; 0: off
	Until         float64       // stop a cell when the median is known to this fraction (0.01); 0: off
	Check         transport.Check
	Graph         bool
	Seed          uint64
}

// Missing is a baseline that cannot run on this machine, and the reason.
type Missing struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Plan lists the cells of a run in order, and the memory that they need.
type Plan struct {
	Arms   []worker.Arm `json:"arms"` // the subject first
	Ranks  []gpu.Info   `json:"ranks"`
	Cells  []Cell       `json:"cells"`
	Region uint64       `json:"region_bytes"` // the largest buffer
	// Missing baselines are n/a in every cell.
	Missing []Missing `json:"missing,omitempty"`
	// Bytes is the memory to be allocated on each rank's device, by rank.
	Bytes []uint64 `json:"memory_bytes"`
}

// Cell is one row of the table. With baselines, the iterations are divided into Rounds, and each round runs every arm
// once, in alternating order: A B, B A, A B, and so on.
type Cell struct {
	Op       transport.Op    `json:"op"`
	Size     uint64          `json:"size"`
	Offset   uint64          `json:"offset"`
	Window   int             `json:"window"`
	Warmup   int             `json:"warmup"`
	Iters    int             `json:"iters"` // per arm; the maximum if Until is set, an estimate if Duration is set
	Rounds   int             `json:"rounds"`
	Duration time.Duration   `json:"duration_ns,omitempty"`
	Until    float64         `json:"until,omitempty"`
	Check    transport.Check `json:"check"`
	Graph    bool            `json:"graph,omitempty"`
	Seed     uint64          `json:"seed"`
}

// timed reports whether the cell ends by Duration or Until instead of Iters.
func (c Cell) timed() bool { return c.Duration > 0 || c.Until > 0 }

// Defaults where the flags set no value.
const (
	DefaultWindow = 8
	// Maximum bytes of a default window, so that large sizes fit small machines. A window holds at least one message.
	// These limits do not apply to a window given by the user.
	hostWindowBytes   = 256 << 20
	deviceWindowBytes = 2 << 30
	// Approximate bytes that a cell moves per arm, subject to the limits of samples below.
	hostCellBytes   = 2 << 30
	deviceCellBytes = 16 << 30
	// Approximate number of messages of a cell, unless that gives fewer than tailIters samples.
	cellMessages  = 1 << 18
	tailIters     = 100
	minIters      = 10
	maxIters      = 1000
	maxUntilIters = 100000
	rounds        = 4 // with baselines: A B B A A B B A
)

// Expand makes the plan. Its errors are usage errors and say what would be right.
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
		return fmt.Errorf("no message size: give at least one")
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

// MaxWindow is the maximum number of messages in flight. MaxSlidingWindow is the maximum number of messages per sample
// on a path that keeps only some of them in flight.
const (
	MaxWindow        = 4096
	MaxSlidingWindow = 1 << 16
)

// MaxIters is the maximum number of samples, and of warm-up iterations, of a cell.
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
	limit := uint64(deviceWindowBytes)
	if s.onHost() {
		limit = hostWindowBytes
	}
	window := uint64(cmp.Or(s.DefaultWindow, DefaultWindow))
	return max(int(min(max(limit/max(size, 1), 1), window)), s.MinWindow)
}

func (s Spec) iters(size, window uint64) int {
	budget := uint64(deviceCellBytes)
	if s.onHost() {
		budget = hostCellBytes
	}
	byMessages := max(cellMessages/window, tailIters)
	return int(min(max(budget/max(size*window, 1), minIters), byMessages, maxIters))
}

// memory returns the bytes to be allocated for each rank: the regions of all arms.
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

// Batch returns the cell as a batch without a number of iterations.
func (c Cell) Batch() transport.Batch {
	return transport.Batch{
		Op: c.Op, Size: c.Size, Offset: c.Offset, Window: c.Window, Warmup: c.Warmup, Seed: c.Seed, Check: c.Check,
		Graph: c.Graph,
	}
}

// Fits returns an error if the plan needs more memory than the devices have. free returns the free bytes of a device.
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
			return fmt.Errorf("rank %d: %s needs %s for sizes up to %s, and has %s: use smaller sizes or a smaller --window",
				r, d.Name, gib(need[d.UUID]), knob.FormatSize(p.largest()), gib(have))
		}
	}
	return nil
}

// Without returns the plan without that baseline, which cannot run because of why.
func (p Plan) Without(arm int, why string) Plan {
	p.Missing = append(slices.Clone(p.Missing), Missing{Name: p.Arms[arm].Name, Why: why})
	p.Arms = slices.Delete(slices.Clone(p.Arms), arm, arm+1)
	if len(p.Arms) == 1 {
		p.Cells = slices.Clone(p.Cells)
		for i := range p.Cells {
			p.Cells[i].Rounds = 1
		}
	}
	return p
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
