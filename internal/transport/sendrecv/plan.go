package sendrecv

import (
	"fmt"
	"slices"

	"github.com/p2pbench/p2pbench/internal/transport"
)

// The adaptive stride's constants (torchcomms #2728).
const (
	baseStride  = 256 << 10
	tileBytes   = 64 << 10
	strideCTAs  = 32 // blocks between which the largest strides are divided
	tilesToHide = 2  // a stride is no longer than that part of a block's tiles
)

func ceil(n, by uint64) uint64 { return (n + by - 1) / by }

// adaptiveStride is the bytes of a step of a message that so many blocks share: as many steps as there are stages, within
// what the blocks may have of the staging area. It is a multiple of grain.
func adaptiveStride(size uint64, ctas, stages int) uint64 {
	blocks := uint64(ctas)
	tiles := ceil(ceil(size, tileBytes), blocks)
	needed := ceil(tiles, tilesToHide) * tileBytes
	most := uint64(baseStride*strideCTAs) / blocks
	stride := max(min(needed, most), baseStride)
	room := staging / blocks / uint64(stages)
	return min(stride, room) / grain * grain
}

// plan is how a batch is run.
type plan struct {
	variant                    string
	bulk                       bool
	inLines                    bool // ws: instead of steps
	ctas                       int  // blocks that send; in stable as many others receive
	senderWarps, receiverWarps int
	stages                     int
	stride                     uint64
}

// lineRoom is how many bytes of a block's share go in lines of that variant; 0: it has none.
func lineRoom(variant string) uint64 {
	switch variant {
	case "ll":
		return llBytes
	case "ll128":
		return ll128Bytes
	}
	return 0
}

// String tells what moves the messages: "put bulk 16 CTAs".
func (p plan) String() string {
	if p.variant == "ce" {
		return p.variant
	}
	how := "ldst"
	if p.bulk {
		how = "bulk"
	}
	count, unit := fmt.Sprint(p.ctas), "CTAs"
	switch {
	case p.variant == "stable":
		count = "2×" + count
	case p.ctas == 1:
		unit = "CTA"
	}
	if lineRoom(p.variant) > 0 { // lines have a way of their own
		return fmt.Sprintf("%s %s %s", p.variant, count, unit)
	}
	if p.inLines {
		how = "lines"
	}
	return fmt.Sprintf("%s %s %s %s", p.variant, how, count, unit)
}

func (p plan) staged() bool { return p.variant == "ws" && !p.inLines || p.variant == "stable" }

// blocks is how many thread blocks a kernel has.
func (p plan) blocks() int {
	switch p.variant {
	case "ce":
		return 0
	case "stable":
		return 2 * p.ctas
	}
	return p.ctas
}

// share is what block b moves of a message: as sr_share_of in protocol.h cuts it.
func (p plan) share(size uint64, b int) uint64 {
	each := ceil(ceil(size, uint64(p.ctas)), grain) * grain
	return min(each, size-min(each*uint64(b), size))
}

// piece is how many bytes one launch moves at most; 0: any number.
func (p plan) piece() uint64 { return uint64(p.ctas) * lineRoom(p.variant) }

// cost is what a window takes: steps, which are what a rank tells the next one about, and fences, which are the stores
// of kernels behind which a peer may read or write, by the sender and by the receiver.
type cost struct{ steps, sent, received uint64 }

func (p plan) cost(size uint64, window int) cost {
	if p.variant == "ce" {
		return cost{steps: 1}
	}
	piece := p.piece()
	if piece == 0 {
		piece = max(size, 1)
	}
	var once uint64
	for at := uint64(0); at < size; at += piece {
		for b := range p.ctas {
			once += p.steps(min(size-at, piece), b)
		}
	}
	all := once * uint64(window)
	switch {
	case p.variant == "put":
		return cost{steps: all, sent: all, received: once} // a window is granted at once
	case lineRoom(p.variant) > 0 || p.inLines:
		return cost{steps: all, received: all}
	}
	return cost{steps: all, sent: all, received: all}
}

// steps is how many steps block b's share of a message takes.
func (p plan) steps(size uint64, b int) uint64 {
	share := p.share(size, b)
	if p.staged() {
		return ceil(share, p.stride)
	}
	return min(share, 1)
}

// mostHeld is how many commands a queue may hold behind a stream wait. A GPU's driver takes about a thousand and then
// lets the caller wait, who is the one that would end the stream wait.
const mostHeld = 512

// commands are how many a rank puts on its queue for a window.
func (p plan) commands(s shape) int {
	if p.variant == "ce" {
		return s.window + 6 // credit; await, write, copies, write; await, write
	}
	launches := s.window
	if s.op == transport.OpPingPong {
		launches *= 2
	}
	if piece := p.piece(); piece > 0 {
		launches *= int(max(ceil(s.size, piece), 1))
	}
	return launches
}

// shape is what the choice of a plan depends on.
type shape struct {
	op      transport.Op
	size    uint64
	window  int
	graph   bool
	aligned bool // messages begin and end at multiples of 16 bytes
}

func shapeOf(b transport.Batch) shape {
	return shape{op: b.Op, size: b.Size, window: b.Window, graph: b.Graph, aligned: b.Offset%16 == 0 && b.Size%16 == 0}
}

// limits are what all ranks' devices can do.
type limits struct {
	ctas          int  // thread blocks that are sure to run at once
	warp          int  // threads of a warp
	cpu           bool // threads of a CPU play warps
	ll128         bool // lines of 128 bytes arrive whole
	wsBulk        bool // there are bulk copies for ws …
	putBulk       bool // … and for put
	recordedWords bool // a graph may hold words that are written and waited for
}

