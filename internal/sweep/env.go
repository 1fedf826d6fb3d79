package sweep

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Host describes the machine without its devices.
func Host() record.Env {
	e := record.Env{OS: osName(), Arch: runtime.GOARCH, CPU: cpu(), Ranks: []record.Rank{}}
	e.Host, _ = os.Hostname() // an unknown name is an empty one
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		e.MemoryB = si.Totalram * uint64(si.Unit)
	}
	return e
}

// environment describes the machine, the ranks and their devices.
func (j Job) environment() record.Env {
	e := Host()
	var clock string
	var overhead float64
	for r, o := range j.Opened {
		clock, overhead = o.Clock, max(overhead, o.Overhead)
		if o.Device.Driver != "" {
			e.Driver = o.Device.Driver
		}
		e.Ranks = append(e.Ranks, record.Rank{
			Rank: r, CPU: o.CPU, NUMA: o.Device.NUMA, Device: toGPU(o.Device), Before: toHealth(o.Health),
			ProcessUS: o.ProcessUS, DeviceUS: o.DeviceUS,
		})
	}
	e.Link = &record.Link{Type: j.Link.Type, Count: j.Link.Count, Detail: j.Link.Detail}
	e.Harness = record.Harness{Clock: clock, OverheadNS: overhead}
	return e
}

func toGPU(i gpu.Info) record.GPU {
	return record.GPU{
		Kind: i.Kind, Index: i.Index, Name: i.Name, UUID: i.UUID, PCI: i.PCI, Arch: i.Arch, NUMA: i.NUMA, Memory: i.Memory,
	}
}

func toHealth(h *gpu.Health) *record.Health {
	if h == nil {
		return nil
	}
	r := record.Health(*h)
	return &r
}

func osName() string {
	for _, line := range lines("/etc/os-release") {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(name, `"`)
		}
	}
	return runtime.GOOS
}

func cpu() record.CPU {
	c := record.CPU{Count: runtime.NumCPU(), Model: runtime.GOARCH}
	for _, line := range lines("/proc/cpuinfo") {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			c.Model = strings.TrimSpace(v)
			break
		}
	}
	nodes, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*") // the pattern is well-formed
	c.NUMANodes = max(len(nodes), 1)
	if b, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"); err == nil {
		c.Governor = strings.TrimSpace(string(b))
	}
	return c
}

func lines(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var out []string
	for s := bufio.NewScanner(f); s.Scan(); {
		out = append(out, s.Text())
	}
	return out
}
