package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/verdict"
	"github.com/p2pbench/p2pbench/internal/verdict/view"
)

// judgeSettings say what is a regression.
type judgeSettings struct {
	Threshold percent  `knob:"threshold" default:"5%" arg:"P%" group:"what" help:"smallest change that is a regression"`
	Effect    percent  `knob:"effect" default:"10%" arg:"P%" group:"what" help:"change that a pass must exclude"`
	Metrics   []string `knob:"metric" values:"p50 p99 GB/s" free:"true" arg:"list" group:"what" help:"figures to compare, as one family: p50 (from which GB/s follows), p99, GB/s (default: p50)"`
	Looks     int      `knob:"looks" default:"1" range:"1..10" arg:"N" group:"what" help:"number of planned interim looks; each has the error rate 5 % ÷ N"`
}

// verdictView says how a comparison is shown.
type verdictView struct {
	Format string `knob:"format" values:"table json md junit github openmetrics" group:"output" help:"format of the result on stdout; github: annotations, and the table in the step summary"`
}

// percent is a fraction, written in per cent.
type percent string

// Check refuses what is not a percentage from 0 to below 100.
func (p percent) Check() error {
	if v := p.share(); !(v >= 0 && v < 1) {
		return errors.New("want P% with P of 0 or more and below 100, such as 5%")
	}
	return nil
}

// share returns the fraction; -1: not a number.
func (p percent) share() float64 {
	f, err := strconv.ParseFloat(strings.TrimSuffix(string(p), "%"), 64)
	if err != nil {
		return -1
	}
	return f / 100
}

// familyAlpha is the largest probability with which equal sides are called a regression.
const familyAlpha = 0.05

// options converts the settings.
func (s judgeSettings) options() (verdict.Options, error) {
	o := verdict.Options{
		Rule:  verdict.Rule{Threshold: s.Threshold.share(), Effect: s.Effect.share()},
		Alpha: familyAlpha, Looks: s.Looks, Metrics: s.Metrics,
	}
	if err := o.Check(); err != nil {
		return o, usagef("--threshold %s, --effect %s: %w", s.Threshold, s.Effect, err)
	}
	return o, nil
}

// Verdicts other than pass, as errors.
var (
	errRegress   = errors.New("regress")
	errAmbiguous = errors.New("ambiguous")
)

// publishVerdict prints a comparison and returns its verdict as an error; nil: pass.
func (a *app) publishVerdict(r verdict.Result, format string) error {
	r.Version, r.Command, r.Started = versionText(), os.Args, a.began.UTC().Truncate(time.Millisecond)
	var err error
	switch r.Verdict {
	case verdict.Regress:
		err = fmt.Errorf("%w: %s", errRegress, r.Why)
	case verdict.Ambiguous:
		err = fmt.Errorf("%w: %s", errAmbiguous, r.Why)
	}
	if err != nil {
		r.Exit = exitCode(err, nil)
	}
	if format == "github" {
		err = errors.Join(err, appendSummary(r))
	}
	return errors.Join(err, view.Render(a.stdout, r, format))
}

// appendSummary appends the table to the summary of the GitHub step, if there is one.
func appendSummary(r verdict.Result) error {
	path := os.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err == nil {
		err = errors.Join(view.Render(f, r, "md"), f.Close())
	}
	if err != nil {
		return outputError{fmt.Errorf("GITHUB_STEP_SUMMARY %s: %w", path, cause(err))}
	}
	return nil
}

// readSide reads the runs of a file, a directory of run files, a directory of such directories, or a baseline. Runs of one
// directory are one session.
func readSide(command, path string) (verdict.Side, error) {
	side := verdict.Side{Name: path}
	files, err := runFiles(path)
	if err != nil {
		return side, usagef("%s: %s: %w", command, path, cause(err))
	}
	if len(files) == 0 {
		return side, usagef("%s: %s: holds no run files (*.json, as written by --out)", command, path)
	}
	parts, errs := make([][]verdict.Run, len(files)), make([]error, len(files))
	var wait sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, name := range files {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			parts[i], errs[i] = readRuns(command, name)
		})
	}
	wait.Wait()
	for i, runs := range parts {
		if errs[i] != nil {
			return side, errs[i]
		}
		side.Runs = append(side.Runs, runs...)
	}
	return side, nil
}

// readRuns reads the run of a file, or those of a baseline.
func readRuns(command, name string) ([]verdict.Run, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, usagef("%s: %s: %w", command, name, err)
	}
	if verdict.IsBaseline(data) {
		b, err := verdict.ReadBaseline(data)
		if err != nil {
			return nil, usagef("%s: %s: %w", command, name, err)
		}
		return b.RunsOf(name), nil
	}
	run, err := verdict.Read(name, data)
	var unfit *verdict.IncomparableError
	switch {
	case errors.As(err, &unfit):
		return nil, fmt.Errorf("%s: %w", command, err)
	case err != nil:
		return nil, usagef("%s: %s: %w", command, name, err)
	}
	run.Session = filepath.Dir(name)
	return []verdict.Run{run}, nil
}

// runFiles returns the files of a side, in order.
func runFiles(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil || !st.IsDir() {
		return []string{path}, err
	}
	var files []string
	for _, pattern := range []string{"*.json", "*/*.json"} {
		found, err := filepath.Glob(filepath.Join(escapeGlob(path), pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasPrefix(filepath.Base(f), ".") }), nil
}

// escapeGlob escapes the characters of a path that are special in a pattern.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// compareSides compares the sides and adds the command that would decide an ambiguous result.
func compareSides(command string, base, head verdict.Side, o verdict.Options, decide func(runs int) []string) (verdict.Result, error) {
	r, err := verdict.Compare(base, head, o)
	var few *verdict.TooFewError
	switch {
	case errors.As(err, &few):
		return r, usagef("%s: %w", command, err)
	case err != nil:
		return r, fmt.Errorf("%s: %w", command, err)
	case r.Verdict != verdict.Ambiguous:
		return r, nil
	}
	if runs := r.RunsToDecide(); runs > 0 {
		r.Decide = decide(runs)
	} else {
		r.Warnings = append(r.Warnings, "no reasonable number of runs would decide: quiet the machine, leave the noisiest cells out, or raise --effect")
	}
	return r, nil
}

// verdictHelp is the part of the help text about verdicts.
const verdictHelp = `A run is one observation. A significant slow-down of at least 5 % (--threshold) is a regression (exit code 1). It is a
pass (0) if a slow-down of 10 % (--effect) is excluded, and else ambiguous (6). Bounds hold for all cells together at
95 %. docs/ci.md explains the method.`

// say writes a line to stderr unless quiet is set.
func (a *app) say(quiet bool, format string, args ...any) {
	if !quiet {
		fmt.Fprintf(a.stderr, "p2pbench: %s\n", report.Printable(fmt.Sprintf(format, args...)))
	}
}