// reservedCTAs is the number of multiprocessors that a persistent kernel leaves free. The kernels that write and check
// payloads run while it is resident, and the registers of one of its blocks may leave no room for one of theirs.
const reservedCTAs = 4

// usable is what the device can do in this way of starting kernels.
func (o Options) usable(l limits) limits {
	if o.Launch == "persistent" && !l.cpu {
		l.ctas = max(l.ctas-reservedCTAs, 1)
	}
	return l
}

// candidates are the plans between which a trial decides: none where a window would be more than a queue can hold at the
// gate. The first is kept where another is not clearly faster, so those that occupy less of the device come first. Copies
// in bulk need messages that are aligned; others go by loads and stores, whatever was asked for.
func (o Options) candidates(s shape, l limits) []plan {
	held := o.Timing == "device" && o.Launch != "persistent" && !s.graph
	return slices.DeleteFunc(o.plans(s, l), func(p plan) bool { return held && p.commands(s) > mostHeld })
}

func (o Options) plans(s shape, l limits) []plan {
	if o.Variant != "auto" {
		return o.variantPlans(o.Variant, s, l)
	}
	var all []plan
	if o.CTAs == 0 && o.Launch != "persistent" && (!s.graph || l.recordedWords) {
		all = append(all, plan{variant: "ce"})
	}
	for _, lines := range []string{"ll", "ll128"} {
		if lines == "ll128" && !l.ll128 {
			continue
		}
		for _, p := range o.variantPlans(lines, s, l) {
			if s.size <= min(largestLL, p.piece()) {
				all = append(all, p)
			}
		}
	}
	return append(all, o.variantPlans("put", s, l)...)
}

// largestLL is from where on lines are not tried: they carry more bytes, and are copied once more.
const largestLL = 256 << 10

func (o Options) variantPlans(variant string, s shape, l limits) []plan {
	o.Variant = variant
	base := plan{variant: variant, stages: o.Stages}
	if variant == "ce" {
		return []plan{base}
	}
	var out []plan
	counts := o.counts(s.size, l)
	if s.op == transport.OpPingPong && o.Launch == "persistent" && o.CTAs == 0 {
		counts = []int{o.fewest(s.size)} // of several blocks each answers by itself
	}
	for _, ctas := range counts {
		p := base
		p.ctas = ctas
		p.inLines = variant == "ws" && *o.LLMax > 0 && s.size <= uint64(*o.LLMax) && ctas <= maxLLCTAs && p.share(s.size, 0) <= llBytes
		p.senderWarps, p.receiverWarps = o.warps(p, p.share(s.size, 0), l)
		if p.staged() {
			if p.stride = uint64(o.Stride); p.stride == 0 {
				p.stride = adaptiveStride(s.size, ctas, o.Stages)
			}
		}
		hasBulk := s.aligned && !p.inLines && (variant == "ws" && l.wsBulk || variant == "put" && l.putBulk)
		if o.Copy != "bulk" || !hasBulk {
			out = append(out, p)
		}
		if o.Copy != "ldst" && hasBulk {
			p.bulk, p.senderWarps, p.receiverWarps = true, 1, 1
			out = append(out, p)
		}
	}
	return out
}

// counts are the numbers of blocks to try, ascending: the one that was asked for, or some of which none has blocks that
// would have nothing to do.
func (o Options) counts(size uint64, l limits) []int {
	most := o.mostCTAs(l)
	lines := lineRoom(o.Variant)
	if lines > 0 && o.Launch == "persistent" { // a message is one piece
		most = max(most, min(int(min(ceil(size, lines), maxLLCTAs)), l.ctas))
	}
	if o.CTAs > 0 {
		return []int{min(o.CTAs, most)} // less only for auto's lines
	}
	useful := max(int(min(ceil(size, grain), uint64(most))), 1)
	tried := []int{4, 8, 16, 32, most}
	if size <= tileBytes || lines > 0 || l.cpu {
		tried = append(tried, 1, 2)
	}
	if lines > 0 {
		return lineCounts(size, lines, tried, useful)
	}
	for i := range tried {
		tried[i] = min(tried[i], useful)
	}
	slices.Sort(tried)
	return slices.Compact(tried)
}

// fewest is how many blocks a resident kernel needs for a message.
func (o Options) fewest(size uint64) int {
	lines := lineRoom(o.Variant)
	if lines == 0 {
		return 1
	}
	return int(min(max(ceil(size, lines), 1), maxLLCTAs))
}

// mostCTAs is how many blocks may send, of a variant that is not auto.
func (o Options) mostCTAs(l limits) int {
	most := min(o.ctasByName(), l.ctas)
	if o.Variant == "stable" {
		most = l.ctas / 2
	}
	if o.CTAs > 0 {
		return most
	}
	if l.cpu {
		most = min(most, cpuCTAs)
	}
	if o.staged() {
		most = min(most, strideCTAs, int(staging/uint64(o.Stages)/max(uint64(o.Stride), grain)))
	}
	return most
}

// cpuCTAs is how many blocks are tried where threads of a CPU play them.
const cpuCTAs = 2

// lineCounts are those of tried that carry a message in one piece, the four smallest of them; where none does, the most.
// A block has lines for so many bytes.
func lineCounts(size, lines uint64, tried []int, useful int) []int {
	var out []int
	for _, n := range tried {
		n = min(n, useful)
		if uint64(n)*lines >= size {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) == 0 {
		return []int{useful}
	}
	return out[:min(len(out), 4)]
}

// trialWindows is how often a plan is tried in each of the two rounds of a trial, after a window or two that do not count.
func trialWindows(s shape) int {
	switch bytes := s.size * uint64(s.window); {
	case bytes <= 1<<20:
		return 8
	case bytes <= 64<<20:
		return 4
	}
	return 2
}
