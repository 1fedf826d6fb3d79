package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/knob"
)

// flagGroup is a heading under which help shows flags, by the key that settings name.
type flagGroup struct{ key, title string }

var flagGroups = []flagGroup{
	{"what", "What to measure"},
	{"how", "How to measure it"},
	{"path", "How messages are sent"},
	{"output", "Output"},
	{"expert", "Expert"},
}

// helpWidth is where lines of help wrap, in columns.
const helpWidth = 118

// addFlags gives a command flags for its settings.
func addFlags(c *cobra.Command, settings ...any) {
	knob.AddFlags(c.Flags(), settings...)
	helpful(c, settings...)
}

// helpful shows the flags of a command, which are for these settings, by groups, and makes the shell complete their values.
func helpful(c *cobra.Command, settings ...any) {
	groupedHelp(c)
	for _, f := range knob.Fields(settings...) {
		if len(f.Values) > 0 {
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(f.Values, cobra.ShellCompDirectiveNoFileComp)) // the flag exists, and has none
		}
	}
}

// groupedHelp makes a command's help say first what most runs need: what the command is, examples, and the flags by what
// they are for. Details follow.
func groupedHelp(c *cobra.Command) {
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		about, details, _ := strings.Cut(cmp.Or(c.Long, c.Short), "\n\n")
		w := c.OutOrStdout()
		fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", about, c.UseLine())
		if c.Example != "" {
			fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
		}
		writeGroups(w, c.Flags())
		if details != "" {
			fmt.Fprintf(w, "\n%s\n", details)
		}
	})
}

func writeGroups(w io.Writer, all *pflag.FlagSet) {
	all.SortFlags = false // as the settings are declared
	for _, g := range flagGroups {
		group := pflag.NewFlagSet(g.key, pflag.ContinueOnError)
		group.SortFlags = false
		all.VisitAll(func(f *pflag.Flag) {
			if knob.Group(f) == g.key {
				group.AddFlag(f)
			}
		})
		if group.HasAvailableFlags() {
			fmt.Fprintf(w, "\n%s:\n%s", g.title, group.FlagUsagesWrapped(helpWidth))
		}
	}
}
