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
		Use: "plan PATH", Short: "Show the cells a path command would run, without running",
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
		return usagef("--format %s: a plan is printed as table or json", format)
	}
	var arms []string
	for _, a := range p.Arms {
		arms = append(arms, a.Name)
	}
	fmt.Fprintf(w, "%s between", strings.Join(arms, " vs "))
	for r, d := range p.Ranks {
		fmt.Fprintf(w, " rank %d: %s %s %d", r, d.Kind, d.Name, d.Index)
	}
	fmt.Fprintf(w, "; %.1f MiB of memory for each rank\n", float64(p.Bytes[0])/(1<<20))
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
