package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/p2pbench/p2pbench/internal/cgroup"
	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// measure runs a path command: plan, launch, run, render. Cells that were measured before an error are rendered too.
func (a *app) measure(ctx context.Context, c *common, subject worker.Arm) error {
	p, t, err := c.plan(subject)
	if err != nil {
		return err
	}
	ranks, err := participants(p.Arms, t.ranks)
	if err != nil {
		return err
	}
	a.measuring.Store(true)
	out, err := openOutput(c.Out, a.stdout, result(a.complete(record.Document{}, c, t, errUnfinished, len(p.Cells))))
	if err != nil {
		return err
	}
	if !c.Quiet {
		for _, n := range t.notes {
			fmt.Fprintf(a.stderr, "p2pbench: %s\n", n)
		}
	}
	doc, runErr := a.runPlan(ctx, c, p, t, ranks)
	if runErr == nil {
		runErr = errors.Join(sweep.Invalid(doc), c.checkFault(doc))
	}
	return errors.Join(runErr, a.publish(c, out, a.complete(doc, c, t, runErr, len(p.Cells))))
}

// errUnfinished is the state of the result in --out until the run has ended.
var errUnfinished = errors.New("the run was killed or has not ended yet")

func result(doc record.Document) encoder {
	return func(w io.Writer) error { return record.Write(w, doc) }
}

// publish writes the complete document to --out and the view to stdout. An error of one does not prevent the other.
func (a *app) publish(c *common, out *output, doc record.Document) error {
	err := out.save(result(doc))
	if c.Out == toStdout || len(doc.Cells) == 0 {
		return err
	}
	return errors.Join(err, report.Render(a.stdout, doc, c.Format, report.Options{Wide: c.Wide, Tables: claim.Tables}))
}

// errFaultUnused ends a run in which the injected fault did not occur: the run does not show that faults are detected.
var errFaultUnused = errors.New("the fault did not occur")

// checkFault returns errFaultUnused if --inject was given and no fault was counted.
func (c *common) checkFault(doc record.Document) error {
	if c.Inject == "" {
		return nil
	}
	var n uint64
	for _, cell := range doc.Cells {
		n += cell.Counters[transport.Faults]
		for _, v := range cell.Vs {
			n += v.Counters[transport.Faults]
		}
	}
	if n > 0 {
		return nil
	}
	return fmt.Errorf("--inject %s: %w: no message of this run met its condition: use another number or offset, more iterations, or --buffers and --window with which it can occur",
		c.Inject, errFaultUnused)
}

// plan makes a plan from the flags and refuses what is known to be impossible before anything is started. It does not
// check whether the machine has the libraries and NICs that the path needs.
func (c *common) plan(subject worker.Arm) (sweep.Plan, target, error) {
	s, t, err := c.spec(subject)
	if err != nil {
		return sweep.Plan{}, t, err
	}
	p, err := sweep.Expand(s)
	if err != nil {
		return p, t, usageError{err}
	}
	if err := checkCells(p); err != nil {
		return p, t, err
	}
	if err := fits(p); err != nil {
		return p, t, usageError{err}
	}
	return p, t, nil
}

// checkCells returns the error of the first arm that cannot run a cell of the plan.
func checkCells(p sweep.Plan) error {
	for _, arm := range p.Arms {
		tr, err := newTransport(arm.Transport, arm.Options)
		if err != nil {
			return usageError{err}
		}
		for _, cell := range p.Cells {
			if err := tr.Accepts(p.Ranks, cell.Batch()); err != nil {
				return usageError{err}
			}
		}
	}
	return nil
}

// participants returns the ranks that each arm uses. It fails if an arm cannot run on these devices.
func participants(arms []worker.Arm, devices []gpu.Info) ([][]int, error) {
	var ranks [][]int
	for _, arm := range arms {
		tr, err := newTransport(arm.Transport, arm.Options)
		if err != nil {
			return nil, usageError{err}
		}
		if err := tr.Probe(devices); err != nil {
			return nil, err
		}
		ranks = append(ranks, tr.Ranks(len(devices)))
	}
	return ranks, nil
}

