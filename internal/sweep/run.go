package sweep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Team runs batches on workers.
type Team interface {
	Run(ctx context.Context, arm int, ranks []int, b transport.Batch) (worker.Outcome, error)
	Finish(ctx context.Context) ([]float64, error)
}

// Job is a plan with connected workers and their descriptions.
type Job struct {
	Plan   Plan
	Team   Team
	Opened []worker.Opened    // by rank
	Paths  [][]transport.Path // by arm, then rank
	Ranks  [][]int            // by arm: the ranks that it uses
	Link   gpu.Link           // from rank 0's to rank 1's device
	Began  time.Time          // start of the process
	// Throttled counts the periods in which the CPU quota of this process's control groups was exhausted; nil: no
	// quota.
	Throttled func() uint64
	// Progress is called at the start of each cell; may be nil.
	Progress func(cell, cells int, c Cell)
}

// Run runs the plan. After an error the document holds the cells measured so far.
func (j Job) Run(ctx context.Context) (record.Document, error) {
	doc := record.Document{Schema: record.Schema, Env: j.environment(), Transports: j.transports(), Cells: []record.Cell{}, Warnings: []string{}}
	for _, o := range j.Opened {
		doc.Warnings = append(doc.Warnings, o.Warnings...)
	}
	for _, path := range slices.Concat(j.Paths...) {
		for _, text := range path.Warnings {
			if !slices.Contains(doc.Warnings, text) { // ranks and arms often have the same warning
				doc.Warnings = append(doc.Warnings, text)
			}
		}
	}
	health := make([]*gpu.Health, len(j.Opened))
	for r, o := range j.Opened {
		health[r] = o.Health
	}
	counted := make([]map[string]uint64, len(j.Plan.Arms))
	for arm := range counted {
		counted[arm] = map[string]uint64{}
	}
	for i, c := range j.Plan.Cells {
		if j.Progress != nil {
			j.Progress(i, len(j.Plan.Cells), c)
		}
		m := newMeasurement(j, c, uint64(i), health, counted)
		err := m.run(ctx)
		if err != nil {
			return doc, err
		}
		cell := m.cell()
		doc.Cells = append(doc.Cells, cell)
		doc.Env.Harness.WorstSkewUS = max(doc.Env.Harness.WorstSkewUS, cell.SkewUS)
		if i == 0 {
			doc.Env.Harness.FirstCellMS = float64(m.firstBlockEnd.Sub(j.Began)) / 1e6
		}
	}
	return doc, j.finish(ctx, &doc, health)
}

// finish collects the CPU time and health of the ranks.
func (j Job) finish(ctx context.Context, doc *record.Document, health []*gpu.Health) error {
	used, err := j.Team.Finish(ctx)
	if err != nil {
		return err
	}
	for r, seconds := range used {
		doc.Env.Ranks[r].CPUSeconds = seconds
		doc.Env.Ranks[r].After = toHealth(health[r])
	}
	return nil
}

// measurement is the state of one cell during its measurement.
type measurement struct {
	job           Job
	c             Cell
	number        uint64 // index of the cell in the run
	policy        *policy
	health        []*gpu.Health // by rank, the latest reading; shared by all cells of the run
	first         []int64       // by arm: duration of the very first iteration, ns
	next          []uint64      // by arm: number of the next iteration
	skew          time.Duration
	checked       uint64
	throttle      []string
	throttled     uint64 // value of job.Throttled when the cell began
	linkTx        uint64 // bytes that rank 0's links sent during the subject's blocks
	linkKnown     bool
	payload       uint64              // bytes that rank 0 sent in the subject's blocks
	counted       []map[string]uint64 // by arm: latest counters of its endpoints; shared by all cells of the run
	endpoint      []map[string]uint64 // by arm: counters of its endpoints in this cell
	engine        []string            // by arm: engine that moved its messages, if the path chooses by size
	conns         []connections       // by arm
	firstBlockEnd time.Time
}

func newMeasurement(j Job, c Cell, number uint64, health []*gpu.Health, counted []map[string]uint64) *measurement {
	n := len(j.Plan.Arms)
	m := &measurement{
		job: j, c: c, number: number, policy: newPolicy(c, n), health: health, first: make([]int64, n), next: make([]uint64, n),
		counted: counted, endpoint: make([]map[string]uint64, n), engine: make([]string, n), conns: make([]connections, n),
	}
	for arm := range m.conns {
		m.conns[arm] = connections{}
	}
	if j.Throttled != nil {
		m.throttled = j.Throttled()
	}
	return m
}

