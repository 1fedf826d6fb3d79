package main

import (
	"fmt"
	"strings"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/rlimit"
	"github.com/p2pbench/p2pbench/internal/sweep"
)

// target chooses every rank's device.
func (c *common) target() (target, error) {
	c.fill()
	if err := c.checkRanks(); err != nil {
		return target{}, err
	}
	d, infos, notes, err := c.devices()
	if err != nil {
		return target{}, err
	}
	t := target{driver: d, notes: notes}
	if len(c.GPUs) > 0 {
		t.ranks, err = c.selected(infos)
		return t, err
	}
	for r := range c.Ranks {
		t.ranks = append(t.ranks, infos[r%len(infos)])
	}
	switch {
	case len(infos) >= c.Ranks || d.Kind() == host.Kind:
	case len(infos) == 1 && c.Ranks == 2:
		t.notes = append(t.notes, fmt.Sprintf("one GPU: both ranks share %s %d, so nothing crosses a link", d.Kind(), infos[0].Index))
	default:
		t.notes = append(t.notes, fmt.Sprintf("%d ranks share %d GPUs: not all of what they send crosses a link", c.Ranks, len(infos)))
	}
	return t, nil
}

// maxRanks protects against mistyped values of --ranks.
const maxRanks = 64

func (c *common) checkRanks() error {
	joined, flag := "", ""
	switch {
	case c.ring:
		joined = "ring"
	case c.fan:
		joined = "fan"
	case c.traits.rings:
		flag = "--ring"
	case c.traits.fans:
		flag = "--fan out or in"
	}
	switch {
	case joined != "" && (c.Ranks < 2 || c.Ranks > maxRanks):
		return usagef("--ranks %d: a %s has 2 to %d", c.Ranks, joined, maxRanks)
	case joined != "" || c.Ranks == 2:
		return nil
	case flag != "" && c.Ranks > 2:
		return usagef("--ranks %d: a path is measured between 2 ranks: add %s for more ranks", c.Ranks, flag)
	}
	return usagef("--ranks %d: a path is measured between 2 ranks", c.Ranks)
}

// devices returns the driver that --device selects, its devices, and notes for the user.
func (c *common) devices() (gpu.Driver, []gpu.Info, []string, error) {
	if c.Device != "auto" {
		d, err := newDrivers().of(c.Device)
		if err != nil {
			return nil, nil, nil, err
		}
		infos, err := d.Devices()
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--device %s: %w", c.Device, err)
		}
		return d, infos, nil, nil
	}
	var missing []string
	for _, d := range newDrivers() {
		infos, err := d.Devices()
		if err == nil && len(infos) > 0 {
			return d, infos, fallbackNote(missing, infos[0]), nil
		}
		missing = append(missing, reason(err))
	}
	return nil, nil, nil, usagef("no device: %s", strings.Join(missing, "; "))
}

// fallbackNote says why CPU memory is measured and not a GPU.
func fallbackNote(missing []string, i gpu.Info) []string {
	if len(missing) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("no GPU (%s): measuring %s instead", strings.Join(missing, "; "), i.Name)}
}

// selected returns the devices that --gpus names.
func (c *common) selected(infos []gpu.Info) ([]gpu.Info, error) {
	var out []gpu.Info
	for _, i := range c.GPUs {
		if i < 0 || i >= len(infos) {
			return nil, usagef("--gpus %s: no device %d: %s", c.gpuList(), i, indexes(infos))
		}
		out = append(out, infos[i])
	}
	if len(out) != c.Ranks {
		return nil, usagef("--gpus %s names %d devices for %d ranks: name one per rank (0,0 shares device 0)", c.gpuList(),
			len(out), c.Ranks)
	}
	return out, nil
}

func indexes(infos []gpu.Info) string {
	if len(infos) == 1 {
		return "the only device is 0 (" + infos[0].Name + ")"
	}
	return fmt.Sprintf("the devices are 0 to %d", len(infos)-1)
}

// free returns how many bytes can be allocated on a device. For a GPU it returns the total memory, because the free
// memory is known only after opening it: the worker checks again before it allocates.
func free(i gpu.Info) (uint64, error) {
	if i.Kind != host.Kind {
		return i.Memory, nil
	}
	d, err := host.Driver().Open(i.UUID)
	if err != nil {
		return 0, err
	}
	return d.Free()
}

// sharedBytes is the maximum size of the memory that ranks share in addition to their buffers.
const sharedBytes = 4 << 20

// fits refuses a plan that needs more memory than the devices have or the limits of this process allow.
func fits(p sweep.Plan) error {
	if err := p.Fits(free); err != nil {
		return err
	}
	space, file := rlimit.AddressSpace(), rlimit.FileSize()
	for r, i := range p.Ranks {
		var own, shared uint64 // on a GPU only the driver knows both
		if i.Kind == host.Kind {
			own, shared = p.Bytes[r], p.Region
		}
		if own += rlimit.OwnAddressSpace; own > space {
			return fmt.Errorf("rank %d: the address space is limited to %d KiB: raise the limit (ulimit -v) to %d or more, or use smaller sizes",
				r, space>>10, own>>10)
		}
		if shared += sharedBytes; shared > file {
			return fmt.Errorf("rank %d: files are limited to %d KiB, and so is the memory that ranks share: raise the limit (ulimit -f) to %d KiB or more, or use smaller sizes",
				r, file>>10, shared>>10)
		}
	}
	return nil
}
