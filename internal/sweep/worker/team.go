package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/cgroup"
	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// Config holds the settings of a team.
type Config struct {
	Run        string // names the run; unique on this host
	Devices    []gpu.Info
	Arms       []Arm
	Region     uint64 // bytes of each rank's buffer: the largest Batch.Region of the plan
	Timeout    time.Duration
	Placements []Placement // by rank; nil: no rank is pinned
	Launcher   []string    // command line before the worker's; nil: none
	Inject     string      // fault that rank 0's device injects; "": none
	Stderr     io.Writer   // gets the workers' output, each line prefixed with the rank
}

// Team holds the workers of a run.
type Team struct {
	cfg      Config
	page     *abi.Page
	spawn    *spawner
	ranks    []*process
	Opened   []Opened           // by rank
	Paths    [][]transport.Path // by arm, then rank
	barriers uint64             // number of barriers so far
	groups   cgroup.Groups      // of this process and the workers
	killed   uint64             // OOM kills in these groups before the workers started
	shortage string             // why ranks must share CPUs; "": each has its own
	aborted  bool
	closed   bool
	ended    bool // the workers have finished and exit by themselves
}

// Launch starts the workers, opens their devices and transports and connects them.
func Launch(ctx context.Context, cfg Config) (_ *Team, err error) {
	page, err := abi.NewPage(len(cfg.Devices))
	if err != nil {
		return nil, advised(err)
	}
	cfg.Stderr = &shared{w: cfg.Stderr}
	t := &Team{cfg: cfg, page: page, spawn: newSpawner(), groups: cgroup.Own()}
	t.killed, _ = t.groups.OOMKills()
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if err := t.start(); err != nil {
		return nil, err
	}
	addresses, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	return t, t.connect(ctx, addresses)
}

func (t *Team) start() error {
	cpus, err := allowedCPUs()
	if err != nil {
		return err
	}
	quota, _ := t.groups.CPUs()
	t.shortage = shortage(len(t.cfg.Devices), len(cpus), quota)
	placements := t.placements()
	for r, p := range placements {
		inject := ""
		if r == 0 {
			inject = t.cfg.Inject
		}
		started := abi.RawNS()
		proc, err := t.spawn.start(r, p, t.page.File, t.cfg.Launcher, t.cfg.Stderr)
		if err != nil {
			return err
		}
		t.ranks = append(t.ranks, proc)
		if err := proc.send(request{Init: &initRequest{
			Run: t.cfg.Run, Rank: r, Devices: t.cfg.Devices, Arms: t.cfg.Arms, Region: t.cfg.Region,
			Timeout: t.cfg.Timeout, CPUs: cpusOf(placements), Yield: t.shortage != "", Inject: inject,
			Started: started,
		}}, t.cfg.Timeout); err != nil {
			return err
		}
	}
	return nil
}

// placements returns the CPUs of each rank; CPU -1: any.
func (t *Team) placements() []Placement {
	if t.cfg.Placements != nil {
		return t.cfg.Placements
	}
	out := make([]Placement, len(t.cfg.Devices))
	for r := range out {
		out[r].CPU = -1
	}
	return out
}

func cpusOf(placements []Placement) []int {
	out := make([]int, len(placements))
	for r, p := range placements {
		out[r] = p.CPU
	}
	return out
}

// open collects the workers' Opened reports and returns their addresses by arm and rank.
func (t *Team) open(ctx context.Context) ([][][]byte, error) {
	replies, err := t.await(ctx, t.all())
	if err != nil {
		return nil, err
	}
	addresses := make([][][]byte, len(t.cfg.Arms))
	for rank, r := range replies {
		t.Opened = append(t.Opened, r.Opened.Opened)
		if rank == 0 && t.shortage != "" {
			t.Opened[0].Warnings = append(t.Opened[0].Warnings, t.shortage)
		}
		for a, addr := range r.Opened.Addresses {
			addresses[a] = append(addresses[a], addr)
		}
	}
	return addresses, nil
}

