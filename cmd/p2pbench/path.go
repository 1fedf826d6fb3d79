package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/sweep/worker"
)

// pathCommand is a command that measures one transport. `p2pbench NAME`, `p2pbench plan NAME`, claims and presets all
// use its flags.
type pathCommand struct {
	name, short, long, example string
	flags                      func() path // returns flags with none set
}

// path holds the flags of a path command.
type path interface {
	// register adds the path's own flags and the common ones.
	register(fs *pflag.FlagSet)
	// arm makes the subject of the measurement from the path's own flags. Its errors are usage errors.
	arm() (worker.Arm, error)
	// shared returns the common flags. Call it after arm, which may set some of them.
	shared() *common
}

// pathCommands are all path commands in the order of --help.
func pathCommands() []pathCommand {
	return []pathCommand{ipcCommand(), rdmaCommand(), sendrecvCommand()}
}

func pathNames() string {
	var names []string
	for _, p := range pathCommands() {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// pathNamed returns new flags of the named path command.
func pathNamed(name string) (path, bool) {
	all := pathCommands()
	i := slices.IndexFunc(all, func(p pathCommand) bool { return p.name == name })
	if i < 0 {
		return nil, false
	}
	return all[i].flags(), true
}

// command is `p2pbench NAME`.
func (p pathCommand) command(a *app) *cobra.Command {
	f := p.flags()
	c := &cobra.Command{
		Use: p.name, Short: p.short, Long: p.long, Example: p.example, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			arm, err := f.arm()
			if err != nil {
				return err
			}
			return a.measure(c.Context(), f.shared(), arm)
		},
	}
	f.register(c.Flags())
	setUpHelp(c, f.shared().allSettings()...)
	return c
}

// plan is `p2pbench plan NAME`.
func (p pathCommand) plan(a *app) *cobra.Command {
	f := p.flags()
	c := &cobra.Command{
		Use: p.name, Short: "Print the plan of p2pbench " + p.name + ", which has the same flags", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			arm, err := f.arm()
			if err != nil {
				return err
			}
			plan, _, err := f.shared().plan(arm)
			if err != nil {
				return err
			}
			return printPlan(a.stdout, plan, f.shared().Format)
		},
	}
	f.register(c.Flags())
	setUpHelp(c, f.shared().allSettings()...)
	return c
}

// noArgs is cobra.NoArgs with an error that says what to do.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes flags only, not %q: see %s --help", c.CommandPath(), args[0], c.CommandPath())
	}
	return nil
}
