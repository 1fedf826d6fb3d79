package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/p2pbench/p2pbench/internal/claim"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/sweep"
)

// presetFree are the flags that may be combined with --preset, in addition to traits.free: devices, checks and output.
var presetFree = []string{
	"preset", "device", "gpus", "ranks", "check", "seed", "pin", "launcher", "inject", "timeout", "require-path",
	"require-vs", "format", "wide", "out", "quiet",
}

// applyPreset sets the defaults of the common settings, then the flags of the preset. A flag given by the user must
// have the preset's value.
func (c *common) applyPreset() error {
	c.fill()
	if c.Preset == "" {
		return nil
	}
	p, ok := claim.PresetNamed(c.Preset)
	switch {
	case !ok:
		return usagef("--preset %s: no such preset: use one of %s", c.Preset, strings.Join(claim.PresetNames(c.traits.path), ", "))
	case p.Path != c.traits.path:
		return usagef("--preset %s: it is a preset of p2pbench %s: use one of %s", c.Preset, p.Path,
			strings.Join(claim.PresetNames(c.traits.path), ", "))
	}
	d, _, _, err := c.devices()
	if err != nil {
		return err
	}
	settings := p.On(d.Kind() != host.Kind)
	if err := c.presetAgrees(p.Name, settings); err != nil {
		return err
	}
	for _, s := range settings {
		if err := c.flags.Set(s.Name, s.Value); err != nil {
			return usagef("--preset %s: --%s %s: %w", p.Name, s.Name, s.Value, err)
		}
	}
	return nil
}

// presetArms adds the preset's baselines: the same run with other flags of the path.
func (c *common) presetArms(s *sweep.Spec) error {
	p, _ := claim.PresetNamed(c.Preset)
	for _, b := range p.Baselines {
		f, ok := pathNamed(p.Path)
		if !ok {
			return fmt.Errorf("preset %s: no path command %q", p.Name, p.Path)
		}
		fs := pflag.NewFlagSet(p.Path, pflag.ContinueOnError)
		f.register(fs)
		var args []string
		for _, flag := range p.On(s.Devices[0].Kind != host.Kind) {
			args = append(args, "--"+flag.Name, flag.Value)
		}
		args = append(args, b.Args[1:]...)
		c.flags.Visit(func(given *pflag.Flag) {
			if slices.Contains(c.traits.free, given.Name) {
				args = append(args, "--"+given.Name, given.Value.String())
			}
		})
		if err := fs.Parse(args); err != nil {
			return usageError{err}
		}
		arm, err := f.arm()
		if err == nil {
			err = f.shared().checkSettings(s.Ops)
		}
		if err != nil {
			return err
		}
		arm.Name = b.Label
		s.Baselines = append(s.Baselines, arm)
	}
	return nil
}

// presetAgrees returns an error for the first user flag that contradicts the preset.
func (c *common) presetAgrees(name string, settings []claim.Flag) error {
	var err error
	c.flags.Visit(func(given *pflag.Flag) {
		if err != nil || slices.Contains(presetFree, given.Name) || slices.Contains(c.traits.free, given.Name) {
			return
		}
		i := slices.IndexFunc(settings, func(s claim.Flag) bool { return s.Name == given.Name })
		switch {
		case i < 0:
			err = usagef("--%s %s: --preset %s sets its own configuration: leave one of them out", given.Name, given.Value, name)
		case given.Value.String() != settings[i].Value:
			err = usagef("--%s %s: --preset %s runs --%s %s: leave one of them out", given.Name, given.Value, name,
				given.Name, settings[i].Value)
		}
	})
	return err
}
