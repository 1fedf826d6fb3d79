package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// deviceSettings select the devices.
type deviceSettings struct {
	Device string `knob:"device" values:"auto cuda host" group:"what" help:"kind of device; host: CPU memory; auto: cuda if this machine has a GPU, else host"`
	GPUs   []int  `knob:"gpus" arg:"list" group:"what" help:"device index of each rank, such as 0,1 (default: a device per rank, in order)"`
}

// gpuList is the value of --gpus; "": not given.
func (d *deviceSettings) gpuList() string { return knob.Settings(d)["gpus"] }

// whatSettings are the flags for what is measured.
type whatSettings struct {
	Sizes      []size   `knob:"sizes" arg:"list" group:"what" help:"message sizes, such as 8,4K,1M (K, M, G: binary; KB, MB, GB: decimal)"`
	SizeSweep  bool     `knob:"size-sweep" group:"what" help:"measure the default range of sizes"`
	MinBytes   *size    `knob:"minbytes,b" arg:"size" group:"what" help:"smallest message size"`
	MaxBytes   *size    `knob:"maxbytes,e" arg:"size" group:"what" help:"largest message size"`
	StepFactor uint64   `knob:"stepfactor,f" range:"1.." arg:"N" group:"what" help:"each size is N × the size before"`
	StepBytes  *size    `knob:"stepbytes,i" range:"1.." arg:"size" group:"what" help:"each size is the size before plus this many bytes"`
	Ops        []string `knob:"op" values:"latency stream bidir pingpong" free:"true" arg:"list" group:"what" help:"operations: latency, stream (windows), bidir (windows in both directions), pingpong (half a round trip)"`
	Bidir      bool     `knob:"bidir" group:"what" help:"add bidir to the operations"`
	Vs         []string `knob:"vs" arg:"list" group:"what" help:"baselines, measured in the same run and interleaved: "`
	deviceSettings
	Ranks  int    `knob:"ranks" default:"2" arg:"N" group:"what" help:"number of ranks; each is a process"`
	Preset string `knob:"preset" arg:"name" group:"what"`
}

// howSettings are the flags for how a cell is measured.
type howSettings struct {
	Iters    int           `knob:"iters,n" range:"1..1000000000" arg:"N" group:"how" help:"samples per cell (default: 10 to 1000, depending on size and window)"`
	Warmup   *int          `knob:"warmup,w" range:"0..1000000000" arg:"N" group:"how" help:"iterations before the samples (default: 2 to 50, depending on the number of samples)"`
	Duration time.Duration `knob:"duration,D" range:"1us.." group:"how" help:"measure each cell for this long instead of a number of samples"`
	Until    until         `knob:"until" arg:"ci=P%" group:"how" help:"measure each cell until the 95 % confidence interval of its median is ±P % or narrower, such as ci=1%"`
	Offset   size          `knob:"offset" group:"expert" help:"bytes from the start of the allocation to the message (default 0)"`
	Check    check         `knob:"check,c" default:"full" arg:"full|sample|off" group:"how" help:"payload check: every byte, a part of the bytes, or none (1 means full, 0 off)"`
	Pin      string        `knob:"pin" values:"auto off" group:"expert" help:"auto: pin each rank to a CPU near its device before it allocates memory"`
	Seed     *uint64       `knob:"seed" arg:"N" group:"expert" help:"seed of the payloads (default 1)"`
	Launcher string        `knob:"launcher" arg:"command" group:"expert" help:"command that starts each worker, such as an emulator or a profiler"`
	Inject   string        `knob:"inject" arg:"fault" hidden:"true" help:"inject a fault: flip=COPY:OFFSET corrupts one byte of one message, kill=COPY ends the process in the middle of a copy, drop=COPY omits a copy, stale=FILL stops writing payloads at that fill, late completes copies as late as a device may, slow=PERCENT makes copies take this much longer"`
}

// windowSetting is --window of paths without other settings for the number of messages in flight.
type windowSetting struct {
	Window int `knob:"window" range:"1..4096" of:"op=stream,bidir" arg:"N" group:"how" help:"messages in flight in stream and bidir (default 8, fewer for large messages)"`
}

// viewSettings are the flags for how a result is shown.
type viewSettings struct {
	Format string `knob:"format" values:"table json csv md benchfmt" of:"out!=-" group:"output" help:"format of the result on stdout"`
	Wide   bool   `knob:"wide" of:"format=table,md out!=-" group:"output" help:"show all columns of the table"`
}

// claimsView is --format of claims.
type claimsView struct {
	Format string `knob:"format" values:"table json md" of:"out!=-" group:"output" help:"format of the result on stdout"`
}

// claimsListView is --format of claims list.
type claimsListView struct {
	Format string `knob:"format" values:"table json" group:"output" help:"format of the list"`
}

// runSettings are the flags of all commands that measure.
type runSettings struct {
	Out     string        `knob:"out" arg:"file" group:"output" help:"write the complete result with all samples to this JSON file; -: to stdout, instead of the table"`
	Quiet   bool          `knob:"quiet,q" group:"output" help:"print only errors on stderr"`
	Timeout time.Duration `knob:"timeout,T" default:"1m" range:"1s.." group:"how" help:"give up after this long without progress"`
}

// outputSettings are the flags for what is shown and what makes a run fail.
type outputSettings struct {
	viewSettings
	runSettings
	RequirePath string `knob:"require-path" arg:"path" group:"output" help:"fail unless messages go by this path"`
	RequireVs   bool   `knob:"require-vs" of:"vs" group:"output" help:"fail if a baseline cannot run, instead of printing n/a"`
}

type size = knob.Size

// check is the value of --check.
type check string

// Check returns an error for an unknown value.
func (c check) Check() error {
	if c.kind() == "" {
		return errors.New("use full, sample or off")
	}
	return nil
}

// kind is the transport's name of the check; "": unknown value.
func (c check) kind() transport.Check {
	switch c {
	case "", "full", "1":
		return transport.CheckFull
	case "sample":
		return transport.CheckSample
	case "off", "0":
		return transport.CheckOff
	}
	return ""
}

// until is the value of --until.
type until string

// Check returns an error for a malformed value.
func (u until) Check() error {
	_, err := u.interval()
	return err
}

// interval returns half the width of the median's confidence interval at which a cell ends, as a fraction of the
// median; 0 without --until.
func (u until) interval() (float64, error) {
	if u == "" {
		return 0, nil
	}
	value, isCI := strings.CutPrefix(string(u), "ci=")
	percent, isPercent := strings.CutSuffix(value, "%")
	f, err := strconv.ParseFloat(percent, 64)
	if !isCI || !isPercent || err != nil || !(f > 0 && f < 100) {
		return 0, errors.New("want ci=P% with P above 0 and below 100, such as ci=1%")
	}
	return f / 100, nil
}