func (t *Team) connect(ctx context.Context, addresses [][][]byte) error {
	for _, p := range t.ranks {
		if err := p.send(request{Connect: &connectRequest{Addresses: addresses}}, t.cfg.Timeout); err != nil {
			return err
		}
	}
	replies, err := t.await(ctx, t.all())
	if err != nil {
		return err
	}
	t.Paths = make([][]transport.Path, len(t.cfg.Arms))
	for rank, r := range replies {
		t.Opened[rank].Health = r.Connected.Health
		for a, p := range r.Connected.Paths {
			t.Paths[a] = append(t.Paths[a], p)
		}
	}
	return nil
}

// Outcome is the result of a batch over all ranks.
type Outcome struct {
	Samples []int64       // ns; if several ranks take samples, the maximum over ranks
	FirstNS int64         // duration of the first iteration
	Skew    time.Duration // between the first and the last rank to leave the barrier
	Checked uint64        // payload bytes compared, sum over ranks
	Health  []*gpu.Health // by rank, after the batch; nil for ranks that did not take part
	Engine  string        // engine that moved rank 0's messages, if the path chooses by size
	// Counters are the counters of all ranks' endpoints since they connected, joined over ranks.
	Counters map[string]uint64
	Conns    []transport.ConnStat // connections of all ranks
}

// Run runs one batch on the given ranks.
func (t *Team) Run(ctx context.Context, arm int, ranks []int, b transport.Batch) (Outcome, error) {
	if len(ranks) > 1 {
		t.barriers++
		b.Barrier = t.barriers
	}
	for _, r := range ranks {
		if err := t.ranks[r].send(request{Run: &runRequest{Arm: arm, Batch: b}}, t.cfg.Timeout); err != nil {
			return Outcome{}, err
		}
	}
	replies, err := t.await(ctx, ranks)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Health: make([]*gpu.Health, len(t.ranks))}
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for i, r := range ranks {
		ran := replies[i].Ran
		out.merge(ran, t.Paths[arm][r].Counters)
		out.Health[r] = ran.Health
		if r == 0 {
			out.Engine = ran.Result.Engine
		}
		first, last = min(first, ran.Result.Entered), max(last, ran.Result.Entered)
	}
	out.Skew = time.Duration(last - first)
	return out, nil
}

func (o *Outcome) merge(r *ranReply, counters transport.Counters) {
	o.Checked += r.Result.Checked
	o.FirstNS = max(o.FirstNS, r.Result.FirstNS)
	o.Conns = append(o.Conns, r.Result.Conns...)
	if o.Counters == nil {
		o.Counters = map[string]uint64{}
	}
	counters.Join(o.Counters, r.Counters)
	if len(o.Samples) == 0 {
		o.Samples = r.Samples
		return
	}
	for i, s := range r.Samples {
		o.Samples[i] = max(o.Samples[i], s)
	}
}

// Finish ends the run and returns the CPU seconds that each rank's process used.
func (t *Team) Finish(ctx context.Context) ([]float64, error) {
	for _, p := range t.ranks {
		if err := p.send(request{Finish: &finishRequest{}}, t.cfg.Timeout); err != nil {
			return nil, err
		}
	}
	replies, err := t.await(ctx, t.all())
	if err != nil {
		return nil, err
	}
	t.ended = true
	var out []float64
	for _, r := range replies {
		out = append(out, r.Finished.CPUSeconds)
	}
	return out, nil
}

// Kill kills one rank's process. Tests use it to cause a crash.
func (t *Team) Kill(rank int) { _ = t.ranks[rank].cmd.Process.Kill() }

// Close ends every worker, even in a batch, and releases the team's resources. A second Close does nothing.
func (t *Team) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	t.abort()
	errs := make([]error, len(t.ranks))
	done := make(chan int)
	for i, p := range t.ranks {
		go func() {
			errs[i] = p.stop(t.ended)
			done <- i
		}()
	}
	for range t.ranks {
		<-done
	}
	t.spawn.stop()
	return errors.Join(append(errs, t.page.Close())...)
}

