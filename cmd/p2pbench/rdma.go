package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/pool"
)

// rdmaTraits are what rdma's common flags are by default.
var rdmaTraits = traits{
	path: "rdma", sweep: sweepRange{lo: 8, hi: 8 << 20, factor: 4}, ops: "latency,stream",
	window: "messages of a connection under way in stream and bidir, 1 to 256 (default 8)", fans: true,
	free: []string{"nics", "gid-index", "mr"},
}

// rdmaFlags are the flags of rdma.
type rdmaFlags struct {
	common
	groups      int
	depth       int
	qps         int
	conns       int
	rounds      int
	who         string // --fan
	nics        string
	gid         int
	mr          string
	cts         string
	route       string
	notify      string
	signalEvery int
	train       int
	inlined     int
	closeOrder  string
	options     rdma.Options // since arm
}

func (f *rdmaFlags) shared() *common { return &f.common }

func (f *rdmaFlags) register(fs *pflag.FlagSet) {
	f.registerCommon(fs, rdmaTraits)
	f.shape, f.accept = f.shapeSpec, f.acceptDevice
	fs.IntVar(&f.groups, "groups", 0, "groups of connections that share queue pairs, for each peer and direction; 0: every connection has its own")
	fs.IntVar(&f.depth, "depth", 1, "shared queues are so many `times` as deep as one connection needs")
	fs.IntVar(&f.qps, "qps", 1, "queue pairs of a connection, or of a group")
	fs.IntVar(&f.conns, "conns", 16, "connections to a peer in each direction that is used")
	fs.IntVar(&f.rounds, "rounds", 16, "a sample of stream and bidir is so many `windows` of every connection, posted as one that slides; fewer when they are large")
	fs.StringVar(&f.who, "fan", "pair", "pair: rank 0 sends to rank 1; out: to all others; in: all others to rank 0 (--ranks, default 3)")
	fs.StringVar(&f.nics, "nics", "", "RDMA `devices` of the ranks, in turns: mlx5_0,mlx5_1 or mlx5_0:1 with a port (default: the nearest to each)")
	fs.IntVar(&f.gid, "gid-index", 0, "`index` of the port's address, as p2pbench doctor lists them (default: the one that most likely reaches others)")
	fs.StringVar(&f.mr, "mr", "auto", "how memory is registered: reg (by address), dmabuf (a GPU's, by descriptor); auto: what the memory takes")
	fs.StringVar(&f.cts, "cts", "fifo", "how the receiver lets messages come: fifo (an inline write into the sender's memory for each), pre-granted (all of a sample's at once; default with --notify memory)")
	fs.StringVar(&f.route, "route", "imm", "how a message's connection is known at the receiver: imm (immediate data), fifo (order of receives: nothing may be shared)")
	fs.StringVar(&f.notify, "notify", "write-imm", "how the receiver hears of a message: write-imm (its write says so), write+imm (an empty write behind it does), memory (it looks at the message's last byte: CPU memory, and no receives)")
	fs.IntVar(&f.signalEvery, "signal-every", 1, "one in so many `sends` of a queue pair reports its completion")
	fs.IntVar(&f.train, "train", 1, "`round trips` of pingpong, or messages of latency, that follow each other before the ranks meet again, fewer where they are large; 1: each begins from rest")
	fs.IntVar(&f.inlined, "inline", 64, "messages of up to so many `bytes` travel in their work request; 0: none")
	fs.StringVar(&f.closeOrder, "close-order", "lifo", "order in which connections are closed: lifo, fifo, random")
}

