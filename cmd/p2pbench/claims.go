package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

const claimsHelp = `Measure on this machine what the authors of UCCL #876, MPICH #7862, ROCm ANP #20 and torchcomms #2728
claim. A claim compares two arms. Each arm is a p2pbench command that you can run by itself; both are
measured interleaved in one run. The table shows the verdict and the published figure.

The claims p2pbench/... are p2pbench's own and are judged by the same rules.

  reproduced       the measurement confirms the claim, beyond the uncertainty of its samples
  not reproduced   the measurement does not confirm the claim, or not clearly; this is not an error
  not measurable   this machine cannot run the claim, or its figures are invalid

The verdict of a claim about GPUs has a caveat if it was measured in CPU memory. The exit code is 2 if
no claim could be measured.`

func (a *app) claimsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "claims", Short: "Check published claims on this machine", Long: claimsHelp,
		Example: `  p2pbench claims list
  p2pbench claims run uccl-876/direct-vs-handshake
  p2pbench claims run all --out claims.json`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("claims: no command %q: use list or run", args[0])
			}
			return usagef("claims: use list, or run with the IDs of claims")
		},
	}
	c.AddCommand(a.claimsListCommand(), a.claimsRunCommand())
	return c
}

func (a *app) claimsListCommand() *cobra.Command {
	var f claimsListView
	c := &cobra.Command{
		Use: "list", Short: "List the claims", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := knob.Check(nil, &f); err != nil {
				return usageError{err}
			}
			if knob.Fill(nil, &f); f.Format == "json" {
				return claim.ListJSON(a.stdout, claim.All())
			}
			return claim.List(a.stdout, claim.All())
		},
	}
	addFlags(c, &f)
	return c
}

// claimsFlags are the flags of `p2pbench claims run`.
type claimsFlags struct {
	deviceSettings
	runSettings
	Quick bool `knob:"quick" group:"how" help:"take a fifth of the samples"`
	claimsView
	Require bool `knob:"require" group:"output" help:"exit with code 3 unless every claim is reproduced"`
}

func (a *app) claimsRunCommand() *cobra.Command {
	var f claimsFlags
	c := &cobra.Command{
		Use: "run ID...", Short: "Measure claims and print their verdicts",
		Long: claimsHelp + "\n\nID is the ID of a claim, as `p2pbench claims list` prints it; one of " +
			strings.Join(claim.Seeds(), ", ") + "\nfor all claims of that source; or all.",
		RunE: func(c *cobra.Command, args []string) error {
			if err := knob.Check(nil, &f); err != nil {
				return usageError{err}
			}
			knob.Fill(nil, &f)
			return a.runClaims(c.Context(), f, args)
		},
	}
	addFlags(c, &f)
	return c
}

var errRequire = errors.New("--require is not met")

// runClaims runs claims one after another. Verdicts that were reached before an error are shown too.
func (a *app) runClaims(ctx context.Context, f claimsFlags, ids []string) error {
	claims, err := f.read(ids)
	if err != nil {
		return err
	}
	kind, notes, err := f.findDevices()
	if err != nil {
		return err
	}
	doc := claim.Document{
		Schema: claim.Schema, Version: versionText(), Started: a.began.UTC().Truncate(time.Millisecond), Command: os.Args,
		Claims: []claim.Result{}, Warnings: append([]string{}, notes...),
	}
	a.measuring.Store(true)
	out, err := openOutput(f.Out, a.stdout, func(w io.Writer) error { return claim.Write(w, a.finished(doc, len(claims), errUnfinished)) })
	if err != nil {
		return err
	}
	f.note(a, notes...)
	runErr := a.judgeAll(ctx, f, kind, claims, &doc)
	if runErr == nil {
		runErr = f.judgeRun(doc)
	}
	doc = a.finished(doc, len(claims), runErr)
	err = out.save(func(w io.Writer) error { return claim.Write(w, doc) })
	if len(doc.Claims) > 0 && f.Out != toStdout {
		err = errors.Join(err, claim.Render(a.stdout, doc, f.Format))
	}
	return errors.Join(runErr, err)
}

