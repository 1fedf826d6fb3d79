// Package rlimit looks at the limits of resources (ulimit) under which the process runs, and refuses to start under
// limits of memory or threads with which Go's runtime could not: that maps its tables and starts threads before the
// first line of Go is executed, and where it cannot, it ends the process with a trace and the exit code of wrong flags.
// A process that imports the package ends with one line on stderr and exit code 2 instead.
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

// OwnAddressSpace is how much address space a process takes before it holds any buffer, at most: Go's and libc's arenas
// and the stacks of threads. Little of it is memory.
const OwnAddressSpace = C.OWN_ADDRESS_SPACE

// AddressSpace is the limit of a process's address space in bytes (ulimit -v); math.MaxUint64: there is none.
func AddressSpace() uint64 { return limit(unix.RLIMIT_AS) }

// FileSize is the limit of a file's size in bytes (ulimit -f), which holds for a memfd too; math.MaxUint64: there is none.
func FileSize() uint64 { return limit(unix.RLIMIT_FSIZE) }

func limit(resource int) uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		return math.MaxUint64
	}
	return l.Cur // RLIM_INFINITY is the largest number
}
