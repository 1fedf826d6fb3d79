package abi

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CPUs is a set of CPUs as the kernel takes it, a bit each. It holds as many as the machine has: libc's type and
// unix.CPUSet end at 1,024.
type CPUs []uint64

// CPUsOf is the set of those.
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

// List is the set in ascending order.
func (s CPUs) List() []int {
	var out []int
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			out = append(out, i*64+bits.TrailingZeros64(word))
		}
	}
	return out
}

// Without is the set without a CPU, or all of it where that would leave none.
func (s CPUs) Without(cpu int) CPUs {
	rest := CPUsOf(slices.DeleteFunc(s.List(), func(c int) bool { return c == cpu })...)
	if len(rest) == 0 {
		return s
	}
	return rest
}

// Pin lets the calling thread run on these CPUs only.
func (s CPUs) Pin() error {
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, 0, uintptr(len(s)*8), uintptr(unsafe.Pointer(unsafe.SliceData(s))))
	if errno != 0 {
		return fmt.Errorf("sched_setaffinity: %w", errno)
	}
	return nil
}

// Affinity is where the calling thread may run.
func Affinity() (CPUs, error) {
	return affinity(func(s CPUs) (int, error) {
		n, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETAFFINITY, 0, uintptr(len(s)*8), uintptr(unsafe.Pointer(unsafe.SliceData(s))))
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	})
}

// affinity asks with ever more room: the kernel refuses less than its number of possible CPUs. get returns bytes.
func affinity(get func(CPUs) (int, error)) (CPUs, error) {
	const most = 1 << 20
	for room := 1024; ; room *= 2 {
		s := make(CPUs, room/64)
		n, err := get(s)
		if errors.Is(err, unix.EINVAL) && room < most {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("sched_getaffinity: %w", err)
		}
		return s[:n/8], nil
	}
}

// processCPUs is read before anything in this process is pinned.
var processCPUs, errProcessCPUs = Affinity()

// ProcessCPUs is where this process was started to run: by taskset, a cpuset, or its parent. Threads that are not to
// stay on the CPU of the thread that starts them go there, and nowhere else. It is not to be changed.
func ProcessCPUs() (CPUs, error) { return processCPUs, errProcessCPUs }