// judgeRun returns an error if --require is not met or nothing could be measured.
func (f claimsFlags) judgeRun(doc claim.Document) error {
	failed, absent := doc.Count(claim.NotReproduced), doc.Count(claim.NotMeasurable)
	switch {
	case f.Require && failed+absent > 0:
		return fmt.Errorf("%w: of %d claims %d not reproduced, %d not measurable here", errRequire, len(doc.Claims), failed, absent)
	case !doc.Measured():
		return fmt.Errorf("claims run: nothing could be measured here: %s: %w", doc.Claims[0].Tests[0].Why, gpu.ErrUnsupported)
	}
	return nil
}

// finished returns doc with the exit code, and a warning if fewer claims were measured than wanted.
func (a *app) finished(doc claim.Document, wanted int, runErr error) claim.Document {
	if runErr == nil {
		return doc
	}
	doc.Exit = exitCode(runErr, a.caught())
	if len(doc.Claims) < wanted {
		doc.Warnings = append(slices.Clone(doc.Warnings), fmt.Sprintf("the run ended early: %d of %d claims were measured: %s",
			len(doc.Claims), wanted, strings.Join(a.lines(runErr), "; ")))
	}
	return doc
}

// read finds the claims by their IDs.
func (f claimsFlags) read(ids []string) ([]claim.Claim, error) {
	if len(ids) == 0 {
		return nil, usagef("claims run: name claims, as `p2pbench claims list` shows them, a pull request (%s), or all",
			strings.Join(claim.Seeds(), ", "))
	}
	claims, err := claim.Find(ids)
	if err != nil {
		return nil, usagef("claims run: %w", err)
	}
	return claims, nil
}

// findDevices returns the kind of device that the claims run on, and notes for the user.
func (f claimsFlags) findDevices() (kind string, notes []string, err error) {
	arm, err := f.parse([]string{"ipc"}) // the devices are the same for every path
	if err != nil {
		return "", nil, err
	}
	t, err := arm.shared().target()
	if err != nil {
		return "", nil, err
	}
	return t.driver.Kind(), t.notes, nil
}

func (f claimsFlags) note(a *app, lines ...string) {
	if f.Quiet {
		return
	}
	for _, text := range lines {
		fmt.Fprintf(a.stderr, "p2pbench: %s\n", text)
	}
}

// judgeAll runs all claims, also after one that failed, and returns the first error.
func (a *app) judgeAll(ctx context.Context, f claimsFlags, kind string, claims []claim.Claim, doc *claim.Document) error {
	var first error
	for _, c := range claims {
		var outcomes []claim.Outcome
		for _, t := range c.Tests {
			t = t.On(kind != host.Kind)
			if f.Quick {
				t = t.Quick()
			}
			o, err := a.judge(ctx, f, kind, t, doc)
			if a.caught() != nil {
				return err
			}
			if err != nil && first == nil {
				first = fmt.Errorf("%s: %w", c.ID, err)
			}
			outcomes = append(outcomes, o)
		}
		r := c.Conclude(outcomes, kind != host.Kind)
		doc.Claims = append(doc.Claims, r)
		text := r.ID + ": " + string(r.Verdict)
		if r.Caveat != "" {
			text += " (" + r.Caveat + ")"
		}
		f.note(a, text)
	}
	return first
}

// judge runs one test. It returns an error where the run failed and no verdict covers the failure.
func (a *app) judge(ctx context.Context, f claimsFlags, kind string, t claim.Test, doc *claim.Document) (claim.Outcome, error) {
	armA, armB := f.commands(t, kind)
	run, err := a.runTest(ctx, f, t, armA, armB, doc)
	o := t.Judge(run)
	o.A.Command = append([]string{"p2pbench"}, armA...)
	if o.B != nil {
		o.B.Command = append([]string{"p2pbench"}, armB...)
	}
	return o, err
}

// commands returns the command lines of both arms.
func (f claimsFlags) commands(t claim.Test, kind string) (a, b []string) {
	var more []string
	if f.Device != "auto" {
		more = append(more, "--device", f.Device)
	}
	if len(f.GPUs) > 0 {
		more = append(more, "--gpus", f.gpuList())
	}
	gpu := kind != host.Kind
	a = append(t.Command(t.A, gpu), more...)
	if t.Paired() {
		b = append(t.Command(t.B, gpu), more...)
	}
	return a, b
}

