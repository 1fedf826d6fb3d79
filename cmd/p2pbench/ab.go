package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/verdict"
)

const abHelp = `Measure two binaries, or one binary with two sets of flags, in alternating runs, and tell whether head is slower
than base.

  p2pbench ab --base ./old --head ./new -- PATH FLAGS...
  p2pbench ab -- PATH FLAGS... -- BASE-FLAGS... -- HEAD-FLAGS...

A path command follows the first --. A second and a third -- precede the flags of base and of head; both may be empty.
Without binaries and flag sets both sides are equal, and the result shows the noise of the machine.

A run is a fresh set of processes. The order of runs is A B B A, B A A B, so that drift of the machine affects both sides
equally. With --looks N the runs are judged N times, at 5 % ÷ N each, and end at the first verdict. Ctrl-C leaves nothing
behind.

` + verdictHelp

type abFlags struct {
	Base string `knob:"base" arg:"binary" group:"what" help:"p2pbench binary of side A (default: this one)"`
	Head string `knob:"head" arg:"binary" group:"what" help:"p2pbench binary of side B (default: this one)"`
	judgeSettings
	Runs int `knob:"runs" default:"10" range:"4..1000" arg:"N" group:"how" help:"runs per side, an even number; p2pbench calibrate computes how many are needed"`
	seriesSettings
	verdictView
}

// seriesSettings are the flags of commands that start many runs.
type seriesSettings struct {
	Budget time.Duration `knob:"budget" range:"1s.." group:"how" help:"start no block of runs that would exceed this time (default: none)"`
	Keep   string        `knob:"keep" arg:"folder" group:"output" help:"keep the run files in this folder"`
	Quiet  bool          `knob:"quiet,q" group:"output" help:"print only errors on stderr"`
}

func (a *app) abCommand() *cobra.Command {
	var f abFlags
	c := &cobra.Command{
		Use: "ab [flags] -- PATH FLAGS...", Short: "Compare two binaries or settings in alternating runs", Long: abHelp,
		Example: `  p2pbench ab --base ./main --head ./pr -- ipc --sizes 4K,64K,1M
  p2pbench ab --runs 20 -- ipc --sizes 1M -- --engine ce -- --engine sm`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := knob.Check(nil, &f); err != nil {
				return usageError{err}
			}
			knob.Fill(nil, &f)
			if n := c.ArgsLenAtDash(); n > 0 || n < 0 && len(args) > 0 {
				return usagef("ab: %q: give the path command after --, such as ab -- ipc --sizes 4K,1M", args[0])
			}
			arms, settings, err := f.arms(args)
			if err != nil {
				return err
			}
			o, err := f.options()
			if err != nil {
				return err
			}
			o.Settings = settings
			if err := f.checkRuns(o); err != nil {
				return err
			}
			return a.runAB(c.Context(), f, arms, o)
		},
	}
	addFlags(c, &f)
	return c
}

// arms parses the arguments after the first --. settings: the sides differ in flags.
func (f abFlags) arms(args []string) (arms [2]seriesArm, settings bool, err error) {
	var parts [][]string
	for from := 0; from <= len(args); {
		n := slices.Index(args[from:], "--")
		if n < 0 {
			n = len(args) - from
		}
		parts = append(parts, args[from:from+n])
		from += n + 1
	}
	if len(parts) != 1 && len(parts) != 3 {
		return arms, false, usagef("ab: %d sets of flags: want -- PATH FLAGS..., or -- PATH FLAGS... -- BASE-FLAGS... -- HEAD-FLAGS...", len(parts)-1)
	}
	if err := pathArgs("ab", parts[0]); err != nil {
		return arms, false, err
	}
	arms = [2]seriesArm{{"base", f.Base, parts[0]}, {"head", f.Head, parts[0]}}
	for i := range arms {
		if len(parts) == 3 {
			arms[i].args = slices.Concat(parts[0], parts[1+i])
			if err := ownFlags("ab", parts[1+i]); err != nil {
				return arms, false, err
			}
		}
		if b := arms[i].binary; b != "" {
			if st, err := os.Stat(b); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
				return arms, false, usagef("ab: --%s %s: not an executable file", arms[i].name, b)
			}
		}
	}
	return arms, len(parts) == 3, nil
}

