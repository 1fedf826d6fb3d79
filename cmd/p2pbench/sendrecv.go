package main

import (
	"cmp"
	"slices"

	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/memcpy"
	"github.com/p2pbench/p2pbench/internal/transport/sendrecv"
)

// sendrecvTraits are what sendrecv's common flags are by default. Both ways at once is what NCCL's own sendrecv_perf
// measures, and one way what it leaves out; the pull request has both.
var sendrecvTraits = traits{
	path: "sendrecv", sweep: sweepRange{lo: 32, hi: 1 << 30, factor: 2, onHost: 16 << 20}, ops: "stream,bidir",
	rings: true, free: []string{"handle"},
}

// sendrecvFlags are the flags of sendrecv.
type sendrecvFlags struct {
	common
	windowSetting
	o     sendrecv.Options
	graph sendrecvGraph
}

// sendrecvGraph is what is recorded.
type sendrecvGraph struct {
	Graph *int `knob:"cudagraph,G" range:"0..4096" arg:"N" group:"how" help:"record windows of N messages, fewer when they are large, and start each as one CUDA graph; 0: none"`
}

func (f *sendrecvFlags) shared() *common { return &f.common }

func (f *sendrecvFlags) register(fs *pflag.FlagSet) {
	f.registerCommon(fs, sendrecvTraits)
	f.adjustSpec = f.setLaunches
	f.accept = func(d gpu.Driver, i gpu.Info) error { return d.Accepts(i, "", f.o.Handle) }
	f.addSettings(&f.windowSetting, &f.graph, &f.o)
}

// arm reads the path's own flags.
func (f *sendrecvFlags) arm() (worker.Arm, error) {
	if err := f.applyPreset(); err != nil {
		return worker.Arm{}, err
	}
	if err := f.checkGraph(); err != nil {
		return worker.Arm{}, err
	}
	if _, err := sendrecv.New(f.o); err != nil {
		return worker.Arm{}, usageError{err}
	}
	f.ring = f.o.Ring
	f.baseline = baselineConfig{timing: cmp.Or(f.o.Timing, memcpy.TimingDevice), ring: f.ring, ctas: f.o.CTAs, perMessage: true}
	if f.o.Variant == "stable" {
		f.baseline.ctas *= 2 // half of its blocks send
	}
	return newArm("sendrecv", f.o), nil
}

// checkGraph makes -G N the windows of N that it stands for.
func (f *sendrecvFlags) checkGraph() error {
	if f.graph.Graph == nil {
		return nil
	}
	switch n := *f.graph.Graph; {
	case n == 0 && f.o.Launch == "graph":
		return usagef("--cudagraph 0 --launch graph: leave one of them out")
	case n == 0:
		return nil
	case f.o.Launch != "" && f.o.Launch != "graph":
		return usagef("--cudagraph %d: it starts windows as graphs: leave out --launch %s", n, f.o.Launch)
	case f.Window != 0 && f.Window != n:
		return usagef("--window %d: --cudagraph %d records windows of %d: leave one of them out", f.Window, n, n)
	}
	f.o.Launch = "graph"
	return nil
}

// setLaunches sets windows, graphs and a ring's operation.
func (f *sendrecvFlags) setLaunches(s *sweep.Spec) error {
	s.Window = f.Window
	if f.graph.Graph != nil {
		s.DefaultWindow = *f.graph.Graph
	}
	// Baselines go by it, too. libc's memcpy has nothing to record.
	s.Graph = f.o.Launch == "graph" && (s.Devices[0].Kind != host.Kind || f.o.Timing != "host")
	if !f.ring {
		return nil
	}
	i := slices.IndexFunc(s.Ops, func(op transport.Op) bool { return op != transport.OpBidir })
	if i >= 0 && len(f.Ops) > 0 {
		return usagef("--op %s: in a ring every rank sends and receives: leave --op out, or use bidir", s.Ops[i])
	}
	s.Ops = []transport.Op{transport.OpBidir}
	return nil
}

const sendrecvHelp = `Measure kernels that send to each other: a kernel of one rank writes into the memory of the next one,
whose kernel receives, and no host stands between them. One process per GPU; without a GPU two
processes in CPU memory run the same protocols.

ws      through a staging area of the receiver's, in steps, and small messages as ll does (--ll-max); in each
        block some warps send while others receive
stable  in steps always; half of the blocks send and half receive
put     into the receiver's buffer itself; nothing is staged
ll      in lines of 8 bytes that carry their own flags, for small messages
ll128   in lines of 120 bytes with one flag, where NVLink keeps them whole
ce      by copy engine and a word in memory each way for a window, without a kernel
auto    ll, ll128, put or ce, whatever is the fastest at each size

latency   one message
stream    a window of messages, one after the other on the device; one sample is one window
bidir     a window each way at the same time
pingpong  there and back, halved

Times are the device's, from the moment at which both ranks are let go; the longer one counts. What it
costs a host to start a kernel is not in them (--timing host). NCCL beside it (--vs nccl) is called once for
each message, so that N messages are N calls on both sides.`

func sendrecvCommand() pathCommand {
	return pathCommand{
		name: "sendrecv", short: "Kernels that send and receive", long: sendrecvHelp,
		example: `  p2pbench sendrecv --size-sweep --vs nccl
  p2pbench sendrecv --variant ws --ctas 4 --vs nccl -G 20 --op bidir
  p2pbench sendrecv --variant put --sizes 8M,64M,1G --ctas 8 --op stream --vs memcpy
  p2pbench sendrecv --ring --ranks 4 -b 1M -e 256M --vs nccl-graph
  p2pbench sendrecv --preset torchcomms-2728`,
		flags: func() path { return &sendrecvFlags{} },
	}
}
