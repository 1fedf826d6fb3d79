// Package cgroup reads the limits of memory and CPU time of this process's control groups, versions 1 and 2
// (Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst in the kernel). It changes nothing.
package cgroup

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Groups are the control groups of a process that have the memory or cpu controller.
type Groups struct {
	memory, cpu []group // the process's own group first, then its ancestors
}

// group is one control group.
type group struct {
	dir string
	v2  bool
}

// Own returns the groups of this process. Without groups nothing is limited.
func Own() Groups { return Read("/proc/self/cgroup", "/proc/self/mountinfo") }

// Read finds the groups of a process in files of the format of /proc/self/cgroup and /proc/self/mountinfo.
func Read(membership, mountinfo string) Groups {
	var g Groups
	mounts := readMounts(mountinfo)
	for _, line := range lines(membership) { // "4:memory:/a/b", "0::/a/b"
		f := strings.SplitN(line, ":", 3)
		if len(f) < 3 {
			continue
		}
		for _, m := range mounts {
			chain := m.chain(f[2])
			if m.v2 && f[0] == "0" {
				g.memory, g.cpu = append(g.memory, chain...), append(g.cpu, chain...)
			}
			for controller := range strings.SplitSeq(f[1], ",") {
				switch {
				case m.v2 || !m.controllers[controller]:
				case controller == "memory":
					g.memory = append(g.memory, chain...)
				case controller == "cpu":
					g.cpu = append(g.cpu, chain...)
				}
			}
		}
	}
	return g
}

// mount is a mount point of a hierarchy or of the subtree below root.
type mount struct {
	root, point string
	v2          bool
	controllers map[string]bool
}

func readMounts(mountinfo string) []mount {
	var out []mount
	for _, line := range lines(mountinfo) { // "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"
		where, what, ok := strings.Cut(line, " - ")
		w, k := strings.Fields(where), strings.Fields(what)
		if !ok || len(w) < 5 || len(k) < 3 || k[0] != "cgroup" && k[0] != "cgroup2" {
			continue
		}
		m := mount{root: w[3], point: w[4], v2: k[0] == "cgroup2", controllers: map[string]bool{}}
		for option := range strings.SplitSeq(k[2], ",") {
			m.controllers[option] = true
		}
		out = append(out, m)
	}
	return out
}

// chain returns the group at path and those of its ancestors that are mounted.
func (m mount) chain(path string) []group {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(m.root, "/"))
	if !ok || rest != "" && rest[0] != '/' || strings.HasPrefix(rest, "/..") {
		rest = "" // in a container that sees only its own group
	}
	var out []group
	for dir := filepath.Join(m.point, rest); ; dir = filepath.Dir(dir) {
		out = append(out, group{dir, m.v2})
		if dir == m.point || len(dir) <= len(m.point) {
			return out
		}
	}
}

// Memory returns how many bytes may still be allocated under the memory limits. Reclaimable page cache counts as free.
func (g Groups) Memory() (left uint64, limited bool) {
	left = math.MaxUint64
	for _, c := range g.memory {
		limit, used, reclaimable := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
		if c.v2 {
			limit, used, reclaimable = "memory.max", "memory.current", "inactive_file"
		}
		most, ok := c.number(limit)
		now, nok := c.number(used)
		if !ok || !nok || most >= math.MaxInt64/4096*4096 { // version 1's value for no limit
			continue
		}
		now -= min(now, c.stat("memory.stat", reclaimable))
		left, limited = min(left, most-min(now, most)), true
	}
	return left, limited
}

// CPUs returns the CPU time that the quotas allow, as a number of CPUs.
func (g Groups) CPUs() (cpus float64, limited bool) {
	cpus = math.Inf(1)
	for _, c := range g.cpu {
		if n, ok := c.quota(); ok {
			cpus, limited = min(cpus, n), true
		}
	}
	return cpus, limited
}

// Throttled returns the number of periods so far in which a group exhausted its quota and was throttled.
func (g Groups) Throttled() uint64 {
	var n uint64
	for _, c := range g.cpu {
		if _, ok := c.quota(); ok {
			n += c.stat("cpu.stat", "nr_throttled")
		}
	}
	return n
}

// OOMKills returns how many processes of the groups the kernel has killed for lack of memory, and the file with the
// lowest limit; "" without a limit.
func (g Groups) OOMKills() (n uint64, limit string) {
	least := uint64(math.MaxUint64)
	for _, c := range g.memory {
		file, events := "memory.limit_in_bytes", "memory.oom_control"
		if c.v2 {
			file, events = "memory.max", "memory.events"
		}
		most, ok := c.number(file)
		if !ok || most >= math.MaxInt64/4096*4096 {
			continue
		}
		n += c.stat(events, "oom_kill")
		if most < least {
			least, limit = most, filepath.Join(c.dir, file)
		}
	}
	return n, limit
}

func (c group) quota() (cpus float64, ok bool) {
	if !c.v2 {
		quota, ok := c.number("cpu.cfs_quota_us") // -1: none
		period, pok := c.number("cpu.cfs_period_us")
		return float64(quota) / float64(period), ok && pok && period > 0
	}
	b, err := os.ReadFile(filepath.Join(c.dir, "cpu.max")) // "max 100000"
	f := strings.Fields(string(b))
	if err != nil || len(f) != 2 {
		return 0, false
	}
	quota, err := strconv.ParseUint(f[0], 10, 64)
	period, perr := strconv.ParseUint(f[1], 10, 64)
	return float64(quota) / float64(period), err == nil && perr == nil && period > 0
}

// number reads a file that holds one number; ok is false for "max", -1 and a missing file.
func (c group) number(file string) (uint64, bool) {
	b, err := os.ReadFile(filepath.Join(c.dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// stat returns the value of a key in a file of lines "key value"; 0 if it is missing.
func (c group) stat(file, key string) uint64 {
	for _, line := range lines(filepath.Join(c.dir, file)) {
		if name, value, _ := strings.Cut(line, " "); name == key {
			n, _ := strconv.ParseUint(value, 10, 64) // the kernel writes a number
			return n
		}
	}
	return 0
}

// lines returns the lines of a file; nil if it cannot be read.
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
