package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/fault"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// common are the flags that every path command has.
type common struct {
	device      string
	gpus        string
	ranks       int
	minBytes    string
	maxBytes    string
	stepFactor  uint64
	stepBytes   string
	sizes       string
	sizeSweep   bool
	offset      string
	iters       int
	warmup      int
	duration    time.Duration
	until       string
	ops         string
	bidir       bool
	window      int
	graph       int
	vs          string
	requireVs   bool
	requirePath string
	check       string
	format      string
	wide        bool
	out         string
	timeout     time.Duration
	seed        uint64
	pin         string
	launcher    string
	inject      string
	quiet       bool
	preset      string // that the path command set its flags by

	flags  *pflag.FlagSet
	traits traits
	ring   bool // --ring, of paths that have it
	fan    bool // --fan out or in
	// accept lets the path refuse a device before anything is started; nil: it takes any.
	accept func(gpu.Driver, gpu.Info) error
	// faults are the values of --inject that the path itself commits; others are its devices'.
	faults []string
	// shape has the path's last word on the request, its baselines excepted.
	shape func(*sweep.Spec) error
	// beside is how baselines are measured, so that they can stand beside the path.
	beside beside
}

// traits are what a path has of its own among the flags that every path has.
type traits struct {
	path  string // the path command's name
	sweep sweepRange
	ops   string // of --op, by default
	graph string // what --cudagraph does; "": nothing, it is refused
	// window is what --window counts; "": messages in flight.
	window string
	rings  bool // more than two ranks, with --ring
	fans   bool // … with --fan
	// free are flags of the path's own that a preset leaves to the user.
	free []string
}

// sweepRange is a path's default sizes.
type sweepRange struct {
	lo, hi, factor uint64
	onHost         uint64 // where it ends between CPU memories, so that it fits small machines; 0: at hi
}

func (r sweepRange) String() string {
	text := fmt.Sprintf("%s to %s", sweep.FormatSize(r.lo), sweep.FormatSize(r.hi))
	if r.onHost > 0 {
		text += fmt.Sprintf(" (CPU memory: %s)", sweep.FormatSize(r.onHost))
	}
	return text + fmt.Sprintf(" by %d", r.factor)
}

// end is where it ends by default, on that kind of device and from lo on.
func (r sweepRange) end(kind string, lo uint64) uint64 {
	if kind == host.Kind && r.onHost > 0 {
		return max(r.onHost, lo)
	}
	return r.hi
}

func (c *common) registerCommon(f *pflag.FlagSet, t traits) {
	c.flags, c.traits = f, t
	r := t.sweep
	f.StringVar(&c.device, "device", "auto", "auto, cuda or host (CPU memory); auto is the best there is")
	shares, most := "; 0,0 shares one", ""
	if t.rings {
		shares = "" // kernels that wait for each other cannot
	}
	if r.onHost > 0 {
		most = " (CPU memory: " + sweep.FormatSize(r.onHost) + " by default)"
	}
	f.StringVar(&c.gpus, "gpus", "", "device `index` of each rank, such as 0,1"+shares+" (default: one each)")
	f.IntVar(&c.ranks, "ranks", 2, "number of processes")
	f.BoolVar(&c.sizeSweep, "size-sweep", false, "the whole default sweep, "+r.String()+" (this is the default)")
	f.StringVar(&c.sizes, "sizes", "", "message `sizes`, such as 8,4K,1M (K M G are binary, KB MB GB decimal)")
	f.StringVarP(&c.minBytes, "minbytes", "b", sweep.FormatSize(r.lo), "smallest message `size`")
	f.StringVarP(&c.maxBytes, "maxbytes", "e", sweep.FormatSize(r.hi), "largest message `size`"+most)
	f.Uint64VarP(&c.stepFactor, "stepfactor", "f", r.factor, "next size = this × size")
	f.StringVarP(&c.stepBytes, "stepbytes", "i", "", "next size = size + this many `bytes`")
	f.StringVar(&c.offset, "offset", "0", "`bytes` from the start of the allocation to the message")
	f.IntVarP(&c.iters, "iters", "n", 0, "samples per cell (default: 10 to 1000 by size and window)")
	f.IntVarP(&c.warmup, "warmup", "w", -1, "iterations before the samples (default: 2 to 50 by iterations)")
	f.DurationVarP(&c.duration, "duration", "D", 0, "measure each cell this long instead of a number of iterations")
	f.StringVar(&c.until, "until", "", "stop a cell when its median is known so well: `ci=1%` (95 % interval, ±)")
	f.StringVar(&c.ops, "op", t.ops, "operations: latency, stream, bidir, pingpong")
	f.BoolVar(&c.bidir, "bidir", false, "measure bidir too")
	f.IntVar(&c.window, "window", 0, cmp.Or(t.window, "messages in flight in stream and bidir (default 8, fewer when they are large)"))
	f.IntVarP(&c.graph, "cudagraph", "G", 0, t.graph)
	f.StringVar(&c.vs, "vs", "", "`baselines` measured in the same run, interleaved: "+strings.Join(baselines, ", ")+
		" (one CUDA graph a window); CTAS: thread blocks, or auto")
	f.BoolVar(&c.requireVs, "require-vs", false, "fail when a baseline cannot run instead of printing n/a")
	f.StringVar(&c.requirePath, "require-path", "", "fail unless this `path` is the one that runs")
	f.StringVarP(&c.check, "check", "c", "full", "payload check: full, sample or off (1 and 0 mean full and off)")
	f.StringVar(&c.format, "format", "table", strings.Join(report.Formats, ", "))
	f.BoolVar(&c.wide, "wide", false, "all columns of the table")
	f.StringVar(&c.out, "out", "", outHelp)
	f.DurationVarP(&c.timeout, "timeout", "T", time.Minute, "give up after this long without progress")
	f.Uint64Var(&c.seed, "seed", 1, "seed of the payloads")
	f.StringVar(&c.pin, "pin", "auto", "auto: pin each rank near its device before it allocates; off")
	f.StringVar(&c.launcher, "launcher", "", "`command` to put before each worker's, such as an emulator or a profiler")
	f.StringVar(&c.preset, "preset", "", "repeat a pull request's `run`: "+strings.Join(claim.PresetNames(t.path), ", "))
	f.StringVar(&c.inject, "inject", "", "fault to commit: flip=COPY:OFFSET corrupts one byte of one message, kill=COPY ends the process in the middle of a copy, drop=COPY leaves a copy out, stale=FILL writes no payload from then on, late completes copies as late as a device may")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "nothing on stderr but errors")
	for _, name := range c.hidden() {
		_ = f.MarkHidden(name) // exists: registered above
	}
}

