package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
)

// rdmaTraits are what rdma's common flags are by default.
var rdmaTraits = traits{
	path: "rdma", sweep: sweepRange{lo: 8, hi: 8 << 20, factor: 4}, ops: "latency,stream",
	fans: true, free: []string{"nics", "gid-index", "mr"},
}

// rdmaFlags are the flags of rdma.
type rdmaFlags struct {
	common
	o      rdma.Options
	sample rdmaSample
}

// rdmaSample is how much a sample holds.
type rdmaSample struct {
	Windows int  `knob:"windows" default:"16" range:"1..1024" of:"op=stream,bidir" arg:"N" group:"path" help:"stream, bidir: windows per connection and sample, sliding; fewer where messages are large"`
	Graph   *int `knob:"cudagraph,G" hidden:"true" help:"refused: rdma has nothing to record"`
}

func (f *rdmaFlags) shared() *common { return &f.common }

func (f *rdmaFlags) register(fs *pflag.FlagSet) {
	f.registerCommon(fs, rdmaTraits)
	f.adjustSpec, f.accept = f.setWindow, f.acceptDevice
	f.addSettings(&f.o, &f.sample)
}

// arm reads the path's own flags.
func (f *rdmaFlags) arm() (worker.Arm, error) {
	if err := f.applyPreset(); err != nil {
		return worker.Arm{}, err
	}
	if f.sample.Graph != nil {
		return worker.Arm{}, usagef("--cudagraph %d: rdma sends from the CPU, and there is nothing to record: leave it out", *f.sample.Graph)
	}
	if err := f.readFan(); err != nil {
		return worker.Arm{}, err
	}
	f.o.Back = f.sendsBack()
	if _, err := rdma.New(f.o); err != nil {
		return worker.Arm{}, usageError{err}
	}
	f.baseline = baselineConfig{perMessage: true}
	arm := newArm("rdma", f.o)
	arm.Regions = f.o.Regions(f.Ranks)
	return arm, nil
}

// readFan says how many ranks a fan has.
func (f *rdmaFlags) readFan() error {
	f.fan = f.o.Fan == rdma.FanOut || f.o.Fan == rdma.FanIn
	switch {
	case f.fan && len(f.Vs) > 0:
		return usagef("--vs %s: baselines run between 2 ranks, one way: leave it out, or --fan %s", strings.Join(f.Vs, ","), f.o.Fan)
	case f.fan && !f.flags.Changed("ranks"):
		f.Ranks = 3
	}
	return nil
}

// sendsBack reports whether rank 1 sends to rank 0, too.
func (f *rdmaFlags) sendsBack() bool {
	return f.Bidir || slices.Contains(f.Ops, string(transport.OpBidir)) || slices.Contains(f.Ops, string(transport.OpPingPong))
}

func (f *rdmaFlags) acceptDevice(_ gpu.Driver, i gpu.Info) error {
	if f.o.MR == rdma.MRDMABuf && i.Kind == host.Kind {
		return usagef("--mr dmabuf: CPU memory has no dma-buf: use --mr reg")
	}
	return nil
}

// setWindow makes --window, which is of one connection, the messages of a sample.
func (f *rdmaFlags) setWindow(s *sweep.Spec) error {
	o, sample := f.o, f.sample
	knob.Fill(nil, &o, &sample)
	s.MinWindow = 1
	if f.o.Window != 0 {
		s.MinWindow = min(o.Conns*o.Window, sweep.MaxSlidingWindow)
	}
	s.DefaultWindow = min(o.Conns*o.Window*sample.Windows, sweep.MaxSlidingWindow)
	largest, nic, err := f.o.Largest(s.Devices)
	if err != nil {
		return nil //nolint:nilerr // without a device there is no limit; a run finds that it is missing
	}
	for _, size := range s.Sizes {
		if size > largest {
			return usagef("%s: messages of %s: %s takes at most %s: use smaller sizes", f.traits.path, knob.FormatSize(size), nic, knob.FormatSize(largest))
		}
	}
	return nil
}

const rdmaHelp = `Measure RDMA writes between processes over verbs: reliably connected queue pairs on InfiniBand or RoCE.
libibverbs is looked for at run time; p2pbench doctor says what this machine has.

Messages go over --conns connections. Each has its own --qps queue pairs, or, with --groups, all connections
of a group share those of its first one: that is the pool of ROCm ANP #20. --depth makes shared queues
deeper. Completions find their connection by the work request's number at the sender and by the
immediate data at the receiver (--route); one that finds another counts as misrouted, and none may.

latency   one message, on one connection after the other
stream    every connection has --window messages under way until all of a sample are through; a sample
          is --windows windows of every connection, fewer when messages are large
bidir     the same each way at the same time
pingpong  there and back, halved

completion "receiver": the receiver has polled the last completion of the sample and has written a word
back, which the sender has seen. With --completion memory there is none to poll: it has seen the last byte.

With --fan out rank 0 sends to all others, with --fan in all others send to rank 0.

Not available, since it takes a vendor's NIC and firmware: the UDMA mask, which binds queue pairs to
halves of the NIC, and CTS offload, in which the NIC grants messages by itself. --cts pre-granted
stands in for that: it shows what a grant for each message costs.`

func rdmaCommand() pathCommand {
	return pathCommand{
		name: "rdma", short: "RDMA writes, queue pairs shared by a pool", long: rdmaHelp,
		example: `  p2pbench rdma --size-sweep
  p2pbench rdma --groups 4 --depth 2 --sizes 8,64K,1M
  p2pbench rdma --groups 0 --qps 4 --conns 64 --op stream
  p2pbench rdma --nics mlx5_0,mlx5_1 --gid-index 3 --op latency,pingpong
  p2pbench rdma --fan in --ranks 4 --sizes 1M
  p2pbench rdma --preset anp-20`,
		flags: func() path { return &rdmaFlags{} },
	}
}
