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

// sendrecvTraits are sendrecv's defaults of the common flags. NCCL's sendrecv_perf measures bidir only; the pull
// request has stream too.
var sendrecvTraits = traits{
	path: "sendrecv", sweep: sweepRange{lo: 32, hi: 1 << 30, factor: 2, hostHi: 16 << 20}, ops: "stream,bidir",
	rings: true, free: []string{"handle"},
}

// sendrecvFlags are the flags of sendrecv.
type sendrecvFlags struct {
	common
	windowSetting
	o     sendrecv.Options
	graph sendrecvGraph
}

// sendrecvGraph is --cudagraph of sendrecv.
type sendrecvGraph struct {
	Graph *int `knob:"cudagraph,G" range:"0..4096" arg:"N" group:"how" help:"start windows of N messages (fewer for large messages) as one CUDA graph each; 0: no graph"`
}

func (f *sendrecvFlags) shared() *common { return &f.common }

func (f *sendrecvFlags) register(fs *pflag.FlagSet) {
	f.registerCommon(fs, sendrecvTraits)
	f.adjustSpec = f.setLaunches
	f.accept = func(d gpu.Driver, i gpu.Info) error { return d.Accepts(i, "", f.o.Handle) }
	f.addSettings(&f.windowSetting, &f.graph, &f.o)
}

// arm makes the subject from the path's own flags.
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
		f.baseline.ctas *= 2 // --ctas counts half of its blocks
	}
	return newArm("sendrecv", f.o), nil
}

// checkGraph translates --cudagraph N into --launch graph and checks it against --launch and --window.
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

// setLaunches sets the window, the use of graphs, and the operation of a ring.
func (f *sendrecvFlags) setLaunches(s *sweep.Spec) error {
	s.Window = f.Window
	if f.graph.Graph != nil {
		s.DefaultWindow = *f.graph.Graph
	}
	// Baselines use it, too. libc's memcpy cannot be recorded.
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

const sendrecvHelp = `Measure GPU kernels that send and receive: a kernel of one rank writes into the memory of the next rank, whose
kernel receives; the hosts take no part in the transfer. One process per GPU. Without a GPU, CPU threads
emulate thread blocks in CPU memory and run the same protocols.

Variants (--variant):

  ws       messages pass a staging area at the receiver in steps; in each thread block some warps send and the
           others receive; small messages are sent in lines, as ll does (--ll-max)
  stable   messages of every size pass the staging area in steps; half of the thread blocks send and half receive
  put      the sender writes into the receiver's buffer; no staging area
  ll       lines of 8 bytes of data and 8 bytes of flags, for small messages
  ll128    lines of 120 bytes of data and one flag, on links with atomic 128-byte stores (NVLink)
  ce       the copy engine writes the messages, and one word in memory per window and direction synchronises
           the ranks; no kernel
  auto     the fastest of ll, ll128, put and ce at each size

Operations (--op):

  latency    one message
  stream     a window of messages back to back; one sample is one window
  bidir      a window in each direction at the same time
  pingpong   half of the time of a round trip

The device's clock measures the time from the simultaneous start of both ranks; the longer time of the two ranks
counts. Starting a kernel from the host is not included (it is with --timing host). The baseline NCCL (--vs nccl)
is called once for each message: N messages are N calls on both ranks.

docs/sendrecv.md describes every option, docs/measurement.md every figure.`

func sendrecvCommand() pathCommand {
	return pathCommand{
		name: "sendrecv", short: "Measure GPU kernels that send and receive", long: sendrecvHelp,
		example: `  p2pbench sendrecv --vs nccl                                          # all sizes, compared with NCCL
  p2pbench sendrecv --variant ws --ctas 4 --vs nccl -G 20 --op bidir   # 4 thread blocks, CUDA graphs of 20 messages
  p2pbench sendrecv --variant put --sizes 8M,64M,1G --ctas 8 --op stream --vs memcpy
  p2pbench sendrecv --ring --ranks 4 -b 1M -e 256M --vs nccl-graph     # a ring of four GPUs
  p2pbench sendrecv --preset torchcomms-2728`,
		flags: func() path { return &sendrecvFlags{} },
	}
}
