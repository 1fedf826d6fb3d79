package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
)

// measure carries out a path command: plan, launch, run, render. What was measured before an error is rendered all
// the same.
func (a *app) measure(ctx context.Context, c *common, subject worker.Arm) error {
	s, t, err := c.spec(subject)
	if err != nil {
		return err
	}
	p, err := sweep.Expand(s)
	if err != nil {
		return usageError{err}
	}
	if err := p.Fits(free); err != nil {
		return usageError{err}
	}
	ranks, err := takingPart(p.Arms, t.ranks)
	if err != nil {
		return err
	}
	out, err := openOutput(c.out)
	if err != nil {
		return err
	}
	defer out.discard()
	if !c.quiet {
		for _, n := range t.notes {
			fmt.Fprintf(a.stderr, "p2pbench: %s\n", n)
		}
	}
	doc, runErr := a.carryOut(ctx, c, p, t, ranks)
	if len(doc.Cells) == 0 && runErr != nil {
		return runErr
	}
	if runErr == nil {
		runErr = sweep.Invalid(doc)
	}
	return errors.Join(runErr, a.publish(c, out, a.complete(doc, c, t, runErr, len(p.Cells))))
}

// takingPart asks every arm which ranks it needs, and whether it can run at all.
func takingPart(arms []worker.Arm, devices []gpu.Info) ([][]int, error) {
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

func (a *app) carryOut(ctx context.Context, c *common, p sweep.Plan, t target, ranks [][]int) (_ record.Document, err error) {
	cfg := worker.Config{
		Run: rand.Text(), Devices: t.ranks, Arms: p.Arms, Region: p.Region, Timeout: c.timeout,
		Launcher: c.launcherArgs(), Inject: c.deviceFault(), Stderr: a.stderr,
	}
	if c.pin == "auto" {
		if cfg.Placements, err = worker.Place(nodes(t.ranks)); err != nil {
			return record.Document{}, err
		}
	}
	team, err := worker.Launch(ctx, cfg)
	if err != nil {
		return record.Document{}, err
	}
	defer func() { err = errors.Join(err, team.Close()) }()
	if path := team.Paths[0][0].Path; c.requirePath != "" && path != c.requirePath {
		return record.Document{}, usagef("--require-path %s: the path here is %s", c.requirePath, path)
	}
	progress, done := a.progress(c, len(p.Cells))
	defer done()
	return sweep.Job{
		Plan: p, Team: team, Opened: team.Opened, Paths: team.Paths, Ranks: ranks,
		Link: t.driver.Link(t.ranks[0], t.ranks[1]), Began: a.began, Progress: progress,
	}.Run(ctx)
}

func nodes(infos []gpu.Info) []int {
	out := make([]int, len(infos))
	for i, d := range infos {
		out[i] = d.NUMA
	}
	return out
}

// progress shows a bar on stderr when that is a terminal.
func (a *app) progress(c *common, cells int) (show func(int, int, sweep.Cell), done func()) {
	if c.quiet || !terminal(a.stderr) {
		return nil, func() {}
	}
	bar := progressbar.NewOptions(cells, progressbar.OptionSetWriter(a.stderr), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetWidth(30))
	show = func(i, _ int, cell sweep.Cell) {
		bar.Describe(fmt.Sprintf("%s %s", cell.Op, sweep.FormatSize(cell.Size)))
		_ = bar.Set(i) // a bar that cannot be drawn is no reason to stop
	}
	return show, func() { _ = bar.Finish() }
}

// complete fills in what only the command knows.
func (a *app) complete(doc record.Document, c *common, t target, runErr error, planned int) record.Document {
	doc.Version, doc.Started, doc.Command = versionText(), a.began.UTC().Truncate(time.Millisecond), os.Args
	doc.Preset = c.preset
	if t.driver.Kind() != "host" || len(t.notes) > 0 {
		doc.Warnings = append(doc.Warnings, t.notes...)
	}
	if c.inject != "" {
		doc.Warnings = append(doc.Warnings, "a fault was injected on purpose: --inject "+c.inject)
	}
	if runErr != nil {
		doc.Exit = exitCode(runErr, a.caught())
	}
	if len(doc.Cells) < planned {
		doc.Warnings = append(doc.Warnings, fmt.Sprintf("the run ended early: %d of %d cells were measured", len(doc.Cells), planned))
	}
	return doc
}

// publish renders to stdout and writes the complete document to --out.
func (a *app) publish(c *common, out *output, doc record.Document) error {
	if err := report.Render(a.stdout, doc, c.format, report.Options{Wide: c.wide}); err != nil {
		return err
	}
	return out.write(doc)
}

// output is the file behind --out: written beside its place and renamed, so that it is never half there.
type output struct {
	path string
	tmp  *os.File
}

// openOutput makes sure, before anything runs, that the file can be written.
func openOutput(path string) (*output, error) {
	if path == "" {
		return &output{}, nil
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, usagef("--out %s: not a regular file", path)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".p2pbench-*")
	if err != nil {
		return nil, usagef("--out %s: cannot write there: %w", path, errors.Unwrap(err))
	}
	return &output{path: path, tmp: tmp}, nil
}

func (o *output) write(doc record.Document) error {
	return o.save(func(w io.Writer) error { return record.Write(w, doc) })
}

func (o *output) save(encode func(io.Writer) error) error {
	if o.tmp == nil {
		return nil
	}
	err := errors.Join(encode(o.tmp), o.tmp.Chmod(0o644), o.tmp.Close())
	if err == nil {
		err = os.Rename(o.tmp.Name(), o.path)
	}
	if err != nil {
		return usagef("--out %s: %w", o.path, err)
	}
	o.tmp = nil
	return nil
}

// discard removes what was not written.
func (o *output) discard() {
	if o.tmp != nil {
		_ = o.tmp.Close()
		_ = os.Remove(o.tmp.Name())
	}
}
