package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/verdict"
	"github.com/p2pbench/p2pbench/internal/verdict/view"
)

const baselineHelp = `Keep accepted sessions of runs in one text file, small enough for git, as BASE of ` + "`p2pbench compare`" + `.

A session is the runs in one directory: fresh processes, one after another on one machine. The file has one line per
session, with its machine, version, command and the reason for its acceptance, and one line per cell, with the medians
of the runs. It has no samples. The last line is a checksum.`

func (a *app) baselineCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "baseline", Short: "Keep accepted sessions of runs to compare with", Long: baselineHelp,
		Example: `  p2pbench baseline accept main.baseline runs/ --reason "NCCL 2.28"
  p2pbench baseline show main.baseline`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("baseline: no command %q: use accept or show", args[0])
			}
			return usagef("baseline: use accept or show, with the file of the baseline")
		},
	}
	c.AddCommand(a.baselineAcceptCommand(), a.baselineShowCommand())
	return c
}

func (a *app) baselineAcceptCommand() *cobra.Command {
	var f struct {
		Reason string `knob:"reason" arg:"text" group:"what" help:"why these runs are accepted (required)"`
		Fresh  bool   `knob:"fresh" group:"what" help:"remove the sessions that the file has"`
		Keep   int    `knob:"keep" default:"10" range:"1..1000" arg:"N" group:"what" help:"number of sessions to keep, the latest ones"`
	}
	c := &cobra.Command{
		Use: "accept FILE RUNS...", Short: "Add sessions to a baseline", Long: baselineHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("baseline accept: name the baseline's file and directories of run files")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := knob.Check(nil, &f); err != nil {
				return usageError{err}
			}
			knob.Fill(nil, &f)
			if f.Reason == "" {
				return usagef(`baseline accept: --reason "TEXT" is required: say why these runs are accepted`)
			}
			var b verdict.Baseline
			if !f.Fresh {
				var err error
				if b, err = readBaseline("baseline accept", args[0], true); err != nil {
					return err
				}
			}
			if err := accept(&b, args[1:], f.Reason, a.began); err != nil {
				return err
			}
			b.Sessions = b.Sessions[max(0, len(b.Sessions)-f.Keep):]
			if err := a.saveBaseline(args[0], b); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.stdout, "%s: %d sessions, the latest of %d runs and %d cells\n", args[0], len(b.Sessions),
				b.Sessions[len(b.Sessions)-1].Runs(), len(b.Sessions[len(b.Sessions)-1].Cells))
			return err
		},
	}
	addFlags(c, &f)
	return c
}

// accept adds the sessions in the directories. All sessions of a baseline are of the same things.
func accept(b *verdict.Baseline, paths []string, reason string, now time.Time) error {
	for _, path := range paths {
		side, err := readSide("baseline accept", path)
		if err != nil {
			return err
		}
		for _, runs := range side.Sessions() {
			s, err := verdict.NewSession(runs, reason, now)
			if err == nil {
				err = b.Add(s)
			}
			if err != nil {
				return fmt.Errorf("baseline accept: %s: %w", path, err)
			}
		}
	}
	return nil
}

func (a *app) saveBaseline(path string, b verdict.Baseline) error {
	data, err := b.Encode()
	if err != nil {
		return err
	}
	to, err := followLinks(path)
	if err == nil {
		err = (&output{flag: path, path: to}).write(data)
	}
	if err != nil {
		return outputError{fmt.Errorf("baseline accept: %s: %w", path, cause(err))}
	}
	return nil
}

// readBaseline reads a baseline's file, which may be absent where it is to be made.
func readBaseline(command, path string, mayLack bool) (verdict.Baseline, error) {
	if _, err := os.Stat(path); mayLack && errors.Is(err, fs.ErrNotExist) {
		return verdict.Baseline{}, nil
	}
	data, err := readFile(path)
	if err == nil {
		var b verdict.Baseline
		if b, err = verdict.ReadBaseline(data); err == nil {
			return b, nil
		}
	}
	return verdict.Baseline{}, usagef("%s: %s: %w", command, path, err)
}

func (a *app) baselineShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show FILE", Short: "Show the sessions of a baseline",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("baseline show: name the baseline's file")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := readBaseline("baseline show", args[0], false)
			if err != nil {
				return err
			}
			return view.Sessions(a.stdout, b)
		},
	}
}
