package nccl

/*
#include "nccl.h"
*/
import "C"

import (
	"context"
	"strconv"
	"strings"
	"unsafe"
)

// needsTwin reports whether a second communicator is needed to find out what NCCL launches. If every window is a graph,
// the graph shows it.
func (ep *endpoint) needsTwin() bool { return !ep.o.Graph && ep.recorder.blind == nil }

// makeTwin makes the second communicator if rank 0 has sent an id for it. If that fails, the run continues without it.
func (ep *endpoint) makeTwin(ctx context.Context) error {
	if blind := ep.recorder.blind; blind != nil {
		ep.unknown(C.GoString(blind))
	}
	if ep.twin == (C.struct_nccl_id{}) {
		return nil
	}
	err := ep.makeComm(ctx, &ep.end.twin, ep.twin, "the making of the second communicator")
	if err == nil || ep.stuck != "" {
		return err
	}
	ep.unknown("no second communicator: " + err.Error())
	C.p2p_nccl_abort(&ep.end.twin)
	return nil
}

// unknown records why it is unknown what NCCL launches.
func (ep *endpoint) unknown(why string) {
	text := append([]byte(why), 0)
	C.p2p_launches_unknown(&ep.end.launch, (*C.char)(unsafe.Pointer(&text[0])))
}

// launched names NCCL and the kernels that it launched in the latest batch.
func (ep *endpoint) launched() string {
	l := &ep.end.launch
	text := C.GoString(&l.text[0])
	switch {
	case l.known == 0:
		return ep.path.Engine + " (launches unknown: " + text + ")"
	case l.kernels == 0:
		return ep.path.Engine + " (no kernel)"
	case text == "":
		return ep.path.Engine
	}
	names := strings.Split(text, "\n")
	for i, name := range names {
		names[i] = plain(name)
	}
	return ep.path.Engine + " " + strings.Join(names, "+")
}

// plain is the source name of a C++ function outside of namespaces, whose linker name is _Z, the name's length, the
// name and the parameters' types; any other name is unchanged.
func plain(name string) string {
	rest, ok := strings.CutPrefix(name, "_Z")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	n, err := strconv.Atoi(rest[:digits])
	if !ok || err != nil || n > len(rest)-digits {
		return name
	}
	return rest[digits : digits+n]
}
