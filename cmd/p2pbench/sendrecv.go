package main

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/sendrecv"
)

// sendrecvTraits are what sendrecv's common flags are by default. Both ways at once is what NCCL's own sendrecv_perf
// measures, and one way what it leaves out; the pull request has both.
var sendrecvTraits = traits{
	path: "sendrecv", sweep: sweepRange{lo: 32, hi: 1 << 30, factor: 2, onHost: 16 << 20}, ops: "stream,bidir",
	graph: "record windows of `N` messages, fewer when they are large, and start each as one CUDA graph",
	rings: true, free: []string{"handle"},
}

// sendrecvFlags are the flags of sendrecv.
type sendrecvFlags struct {
	common
	variant       string
	ctas          int
	senderWarps   int
	receiverWarps int
	stride        string
	stages        int
	lines         string
	copy          string
	overlap       string
	launch        string
	train         int
	timing        string
	handle        string
}

func (f *sendrecvFlags) shared() *common { return &f.common }

func (f *sendrecvFlags) register(fs *pflag.FlagSet) {
	f.registerCommon(fs, sendrecvTraits)
	f.shape = f.shapeSpec
	f.accept = func(d gpu.Driver, i gpu.Info) error { return d.Accepts(i, "", gpu.HandleKind(f.handle)) }
	fs.StringVar(&f.variant, "variant", "auto", "auto, ws, stable, put, ll, ll128 or ce (see above); auto: the fastest of put, ll, ll128 and ce by size")
	fs.IntVar(&f.ctas, "ctas", 0, "thread blocks that send, and as many that receive (stable: others); also asked of --vs nccl (default: the fastest by size)")
	fs.IntVar(&f.senderWarps, "sender-warps", 0, "`warps` of a block that send: ws, stable, ll, ll128 1, 2, 4, 8; put up to 16 (default: by size)")
	fs.IntVar(&f.receiverWarps, "receiver-warps", 0, "`warps` of a block that receive: as many (put: 1)")
	fs.StringVar(&f.stride, "stride", "auto", "ws, stable: `bytes` of a step, such as 256K; auto: grows with the message")
	fs.IntVar(&f.stages, "stages", 0, "ws, stable: `steps` under way in a block at most (default 2)")
	fs.StringVar(&f.lines, "lines", sweep.FormatSize(sendrecv.DefaultLines), "ws: messages up to this `size` go in lines; 0: never (the pull request's protocol)")
	fs.BoolVar(&f.ring, "ring", false, "each rank sends to the next one and receives from the one before: with --ranks, bidir only")
	fs.StringVar(&f.copy, "copy", "", "ws, put: how a kernel copies: ldst (loads and stores) or bulk (bulk copies, from sm_90 on) (default: the faster by size)")
	fs.StringVar(&f.launch, "launch", "stream", "stream (kernel by kernel), graph (each window recorded as one) or persistent (one kernel stays and serves all)")
	fs.IntVar(&f.train, "train", 0, fmt.Sprintf("persistent pingpong: `round trips` that follow each other before the ranks meet again; 1: each begins from rest (default %d)", sendrecv.DefaultTrain))
	fs.StringVar(&f.overlap, "overlap", "on", "on: the launch of a kernel may overlap the end of the one before; off")
	fs.StringVar(&f.timing, "timing", "device", "device (its clock, from where all ranks are let go) or host; baselines are timed alike")
	fs.StringVar(&f.handle, "handle", "auto", "memory handle: cuda legacy, vmm-fd or fabric; host memfd")
}

// arm reads the path's own flags.
func (f *sendrecvFlags) arm() (worker.Arm, error) {
	if err := f.applyPreset(); err != nil {
		return worker.Arm{}, err
	}
	for _, err := range []error{f.checkGraph(), f.atLeastOne("sender-warps", "receiver-warps", "stages", "train")} {
		if err != nil {
			return worker.Arm{}, err
		}
	}
	o := sendrecv.Options{
		Variant: f.variant, CTAs: f.ctas, SenderWarps: f.senderWarps, ReceiverWarps: f.receiverWarps, Stages: f.stages,
		Ring: f.ring, Copy: f.copy, Launch: f.launch, Train: f.train, Overlap: f.overlap, Timing: f.timing, Handle: gpu.HandleKind(f.handle),
	}
	if f.stride != "auto" {
		stride, err := sweep.ParseSize(f.stride)
		if err != nil || stride == 0 {
			return worker.Arm{}, usagef("--stride %s: want auto or a size such as 256K", f.stride)
		}
		o.Stride = stride
	}
	if f.flags.Changed("lines") { // left alone it is the variant's own
		lines, err := sweep.ParseSize(f.lines)
		if err != nil {
			return worker.Arm{}, usagef("--lines %s: want a size such as 64K, or 0 for none", f.lines)
		}
		o.Lines = &lines
	}
	if _, err := sendrecv.New(o); err != nil {
		return worker.Arm{}, usageError{err}
	}
	f.beside = beside{timing: f.timing, ring: f.ring, ctas: f.ctas, perMessage: true}
	if f.variant == "stable" {
		f.beside.ctas *= 2 // half of its blocks send
	}
	return newArm("sendrecv", o), nil
}

// checkGraph makes -G N the windows of N that it stands for.
func (f *sendrecvFlags) checkGraph() error {
	switch {
	case f.graph == 0 && !f.flags.Changed("cudagraph"):
		return nil
	case f.graph < 0 || f.graph > sweep.MaxWindow:
		return usagef("--cudagraph %d: want 1 to %d messages in a graph, or 0 for none", f.graph, sweep.MaxWindow)
	case f.graph == 0 && f.launch == "graph":
		return usagef("--cudagraph 0 --launch graph: leave one of them out")
	case f.graph == 0:
		return nil
	case f.flags.Changed("launch") && f.launch != "graph":
		return usagef("--cudagraph %d: it starts windows as graphs: leave out --launch %s", f.graph, f.launch)
	case f.flags.Changed("window") && f.window != f.graph:
		return usagef("--window %d: --cudagraph %d records windows of %d: leave one of them out", f.window, f.graph, f.graph)
	}
	f.launch = "graph"
	return nil
}

// shapeSpec sets windows, graphs and a ring's operation.
func (f *sendrecvFlags) shapeSpec(s *sweep.Spec) error {
	s.Usual = f.graph
	// Baselines go by it, too. libc's memcpy has nothing to record.
	s.Graph = f.launch == "graph" && (s.Devices[0].Kind != host.Kind || f.timing == "device")
	if !f.ring {
		return nil
	}
	i := slices.IndexFunc(s.Ops, func(op transport.Op) bool { return op != transport.OpBidir })
	if i >= 0 && f.flags.Changed("op") {
		return usagef("--op %s: in a ring every rank sends and receives: leave --op out, or use bidir", s.Ops[i])
	}
	s.Ops = []transport.Op{transport.OpBidir}
	return nil
}

const sendrecvHelp = `Measure kernels that send to each other: a kernel of one rank writes into the memory of the next one,
whose kernel receives, and no host stands between them. One process per GPU; without a GPU two
processes in CPU memory run the same protocols.

ws      through a staging area of the receiver's, in steps, and small messages in lines as ll's (--lines); in each
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
