package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/sweep/worker"
)

// A path command measures one transport. Its flags are those of `p2pbench NAME` and of `p2pbench plan NAME`, and what
// claims and presets are made of.
type pathCommand struct {
	name, short, long, example string
	flags                      func() path // with nothing set
}

// path is the flags of a path command.
type path interface {
	// register adds all of them, those that every path has included.
	register(fs *pflag.FlagSet)
	// arm reads the path's own and says what is to be measured. Its errors are the user's.
	arm() (worker.Arm, error)
	// shared are those that every path has. They are read after arm, which may set some.
	shared() *common
}

// pathCommands are all of them, in the order in which users see them.
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

// pathNamed makes the flags of the path command of that name.
func pathNamed(name string) (path, bool) {
	all := pathCommands()
	i := slices.IndexFunc(all, func(p pathCommand) bool { return p.name == name })
	if i < 0 {
		return nil, false
	}
	return all[i].flags(), true
}

// command is the path command as users type it.
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
	helpful(c, f.shared().all()...)
	return c
}

// plan is the command that shows what the path command would run.
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
	helpful(c, f.shared().all()...)
	return c
}

// noArgs is cobra.NoArgs with a line that says what to do.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes flags only, not %q: see %s --help", c.CommandPath(), args[0], c.CommandPath())
	}
	return nil
}