// run measures the arms interleaved until each is done.
func (m *measurement) run(ctx context.Context) error {
	for arm := range m.job.Plan.Arms {
		if !m.c.timed() || m.c.Warmup == 0 {
			break
		}
		if err := m.warmUp(ctx, arm); err != nil {
			return err
		}
	}
	for round := 0; ; round++ {
		idle := true
		for _, arm := range order(len(m.job.Plan.Arms), round) {
			iters := m.policy.block(arm)
			if iters == 0 {
				continue
			}
			idle = false
			if err := m.block(ctx, arm, iters); err != nil {
				return err
			}
		}
		if idle {
			return nil
		}
	}
}

// block measures one block of an arm. In cells with a time limit the warm-up runs as a separate batch before the first
// block, so that its time does not count.
func (m *measurement) block(ctx context.Context, arm, iters int) error {
	b := m.c.Batch()
	b.Iters = iters
	if m.next[arm] > 0 {
		b.Warmup = m.policy.warmup(iters)
	}
	out, took, err := m.batch(ctx, arm, b)
	if err != nil {
		return err
	}
	m.policy.took(arm, out.Samples, b.Warmup, took)
	m.conns[arm].add(out.Conns)
	return nil
}

// warmUp runs an arm's warm-up as a batch of its own.
func (m *measurement) warmUp(ctx context.Context, arm int) error {
	b := m.c.Batch()
	b.Warmup, b.Iters = b.Warmup-1, 1
	_, took, err := m.batch(ctx, arm, b)
	if err == nil {
		m.policy.warmed(arm, m.c.Warmup, took)
	}
	return err
}

func (m *measurement) batch(ctx context.Context, arm int, b transport.Batch) (worker.Outcome, time.Duration, error) {
	b.First, b.Cell = m.next[arm], m.number
	begin := time.Now()
	out, err := m.job.Team.Run(ctx, arm, m.job.Ranks[arm], b)
	if err != nil {
		return out, 0, err
	}
	took := time.Since(begin)
	if m.firstBlockEnd.IsZero() {
		m.firstBlockEnd = time.Now()
	}
	if m.next[arm] == 0 {
		m.first[arm] = out.FirstNS
	}
	m.next[arm] += uint64(b.Warmup + b.Iters)
	m.skew = max(m.skew, out.Skew)
	m.observe(arm, b, out)
	return out, took, nil
}

// observe updates counters and device health after a block.
func (m *measurement) observe(arm int, b transport.Batch, out worker.Outcome) {
	m.engine[arm] = out.Engine
	m.count(arm, out.Counters)
	if arm == 0 {
		m.checked += out.Checked
		m.payload += uint64(b.Warmup+b.Iters) * uint64(b.Window) * b.Size * uint64(m.ways(0))
	}
	for r, h := range out.Health {
		if h == nil {
			continue
		}
		before := m.health[r]
		m.health[r] = h
		for _, reason := range h.Throttle {
			if note := fmt.Sprintf("rank %d: %s", r, reason); !slices.Contains(m.throttle, note) {
				m.throttle = append(m.throttle, note)
			}
		}
		if arm == 0 && r == 0 && before != nil && before.LinkTxBytes != nil && h.LinkTxBytes != nil {
			m.linkKnown = true
			m.linkTx += *h.LinkTxBytes - *before.LinkTxBytes
		}
	}
}

// count adds the change of the arm's counters since the last reading.
func (m *measurement) count(arm int, now map[string]uint64) {
	if m.endpoint[arm] == nil {
		m.endpoint[arm] = map[string]uint64{}
	}
	m.job.Paths[arm][0].Counters.Advance(m.endpoint[arm], m.counted[arm], now)
	maps.Copy(m.counted[arm], now)
}

// cell makes the record.
func (m *measurement) cell() record.Cell {
	c, path := m.c, m.job.Paths[0][0]
	samples := &m.policy.arms[0].samples
	cell := record.Cell{
		Transport: m.job.Plan.Arms[0].Transport, Path: path.Path, Engine: path.Engine, Device: m.job.Plan.Ranks[0].Kind,
		Op: string(c.Op), Size: c.Size, Offset: c.Offset, Ranks: len(m.job.Plan.Ranks), Window: c.Window,
		Warmup: c.Warmup, Iters: c.Iters, N: samples.N(), Completion: path.Completion,
		Lat: samples.Summary(), Cold: m.cold(), Counters: m.counters(), Knobs: m.knobs(),
		Vs: []record.Vs{}, Warnings: []string{}, SkewUS: float64(m.skew) / 1e3,
	}
	cell.SamplesNS, cell.Histogram = samples.Kept()
	if m.engine[0] != "" {
		cell.Engine = m.engine[0]
	}
	if c.Op == transport.OpPingPong {
		cell.Completion = "oneway"
	}
	cell.BWPerDir, cell.BWSum, cell.MsgRate = record.Rates(c.Size, c.Window, m.concurrent(0), cell.Lat.P50)
	cell.Conns, cell.Fairness = m.conns[0].records(c.Size)
	if c.Check != transport.CheckOff {
		ok := true // a mismatch would have ended the run
		cell.Verified = &ok
	}
	for arm := 1; arm < len(m.job.Plan.Arms); arm++ {
		cell.Vs = append(cell.Vs, m.versus(arm, cell))
	}
	cell.Vs = append(cell.Vs, m.job.Plan.missing()...)
	m.judge(&cell)
	return cell
}

