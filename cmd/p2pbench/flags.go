package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/fault"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// common are the flags that every path command has.
type common struct {
	whatSettings
	howSettings
	outputSettings

	flags    *pflag.FlagSet
	settings []any // options structs of the path itself, with knob tags
	traits   traits
	ring     bool // --ring, of paths that have it
	fan      bool // --fan out or in
	// accept lets the path refuse a device before anything is started; nil: the path accepts every device.
	accept func(gpu.Driver, gpu.Info) error
	// faults are the values of --inject that the path implements; devices implement the others.
	faults []string
	// adjustSpec applies the path's own rules to the request before the baselines are added.
	adjustSpec func(*sweep.Spec) error
	baseline   baselineConfig
}

// traits are a path's defaults and limits for the flags that every path has.
type traits struct {
	path  string // the path command's name
	sweep sweepRange
	ops   string // default of --op
	rings bool   // --ring allows more than two ranks
	fans  bool   // --fan allows more than two ranks
	// free names flags of the path itself that may be combined with --preset.
	free []string
}

// sweepRange is a path's default range of sizes, in bytes.
type sweepRange struct {
	lo, hi, factor uint64
	hostHi         uint64 // largest size on CPU memory, so that the range fits small machines; 0: hi
}

func (r sweepRange) String() string {
	text := fmt.Sprintf("%s to %s", knob.FormatSize(r.lo), knob.FormatSize(r.hi))
	if r.hostHi > 0 {
		text += fmt.Sprintf(" (CPU memory: %s)", knob.FormatSize(r.hostHi))
	}
	return text + fmt.Sprintf(" by %d", r.factor)
}

// end returns the largest size for a kind of device and a range that starts at lo.
func (r sweepRange) end(kind string, lo uint64) uint64 {
	if kind == host.Kind && r.hostHi > 0 {
		return max(r.hostHi, lo)
	}
	return r.hi
}

func (c *common) registerCommon(f *pflag.FlagSet, t traits) {
	c.flags, c.traits = f, t
	knob.AddFlags(f, c.commonSettings()...)
	f.Lookup("size-sweep").Usage = "measure the default range of sizes, " + t.sweep.String() + " (done unless sizes are given)"
	f.Lookup("minbytes").DefValue = knob.FormatSize(t.sweep.lo)
	f.Lookup("maxbytes").DefValue = knob.FormatSize(t.sweep.hi)
	f.Lookup("stepfactor").DefValue = strconv.FormatUint(t.sweep.factor, 10)
	f.Lookup("op").DefValue = t.ops
	f.Lookup("preset").Usage = "run a pull request's configuration and print its table: " + strings.Join(claim.PresetNames(t.path), ", ")
	f.Lookup("vs").Usage += strings.Join(baselines, ", ") + " (one CUDA graph per window); CTAS: number of thread blocks, or auto"
	if t.sweep.hostHi > 0 {
		f.Lookup("maxbytes").Usage += " (CPU memory: " + knob.FormatSize(t.sweep.hostHi) + " by default)"
	}
	if !t.rings { // kernels that wait for each other cannot share a GPU
		f.Lookup("gpus").Usage = "device index of each rank, such as 0,1; 0,0: both ranks share device 0 (default: a device per rank, in order)"
	}
}

// commonSettings are the settings that every path has.
func (c *common) commonSettings() []any {
	return []any{&c.whatSettings, &c.howSettings, &c.outputSettings}
}

// fill sets the defaults of the common settings.
func (c *common) fill() { knob.Fill(nil, c.commonSettings()...) }

// target is the driver and the device of each rank.
type target struct {
	driver gpu.Driver
	ranks  []gpu.Info
	notes  []string
}

// spec makes a Spec from the flags. It starts nothing; all its errors are usage errors or unsupported requests.
func (c *common) spec(subject worker.Arm) (sweep.Spec, target, error) {
	t, err := c.target()
	if err != nil {
		return sweep.Spec{}, t, err
	}
	if err := c.checkDevices(t); err != nil {
		return sweep.Spec{}, t, err
	}
	s := sweep.Spec{
		Subject: subject, Devices: t.ranks, Iters: c.Iters, Warmup: -1, Duration: c.Duration,
		Seed: 1, Check: c.Check.kind(),
	}
	if c.Warmup != nil {
		s.Warmup = *c.Warmup
	}
	if c.Seed != nil {
		s.Seed = *c.Seed
	}
	s.Until, _ = c.Until.interval() // was checked
	for _, step := range []func(*sweep.Spec) error{
		c.checkInject, c.readSizes, c.readOps, c.adjustSpec, func(s *sweep.Spec) error { return c.checkSettings(s.Ops) },
		c.readBaselines, c.presetArms,
	} {
		if err := step(&s); err != nil {
			return sweep.Spec{}, t, err
		}
	}
	return s, t, nil
}

