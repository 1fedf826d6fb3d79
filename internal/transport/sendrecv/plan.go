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
	strideCTAs  = 32 // blocks for which the largest strides are baseStride
	tilesToHide = 2  // a stride is at most a block's tiles divided by this
)

func ceil(n, by uint64) uint64 { return (n + by - 1) / by }

// adaptiveStride is the bytes of a step if ctas blocks send a message of size bytes: as many steps as stages, within
// the blocks' part of the staging area. It is a multiple of grain.
func adaptiveStride(size uint64, ctas, stages int) uint64 {
	blocks := uint64(ctas)
	tiles := ceil(ceil(size, tileBytes), blocks)
	needed := ceil(tiles, tilesToHide) * tileBytes
	most := uint64(baseStride*strideCTAs) / blocks
	stride := max(min(needed, most), baseStride)
	room := staging / blocks / uint64(stages)
	return min(stride, room) / grain * grain
}

// plan is the method by which a batch is run.
type plan struct {
	variant                    string
	bulk                       bool
	inLines                    bool // ws: in lines instead of steps
	ctas                       int  // blocks that send; in stable as many further blocks receive
	senderWarps, receiverWarps int
	stages                     int
	stride                     uint64
}

// lineRoom is the number of bytes of a block's share that fit the variant's lines; 0: it has no lines.
func lineRoom(variant string) uint64 {
	switch variant {
	case "ll":
		return llBytes
	case "ll128":
		return ll128Bytes
	}
	return 0
}

// String names variant, copy method and blocks: "put bulk 16 CTAs".
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
	if lineRoom(p.variant) > 0 { // lines have one copy method only
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

// share is the bytes of a message that block b moves, as sr_share_of in protocol.h computes them.
func (p plan) share(size uint64, b int) uint64 {
	each := ceil(ceil(size, uint64(p.ctas)), grain) * grain
	return min(each, size-min(each*uint64(b), size))
}

// launchBytes is the maximum number of bytes of one launch; 0: no limit.
func (p plan) launchBytes() uint64 { return uint64(p.ctas) * lineRoom(p.variant) }

// cost is the work of a window: steps, each of which is published separately, and fences of the sender's and of the
// receiver's kernel, each before a store that lets the peer read or write.
type cost struct{ steps, sent, received uint64 }

func (p plan) cost(size uint64, window int) cost {
	if p.variant == "ce" {
		return cost{steps: 1}
	}
	launch := p.launchBytes()
	if launch == 0 {
		launch = max(size, 1)
	}
	var once uint64
	for at := uint64(0); at < size; at += launch {
		for b := range p.ctas {
			once += p.steps(min(size-at, launch), b)
		}
	}
	all := once * uint64(window)
	switch {
	case p.variant == "put":
		return cost{steps: all, sent: all, received: once} // one credit for the whole window
	case lineRoom(p.variant) > 0 || p.inLines:
		return cost{steps: all, received: all}
	}
	return cost{steps: all, sent: all, received: all}
}

// steps is the number of steps of block b's share of a message.
func (p plan) steps(size uint64, b int) uint64 {
	share := p.share(size, b)
	if p.staged() {
		return ceil(share, p.stride)
	}
	return min(share, 1)
}

// maxCommandsBehindWait is the maximum number of commands that are enqueued behind a stream wait. A GPU's driver takes
// about a thousand and then blocks the caller, which would have ended the stream wait.
const maxCommandsBehindWait = 512

// commands is the number of commands that a rank enqueues for a window.
func (p plan) commands(s shape) int {
	if p.variant == "ce" {
		return s.window + 6 // credit; await, write, copies, write; await, write
	}
	launches := s.window
	if s.op == transport.OpPingPong {
		launches *= 2
	}
	if most := p.launchBytes(); most > 0 {
		launches *= int(max(ceil(s.size, most), 1))
	}
	return launches
}

// shape is the part of a batch on which the choice of a plan depends.
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

// limits are the capabilities that the devices of all ranks have.
type limits struct {
	ctas          int  // thread blocks that certainly run at once
	warp          int  // threads of a warp
	cpu           bool // CPU threads emulate warps
	ll128         bool // stores of 128 bytes arrive unsplit
	wsBulk        bool // the bulk kernel of ws is available
	putBulk       bool // the bulk kernel of put is available
	recordedWords bool // a graph may contain writes of words and waits for words
}

// reservedCTAs is the number of multiprocessors that a persistent kernel leaves free. The kernels that write and check
// payloads run while it is resident, and the registers of one of its blocks may leave no room for one of theirs.
const reservedCTAs = 4

// usable is the limits with this kind of launch.
func (o Options) usable(l limits) limits {
	if o.Launch == "persistent" && !l.cpu {
		l.ctas = max(l.ctas-reservedCTAs, 1)
	}
	return l
}

// candidates are the plans from which a trial chooses: none if a window has more commands than a queue can hold behind
// a stream wait. The trial keeps the first unless another is clearly faster, so plans that occupy less of the device
// come first. Bulk copies need aligned messages; others use loads and stores, even with --copy bulk.
func (o Options) candidates(s shape, l limits) []plan {
	waits := o.Timing == "device" && o.Launch != "persistent" && !s.graph
	return slices.DeleteFunc(o.plans(s, l), func(p plan) bool { return waits && p.commands(s) > maxCommandsBehindWait })
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
			if s.size <= min(largestLL, p.launchBytes()) {
				all = append(all, p)
			}
		}
	}
	return append(all, o.variantPlans("put", s, l)...)
}

// largestLL is the largest message for which lines are tried: their flags and the additional copy cost time.
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
		counts = []int{o.fewest(s.size)} // with several blocks, each would answer by itself
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

// counts are the numbers of blocks to try, ascending: the requested one, or several with which every block has work.
func (o Options) counts(size uint64, l limits) []int {
	most := o.mostCTAs(l)
	lines := lineRoom(o.Variant)
	if lines > 0 && o.Launch == "persistent" { // a message is one launch
		most = max(most, min(int(min(ceil(size, lines), maxLLCTAs)), l.ctas))
	}
	if o.CTAs > 0 {
		return []int{min(o.CTAs, most)} // fewer only for the lines of auto
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

// fewest is the minimum number of blocks of a resident kernel for a message.
func (o Options) fewest(size uint64) int {
	lines := lineRoom(o.Variant)
	if lines == 0 {
		return 1
	}
	return int(min(max(ceil(size, lines), 1), maxLLCTAs))
}

// mostCTAs is the maximum number of sending blocks of a variant other than auto.
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

// cpuCTAs is the maximum number of blocks that is tried where CPU threads emulate them.
const cpuCTAs = 2

// lineCounts are the four smallest counts of tried that carry a message in one launch, or useful if none does. A block
// has lines for the given number of bytes.
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

// trialWindows is the number of windows of a plan in each of the two rounds of a trial, after the warm-up windows.
func trialWindows(s shape) int {
	switch bytes := s.size * uint64(s.window); {
	case bytes <= 1<<20:
		return 8
	case bytes <= 64<<20:
		return 4
	}
	return 2
}
