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

// ntFrom is the message size in bytes from which non-temporal stores win over memcpy: a quarter of the last cache
// below dir, the kernel's description of a CPU's caches. A larger message, its source and what else a run touches do
// not stay in the cache anyway, and stores around it save reading every line of the destination first. On an EPYC with
// 32 MiB the two are equal at 4 MiB and non-temporal stores are a quarter faster at 16 MiB.
func ntFrom(dir string) uint64 {
	const unknown = 16 << 20 // a cache that the kernel does not describe
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

// available is MemAvailable of meminfo, bounded by what the control groups still allow.
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
