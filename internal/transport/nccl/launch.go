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

// needsTwin reports whether a second communicator can tell what NCCL launches. Where every window is a graph, the graph
// itself does.
func (ep *endpoint) needsTwin() bool { return !ep.o.Graph && ep.recorder.blind == nil }

// meetTwin makes the second communicator, if rank 0 wants one. A run does without it where it cannot be had.
func (ep *endpoint) meetTwin(ctx context.Context) error {
	if blind := ep.recorder.blind; blind != nil {
		ep.unknown(C.GoString(blind))
	}
	if ep.twin == (C.struct_nccl_id{}) {
		return nil
	}
	err := ep.meet(ctx, &ep.end.twin, ep.twin, "the making of the second communicator")
	if err == nil || ep.stuck != "" {
		return err
	}
	ep.unknown("no second communicator: " + err.Error())
	C.p2p_nccl_abort(&ep.end.twin)
	return nil
}

// unknown notes why nothing is known of what NCCL launches.
func (ep *endpoint) unknown(why string) {
	text := append([]byte(why), 0)
	C.p2p_launches_unknown(&ep.end.launch, (*C.char)(unsafe.Pointer(&text[0])))
}

// launched is what moved the messages of the last batch: NCCL, and the kernels that it launched.
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

// plain is a function's name as its source has it, if it is C++'s and stands in no namespace: there the linker's name
// is _Z, the length, the name, and the types of the parameters.
func plain(name string) string {
	rest, ok := strings.CutPrefix(name, "_Z")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	n, err := strconv.Atoi(rest[:digits])
	if !ok || err != nil || n > len(rest)-digits {
		return name
	}
	return rest[digits : digits+n]
}