// checkRuns refuses a number of runs that cannot reach a verdict, or cannot be divided into the planned looks.
func (f abFlags) checkRuns(o verdict.Options) error {
	alpha, looks := o.Alpha/float64(f.Looks), 2*f.Looks
	switch need := verdict.Needed(max(1, len(f.Metrics)), alpha, true); {
	case f.Runs%looks != 0 && f.Looks == 1:
		return usagef("ab: --runs %d: want an even number: a block has two runs of each side", f.Runs)
	case f.Runs%looks != 0:
		return usagef("ab: --runs %d: want a multiple of %d, so that there are whole blocks between %d looks", f.Runs, looks, f.Looks)
	case f.Runs < need:
		return usagef("ab: --runs %d: %w", f.Runs, &verdict.TooFewError{Have: f.Runs, Need: need})
	}
	return nil
}

func (a *app) runAB(ctx context.Context, f abFlags, arms [2]seriesArm, o verdict.Options) error {
	s, done, err := newSeries("ab", f.Keep, f.Budget)
	if err != nil {
		return err
	}
	defer done()
	a.measuring.Store(true)
	var r verdict.Result
	blocks, perLook := f.Runs/2, f.Runs/2/f.Looks
	labels, _ := verdict.InBlocks(blocks)
	for b := 0; b < blocks; b++ {
		if !s.fits() {
			return a.outOfBudget(f, s, b, o)
		}
		began := time.Now()
		var order []seriesArm
		for _, head := range labels[b*verdict.BlockSize : (b+1)*verdict.BlockSize] {
			if head {
				order = append(order, arms[1])
			} else {
				order = append(order, arms[0])
			}
		}
		if err := s.block(ctx, order); err != nil {
			return err
		}
		if err := s.enough(f, o); b == 0 && err != nil {
			return err
		}
		a.say(f.Quiet, "block %d of %d took %v", b+1, blocks, time.Since(began).Round(time.Millisecond))
		if (b+1)%perLook != 0 {
			continue
		}
		if r, err = f.look(s, o, b+1 == blocks); err != nil {
			return err
		}
		if r.Verdict == verdict.Pass || r.Verdict == verdict.Regress {
			break
		}
	}
	return a.publishVerdict(r, f.Format)
}

// enough stops after the first block if the runs cannot reach a verdict: only then is the number of cells known.
func (s *series) enough(f abFlags, o verdict.Options) error {
	cells := len(s.sides["base"].Runs[0].Cells) * max(1, len(f.Metrics))
	if need := verdict.Needed(cells, o.Alpha/float64(f.Looks), true); f.Runs < need {
		return usagef("ab: --runs %d: for %d figures: %w", f.Runs, cells, &verdict.TooFewError{Have: f.Runs, Need: need})
	}
	return nil
}

// look judges the runs so far. Too few runs are an error at the last look, and undecided at the others.
func (f abFlags) look(s *series, o verdict.Options, last bool) (verdict.Result, error) {
	base, head := *s.sides["base"], *s.sides["head"]
	if n := verdict.Needed(len(base.Runs[0].Cells)*max(1, len(f.Metrics)), o.Alpha/float64(f.Looks), true); !last && len(base.Runs) < n {
		return verdict.Result{}, nil
	}
	return compareSides("ab", base, head, o, f.again)
}

// again returns this command with more runs.
func (f abFlags) again(runs int) []string {
	step := 2 * f.Looks
	words := []string{"p2pbench"}
	said := false
	for i := 1; i < len(os.Args); i++ {
		switch w := os.Args[i]; {
		case said && w == "--runs" || w == "--keep" && !slices.Contains(os.Args[:i], "--"):
			i++
		case w == "ab" && !said:
			words = append(words, w, "--runs", strconv.Itoa((runs+step-1)/step*step))
			said = true
		case len(w) > 7 && w[:7] == "--runs=" || len(w) > 7 && w[:7] == "--keep=":
		default:
			words = append(words, w)
		}
	}
	return words
}

// outOfBudget judges the blocks that fit into the budget; their number does not depend on the measured figures.
func (a *app) outOfBudget(f abFlags, s *series, blocks int, o verdict.Options) error {
	figures := len(s.sides["base"].Runs[0].Cells) * max(1, len(f.Metrics))
	need := verdict.Needed(figures, o.Alpha/float64(f.Looks), true)
	if 2*blocks < need {
		takes := time.Duration(math.Ceil(float64(need/2) * s.slowest.Seconds() * float64(time.Second)))
		return fmt.Errorf("%w: ab: --budget %v was enough for %d runs a side, and %d figures take %d: give it %v",
			errAmbiguous, f.Budget, 2*blocks, figures, need, takes.Round(time.Second)+time.Second)
	}
	r, err := compareSides("ab", *s.sides["base"], *s.sides["head"], o, f.again)
	if err != nil {
		return err
	}
	r.Warnings = append(r.Warnings, fmt.Sprintf("--budget %v ended the runs: %d of %d a side", f.Budget, 2*blocks, f.Runs))
	return a.publishVerdict(r, f.Format)
}
