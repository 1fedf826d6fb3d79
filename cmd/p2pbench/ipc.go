package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport/ipc"
)

// ipcSweep is `--size-sweep` for ipc.
var ipcSweep = sweepRange{lo: 1 << 10, hi: 256 << 20, factor: 4}

// ipcFlags are the flags of `p2pbench ipc` and `p2pbench plan ipc`.
type ipcFlags struct {
	common
	path   string
	engine string
	handle string
}

func (f *ipcFlags) registerAll(c *cobra.Command) {
	f.register(c.Flags(), ipcSweep)
	f.accept = func(d gpu.Driver, i gpu.Info) error { return d.Accepts(i, f.engine, gpu.HandleKind(f.handle)) }
	c.Flags().StringVar(&f.path, "path", "auto", "auto or direct (the sender copies straight into the receiver's memory)")
	c.Flags().StringVar(&f.engine, "engine", "auto",
		"how bytes move: cuda ce, sm[:CTAS], bulk[:CTAS], proxy[:CTAS]; host cpu, cpu-memcpy, cpu-nt; auto: the fastest by size")
	c.Flags().StringVar(&f.handle, "handle", "auto", "memory handle: cuda legacy or vmm-fd; host memfd")
}

// arm reads the path's own flags.
func (f *ipcFlags) arm() (worker.Arm, error) {
	if !slices.Contains(ipc.Paths, f.path) {
		return worker.Arm{}, usagef("--path %s: use one of %s", f.path, strings.Join(ipc.Paths, ", "))
	}
	if !slices.Contains(ipc.Handles, gpu.HandleKind(f.handle)) {
		return worker.Arm{}, usagef("--handle %s: use one of %v", f.handle, ipc.Handles)
	}
	engine := f.engine
	if engine == "auto" && f.graph == 1 {
		engine = "ce" // a choice by size cannot be recorded as one graph
	}
	return newArm("ipc", ipc.Options{Path: f.path, Engine: engine, Handle: gpu.HandleKind(f.handle)}), nil
}

const ipcHelp = `Measure memory-handle IPC between two processes, one per GPU: the receiver exports
its buffer once, the sender maps it and copies straight into it, publishes a sequence
number in shared memory and waits until the receiver has seen it. Without a GPU the
two processes share CPU memory.

latency   one message, until the sender knows that the receiver has it
stream    a window of messages at once; one sample is one window
bidir     a window each way at the same time
pingpong  there and back, halved`

func (a *app) ipcCommand() *cobra.Command {
	var f ipcFlags
	c := &cobra.Command{
		Use: "ipc", Short: "Memory-handle IPC between two processes", Long: ipcHelp, Args: noArgs,
		Example: `  p2pbench ipc --size-sweep
  p2pbench ipc --sizes 1K,64K,1M --vs memcpy --op latency,bidir
  p2pbench ipc --device host --sizes 8 --op pingpong --until ci=1% --out run.json`,
		RunE: func(c *cobra.Command, _ []string) error {
			arm, err := f.arm()
			if err != nil {
				return err
			}
			return a.measure(c.Context(), &f.common, arm)
		},
	}
	f.registerAll(c)
	return c
}

// noArgs is cobra.NoArgs with a line that says what to do.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes flags only, not %q: see %s --help", c.CommandPath(), args[0], c.CommandPath())
	}
	return nil
}
