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

// flagGroup is a heading of --help. The key is the value of the tag group in settings.
type flagGroup struct{ key, title string }

var flagGroups = []flagGroup{
	{"what", "What to measure"},
	{"how", "How to measure it"},
	{"path", "How messages are sent"},
	{"output", "Output"},
	{"expert", "Expert"},
}

// helpWidth is the width of the help text, in columns.
const helpWidth = 118

// addFlags adds the flags for settings to a command.
func addFlags(c *cobra.Command, settings ...any) {
	knob.AddFlags(c.Flags(), settings...)
	setUpHelp(c, settings...)
}

// setUpHelp groups the flags of these settings in the command's help and registers shell completion of their values.
func setUpHelp(c *cobra.Command, settings ...any) {
	groupHelp(c)
	for _, f := range knob.Fields(settings...) {
		if len(f.Values) > 0 {
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(f.Values, cobra.ShellCompDirectiveNoFileComp)) // cannot fail: the flag exists and has no completion yet
		}
	}
}

// groupHelp orders a command's help: first paragraph of the description, usage, examples, flags in groups, remaining
// description.
func groupHelp(c *cobra.Command) {
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
	all.SortFlags = false // in the order of declaration
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
