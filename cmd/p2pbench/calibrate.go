package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/verdict"
	"github.com/p2pbench/p2pbench/internal/verdict/view"
)

const calibrateHelp = `Measure how much identical runs differ on this machine, and compute how many runs per side a
comparison needs to detect a change of --effect in any one cell, and to pass equal sides, in at least 90 % of
comparisons each. The answer comes from simulation: comparisons are drawn from the measured runs, in blocks of
consecutive runs, and the change is injected into them.`

type calibrateFlags struct {
	judgeSettings
	Runs   int    `knob:"runs" default:"20" range:"8..1000" arg:"N" group:"how" help:"runs to measure; more runs give a more certain answer"`
	Most   int    `knob:"most" default:"60" range:"4..200" arg:"N" group:"how" help:"largest number of runs per side to try"`
	At     int    `knob:"at" range:"4..200" arg:"N" group:"expert" help:"try only this number of runs per side"`
	Trials int    `knob:"trials" default:"200" range:"50..10000" arg:"N" group:"expert" help:"simulated comparisons for each number of runs"`
	From   string `knob:"from" arg:"folder" group:"what" help:"use the runs in this folder, ordered by time, instead of measuring"`
	seriesSettings
	calibrationView
}

// calibrationView is --format of calibrate.
type calibrationView struct {
	Format string `knob:"format" values:"table json md" group:"output" help:"format of the result on stdout"`
}

func (a *app) calibrateCommand() *cobra.Command {
	var f calibrateFlags
	c := &cobra.Command{
		Use: "calibrate [flags] -- PATH FLAGS...", Short: "Compute the number of runs that a comparison needs", Long: calibrateHelp,
		Example: `  p2pbench calibrate -- ipc --sizes 4K,64K,1M
  p2pbench calibrate --effect 5% --threshold 3% --from runs/`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := knob.Check(nil, &f); err != nil {
				return usageError{err}
			}
			knob.Fill(nil, &f)
			if n := c.ArgsLenAtDash(); n > 0 || n < 0 && len(args) > 0 {
				return usagef("calibrate: %q: give the path command after --, such as calibrate -- ipc --sizes 4K,1M", args[0])
			}
			o, err := f.options()
			if err != nil {
				return err
			}
			var runs []verdict.Run
			took := time.Duration(0)
			if f.From != "" {
				runs, took, err = f.stored(args)
			} else {
				runs, took, err = a.measureSame(c.Context(), f, args)
			}
			if err != nil {
				return err
			}
			return a.calibrate(f, runs, took, o)
		},
	}
	addFlags(c, &f)
	return c
}

// stored reads runs, and how long one takes from when they began.
func (f calibrateFlags) stored(args []string) ([]verdict.Run, time.Duration, error) {
	if len(args) > 0 || f.Keep != "" || f.Budget != 0 {
		return nil, 0, usagef("calibrate: --from measures nothing: leave out the path command, --keep and --budget")
	}
	side, err := readSide("calibrate", f.From)
	if err != nil {
		return nil, 0, err
	}
	all := side.Sessions()
	if len(all) != 1 {
		return nil, 0, usagef("calibrate: --from %s: holds %d sessions: name the folder of one", f.From, len(all))
	}
	runs := all[0]
	var apart []time.Duration
	for i, r := range runs[1:] {
		apart = append(apart, r.Started.Sub(runs[i].Started))
	}
	slices.Sort(apart)
	if len(apart) == 0 {
		return runs, 0, nil
	}
	return runs, apart[len(apart)/2], nil
}

// measureSame measures the same again and again.
func (a *app) measureSame(ctx context.Context, f calibrateFlags, args []string) ([]verdict.Run, time.Duration, error) {
	if slices.Contains(args, "--") {
		return nil, 0, usagef("calibrate: takes one path command; two sets of flags are for ab")
	}
	if err := pathArgs("calibrate", args); err != nil {
		return nil, 0, err
	}
	s, done, err := newSeries("calibrate", f.Keep, f.Budget)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	a.measuring.Store(true)
	arm, began := seriesArm{name: "runs", args: args}, time.Now()
	n := 0
	for ; n < f.Runs && s.fits(); n++ {
		if err := s.block(ctx, []seriesArm{arm}); err != nil {
			return nil, 0, err
		}
		if (n+1)%10 == 0 {
			a.say(f.Quiet, "%d of %d runs", n+1, f.Runs)
		}
	}
	return s.sides["runs"].Runs, time.Since(began) / time.Duration(n), nil
}

// leastForNoise is how many runs tell anything of how runs differ.
const leastForNoise = 8

func (a *app) calibrate(f calibrateFlags, runs []verdict.Run, each time.Duration, o verdict.Options) error {
	if len(runs) < leastForNoise {
		return usagef("calibrate: %d runs are too few to show how runs differ: use %d or more", len(runs), leastForNoise)
	}
	if f.At%2 != 0 {
		return usagef("calibrate: --at %d: want an even number: a block has two runs of each side", f.At)
	}
	c, err := verdict.NewCalibration(runs, each, o, verdict.Search{Trials: f.Trials, Most: f.Most, At: f.At})
	var unfit *verdict.IncomparableError
	var few *verdict.TooFewError
	switch {
	case errors.As(err, &unfit):
		return fmt.Errorf("calibrate: %w", err)
	case errors.As(err, &few):
		return usagef("calibrate: --most %d, --at %d: %w", f.Most, f.At, err)
	case err != nil:
		return err
	}
	c.Version, c.Command, c.Started = versionText(), os.Args, a.began.UTC().Truncate(time.Millisecond)
	if n := max(c.ToFind, c.ToPass); c.ToFind > 0 && c.ToPass > 0 {
		step := 2 * f.Looks
		words := []string{"p2pbench", "ab", "--runs", strconv.Itoa((n + step - 1) / step * step), "--effect", string(f.Effect), "--threshold", string(f.Threshold)}
		if f.Looks > 1 {
			words = append(words, "--looks", strconv.Itoa(f.Looks))
		}
		c.Use = append(append(words, "--"), measuring(runs[0].Command)[1:]...)
	}
	return view.RenderCalibration(a.stdout, c, f.Format)
}