func (t *Team) all() []int {
	out := make([]int, len(t.ranks))
	for i := range out {
		out[i] = i
	}
	return out
}

// abort makes every wait of every rank return an error.
func (t *Team) abort() {
	if t.aborted {
		return
	}
	t.aborted = true
	for r := range t.cfg.Devices {
		t.page.Rank(r).Abort()
	}
}

func (t *Team) states() []abi.State {
	out := make([]abi.State, len(t.cfg.Devices))
	for r := range out {
		out[r] = t.page.Rank(r).Read()
	}
	return out
}

// event is a reply or the end of a process.
type event struct {
	rank  int
	reply *reply // nil: the process has ended
}

// await collects one reply from each of ranks. It returns a Failure when a rank fails or ends, or no rank makes
// progress for longer than the timeout, and the context's error when that is cancelled.
func (t *Team) await(ctx context.Context, ranks []int) ([]reply, error) {
	events := make(chan event, len(t.ranks))
	stop := make(chan struct{})
	defer close(stop)
	for r, p := range t.ranks {
		go p.watch(slices.Contains(ranks, r), events, stop)
	}
	w := newWatchdog(t.cfg.Timeout)
	defer w.stop()
	got := make([]reply, len(ranks))
	for n := 0; n < len(ranks); {
		select {
		case ev := <-events:
			if ev.reply == nil || ev.reply.Failed != nil {
				return nil, t.failure(ev)
			}
			got[slices.Index(ranks, ev.rank)] = *ev.reply
			w.progressed()
			n++
		case <-w.tick():
			if states := t.states(); w.stuck(states) {
				return nil, &Failure{
					Rank: ranks[0], Class: ErrHang, States: states,
					Text: fmt.Sprintf("no progress for %v", t.cfg.Timeout+grace),
				}
			}
		case <-ctx.Done():
			t.abort()
			return nil, ctx.Err()
		}
	}
	return got, nil
}

// failure makes the run's error from the first event of failure. If any process has ended, that rank is reported: the
// first error may come from a peer that noticed its absence.
func (t *Team) failure(ev event) error {
	states := t.states()
	t.abort()
	f := &Failure{Rank: ev.rank, States: states}
	if ev.reply == nil {
		f.Class, f.Text = ErrCrash, t.loss(t.ranks[ev.rank])
		return f
	}
	for _, p := range t.ranks {
		select {
		case <-p.gone:
			return &Failure{Rank: p.rank, Class: ErrCrash, Text: t.loss(p), States: states}
		default:
		}
	}
	f.Arm, f.Class, f.Text = ev.reply.Failed.Arm, ev.reply.Failed.class(), ev.reply.Failed.Text
	return f
}

// loss describes how a process ended, and whether the kernel killed it because a control group was out of memory.
func (t *Team) loss(p *process) string {
	text := p.loss()
	if killed, limit := t.groups.OOMKills(); killed > t.killed && p.endedBy(unix.SIGKILL) {
		text += fmt.Sprintf(", because the control group was out of memory: raise %s, or use smaller sizes", limit)
	}
	return text
}

// watch sends one event: the process's next reply, if one is expected, or its end.
func (p *process) watch(expected bool, events chan<- event, stop <-chan struct{}) {
	var replies chan reply // nil: never ready
	if expected {
		replies = p.replies
	}
	ended, overdue := p.gone, (<-chan time.Time)(nil)
	for {
		select {
		case r, ok := <-replies:
			ev := event{rank: p.rank}
			if ok {
				ev.reply = &r
			}
			events <- ev
			return
		case <-ended:
			if !expected {
				events <- event{rank: p.rank}
				return
			}
			// Its last reply may still be in the socket. Read to the end of the connection, which a child of the
			// process may hold open.
			ended, overdue = nil, time.After(exitTimeout)
		case <-overdue:
			events <- event{rank: p.rank}
			return
		case <-stop:
			return
		}
	}
}