// hidden are the flags that help does not list.
func (c *common) hidden() []string {
	if c.traits.graph == "" {
		return []string{"inject", "cudagraph"}
	}
	return []string{"inject"}
}

// target is where a run takes place: the driver and every rank's device.
type target struct {
	driver gpu.Driver
	ranks  []gpu.Info
	notes  []string
}

// spec reads the flags. Nothing has been started yet; every error is the user's to mend.
func (c *common) spec(subject worker.Arm) (sweep.Spec, target, error) {
	t, err := c.target()
	if err != nil {
		return sweep.Spec{}, t, err
	}
	if err := c.accepts(t); err != nil {
		return sweep.Spec{}, t, err
	}
	s := sweep.Spec{
		Subject: subject, Devices: t.ranks, Iters: c.iters, Warmup: c.warmup, Window: c.window,
		Duration: c.duration, Seed: c.seed,
	}
	for _, step := range []func(*sweep.Spec) error{
		c.checkValues, c.readSizes, c.readOps, c.readUntil, c.shape, c.readBaselines, c.presetArms,
	} {
		if err := step(&s); err != nil {
			return sweep.Spec{}, t, err
		}
	}
	return s, t, nil
}

// refuseEmpty is the rule of all commands that a flag without a value is a slip, such as a variable that is not set, and
// not a way to ask for the default.
func refuseEmpty(fs *pflag.FlagSet) (err error) {
	fs.Visit(func(f *pflag.Flag) {
		if err == nil && strings.TrimSpace(f.Value.String()) == "" {
			err = usagef("--%s: the value is empty: give one, or leave the flag out", f.Name)
		}
	})
	return err
}

// atLeastOne refuses numbers below 1: within options 0 leaves the choice to the path, for which the flag is left out.
func (c *common) atLeastOne(names ...string) error {
	for _, name := range names {
		if n, err := c.flags.GetInt(name); err == nil && n < 1 && c.flags.Changed(name) {
			return usagef("--%s %d: want 1 or more", name, n)
		}
	}
	return nil
}

