package main

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/ipc"
)

// ipcTraits are what ipc's common flags are by default.
var ipcTraits = traits{
	path: "ipc", sweep: sweepRange{lo: 1 << 10, hi: 256 << 20, factor: 4}, ops: "latency,stream",
	graph: "1: start each window's copies as one CUDA graph", free: []string{"handle"},
}

// ipcFlags are the flags of ipc.
type ipcFlags struct {
	common
	path        string
	engine      string
	handle      string
	completion  string
	exportCache string
	open        string
	publish     string
	cache       string
	cacheSize   int
	buffers     string
	wake        string
	streams     int
	relay       string
	relayChunk  string
	relayDepth  int
	sameProcess bool
}

func (f *ipcFlags) shared() *common { return &f.common }

func (f *ipcFlags) register(fs *pflag.FlagSet) {
	f.registerCommon(fs, ipcTraits)
	f.faults, f.shape = ipc.Faults, f.shapeSpec
	f.accept = func(d gpu.Driver, i gpu.Info) error {
		engine := ipc.Options{Engine: f.engine, Streams: f.streams}.EngineName()
		return d.Accepts(i, engine, gpu.HandleKind(f.handle))
	}
	fs.StringVar(&f.path, "path", "auto", "auto, direct, handshake, relay or get (see above); auto: direct where the devices reach each other, else relay")
	fs.StringVar(&f.engine, "engine", "auto",
		"how bytes move: cuda ce[:STREAMS], sm[:CTAS], bulk[:CTAS], proxy[:CTAS]; host cpu, cpu-memcpy, cpu-nt; auto: the fastest by size")
	fs.IntVar(&f.streams, "streams", 1, "split each copy over up to `N` streams of the copy engine, 1 MiB or more each")
	fs.StringVar(&f.handle, "handle", "auto", "memory handle: cuda legacy, vmm-fd or fabric; host memfd")
	fs.StringVar(&f.completion, "completion", "", "how ranks tell each other: done-seq (a shared word) or ring-ack (a ring message) (default done-seq)")
	fs.StringVar(&f.exportCache, "export-cache", "", "direct, handshake: exported handles are kept by allocation, by pointer, or off (default allocation)")
	fs.StringVar(&f.open, "open", "", "direct, handshake: handles are mapped eager, lazy or per-call (default direct eager, handshake lazy)")
	fs.StringVar(&f.publish, "publish", "", "direct: a buffer is published when it changed (dedupe) or for every iteration (always) (default dedupe)")
	fs.StringVar(&f.cache, "cache", "", "get: handle cache of the sender, off, or dual (one at each end) (default sender)")
	fs.IntVar(&f.cacheSize, "cache-size", ipc.DefaultCacheSize, "get: `handles` the cache keeps, 0 to 1024; 0 is off")
	fs.StringVar(&f.buffers, "buffers", "", "buffers that messages use in turn: same, rotate:K, slices:M, realloc-same, realloc-overlap (default same)")
	fs.StringVar(&f.wake, "wake", "", "how a rank waits for another: spin, yield, adaptive, sleep:50us, sleep:1ms … (default spin)")
	fs.StringVar(&f.relay, "relay", "", "relay: pooled (pinned, pipelined) or fresh (a new pageable segment for each message) (default pooled)")
	fs.StringVar(&f.relayChunk, "relay-chunk", "", "relay pooled: most `bytes` that move at a time (default 2M)")
	fs.IntVar(&f.relayDepth, "relay-depth", 0, "relay pooled: `chunks` in flight (default 4)")
	fs.BoolVar(&f.sameProcess, "same-process", false, "direct: both ranks are threads of one process and share the pointer")
}

// arm reads the path's own flags.
func (f *ipcFlags) arm() (worker.Arm, error) {
	if err := f.applyPreset(); err != nil {
		return worker.Arm{}, err
	}
	if err := f.atLeastOne("streams", "relay-depth"); err != nil {
		return worker.Arm{}, err
	}
	o := ipc.Options{
		Path: f.path, Engine: f.engine, Handle: gpu.HandleKind(f.handle), Completion: f.completion,
		ExportCache: f.exportCache, Open: f.open, Publish: f.publish, Cache: f.cache, Buffers: f.buffers, Wake: f.wake,
		Streams: f.streams, Relay: ipc.Relay{Mode: f.relay, Depth: f.relayDepth}, SameProcess: f.sameProcess,
	}
	if f.flags.Changed("cache-size") {
		o.CacheSize = &f.cacheSize
	}
	if f.relayChunk != "" {
		chunk, err := sweep.ParseSize(f.relayChunk)
		if err != nil || chunk == 0 {
			return worker.Arm{}, usagef("--relay-chunk %s: want a size such as 1M", f.relayChunk)
		}
		o.Relay.Chunk = chunk
	}
	if slices.Contains(ipc.Faults, f.inject) {
		o.Fault = f.inject
	}
	if f.graph == 1 && (o.Engine == "auto" || o.Engine == "") {
		o.Engine = gpu.EngineCE // a choice by size cannot be recorded as one graph
	}
	if _, err := ipc.New(o); err != nil {
		return worker.Arm{}, usageError{err}
	}
	if f.graph == 1 {
		if err := o.Recordable(); err != nil {
			return worker.Arm{}, usagef("--cudagraph 1: %w", err)
		}
	}
	buffers, err := ipc.ParseBuffers(o.Buffers)
	if err != nil {
		return worker.Arm{}, usageError{err}
	}
	arm := newArm("ipc", o)
	arm.Regions = 1 + buffers.Regions()
	if o.Relay.Mode == "fresh" {
		arm.Regions++ // the segments of a window
	}
	return arm, nil
}

// shapeSpec says whether windows are recorded.
func (f *ipcFlags) shapeSpec(s *sweep.Spec) error {
	switch {
	case f.graph != 0 && f.graph != 1:
		return usagef("--cudagraph %d: want 0 (off) or 1 (one graph per window)", f.graph)
	case f.graph == 1 && s.Devices[0].Kind == host.Kind:
		return usagef("--cudagraph 1: CPU memory has no CUDA graphs: leave it out, or use --device cuda")
	}
	inFlight := slices.Contains(s.Ops, transport.OpStream) || slices.Contains(s.Ops, transport.OpBidir)
	if f.inject == ipc.FaultEvictInFlight && !inFlight {
		return usagef("--inject %s: one message at a time is on its way, and its handle is the latest: use --op stream or bidir", f.inject)
	}
	s.Graph = f.graph == 1
	return nil
}

const ipcHelp = `Measure memory-handle IPC between two processes, one per GPU. Without a GPU the two
processes share CPU memory. Everything that a message costs is inside its time.

direct     the receiver published its buffer and the sender mapped it before; a message is
           a copy into it and a sequence number in shared memory
handshake  for each message the sender asks where it shall go, and maps what it is told
get        the sender names its buffer, and the receiver maps and fetches it
relay      through CPU memory

latency   one message, until the sender knows that the receiver has it
stream    a window of messages at once; one sample is one window
bidir     a window each way at the same time
pingpong  there and back, halved`

func ipcCommand() pathCommand {
	return pathCommand{
		name: "ipc", short: "Memory-handle IPC between two processes", long: ipcHelp,
		example: `  p2pbench ipc --size-sweep
  p2pbench ipc --sizes 1K,64K,1M --vs memcpy,nccl --op latency,bidir
  p2pbench ipc --path get --buffers rotate:17 --cache-size 16 --sizes 1M
  p2pbench ipc --device host --sizes 8 --op pingpong --until ci=1% --out run.json`,
		flags: func() path { return &ipcFlags{} },
	}
}