// arm reads the path's own flags.
func (f *rdmaFlags) arm() (worker.Arm, error) {
	if err := f.applyPreset(); err != nil {
		return worker.Arm{}, err
	}
	for _, err := range []error{f.checkCounts(), f.readFan()} {
		if err != nil {
			return worker.Arm{}, err
		}
	}
	o := rdma.Options{
		Groups: f.groups, Depth: f.depth, QPs: f.qps, Conns: f.conns, Fan: rdma.Fan(f.who), Back: f.sendsBack(),
		MR: rdma.MR(f.mr), Notify: rdma.Notify(f.notify),
		SignalEvery: f.signalEvery, Train: f.train, Close: rdma.Order(f.closeOrder), Window: f.window,
	}
	if f.flags.Changed("cts") { // left alone they are what --notify takes
		o.CTS = rdma.CTS(f.cts)
	}
	if f.flags.Changed("route") {
		o.Route = rdma.Route(f.route)
	}
	if f.flags.Changed("inline") { // left alone it is what the device has of the default
		o.Inline = &f.inlined
	}
	if f.flags.Changed("gid-index") {
		o.GID = &f.gid
	}
	if f.nics != "" {
		for name := range strings.SplitSeq(f.nics, ",") {
			o.NICs = append(o.NICs, strings.TrimSpace(name))
		}
	}
	if slices.Contains(o.NICs, "") {
		return worker.Arm{}, usagef("--nics %s: want names of devices such as mlx5_0,mlx5_1", f.nics)
	}
	if _, err := rdma.New(o); err != nil {
		return worker.Arm{}, usageError{err}
	}
	f.options = o
	f.beside = beside{perMessage: true}
	arm := newArm("rdma", o)
	arm.Regions = o.Regions(f.ranks)
	return arm, nil
}

func (f *rdmaFlags) checkCounts() error {
	for _, c := range []struct {
		name        string
		value, most int
	}{
		{"conns", f.conns, pool.MaxComms},
		{"qps", f.qps, 256},
		{"depth", f.depth, 1 << 10},
		{"signal-every", f.signalEvery, rdma.Requests},
		{"train", f.train, rdma.Train},
		{"rounds", f.rounds, 1 << 10},
	} {
		if c.value < 1 || c.value > c.most {
			return usagef("--%s %d: want 1 to %d", c.name, c.value, c.most)
		}
	}
	switch {
	case f.flags.Changed("cudagraph"):
		return usagef("--cudagraph %d: rdma sends from the CPU, and there is nothing to record: leave it out", f.graph)
	case f.flags.Changed("gid-index") && f.gid < 0:
		return usagef("--gid-index %d: want 0 or more, as p2pbench doctor lists them", f.gid)
	case f.flags.Changed("window") && f.window < 1:
		return usagef("--window %d: want 1 to %d messages of a connection under way", f.window, rdma.Requests)
	}
	return nil
}

// readFan says how many ranks a fan has.
func (f *rdmaFlags) readFan() error {
	f.fan = f.who == string(rdma.FanOut) || f.who == string(rdma.FanIn)
	switch {
	case f.fan && f.vs != "":
		return usagef("--vs %s: baselines run between 2 ranks, one way: leave it out, or --fan %s", f.vs, f.who)
	case f.fan && !f.flags.Changed("ranks"):
		f.ranks = 3
	}
	return nil
}

// sendsBack reports whether rank 1 sends to rank 0, too.
func (f *rdmaFlags) sendsBack() bool {
	return f.bidir || slices.ContainsFunc(strings.Split(f.ops, ","), func(name string) bool {
		op := transport.Op(strings.TrimSpace(name))
		return op == transport.OpBidir || op == transport.OpPingPong
	})
}

func (f *rdmaFlags) acceptDevice(_ gpu.Driver, i gpu.Info) error {
	if f.mr == string(rdma.MRDMABuf) && i.Kind == host.Kind {
		return usagef("--mr dmabuf: CPU memory has no dma-buf: use --mr reg")
	}
	return nil
}

// shapeSpec makes --window, which is of one connection, the messages of a sample.
func (f *rdmaFlags) shapeSpec(s *sweep.Spec) error {
	window := s.Window
	s.Window, s.Least = 0, 1
	if window == 0 {
		window = sweep.DefaultWindow
	} else {
		s.Least = min(f.conns*window, sweep.MaxUsual)
	}
	s.Usual = min(f.conns*window*f.rounds, sweep.MaxUsual)
	largest, nic, err := f.options.Largest(s.Devices)
	if err != nil {
		return nil //nolint:nilerr // without a device there is no limit; a run finds that it is missing
	}
	for _, size := range s.Sizes {
		if size > largest {
			return usagef("%s: messages of %s: %s takes at most %s: use smaller sizes", f.traits.path, sweep.FormatSize(size), nic, sweep.FormatSize(largest))
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
          is --rounds windows of every connection, fewer when messages are large
bidir     the same each way at the same time
pingpong  there and back, halved

completion "receiver": the receiver has polled the last completion of the sample and has written a word
back, which the sender has seen. With --notify memory there is none to poll: it has seen the last byte.

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
