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

// rdmaTraits are rdma's defaults of the common flags.
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

// rdmaSample holds the flags for the size of a sample.
type rdmaSample struct {
	Windows int  `knob:"windows" default:"16" range:"1..1024" of:"op=stream,bidir" arg:"N" group:"path" help:"stream, bidir: windows per connection and sample (sliding), fewer for large messages"`
	Graph   *int `knob:"cudagraph,G" hidden:"true" help:"refused: rdma starts no work on a GPU that a graph could record"`
}

func (f *rdmaFlags) shared() *common { return &f.common }

func (f *rdmaFlags) register(fs *pflag.FlagSet) {
	f.registerCommon(fs, rdmaTraits)
	f.adjustSpec, f.accept = f.setWindow, f.acceptDevice
	f.addSettings(&f.o, &f.sample)
}

// arm makes the subject from the path's own flags.
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

// readFan sets the number of ranks of --fan.
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

// sendsBack reports whether rank 1 also sends to rank 0.
func (f *rdmaFlags) sendsBack() bool {
	return f.Bidir || slices.Contains(f.Ops, string(transport.OpBidir)) || slices.Contains(f.Ops, string(transport.OpPingPong))
}

func (f *rdmaFlags) acceptDevice(_ gpu.Driver, i gpu.Info) error {
	if f.o.MR == rdma.MRDMABuf && i.Kind == host.Kind {
		return usagef("--mr dmabuf: CPU memory has no dma-buf: use --mr reg")
	}
	return nil
}

// setWindow computes the messages of a sample from --window, which counts messages of one connection.
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
		return nil //nolint:nilerr // no limit without a device; Probe reports that the device is missing
	}
	for _, size := range s.Sizes {
		if size > largest {
			return usagef("%s: messages of %s: %s sends at most %s at once: use smaller sizes", f.traits.path, knob.FormatSize(size), nic, knob.FormatSize(largest))
		}
	}
	return nil
}

const rdmaHelp = `Measure RDMA writes between processes over reliably connected queue pairs (InfiniBand or RoCE). The
program loads libibverbs at run time; p2pbench doctor lists the RDMA devices of this machine.

Messages are sent over --conns connections. Each connection has --qps queue pairs of its own. With --groups,
all connections of a group share the queue pairs of the first one: the pool of ROCm ANP #20. --depth makes
the queues deeper. A completion identifies its connection by the work request's number at the sender and by
the immediate data at the receiver (--route). A completion that identifies another connection counts as
misrouted and ends the run.

Operations (--op):

  latency    one message; messages use the connections in turn
  stream     every connection keeps --window messages in flight until all messages of the sample are
             complete; a sample is --windows windows per connection, fewer for large messages
  bidir      the same in both directions at the same time
  pingpong   half of the time of a round trip

Completion "receiver": the receiver has polled the last completion of the sample and has written a word to
the sender's memory, and the sender has read it. With --completion memory the receiver polls no completion:
it has read the message's last byte instead.

With --fan out, rank 0 sends to all other ranks. With --fan in, all other ranks send to rank 0.

Two features of the pull request are not available, because they need a vendor's NIC and firmware: the
UDMA mask, which binds queue pairs to halves of the NIC, and CTS offload, in which the NIC itself grants
messages. The difference between --cts pre-granted and --cts fifo is the most that CTS offload can save.

docs/rdma.md describes every option, docs/measurement.md every figure.`

func rdmaCommand() pathCommand {
	return pathCommand{
		name: "rdma", short: "Measure RDMA writes over own or shared queue pairs", long: rdmaHelp,
		example: `  p2pbench rdma                                                  # 16 connections, a queue pair each
  p2pbench rdma --groups 4 --depth 2 --sizes 8,64K,1M            # 16 connections on 4 shared queue pairs
  p2pbench rdma --groups 0 --qps 4 --conns 64 --op stream        # 64 connections, 4 queue pairs each
  p2pbench rdma --nics mlx5_0,mlx5_1 --gid-index 3 --op latency,pingpong
  p2pbench rdma --fan in --ranks 4 --sizes 1M                    # three ranks send to rank 0
  p2pbench rdma --preset anp-20`,
		flags: func() path { return &rdmaFlags{} },
	}
}
