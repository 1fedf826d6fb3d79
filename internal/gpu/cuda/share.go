package cuda

/*
#include "share.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// Memory allocates, exports and maps GPU memory for timed loops. It knows only the memory that came from its own table.
type Memory struct {
	dev   *Device
	kind  gpu.HandleKind
	why   string
	table *abi.Memory // nil once closed
}

// Memory opens memory that is shared by that kind of handle. HandleAuto means legacy.
func (d *Device) Memory(kind gpu.HandleKind) (gpu.Memory, error) {
	if d.c == nil {
		return nil, errClosed
	}
	why := ""
	if kind == gpu.HandleAuto {
		kind, why = gpu.HandleLegacy, "every driver has legacy handles"
	}
	native, err := d.nativeKind(kind)
	if err != nil {
		return nil, err
	}
	var c *C.struct_p2p_memory
	var e C.struct_p2p_error
	C.cuda_share_open(d.c, native, &c, &e)
	if err := failure(fmt.Sprintf("memory as %s", kind), &e); err != nil {
		return nil, err
	}
	m := &Memory{dev: d, kind: kind, why: why, table: abi.MemoryAt(unsafe.Pointer(c))}
	d.keep(m)
	return m, nil
}

// Kind is the kind of handle; why is empty if the kind was requested by name.
func (m *Memory) Kind() (kind gpu.HandleKind, why string) { return m.kind, m.why }

// Table is the function table for timed loops.
func (m *Memory) Table() *abi.Memory { return m.table }

// Close releases, unmaps and unpins all remaining memory. A second Close does nothing.
func (m *Memory) Close() error {
	if !m.dev.drop(m) {
		return nil
	}
	var e C.struct_p2p_error
	C.cuda_share_close((*C.struct_p2p_memory)(m.table.Pointer()), &e)
	m.table = nil
	return failure("close memory as "+string(m.kind), &e)
}
