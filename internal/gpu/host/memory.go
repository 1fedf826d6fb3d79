package host

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/p2pbench/p2pbench/internal/cgroup"
)

// ntFrom returns the message size in bytes from which non-temporal stores are faster than memcpy: a quarter of the
// last-level cache described below dir in sysfs. A larger message and its source do not stay in the cache anyway, and
// non-temporal stores need not read the destination's lines first. On an EPYC with 32 MiB the two are equal at 4 MiB,
// and non-temporal stores are a quarter faster at 16 MiB.
func ntFrom(dir string) uint64 {
	const unknown = 16 << 20 // assumed size if sysfs does not describe the cache
	var last, level uint64
	indexes, _ := filepath.Glob(filepath.Join(dir, "index[0-9]*")) // the pattern is well-formed
	for _, index := range indexes {
		l, ok := readUint(filepath.Join(index, "level"))
		size, sok := readCacheSize(filepath.Join(index, "size"))
		if ok && sok && l >= level {
			level, last = l, size
		}
	}
	if last == 0 {
		last = unknown
	}
	return last / 4
}

// readCacheSize reads "32768K".
func readCacheSize(path string) (uint64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	kib, ok := strings.CutSuffix(strings.TrimSpace(string(b)), "K")
	n, err := strconv.ParseUint(kib, 10, 64)
	return n << 10, ok && err == nil
}

// available returns MemAvailable of meminfo, or less if the control groups allow less.
func available(meminfo string, groups cgroup.Groups) (uint64, error) {
	free, err := memAvailable(meminfo)
	if err != nil {
		return 0, err
	}
	if left, limited := groups.Memory(); limited {
		free = min(free, left)
	}
	return free, nil
}

func memAvailable(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("host: free memory: %w", err)
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) >= 2 && fields[0] == "MemAvailable:" {
			kib, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("host: free memory: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("host: free memory: no MemAvailable in %s", path)
}

// readUint reads a number; false for "max" or a missing file.
func readUint(path string) (uint64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