// parse parses an arm's command line.
func (f claimsFlags) parse(command []string) (path, error) {
	arm, ok := pathNamed(command[0])
	if !ok {
		return nil, fmt.Errorf("claims: no path command %q", command[0])
	}
	fs := pflag.NewFlagSet(command[0], pflag.ContinueOnError)
	arm.register(fs)
	if err := fs.Parse(command[1:]); err != nil {
		return nil, usageError{err}
	}
	c := arm.shared()
	c.deviceSettings, c.Timeout, c.Quiet = f.deviceSettings, f.Timeout, f.Quiet
	return arm, nil
}

// runTest measures the arms of a test in one run. A test that this machine cannot run is reported in the result, not as
// an error.
func (a *app) runTest(ctx context.Context, f claimsFlags, t claim.Test, armA, armB []string, doc *claim.Document) (claim.Run, error) {
	tr, err := f.plan(t, armA, armB)
	if err != nil {
		return claim.Run{Absent: reason(err)}, ignoreUnsupported(err)
	}
	tr.common.RequireVs = true // a claim about a baseline is not measurable without it
	got, err := a.runPlan(ctx, tr.common, tr.plan, tr.target, tr.ranks)
	run := claim.Run{Cells: got.Cells, OnlyRatios: got.Transports[tr.plan.Arms[0].Transport].OnlyRatios}
	switch {
	case errors.Is(err, worker.ErrCorrupt):
		run.Corrupt = reason(err)
		if t.MustBeCaught() {
			err = nil
		}
		return run, err
	case err != nil:
		run.Absent, run.Hung = reason(err), errors.Is(err, worker.ErrHang)
		return run, ignoreUnsupported(err)
	}
	if doc.Env == nil {
		doc.Env = &got.Env
	}
	for _, text := range got.Warnings {
		if !slices.Contains(doc.Warnings, text) {
			doc.Warnings = append(doc.Warnings, text)
		}
	}
	return run, nil
}

// ignoreUnsupported returns nil if err wraps gpu.ErrUnsupported.
func ignoreUnsupported(err error) error {
	if errors.Is(err, gpu.ErrUnsupported) {
		return nil
	}
	return err
}

// trial is a test with its plan.
type trial struct {
	plan   sweep.Plan
	common *common
	target target
	ranks  [][]int // by arm: the ranks that it uses
}

// plan makes one plan of both arms, so that they run interleaved: A is the subject, B the baseline.
func (f claimsFlags) plan(t claim.Test, armA, armB []string) (trial, error) {
	arm, err := f.parse(armA)
	if err != nil {
		return trial{}, err
	}
	subject, err := arm.arm()
	if err != nil {
		return trial{}, err
	}
	c := arm.shared()
	if n := len(f.GPUs); n > 0 && n != c.Ranks {
		return trial{}, fmt.Errorf("the claim needs %d ranks, and --gpus %s names %d devices: %w", c.Ranks, f.gpuList(), n, gpu.ErrUnsupported)
	}
	if t.B.Baseline != "" {
		c.Vs = []string{t.B.Baseline}
	}
	s, where, err := c.spec(subject)
	if err != nil {
		return trial{}, err
	}
	if len(s.Missing) > 0 {
		return trial{}, fmt.Errorf("%s: %w", s.Missing[0].Why, gpu.ErrUnsupported)
	}
	if t.Paired() && t.B.Baseline == "" {
		b, err := f.baselineArm(t, armB, where, s.Ops)
		if err != nil {
			return trial{}, err
		}
		s.Baselines = append(s.Baselines, b)
	}
	p, err := sweep.Expand(s)
	if err != nil {
		return trial{}, usageError{err}
	}
	ranks, err := participants(p.Arms, where.ranks)
	if err != nil {
		return trial{}, err
	}
	if err := checkCells(p); err != nil {
		return trial{}, fmt.Errorf("%w: %w", err, gpu.ErrUnsupported)
	}
	if err := fits(p); err != nil {
		return trial{}, fmt.Errorf("%w: %w", err, gpu.ErrUnsupported)
	}
	return trial{plan: p, common: c, target: where, ranks: ranks}, nil
}

// baselineArm makes arm B.
func (f claimsFlags) baselineArm(t claim.Test, command []string, where target, ops []transport.Op) (worker.Arm, error) {
	arm, err := f.parse(command)
	if err != nil {
		return worker.Arm{}, err
	}
	if err := arm.shared().checkDevices(where); err != nil {
		return worker.Arm{}, err
	}
	b, err := arm.arm()
	if err == nil {
		err = arm.shared().checkSettings(ops)
	}
	b.Name = t.B.Label
	return b, err
}
