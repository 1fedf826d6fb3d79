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
)

// drivers are the kinds of device, the best first. A process has one of each: devices that are to reach each other
// are opened by the same driver.
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

// factory makes what workers are told to use.
func factory() worker.Factory {
	return worker.Factory{Device: newDrivers().open, Transport: newTransport}
}

// open opens a device; inject is empty or the fault that it shall commit.
func (all drivers) open(i gpu.Info, inject string) (gpu.Device, error) {
	d, err := all.of(i.Kind)
	if err != nil {
		return nil, err
	}
	dev, err := d.Open(i.UUID)
	if err != nil || inject == "" {
		return dev, err
	}
	flip, err := fault.Parse(inject)
	if err != nil {
		return nil, err
	}
	return fault.Wrap(dev, flip), nil
}

func newTransport(name string, options json.RawMessage) (transport.Transport, error) {
	switch name {
	case "ipc":
		var o ipc.Options
		if err := unmarshal(options, &o); err != nil {
			return nil, err
		}
		return ipc.New(o)
	case "memcpy":
		var o memcpy.Options
		if err := unmarshal(options, &o); err != nil {
			return nil, err
		}
		return memcpy.New(o), nil
	case "nccl":
		var o nccl.Options
		if err := unmarshal(options, &o); err != nil {
			return nil, err
		}
		return nccl.New(o)
	}
	return nil, fmt.Errorf("no transport %q", name)
}

func unmarshal(options json.RawMessage, into any) error {
	if len(options) == 0 {
		return nil
	}
	if err := json.Unmarshal(options, into); err != nil {
		return fmt.Errorf("transport options: %w", err)
	}
	return nil
}

// newArm names a transport with its options.
func newArm(name string, options any) worker.Arm {
	b, _ := json.Marshal(options) // cannot fail: options are plain structs
	return worker.Arm{Name: name, Transport: name, Options: b}
}

// baselines are the values of --vs.
var baselines = []string{"memcpy", "nccl[:CTAS]", "nccl-graph[:CTAS]"}

// baseline makes the arm for a value of --vs on that kind of device.
func baseline(value, kind string) (worker.Arm, error) {
	name, ctas, bound := strings.Cut(value, ":")
	switch {
	case name == "memcpy" && bound:
		return worker.Arm{}, usagef("--vs %s: memcpy has no CTAs to choose: use memcpy", value)
	case name == "memcpy":
		var o memcpy.Options
		if kind == host.Kind {
			o.Engine = "cpu-memcpy" // libc's
		}
		return newArm(name, o), nil
	case name == "nccl" || name == "nccl-graph":
		o := nccl.Options{Graph: name == "nccl-graph"}
		if bound {
			n, err := strconv.ParseUint(ctas, 10, 8)
			if err != nil || n < 1 || n > nccl.MaxCTAs {
				return worker.Arm{}, usagef("--vs %s: want 1 to %d CTAs, which is NCCL's own bound; %s alone leaves them to NCCL",
					value, nccl.MaxCTAs, name)
			}
			o.CTAs = int(n)
			name = fmt.Sprintf("%s:%d", name, n)
		}
		arm := newArm("nccl", o)
		arm.Name = name
		return arm, nil
	}
	return worker.Arm{}, usagef("--vs %s: no such baseline: use %s", value, strings.Join(baselines, ", "))
}
