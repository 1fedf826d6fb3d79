package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/sweep"
)

func (a *app) planCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "plan PATH", Short: "Print the plan of a path command without running it",
		Example: "  p2pbench plan ipc --sizes 1K,1M --vs memcpy",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("plan: no path %q: use one of %s", args[0], pathNames())
			}
			return usagef("plan: name a path command: %s", pathNames())
		},
	}
	for _, p := range pathCommands() {
		c.AddCommand(p.plan(a))
	}
	return c
}

// printPlan shows the plan as a table or as JSON.
func printPlan(w io.Writer, p sweep.Plan, format string) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(p)
	case "table", "":
	default:
		return usagef("--format %s: use table or json for a plan", format)
	}
	var arms []string
	for _, a := range p.Arms {
		arms = append(arms, a.Name)
	}
	var ranks []string
	for r, d := range p.Ranks {
		ranks = append(ranks, fmt.Sprintf("rank %d: %s %d (%s)", r, d.Kind, d.Index, d.Name))
	}
	fmt.Fprintf(w, "%s between %s; %.1f MiB of memory per rank\n", strings.Join(arms, " vs "), strings.Join(ranks, ", "), float64(p.Bytes[0])/(1<<20))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "op\tsize\twindow\twarm-up\titerations\trounds\tcheck\t")
	for _, c := range p.Cells {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%d\t%s\t\n", c.Op, knob.FormatSize(c.Size), c.Window, c.Warmup, iterations(c), c.Rounds, c.Check)
	}
	return t.Flush()
}

func iterations(c sweep.Cell) string {
	switch {
	case c.Duration > 0:
		return c.Duration.String()
	case c.Until > 0:
		return fmt.Sprintf("±%g%%, ≤ %d", c.Until*100, c.Iters)
	}
	return fmt.Sprint(c.Iters)
}