// addSettings adds flags for the path's own settings.
func (c *common) addSettings(options ...any) {
	c.settings = options
	knob.AddFlags(c.flags, options...)
}

// allSettings are the common settings and the path's own.
func (c *common) allSettings() []any { return append(c.commonSettings(), c.settings...) }

// checkSettings refuses settings that have no effect on these operations.
func (c *common) checkSettings(ops []transport.Op) error {
	var names []string
	for _, op := range ops {
		names = append(names, string(op))
	}
	if err := knob.Check(knob.Scope{"op": names}, c.allSettings()...); err != nil {
		return usageError{err}
	}
	return nil
}

// checkDevices returns the path's error for a device that it does not accept.
func (c *common) checkDevices(t target) error {
	for _, d := range t.ranks {
		if c.accept == nil {
			return nil
		}
		if err := c.accept(t.driver, d); err != nil {
			return err
		}
	}
	return nil
}

// checkInject refuses a fault that neither the path nor the devices implement.
func (c *common) checkInject(*sweep.Spec) error {
	if inject := c.deviceFault(); inject != "" {
		if _, err := fault.Parse(inject); err != nil {
			return usageError{err}
		}
	}
	return nil
}

func (c *common) readSizes(s *sweep.Spec) error {
	s.Offset = uint64(c.Offset)
	if len(c.Sizes) > 0 {
		if c.SizeSweep || c.rangeChanged() {
			return usagef("--sizes lists the sizes: leave out --size-sweep, -b, -e, -f and -i")
		}
		for _, n := range c.Sizes {
			s.Sizes = append(s.Sizes, uint64(n))
		}
		return nil
	}
	if c.SizeSweep && c.rangeChanged() {
		return usagef("--size-sweep is the whole default sweep: leave it out to use -b, -e, -f and -i")
	}
	return c.readRange(s)
}

func (c *common) rangeChanged() bool {
	return c.MinBytes != nil || c.MaxBytes != nil || c.StepFactor != 0 || c.StepBytes != nil
}

func (c *common) readRange(s *sweep.Spec) (err error) {
	lo, factor, step := c.traits.sweep.lo, cmp.Or(c.StepFactor, c.traits.sweep.factor), uint64(0)
	if c.MinBytes != nil {
		lo = uint64(*c.MinBytes)
	}
	hi := c.traits.sweep.end(s.Devices[0].Kind, lo)
	if c.MaxBytes != nil {
		hi = uint64(*c.MaxBytes)
	}
	if c.StepBytes != nil {
		if c.StepFactor != 0 {
			return usagef("--stepfactor and --stepbytes: give one of them")
		}
		step = uint64(*c.StepBytes)
	}
	if s.Sizes, err = sweep.Range(lo, hi, factor, step); err != nil {
		return usagef("--minbytes, --maxbytes: %w", err)
	}
	return nil
}

func (c *common) readOps(s *sweep.Spec) error {
	names := c.Ops
	if len(names) == 0 {
		names = strings.Split(c.traits.ops, ",")
	}
	if c.Bidir {
		names = append(slices.Clone(names), string(transport.OpBidir))
	}
	for _, name := range names {
		if op := transport.Op(name); !slices.Contains(s.Ops, op) {
			s.Ops = append(s.Ops, op)
		}
	}
	return nil
}

func (c *common) readBaselines(s *sweep.Spec) error {
	seen, cfg := map[string]bool{}, c.baseline
	cfg.graph = s.Graph
	for _, name := range c.Vs {
		arm, err := baseline(name, s.Devices[0].Kind, cfg)
		if err != nil {
			return err
		}
		if seen[arm.Name] {
			more := ""
			if s.Graph {
				more = " (with CUDA graphs nccl is nccl-graph)"
			}
			return usagef("--vs %s: %s is listed twice%s: name each baseline once", strings.Join(c.Vs, ","), arm.Name, more)
		}
		seen[arm.Name] = true
		t, err := newTransport(arm.Transport, arm.Options)
		if err != nil {
			return err
		}
		if err := t.Probe(s.Devices); err != nil {
			if c.RequireVs {
				return fmt.Errorf("--require-vs: %w", err)
			}
			s.Missing = append(s.Missing, sweep.Missing{Name: arm.Name, Why: reason(err)})
			continue
		}
		s.Baselines = append(s.Baselines, arm)
	}
	return nil
}

// deviceFault is the fault that the devices inject; "": none.
func (c *common) deviceFault() string {
	if slices.Contains(c.faults, c.Inject) {
		return ""
	}
	return c.Inject
}

// launcherArgs splits the launcher's command line at spaces.
func (c *common) launcherArgs() []string { return strings.Fields(c.Launcher) }

// terminal reports whether f is a terminal.
func terminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	st, err := file.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
