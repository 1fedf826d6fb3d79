package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/verdict"
)

const compareHelp = `Compare stored runs and tell whether HEAD is slower than BASE.

BASE and HEAD are directories of files that runs wrote with --out, one file per run of fresh processes; directories of
such directories, one per session; or a baseline that p2pbench baseline accept wrote. Interleaved runs of both sides (A B
B A, as p2pbench ab --keep stores them) are compared in blocks. If HEAD was measured at another time, BASE needs at least
three sessions, which show how much sessions differ; with fewer the verdict is ambiguous.

` + verdictHelp + `

The exit code is 3 if the sides differ in devices, link, driver, libraries, settings or path, or if a cell is missing or
invalid. Too few runs are refused.`

func (a *app) compareCommand() *cobra.Command {
	var f struct {
		judgeSettings
		Settings bool `knob:"settings" group:"what" help:"allow the sides to differ in settings, as those of ab with two sets of flags do"`
		verdictView
	}
	c := &cobra.Command{
		Use: "compare BASE HEAD", Short: "Compare stored runs of two sides", Long: compareHelp,
		Example: `  p2pbench compare main.baseline runs/
  p2pbench compare kept/base kept/head --format junit`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] == "" || args[1] == "" {
				return usagef("compare: name two sides, BASE and HEAD: directories of run files, or a baseline")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := knob.Check(nil, &f); err != nil {
				return usageError{err}
			}
			knob.Fill(nil, &f)
			o, err := f.options()
			if err != nil {
				return err
			}
			o.Settings = f.Settings
			base, err := readSide("compare", args[0])
			if err != nil {
				return err
			}
			head, err := readSide("compare", args[1])
			if err != nil {
				return err
			}
			r, err := compareSides("compare", base, head, o, func(runs int) []string { return abCommand(base.Runs[0], head.Runs[0], runs) })
			if err != nil {
				return err
			}
			return a.publishVerdict(r, f.Format)
		},
	}
	addFlags(c, &f)
	return c
}

// abCommand is the comparison that would measure what two runs measured in turns.
func abCommand(base, head verdict.Run, runs int) []string {
	words := []string{"p2pbench", "ab", "--runs", strconv.Itoa(runs)}
	a, b := measuring(base.Command), measuring(head.Command)
	if a[0] != b[0] {
		words = append(words, "--base", a[0], "--head", b[0])
	}
	if slices.Equal(a[1:], b[1:]) || a[1] != b[1] {
		return append(append(words, "--"), b[1:]...)
	}
	return slices.Concat(words, []string{"--", a[1], "--"}, a[2:], []string{"--"}, b[2:])
}

// measuring is a path's command without what becomes of its result.
func measuring(command []string) []string {
	var words []string
	for i := 0; i < len(command); i++ {
		switch w := command[i]; {
		case slices.Contains([]string{"--out", "--format"}, w):
			i++
		case strings.HasPrefix(w, "--out="), strings.HasPrefix(w, "--format="), w == "--quiet", w == "-q":
		default:
			words = append(words, w)
		}
	}
	for len(words) < 2 {
		words = append(words, "ipc")
	}
	return words
}
