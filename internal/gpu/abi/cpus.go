package abi

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CPUs is a bit set of CPUs in the format of sched_setaffinity. Its size is not limited; libc's type and unix.CPUSet
// are limited to 1,024 CPUs.
type CPUs []uint64

// CPUsOf returns the set of the listed CPUs.
func CPUsOf(list ...int) CPUs {
	var s CPUs
	for _, cpu := range list {
		if need := cpu/64 + 1; need > len(s) {
			s = append(s, make(CPUs, need-len(s))...)
		}
		s[cpu/64] |= 1 << (cpu % 64)
	}
	return s
}

// List returns the CPUs in ascending order.
func (s CPUs) List() []int {
	var out []int
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			out = append(out, i*64+bits.TrailingZeros64(word))
		}
	}
	return out
}

// Without returns the set without one CPU, or the whole set if no other CPU would remain.
func (s CPUs) Without(cpu int) CPUs {
	rest := CPUsOf(slices.DeleteFunc(s.List(), func(c int) bool { return c == cpu })...)
	if len(rest) == 0 {
		return s
	}
	return rest
}

// Pin restricts the calling thread to these CPUs.
func (s CPUs) Pin() error {
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, 0, uintptr(len(s)*8), uintptr(unsafe.Pointer(unsafe.SliceData(s))))
	if errno != 0 {
		return fmt.Errorf("sched_setaffinity: %w", errno)
	}
	return nil
}

// Affinity returns the CPUs on which the calling thread may run.
func Affinity() (CPUs, error) {
	return affinity(func(s CPUs) (int, error) {
		n, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETAFFINITY, 0, uintptr(len(s)*8), uintptr(unsafe.Pointer(unsafe.SliceData(s))))
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	})
}

// affinity calls get with growing sets: the system call fails if the set is smaller than the number of possible CPUs.
// get returns the number of bytes written.
func affinity(get func(CPUs) (int, error)) (CPUs, error) {
	const maxSize = 1 << 20
	for size := 1024; ; size *= 2 {
		s := make(CPUs, size/64)
		n, err := get(s)
		if errors.Is(err, unix.EINVAL) && size < maxSize {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("sched_getaffinity: %w", err)
		}
		return s[:n/8], nil
	}
}

// processCPUs is read before any thread of this process is pinned.
var processCPUs, errProcessCPUs = Affinity()

// ProcessCPUs returns the CPUs on which this process was allowed to run when it started, as set by taskset, a cpuset or
// its parent. Threads that must leave the CPU of the thread that starts them may use these CPUs and no others. The
// caller must not modify the result.
func ProcessCPUs() (CPUs, error) { return processCPUs, errProcessCPUs }