// runPlan runs the plan. A baseline that cannot be opened or connected is n/a in the result, unless --require-vs is
// given: the run starts again without it.
func (a *app) runPlan(ctx context.Context, c *common, p sweep.Plan, t target, ranks [][]int) (record.Document, error) {
	for {
		doc, err := a.runTeam(ctx, c, p, t, ranks)
		var f *worker.Failure
		if c.RequireVs || ctx.Err() != nil || !errors.As(err, &f) || f.Arm == 0 || p.Arms[f.Arm].Transport == p.Arms[0].Transport {
			return doc, err
		}
		if !c.Quiet {
			fmt.Fprintf(a.stderr, "p2pbench: --vs %s: rank %d: %s: the run starts again without it\n", p.Arms[f.Arm].Name, f.Rank, f.Text)
		}
		p = p.Without(f.Arm, f.Text)
		ranks = slices.Delete(slices.Clone(ranks), f.Arm, f.Arm+1)
	}
}

func (a *app) runTeam(ctx context.Context, c *common, p sweep.Plan, t target, ranks [][]int) (_ record.Document, err error) {
	cfg := worker.Config{
		Run: rand.Text(), Devices: t.ranks, Arms: p.Arms, Region: p.Region, Timeout: c.Timeout,
		Launcher: c.launcherArgs(), Inject: c.deviceFault(), Stderr: a.stderr,
	}
	if c.Pin == "auto" {
		if cfg.Placements, err = worker.Place(nodes(t.ranks)); err != nil {
			return record.Document{}, err
		}
	}
	team, err := worker.Launch(ctx, cfg)
	if err != nil {
		return record.Document{}, err
	}
	defer func() { err = errors.Join(err, team.Close()) }()
	if path := team.Paths[0][0].Path; c.RequirePath != "" && path != c.RequirePath {
		return record.Document{}, usagef("--require-path %s: the path here is %s", c.RequirePath, path)
	}
	progress, done := a.progress(c, len(p.Cells))
	defer done()
	return sweep.Job{
		Plan: p, Team: team, Opened: team.Opened, Paths: team.Paths, Ranks: ranks,
		Link: t.driver.Link(t.ranks[0], t.ranks[1]), Began: a.began, Throttled: throttled(cgroup.Own()), Progress: progress,
	}.Run(ctx)
}

// throttled returns a function that counts the periods in which the CPU quota was exhausted; nil without a quota.
func throttled(groups cgroup.Groups) func() uint64 {
	if _, limited := groups.CPUs(); !limited {
		return nil
	}
	return groups.Throttled
}

func nodes(infos []gpu.Info) []int {
	out := make([]int, len(infos))
	for i, d := range infos {
		out[i] = d.NUMA
	}
	return out
}

// progress shows a progress bar if stderr is a terminal.
func (a *app) progress(c *common, cells int) (show func(int, int, sweep.Cell), done func()) {
	if c.Quiet || !terminal(a.stderr) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions(cells, progressbar.OptionSetWriter(a.stderr), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetWidth(30))
	show = func(i, _ int, cell sweep.Cell) {
		bar.Describe(fmt.Sprintf("%s %s", cell.Op, knob.FormatSize(cell.Size)))
		_ = bar.Set(i) // the run goes on if the bar cannot be drawn
	}
	return show, func() { _ = bar.Finish() }
}

// complete adds version, command line, start time, warnings and exit code to the document.
func (a *app) complete(doc record.Document, c *common, t target, runErr error, planned int) record.Document {
	doc.Version, doc.Started, doc.Command = versionText(), a.began.UTC().Truncate(time.Millisecond), os.Args
	doc.Preset = c.Preset
	if t.driver.Kind() != "host" || len(t.notes) > 0 {
		doc.Warnings = append(doc.Warnings, t.notes...)
	}
	if c.Inject != "" {
		doc.Warnings = append(doc.Warnings, "a fault was injected on purpose: --inject "+c.Inject)
	}
	if doc.Env.OS == "" { // no worker has reported its environment
		doc.Env = sweep.Host()
	}
	early := ""
	if runErr != nil {
		doc.Exit = exitCode(runErr, a.caught())
		early = ": " + strings.Join(a.lines(runErr), "; ")
	}
	if len(doc.Cells) < planned {
		doc.Warnings = append(doc.Warnings, fmt.Sprintf("the run ended early: %d of %d cells were measured%s", len(doc.Cells), planned, early))
	}
	return doc
}
