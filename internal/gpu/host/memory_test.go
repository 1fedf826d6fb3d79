package host

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/cgroup"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const meminfo = "MemTotal:       16384 kB\nMemFree:         1024 kB\nMemAvailable:    8192 kB\nBuffers:           12 kB\n"

func TestAvailable(t *testing.T) {
	for name, c := range map[string]struct {
		max, current string // of the control group
		want         uint64
	}{
		"no limit":               {"max", "1048576", 8 << 20},
		"a limit beyond it":      {"1073741824", "0", 8 << 20},
		"a limit that binds":     {"4194304", "1048576", 3 << 20},
		"more used than allowed": {"4194304", "5000000", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "meminfo"), meminfo)
			write(t, filepath.Join(dir, "memory.max"), c.max)
			write(t, filepath.Join(dir, "memory.current"), c.current)
			write(t, filepath.Join(dir, "cgroup"), "0::/\n")
			write(t, filepath.Join(dir, "mountinfo"), "30 24 0:26 / "+dir+" rw - cgroup2 cgroup2 rw\n")
			groups := cgroup.Read(filepath.Join(dir, "cgroup"), filepath.Join(dir, "mountinfo"))
			if got, err := available(filepath.Join(dir, "meminfo"), groups); err != nil || got != c.want {
				t.Errorf("%d, %v; want %d", got, err, c.want)
			}
		})
	}
}

func TestAvailableUnknown(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "old"), "MemTotal: 1 kB\n")
	write(t, filepath.Join(dir, "odd"), "MemAvailable: lots kB\n")
	for name, want := range map[string]string{"none": "no such file", "old": "no MemAvailable in", "odd": "invalid syntax"} {
		if got, err := available(filepath.Join(dir, name), cgroup.Groups{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d, %v; want %q", name, got, err, want)
		}
	}
}

// Non-temporal stores begin at a quarter of the last-level cache.
func TestNTFrom(t *testing.T) {
	for name, c := range map[string]struct {
		levels, sizes []string
		want          uint64
	}{
		"three levels":                    {[]string{"1", "1", "2", "3"}, []string{"32K", "32K", "1024K", "32768K"}, 8 << 20},
		"the last is not the last listed": {[]string{"3", "1"}, []string{"4096K", "32K"}, 1 << 20},
		"nothing is told":                 {nil, nil, 4 << 20},
		"a size that is none":             {[]string{"1", "3"}, []string{"64K", "?"}, 16 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i := range c.levels {
				write(t, filepath.Join(dir, fmt.Sprintf("index%d", i), "level"), c.levels[i]+"\n")
				write(t, filepath.Join(dir, fmt.Sprintf("index%d", i), "size"), c.sizes[i]+"\n")
			}
			if got := ntFrom(dir); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

func open(t *testing.T) gpu.Device {
	t.Helper()
	infos, err := Driver().Devices()
	if err != nil {
		t.Fatal(err)
	}
	d, err := Driver().Open(infos[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func alloc(t testing.TB, d gpu.Device, n uint64) gpu.Buffer {
	t.Helper()
	b, err := d.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func content(b gpu.Buffer) []byte { return bytesAt(b.Addr(), b.Size()) }

func TestAlloc(t *testing.T) {
	d := open(t)
	page := uint64(os.Getpagesize())
	for n, want := range map[uint64]uint64{0: page, 1: page, page: page, page + 1: 2 * page, 1<<20 + 1: 1<<20 + page} {
		b := alloc(t, d, n)
		if b.Size() != want {
			t.Errorf("%d bytes: got %d, want %d", n, b.Size(), want)
		}
		c := content(b)
		c[0], c[len(c)-1] = 1, 2 // there
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	}
}

// A source that was never written has its own pages: a shared page of zeroes would stay in the cache, and copies from
// it would be too fast.
func TestAllocIsMemoryWhenRead(t *testing.T) {
	const n = 4 << 20
	b := alloc(t, open(t), n)
	for i := 0; i < n; i += os.Getpagesize() {
		if content(b)[i] != 0 {
			t.Fatalf("byte %d is not 0", i)
		}
	}
	if got := resident(t, b.Addr()); got < n {
		t.Errorf("%d bytes are in memory after all %d were read", got, n)
	}
}

// resident returns the resident bytes of the mapping that begins at p.
func resident(t *testing.T, p uintptr) uint64 {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	_, mapping, ok := strings.Cut(string(maps), fmt.Sprintf("\n%x-", p))
	_, rss, found := strings.Cut(mapping, "\nRss:")
	rss, _, _ = strings.Cut(rss, "kB")
	kib, err := strconv.ParseUint(strings.TrimSpace(rss), 10, 64)
	if !ok || !found || err != nil {
		t.Fatalf("the kernel does not tell of a mapping at %#x: %v", p, err)
	}
	return kib << 10
}

// An allocation that exceeds the available memory is rejected.
func TestAllocTooMuch(t *testing.T) {
	d := open(t)
	free, err := d.Free()
	if err != nil || free == 0 {
		t.Fatalf("%d, %v", free, err)
	}
	for _, n := range []uint64{free * 2, 1 << 62, math.MaxInt64, math.MaxUint64 - 5000, math.MaxUint64} {
		b, err := d.Alloc(n)
		if err == nil {
			_ = b.Close()
			t.Fatalf("%d bytes of %d were given", n, free)
		}
		if want := fmt.Sprintf("%d bytes asked for, ", n); !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "available") {
			t.Errorf("%d bytes: %v, want %q", n, err, want)
		}
	}
}

func TestDevices(t *testing.T) {
	sys := t.TempDir()
	for node, list := range []string{"0-1\n", "2-3\n", "\n"} { // the last one is memory without CPUs
		write(t, filepath.Join(sys, fmt.Sprintf("devices/system/node/node%d/cpulist", node)), list)
	}
	infos, err := driver{sys: sys}.Devices()
	if err != nil || len(infos) != 2 {
		t.Fatalf("%+v, %v; want two nodes", infos, err)
	}
	for i, d := range infos {
		if d.Kind != Kind || d.Index != i || d.NUMA != i || d.UUID != fmt.Sprintf("host-%d", i) || d.Memory == 0 {
			t.Errorf("%+v", d)
		}
	}
	link := driver{}.Link(infos[0], infos[1])
	if !link.Peer || link.Detail != "NUMA node 0 to 1" || (driver{}).Link(infos[0], infos[0]).Detail != "" {
		t.Errorf("%+v", link)
	}
	one, err := driver{sys: filepath.Join(sys, "none")}.Devices()
	if err != nil || len(one) != 1 || one[0].NUMA != 0 {
		t.Errorf("%+v, %v; want one node on a kernel that tells none", one, err)
	}
	if _, err := (driver{sys: sys}).Open("host-7"); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("a node that is not there: %v", err)
	}
}
