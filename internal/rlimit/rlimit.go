// Package rlimit checks the resource limits (ulimit) of the process. Go's runtime maps its tables and starts threads
// before any Go code runs; if limits prevent that, it prints a trace and exits with the code of wrong flags. A process
// that imports this package prints one line to stderr and exits with code 2 instead.
package rlimit

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#cgo LDFLAGS: -lpthread
#include "rlimit.h"
*/
import "C"

import (
	"math"

	"golang.org/x/sys/unix"
)

// OwnAddressSpace is the maximum address space, in bytes, of a process without buffers: Go's and libc's arenas and the
// stacks of threads. Only a small part is resident.
const OwnAddressSpace = C.OWN_ADDRESS_SPACE

// AddressSpace returns the limit of a process's address space in bytes (ulimit -v); math.MaxUint64: no limit.
func AddressSpace() uint64 { return limit(unix.RLIMIT_AS) }

// FileSize returns the limit of a file's size in bytes (ulimit -f), which also applies to a memfd; math.MaxUint64: no
// limit.
func FileSize() uint64 { return limit(unix.RLIMIT_FSIZE) }

func limit(resource int) uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		return math.MaxUint64
	}
	return l.Cur // RLIM_INFINITY is the largest number
}