// accepts asks the path whether it takes these devices.
func (c *common) accepts(t target) error {
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

func (c *common) checkValues(s *sweep.Spec) error {
	switch c.check {
	case "1":
		c.check = "full"
	case "0":
		c.check = "off"
	}
	checks := []string{"full", "sample", "off"}
	switch {
	case !slices.Contains(checks, c.check):
		return usagef("--check %s: use full, sample or off", c.check)
	case c.flags.Changed("iters") && c.iters < 1:
		return usagef("--iters %d: want at least 1", c.iters)
	case c.flags.Changed("warmup") && c.warmup < 0:
		return usagef("--warmup %d: want 0 or more", c.warmup)
	case c.iters > sweep.MaxIters:
		return usagef("--iters %d: want at most %d; --duration runs for as long as you like", c.iters, sweep.MaxIters)
	case c.warmup > sweep.MaxIters:
		return usagef("--warmup %d: want at most %d", c.warmup, sweep.MaxIters)
	case c.flags.Changed("window") && c.window < 1:
		return usagef("--window %d: want at least 1", c.window)
	case c.flags.Changed("duration") && c.duration <= 0:
		return usagef("--duration %v: want more than 0, such as 2s", c.duration)
	case c.timeout < time.Second:
		return usagef("--timeout %v: want at least 1s", c.timeout)
	case c.pin != "auto" && c.pin != "off":
		return usagef("--pin %s: use auto or off", c.pin)
	case !slices.Contains(report.Formats, c.format):
		return usagef("--format %s: use one of %s", c.format, strings.Join(report.Formats, ", "))
	}
	if inject := c.deviceFault(); inject != "" {
		if _, err := fault.Parse(inject); err != nil {
			return usageError{err}
		}
	}
	s.Check = transport.Check(c.check)
	return checkOut(c.flags)
}

func (c *common) readSizes(s *sweep.Spec) (err error) {
	if s.Offset, err = sweep.ParseSize(c.offset); err != nil {
		return usagef("--offset: %w", err)
	}
	if c.sizes != "" {
		if c.sizeSweep || c.rangeChanged() {
			return usagef("--sizes lists the sizes: leave out --size-sweep, -b, -e, -f and -i")
		}
		if s.Sizes, err = sweep.ParseSizes(c.sizes); err != nil {
			return usagef("--sizes: %w", err)
		}
		return nil
	}
	if c.sizeSweep && c.rangeChanged() {
		return usagef("--size-sweep is the whole default sweep: leave it out to use -b, -e, -f and -i")
	}
	return c.readRange(s)
}

func (c *common) rangeChanged() bool {
	return slices.ContainsFunc([]string{"minbytes", "maxbytes", "stepfactor", "stepbytes"}, c.flags.Changed)
}

func (c *common) readRange(s *sweep.Spec) error {
	lo, err := sweep.ParseSize(c.minBytes)
	if err != nil {
		return usagef("--minbytes: %w", err)
	}
	hi, err := sweep.ParseSize(c.maxBytes)
	if err != nil {
		return usagef("--maxbytes: %w", err)
	}
	if !c.flags.Changed("maxbytes") {
		hi = c.traits.sweep.end(s.Devices[0].Kind, lo)
	}
	var step uint64
	if c.stepBytes != "" {
		if c.flags.Changed("stepfactor") {
			return usagef("--stepfactor and --stepbytes: give one of them")
		}
		if step, err = sweep.ParseSize(c.stepBytes); err != nil {
			return usagef("--stepbytes: %w", err)
		}
		if step == 0 {
			return usagef("--stepbytes 0: want at least 1")
		}
	}
	if s.Sizes, err = sweep.Range(lo, hi, c.stepFactor, step); err != nil {
		return usagef("--minbytes, --maxbytes: %w", err)
	}
	return nil
}

func (c *common) readOps(s *sweep.Spec) error {
	for name := range strings.SplitSeq(c.ops, ",") {
		op := transport.Op(strings.TrimSpace(name))
		if !slices.Contains(transport.Ops, op) {
			return usagef("--op %s: use some of latency, stream, bidir, pingpong", name)
		}
		if !slices.Contains(s.Ops, op) {
			s.Ops = append(s.Ops, op)
		}
	}
	if c.bidir && !slices.Contains(s.Ops, transport.OpBidir) {
		s.Ops = append(s.Ops, transport.OpBidir)
	}
	return nil
}

func (c *common) readUntil(s *sweep.Spec) error {
	if c.until == "" {
		return nil
	}
	value, isCI := strings.CutPrefix(c.until, "ci=")
	percent, isPercent := strings.CutSuffix(value, "%")
	f, err := strconv.ParseFloat(percent, 64)
	if !isCI || !isPercent || err != nil || !(f > 0 && f < 100) { // a NaN is neither
		return usagef("--until %s: want ci=P%% with P above 0 and below 100, such as ci=1%%", c.until)
	}
	s.Until = f / 100
	return nil
}

func (c *common) readBaselines(s *sweep.Spec) error {
	if c.vs == "" {
		return nil
	}
	seen := map[string]bool{}
	for name := range strings.SplitSeq(c.vs, ",") {
		arm, err := baseline(strings.TrimSpace(name), s.Devices[0].Kind, c.beside)
		if err != nil {
			return err
		}
		if seen[arm.Name] {
			return usagef("--vs %s: %s is there twice: name each baseline once", c.vs, arm.Name)
		}
		seen[arm.Name] = true
		t, err := newTransport(arm.Transport, arm.Options)
		if err != nil {
			return err
		}
		if err := t.Probe(s.Devices); err != nil {
			if c.requireVs {
				return fmt.Errorf("--require-vs: %w", err)
			}
			s.Missing = append(s.Missing, sweep.Missing{Name: arm.Name, Why: reason(err)})
			continue
		}
		s.Baselines = append(s.Baselines, arm)
	}
	return nil
}

// deviceFault is what the devices shall do wrong; "": nothing.
func (c *common) deviceFault() string {
	if slices.Contains(c.faults, c.inject) {
		return ""
	}
	return c.inject
}

// launcherArgs splits the launcher's command line at spaces.
func (c *common) launcherArgs() []string { return strings.Fields(c.launcher) }

// terminal reports whether f is one.
func terminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	st, err := file.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
