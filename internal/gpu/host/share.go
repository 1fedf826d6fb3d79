package host

/*
#include "share.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// memory allocates and maps memfds for timed loops.
type memory struct {
	c   *C.struct_p2p_memory // nil once closed
	why string
}

func (d *device) Memory(kind gpu.HandleKind) (gpu.Memory, error) {
	if err := acceptHandle(kind); err != nil {
		return nil, err
	}
	m := &memory{c: C.p2p_host_memory_new()}
	if m.c == nil {
		return nil, errors.New("host: memory: out of memory")
	}
	if kind != gpu.HandleMemFD {
		m.why = "the only kind of CPU memory"
	}
	return m, nil
}

// Reaches is true for CPU memory of every NUMA node.
func (d *device) Reaches(other gpu.Info) bool { return other.Kind == Kind }

// StoresLines returns nil: the threads that emulate kernels store the words of a line before its flag.
func (d *device) StoresLines(gpu.Info) error { return nil }

func (m *memory) Kind() (gpu.HandleKind, string) { return gpu.HandleMemFD, m.why }

func (m *memory) Table() *abi.Memory { return abi.MemoryAt(unsafe.Pointer(m.c)) }

func (m *memory) Close() error {
	if m.c != nil {
		C.p2p_host_memory_free(m.c)
		m.c = nil
	}
	return nil
}
