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

// ipcTraits are ipc's defaults of the common flags.
var ipcTraits = traits{
	path: "ipc", sweep: sweepRange{lo: 1 << 10, hi: 256 << 20, factor: 4}, ops: "latency,stream",
	free: []string{"handle"},
}

// ipcFlags are the flags of ipc.
type ipcFlags struct {
	common
	windowSetting
	o     ipc.Options
	graph ipcGraph
}

// ipcGraph is --cudagraph of ipc.
type ipcGraph struct {
	Graph int `knob:"cudagraph,G" default:"0" range:"0..1" arg:"N" group:"how" help:"1: start the copies of each window as one CUDA graph"`
}

func (f *ipcFlags) shared() *common { return &f.common }

func (f *ipcFlags) register(fs *pflag.FlagSet) {
	f.registerCommon(fs, ipcTraits)
	f.faults, f.adjustSpec = ipc.Faults, f.setWindow
	f.accept = func(d gpu.Driver, i gpu.Info) error { return d.Accepts(i, f.o.EngineName(), f.o.Handle) }
	f.addSettings(&f.windowSetting, &f.graph, &f.o)
}

// arm makes the subject from the path's own flags.
func (f *ipcFlags) arm() (worker.Arm, error) {
	if err := f.applyPreset(); err != nil {
		return worker.Arm{}, err
	}
	f.o.Path = f.o.PathName()
	o := f.o
	if slices.Contains(ipc.Faults, f.Inject) {
		o.Fault = f.Inject
	}
	if f.graphs() && (o.Engine == "auto" || o.Engine == "") {
		o.Engine = gpu.EngineCE // auto switches engines by size, which one graph cannot hold
	}
	if _, err := ipc.New(o); err != nil {
		return worker.Arm{}, usageError{err}
	}
	if f.graphs() {
		if err := o.Recordable(); err != nil {
			return worker.Arm{}, usagef("--cudagraph 1: %w", err)
		}
	}
	arm := newArm("ipc", o)
	arm.Regions = 1 + o.Buffers.Regions()
	if o.Relay.Mode == "fresh" {
		arm.Regions++ // the relay segments of a window
	}
	return arm, nil
}

// graphs reports whether each window is launched as one CUDA graph.
func (f *ipcFlags) graphs() bool { return f.graph.Graph == 1 }

// setWindow sets the window and whether it is launched as a graph.
func (f *ipcFlags) setWindow(s *sweep.Spec) error {
	if f.graphs() && s.Devices[0].Kind == host.Kind {
		return usagef("--cudagraph 1: CPU memory has no CUDA graphs: leave it out, or use --device cuda")
	}
	inFlight := slices.Contains(s.Ops, transport.OpStream) || slices.Contains(s.Ops, transport.OpBidir)
	if f.Inject == ipc.FaultEvictInFlight && !inFlight {
		return usagef("--inject %s: only one message is in flight, and its handle is never evicted: use --op stream or bidir", f.Inject)
	}
	s.Window, s.Graph = f.Window, f.graphs()
	return nil
}

const ipcHelp = `Measure memory-handle IPC between two processes, one per GPU. Without a GPU the processes
exchange messages in CPU memory. A sample includes every cost of a message.

Paths (--path):

  direct     the sender copies into the receiver's buffer and then stores a sequence number
             in shared memory; it has mapped the buffer before the timed part
  handshake  for each message the sender requests the receiver's buffer, maps it if it has
             not been mapped yet, and copies into it
  get        the sender announces its buffer; the receiver maps it and copies from it
  relay      the message is copied to CPU memory and from there to the receiver

Operations (--op):

  latency    one message, until the sender knows that the receiver has it
  stream     a window of messages back to back; one sample is one window
  bidir      a window in each direction at the same time
  pingpong   half of the time of a round trip

docs/ipc.md describes every option, docs/measurement.md every figure.`

func ipcCommand() pathCommand {
	return pathCommand{
		name: "ipc", short: "Measure memory-handle IPC between two processes", long: ipcHelp,
		example: `  p2pbench ipc                                               # latency and stream, 1K to 256M
  p2pbench ipc --sizes 1K,64K,1M --vs memcpy,nccl            # three sizes, compared with memcpy and NCCL
  p2pbench ipc --op bidir --gpus 2,6 --out run.json          # both directions; keep the complete result
  p2pbench ipc --device host --sizes 8 --op pingpong --until ci=1%
  p2pbench ipc --path get --buffers rotate:17 --cache-size 16 --sizes 1M`,
		flags: func() path { return &ipcFlags{} },
	}
}
