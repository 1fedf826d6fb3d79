package protocoltest_test

import (
	"slices"

	pt "github.com/p2pbench/p2pbench/internal/transport/sendrecv/protocoltest"
)

const both = pt.Send | pt.Receive

// sides are the parts of both ranks in a message.
type sides [2]pt.Side

var (
	bothWays  = sides{{Roles: both}, {Roles: both}}
	forwards  = sides{{Roles: pt.Send}, {Roles: pt.Receive}}
	backwards = sides{{Roles: pt.Receive}, {Roles: pt.Send}}
	pingPong  = sides{{Roles: both, Order: pt.SendFirst}, {Roles: both, Order: pt.ReceiveFirst}}
)

func (s sides) staged(bytes, ctas, stride, stages uint32) pt.Launch {
	return pt.Launch{Variant: pt.Staged, Bytes: bytes, CTAs: ctas, Stride: stride, Stages: stages, Side: s}
}

func (s sides) ll(bytes, ctas uint32) pt.Launch {
	return pt.Launch{Variant: pt.LL, Bytes: bytes, CTAs: ctas, Side: s}
}

func (s sides) ll128(bytes, ctas uint32) pt.Launch {
	return pt.Launch{Variant: pt.LL128, Bytes: bytes, CTAs: ctas, Side: s}
}

func (s sides) put(bytes, ctas uint32) pt.Launch {
	return pt.Launch{Variant: pt.Put, Bytes: bytes, CTAs: ctas, Side: s}
}

// window is n messages like l, of which the first one gives the credits for all.
func window(n uint32, l pt.Launch) []pt.Launch {
	all := make([]pt.Launch, n)
	for i := range all {
		all[i] = l
		all[i].Slot = uint32(i)
		for r := range all[i].Side {
			if i == 0 && l.Variant == pt.Put {
				all[i].Side[r].Credits = n
			}
		}
	}
	return all
}

// times is n windows like w.
func times(n int, w []pt.Launch) []pt.Launch {
	return slices.Concat(slices.Repeat([][]pt.Launch{w}, n)...)
}

// layout is how a staging area is divided, and by how many blocks.
type layout struct{ stride, stages, ctas uint32 }

// drained is all launches, in order, with the minimum drain: where the staging area is divided anew, the number of
// blocks that have used it since the previous division.
func drained(windows ...[]pt.Launch) []pt.Launch {
	all := slices.Concat(windows...)
	var used [2]layout
	for i := range all {
		l := &all[i]
		for r := range l.Side {
			if l.Variant != pt.Staged || l.Side[r].Roles&pt.Send == 0 {
				continue
			}
			now := layout{l.Stride, l.Stages, l.CTAs}
			if before := used[r]; before.stride == now.stride && before.stages == now.stages {
				now.ctas = max(now.ctas, before.ctas)
			} else {
				l.Side[r].Drain = before.ctas
			}
			used[r] = now
		}
	}
	return all
}

// one is a window of one message.
func one(l pt.Launch) []pt.Launch { return window(1, l) }
