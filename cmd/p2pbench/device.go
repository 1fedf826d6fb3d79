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
		t.ranks, err = c.chosen(infos)
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

// mostRanks bounds the processes that a slip of the finger starts.
const mostRanks = 64

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
	case joined != "" && (c.Ranks < 2 || c.Ranks > mostRanks):
		return usagef("--ranks %d: a %s has 2 to %d", c.Ranks, joined, mostRanks)
	case joined != "" || c.Ranks == 2:
		return nil
	case flag != "" && c.Ranks > 2:
		return usagef("--ranks %d: a path is measured between 2 ranks: add %s for more ranks", c.Ranks, flag)
	}
	return usagef("--ranks %d: a path is measured between 2 ranks", c.Ranks)
}

// devices finds the driver that --device asks for and what it sees.
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
			return d, infos, instead(missing, infos[0]), nil
		}
		missing = append(missing, reason(err))
	}
	return nil, nil, nil, usagef("no device: %s", strings.Join(missing, "; "))
}

// instead notes why a better kind of device is not the one that is measured.
func instead(missing []string, i gpu.Info) []string {
	if len(missing) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("no GPU (%s): measuring %s instead", strings.Join(missing, "; "), i.Name)}
}

// chosen reads --gpus.
func (c *common) chosen(infos []gpu.Info) ([]gpu.Info, error) {
	var out []gpu.Info
	for _, i := range c.GPUs {
		if i < 0 || i >= len(infos) {
			return nil, usagef("--gpus %s: there is no device %d: %s", c.gpuList(), i, indexes(infos))
		}
		out = append(out, infos[i])
	}
	if len(out) != c.Ranks {
		return nil, usagef("--gpus %s names %d devices for %d ranks: name one for each (0,0 shares device 0)", c.gpuList(),
			len(out), c.Ranks)
	}
	return out, nil
}

func indexes(infos []gpu.Info) string {
	if len(infos) == 1 {
		return "the only one is 0 (" + infos[0].Name + ")"
	}
	return fmt.Sprintf("there are 0 to %d", len(infos)-1)
}

// free says how much memory a device could give. Asking a GPU would mean to open it, so its whole memory stands in:
// the worker that opens it looks again before it allocates.
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

// sharedBytes is the most that ranks share in one piece beside their buffers.
const sharedBytes = 4 << 20

// fits refuses a plan that needs more than its devices have, or than this process's limits allow.
func fits(p sweep.Plan) error {
	if err := p.Fits(free); err != nil {
		return err
	}
	space, file := rlimit.AddressSpace(), rlimit.FileSize()
	for r, i := range p.Ranks {
		var own, shared uint64 // of GPUs the driver knows
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
