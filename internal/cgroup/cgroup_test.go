package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine writes a tree of files below a directory and reads the groups of a process in it. DIR in membership and
// mounts stands for the directory.
func machine(t *testing.T, membership, mounts string, files map[string]string) Groups {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, text := range files {
		write(name, text)
	}
	return Read(write("cgroup", membership), write("mountinfo", mounts))
}

const (
	mountsV2 = "30 24 0:26 / DIR/sys rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
	mountsV1 = "31 23 0:28 / DIR/sys rw - tmpfs tmpfs rw,mode=755\n" +
		"32 31 0:29 / DIR/sys/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"35 31 0:32 / DIR/sys/memory rw - cgroup cgroup rw,memory\n" +
		"36 31 0:33 / DIR/sys/unified rw - cgroup2 cgroup2 rw"
	unlimitedV1 = "9223372036854771712"
)

func TestMemory(t *testing.T) {
	for name, c := range map[string]struct {
		membership, mounts string
		files              map[string]string
		left               uint64
		limited            bool
	}{
		"no control groups": {"", "", nil, 0, false},
		"v2, no limit":      {"0::/a", mountsV2, map[string]string{"sys/a/memory.max": "max", "sys/a/memory.current": "5"}, 0, false},
		"v2": {
			"0::/a", mountsV2,
			map[string]string{"sys/a/memory.max": "1000", "sys/a/memory.current": "300"},
			700, true,
		},
		"v2, what caches files can be had": {
			"0::/a", mountsV2,
			map[string]string{"sys/a/memory.max": "1000", "sys/a/memory.current": "900", "sys/a/memory.stat": "anon 100\ninactive_file 600\nactive_file 50"},
			700, true,
		},
		"v2, an ancestor's is tighter": {
			"0::/a/b/c", mountsV2,
			map[string]string{
				"sys/a/memory.max": "1000", "sys/a/memory.current": "800",
				"sys/a/b/memory.max": "max", "sys/a/b/memory.current": "800",
				"sys/a/b/c/memory.max": "5000", "sys/a/b/c/memory.current": "100",
			},
			200, true,
		},
		"v2, used up": {"0::/", mountsV2, map[string]string{"sys/memory.max": "1000", "sys/memory.current": "1200"}, 0, true},
		"v1": {
			"4:memory:/a/b\n1:cpu,cpuacct:/\n0::/", mountsV1,
			map[string]string{
				"sys/memory/a/b/memory.limit_in_bytes": "1000", "sys/memory/a/b/memory.usage_in_bytes": "400",
				"sys/memory/a/b/memory.stat":         "inactive_file 7\ntotal_inactive_file 100",
				"sys/memory/a/memory.limit_in_bytes": unlimitedV1, "sys/memory/a/memory.usage_in_bytes": "400",
			},
			700, true,
		},
		"v1, no limit": {
			"4:memory:/a", mountsV1,
			map[string]string{"sys/memory/a/memory.limit_in_bytes": unlimitedV1, "sys/memory/a/memory.usage_in_bytes": "400"},
			0, false,
		},
		"a container that sees its own group as the root": {
			"0::/docker/x", "30 24 0:26 /docker/x DIR/sys rw - cgroup2 cgroup rw",
			map[string]string{"sys/memory.max": "1000", "sys/memory.current": "10"},
			990, true,
		},
		"a process outside of what is mounted": {
			"0::/../y", "30 24 0:26 / DIR/sys rw - cgroup2 cgroup rw",
			map[string]string{"sys/memory.max": "1000", "sys/memory.current": "10", "y/memory.max": "1"},
			990, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			left, limited := machine(t, c.membership, c.mounts, c.files).Memory()
			if limited != c.limited || limited && left != c.left {
				t.Errorf("%d, %v, want %d, %v", left, limited, c.left, c.limited)
			}
		})
	}
}

func TestQuota(t *testing.T) {
	for name, c := range map[string]struct {
		membership, mounts string
		files              map[string]string
		cpus               float64
		throttled          uint64
	}{
		"v2": {
			"0::/a", mountsV2,
			map[string]string{"sys/a/cpu.max": "150000 100000", "sys/a/cpu.stat": "usage_usec 5\nnr_periods 98\nnr_throttled 38"},
			1.5, 38,
		},
		"v2, none": {"0::/a", mountsV2, map[string]string{"sys/a/cpu.max": "max 100000", "sys/a/cpu.stat": "nr_throttled 0"}, 0, 0},
		"v2, an ancestor's too": {
			"0::/a/b", mountsV2,
			map[string]string{
				"sys/a/cpu.max": "50000 100000", "sys/a/cpu.stat": "nr_throttled 3",
				"sys/a/b/cpu.max": "200000 100000", "sys/a/b/cpu.stat": "nr_throttled 4",
			},
			0.5, 7,
		},
		"v1": {
			"2:cpu,cpuacct:/a", mountsV1,
			map[string]string{
				"sys/cpu,cpuacct/a/cpu.cfs_quota_us": "100000", "sys/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
				"sys/cpu,cpuacct/a/cpu.stat": "nr_periods 10\nnr_throttled 6\nthrottled_time 5",
			},
			1, 6,
		},
		"v1, none": {
			"2:cpu,cpuacct:/a", mountsV1,
			map[string]string{"sys/cpu,cpuacct/a/cpu.cfs_quota_us": "-1", "sys/cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
			0, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := machine(t, c.membership, c.mounts, c.files)
			cpus, limited := g.CPUs()
			if limited != (c.cpus > 0) || limited && cpus != c.cpus || g.Throttled() != c.throttled {
				t.Errorf("%v CPUs (%v), %d periods, want %v, %d", cpus, limited, g.Throttled(), c.cpus, c.throttled)
			}
		})
	}
}

// OOM kills are counted, and the file of the limit is returned.
func TestOOMKills(t *testing.T) {
	for name, c := range map[string]struct {
		membership, mounts string
		files              map[string]string
		kills              uint64
		limit              string
	}{
		"v2": {
			"0::/a/b", mountsV2,
			map[string]string{
				"sys/a/memory.max": "1000", "sys/a/memory.events": "oom 1\noom_kill 2",
				"sys/a/b/memory.max": "max", "sys/a/b/memory.events": "oom_kill 2",
			},
			2, "/sys/a/memory.max",
		},
		"v1": {
			"4:memory:/a", mountsV1,
			map[string]string{"sys/memory/a/memory.limit_in_bytes": "1000", "sys/memory/a/memory.oom_control": "under_oom 0\noom_kill 1"},
			1, "/sys/memory/a/memory.limit_in_bytes",
		},
		"no limit": {"0::/a", mountsV2, map[string]string{"sys/a/memory.max": "max", "sys/a/memory.events": "oom_kill 3"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, limit := machine(t, c.membership, c.mounts, c.files).OOMKills()
			if n != c.kills || !strings.HasSuffix(limit, c.limit) || (limit == "") != (c.limit == "") {
				t.Error(fmt.Sprint(n, " ", limit), "want", c.kills, c.limit)
			}
		})
	}
}