// concurrent returns the number of windows of an arm in flight at the same time, both directions included.
func (m *measurement) concurrent(arm int) int {
	if m.c.Op == transport.OpBidir {
		return len(m.job.Plan.Ranks)
	}
	return m.ways(arm)
}

// ways returns the number of pairs of ranks with a window each in one direction.
func (m *measurement) ways(arm int) int {
	if m.c.Op != transport.OpStream {
		return 1
	}
	return max(m.job.Paths[arm][0].Ways, 1)
}

func (m *measurement) versus(arm int, cell record.Cell) record.Vs {
	samples, path := &m.policy.arms[arm].samples, m.job.Paths[arm][0]
	v := record.Vs{
		Name: m.job.Plan.Arms[arm].Name, Transport: m.job.Plan.Arms[arm].Transport, Engine: path.Engine, N: samples.N(), Lat: samples.Summary(),
		Verified: cell.Verified, Counters: m.endpoint[arm], Knobs: path.Knobs,
	}
	if m.engine[arm] != "" {
		v.Engine = m.engine[arm]
	}
	v.SamplesNS, v.Histogram = samples.Kept()
	v.BWPerDir, _, _ = record.Rates(m.c.Size, m.c.Window, m.concurrent(arm), v.Lat.P50)
	v.Conns, v.Fairness = m.conns[arm].records(m.c.Size)
	if cell.Lat.P50 > 0 {
		ratio := v.Lat.P50 / cell.Lat.P50
		v.Ratio = &ratio
	}
	return v
}

// cold returns the one-time costs. Rank 0 is the sender; rank 1, the receiver, exports.
func (m *measurement) cold() record.Cold {
	paths := m.job.Paths[0]
	sender, receiver := paths[0], paths[min(1, len(paths)-1)]
	first := float64(m.first[0]) / 1e3
	return record.Cold{
		ExportUS: receiver.ExportUS, OpenUS: sender.OpenUS, ConnectUS: sender.ConnectUS, FirstUS: &first,
	}
}

func (m *measurement) counters() map[string]uint64 {
	out := map[string]uint64{"payload_bytes": m.payload}
	maps.Copy(out, m.endpoint[0])
	if m.c.Check != transport.CheckOff {
		out["checked_bytes"] = m.checked
	}
	if m.linkKnown {
		out["link_tx_bytes"] = m.linkTx
	}
	if m.job.Throttled != nil {
		out["cpu_throttled_periods"] = m.job.Throttled() - m.throttled
	}
	return out
}

func (m *measurement) knobs() map[string]string {
	out := map[string]string{"check": string(m.c.Check), "seed": fmt.Sprint(m.c.Seed)}
	if m.c.Graph {
		out["cudagraph"] = "window"
	}
	maps.Copy(out, m.job.Paths[0][0].Knobs)
	return out
}

// judge sets the reason why the cell is invalid, and its warnings.
func (m *measurement) judge(cell *record.Cell) {
	var reasons []string
	if len(m.throttle) > 0 {
		reasons = append(reasons, "clocks were throttled ("+strings.Join(m.throttle, "; ")+")")
	}
	if n := cell.Counters["cpu_throttled_periods"]; n > 0 {
		reasons = append(reasons, fmt.Sprintf("the control group's quota of CPU time was used up in %d periods", n))
	}
	direct := m.job.Link.Counted && !m.job.Paths[0][0].ThroughHost
	if direct && m.linkKnown && m.payload >= 1<<20 && m.linkTx < m.payload/10*9 {
		reasons = append(reasons, fmt.Sprintf("%s carried %d of %d payload bytes: the rest took another path",
			m.job.Link.Type, m.linkTx, m.payload))
	}
	if len(reasons) > 0 {
		text := strings.Join(reasons, "; ")
		cell.Invalid = &text
	}
	if m.c.Until > 0 && !m.policy.arms[0].precise(m.c.Until) {
		cell.Warnings = append(cell.Warnings, fmt.Sprintf("the median is not known to ±%g %% after %v or %d samples",
			m.c.Until*100, untilTime, m.c.Iters))
	}
}

// ErrInvalid means that a run completed but some of its cells are invalid.
var ErrInvalid = errors.New("invalid cells")

// Invalid returns ErrInvalid with the number of invalid cells, or nil if there is none.
func Invalid(doc record.Document) error {
	n := 0
	for _, c := range doc.Cells {
		if c.Invalid != nil {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d cells: %w", n, len(doc.Cells), ErrInvalid)
}
