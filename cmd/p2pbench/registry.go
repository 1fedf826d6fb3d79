package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/gpu/fault"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/ipc"
	"github.com/p2pbench/p2pbench/internal/transport/memcpy"
	"github.com/p2pbench/p2pbench/internal/transport/nccl"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
	"github.com/p2pbench/p2pbench/internal/transport/sendrecv"
)

// drivers are the kinds of device in order of preference. Devices can access each other only if the same driver opened
// them, so a process makes this list once.
type drivers []gpu.Driver

func newDrivers() drivers { return drivers{cuda.New(), host.Driver()} }

func (all drivers) of(kind string) (gpu.Driver, error) {
	var kinds []string
	for _, d := range all {
		if d.Kind() == kind {
			return d, nil
		}
		kinds = append(kinds, d.Kind())
	}
	return nil, usagef("--device %s: no such device: use auto, %s", kind, strings.Join(kinds, ", "))
}

// factory opens devices and transports in the workers.
func factory() worker.Factory {
	return worker.Factory{Device: newDrivers().open, Transport: newTransport}
}

// open opens a device; inject is the fault to inject, or empty.
func (all drivers) open(i gpu.Info, inject string) (gpu.Device, error) {
	d, err := all.of(i.Kind)
	if err != nil {
		return nil, err
	}
	dev, err := d.Open(i.UUID)
	if err != nil || inject == "" {
		return dev, err
	}
	f, err := fault.Parse(inject)
	if err != nil {
		return nil, err
	}
	return fault.Wrap(dev, f), nil
}

// transports maps names to constructors.
var transports = map[string]func(options json.RawMessage) (transport.Transport, error){
	"ipc":      maker(ipc.New),
	"memcpy":   maker(memcpy.New),
	"nccl":     maker(nccl.New),
	"rdma":     maker(rdma.New),
	"sendrecv": maker(sendrecv.New),
}

// maker wraps a constructor so that it takes its options as JSON.
func maker[Options any](from func(Options) (transport.Transport, error)) func(json.RawMessage) (transport.Transport, error) {
	return func(options json.RawMessage) (transport.Transport, error) {
		var o Options
		if len(options) > 0 {
			if err := json.Unmarshal(options, &o); err != nil {
				return nil, fmt.Errorf("transport options: %w", err)
			}
		}
		return from(o)
	}
}

func newTransport(name string, options json.RawMessage) (transport.Transport, error) {
	maker, ok := transports[name]
	if !ok {
		return nil, fmt.Errorf("no transport %q", name)
	}
	return maker(options)
}

// newArm makes an arm named after its transport.
func newArm(name string, options any) worker.Arm {
	b, _ := json.Marshal(options) // cannot fail: options are plain structs
	return worker.Arm{Name: name, Transport: name, Options: b}
}

// baselines are the values of --vs.
var baselines = []string{"memcpy", "nccl[:CTAS]", "nccl-graph[:CTAS]"}

// baselineConfig holds the settings that a baseline takes over from the path that it is compared with.
type baselineConfig struct {
	timing string // "device" or "host"; "": host
	ring   bool
	ctas   int // thread blocks of the path's kernel; 0: not fixed, or no kernel
	// perMessage: the path issues one call per message of a window, and its baselines must do the same.
	perMessage bool
	graph      bool // windows of the path are CUDA graphs, and so are those of its baselines
}

// baseline makes the arm for a value of --vs on that kind of device.
func baseline(value, kind string, c baselineConfig) (worker.Arm, error) {
	name, ctas, bound := strings.Cut(value, ":")
	switch {
	case name == "memcpy" && bound:
		return worker.Arm{}, usagef("--vs %s: memcpy has no CTAs to choose: use memcpy", value)
	case name == "memcpy":
		o := memcpy.Options{Timing: c.timing}
		if kind == host.Kind && c.timing != memcpy.TimingDevice { // a queue has only one copy routine
			o.Engine = "cpu-memcpy" // libc's
		}
		return newArm(name, o), nil
	case name == "nccl" || name == "nccl-graph":
		if c.graph {
			name = "nccl-graph"
		}
		o := nccl.Options{Graph: name == "nccl-graph", Timing: c.timing, Ring: c.ring, PerMessage: c.perMessage}
		var err error
		if o.CTAs, err = ncclCTAs(value, ctas, bound, c); err != nil {
			return worker.Arm{}, err
		}
		arm := newArm("nccl", o)
		if arm.Name = name; o.CTAs > 0 {
			arm.Name = fmt.Sprintf("%s:%d", name, o.CTAs)
		}
		return arm, nil
	}
	return worker.Arm{}, usagef("--vs %s: no such baseline: use %s", value, strings.Join(baselines, ", "))
}

// ncclCTAs returns the number of thread blocks to request from NCCL: the number after the baseline's name, or else that
// of the path; 0: NCCL chooses.
func ncclCTAs(value, ctas string, bound bool, c baselineConfig) (int, error) {
	name, _, _ := strings.Cut(value, ":")
	switch {
	case !bound && c.ctas > nccl.MaxCTAs:
		return 0, usagef("--vs %s: NCCL uses at most %d CTAs, and the path has %d: give a number, such as %s:%d, or %s:auto",
			value, nccl.MaxCTAs, c.ctas, name, nccl.MaxCTAs, name)
	case !bound:
		return c.ctas, nil
	case ctas == "auto":
		return 0, nil
	}
	n, err := strconv.ParseUint(ctas, 10, 8)
	if err != nil || n < 1 || n > nccl.MaxCTAs {
		return 0, usagef("--vs %s: want 1 to %d CTAs (NCCL's limit), or %s:auto for NCCL's own choice", value, nccl.MaxCTAs, name)
	}
	return int(n), nil
}
