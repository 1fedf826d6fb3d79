package sendrecv

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
)

func staged(variant string, ctas, stages int, stride uint64) plan {
	return plan{variant: variant, ctas: ctas, stages: stages, stride: stride, senderWarps: 8, receiverWarps: 8}
}

// The strides, steps and fences that torchcomms #2728 gives, and what follows from its formula at the edges.
func TestAdaptiveStride(t *testing.T) {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	for _, c := range []struct {
		size         uint64
		ctas, stages int
		stride       uint64
		fixed, steps uint64 // of a block: with the base stride, with the adaptive one
	}{
		{64 * mib, 4, 2, 2 * mib, 64, 8},
		{gib, 4, 2, 2 * mib, 1024, 128},
		{gib, 16, 2, 512 * kib, 256, 128},
		{gib, 32, 2, 256 * kib, 128, 128},
		{gib, 1, 2, 8 * mib, 4096, 128},
		{8 * mib, 4, 2, mib, 8, 2},
		{mib, 4, 2, 256 * kib, 1, 1},
		{64 * kib, 4, 2, 256 * kib, 1, 1},
		{1, 4, 2, 256 * kib, 1, 1},
		{0, 4, 2, 256 * kib, 0, 0},
		{10*mib + 1, 3, 2, 27 * 64 * kib, 14, 2}, // 161 tiles, 54 for a block
		{64 * mib, 4, 4, mib, 64, 16},            // more stages leave less for each
		{gib, 32, 4, 128 * kib, 128, 256},
		{gib, 128, 2, 64 * kib, 32, 128},
		{gib, 100, 2, 83456, 41, 129}, // a multiple of 512
	} {
		got := adaptiveStride(c.size, c.ctas, c.stages)
		if got != c.stride {
			t.Errorf("%+v: stride %d", c, got)
		}
		p := staged("ws", c.ctas, c.stages, got)
		if steps := p.steps(c.size, 0); steps != c.steps {
			t.Errorf("%+v: %d steps", c, steps)
		}
		p.stride = baseStride
		if steps := p.steps(c.size, 0); steps != c.fixed {
			t.Errorf("%+v: %d steps of %d", c, steps, baseStride)
		}
	}
}

func TestCost(t *testing.T) {
	for _, c := range []struct {
		p      plan
		size   uint64
		window int
		want   cost
	}{
		{staged("ws", 4, 2, 2<<20), 64 << 20, 1, cost{4 * 8, 4 * 8, 4 * 8}},
		{staged("stable", 4, 2, 2<<20), 64 << 20, 3, cost{3 * 4 * 8, 3 * 4 * 8, 3 * 4 * 8}},
		{staged("ws", 4, 2, 512), 4 * 512 * 3, 1, cost{12, 12, 12}},
		{staged("ws", 4, 2, 512), 512 + 1, 1, cost{2, 2, 2}}, // two blocks have nothing to do
		{plan{variant: "put", ctas: 8}, 1 << 20, 4, cost{32, 32, 8}},
		{plan{variant: "put", ctas: 8}, 1025, 1, cost{3, 3, 3}},
		{plan{variant: "put", ctas: 8}, 0, 5, cost{}},
		{plan{variant: "ll", ctas: 2}, 1 << 10, 4, cost{8, 0, 8}},
		{plan{variant: "ll", ctas: 2}, 64<<10 + 1, 1, cost{2*2 + 1, 0, 2*2 + 1}}, // three launches
		{plan{variant: "ll128", ctas: 2}, 60<<10 + 1, 1, cost{2 + 1, 0, 2 + 1}},  // two
		{plan{variant: "ws", ctas: 4, inLines: true}, 64 << 10, 3, cost{12, 0, 12}},
		{plan{variant: "ws", ctas: 4, inLines: true}, 513, 1, cost{2, 0, 2}},
		{plan{variant: "ws", ctas: 4, inLines: true}, 0, 3, cost{}},
		{plan{variant: "ce"}, 1 << 20, 4, cost{steps: 1}}, // for the whole window
		{plan{variant: "ce"}, 0, 506, cost{steps: 1}},
	} {
		if got := c.p.cost(c.size, c.window); got != c.want {
			t.Errorf("%s, %d × %d bytes: %+v, want %+v", c.p, c.window, c.size, got, c.want)
		}
	}
}

func TestPlanInWords(t *testing.T) {
	for want, p := range map[string]plan{
		"put ldst 16 CTAs":     {variant: "put", ctas: 16},
		"put bulk 1 CTA":       {variant: "put", ctas: 1, bulk: true},
		"ws ldst 4 CTAs":       {variant: "ws", ctas: 4},
		"ws lines 4 CTAs":      {variant: "ws", ctas: 4, inLines: true},
		"ws lines 1 CTA":       {variant: "ws", ctas: 1, inLines: true},
		"stable ldst 2×4 CTAs": {variant: "stable", ctas: 4},
		"ll 4 CTAs":            {variant: "ll", ctas: 4},
		"ce":                   {variant: "ce"},
	} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// names are the candidates in words.
func names(plans []plan) string {
	var out []string
	for _, p := range plans {
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}

// A persistent kernel leaves multiprocessors to the kernels that write and check payloads while it is resident.
func TestPersistentKernelsLeaveRoom(t *testing.T) {
	h100 := limits{ctas: 132, warp: 32}
	o := Options{Launch: "persistent"}
	for _, p := range o.candidates(shape{op: transport.OpBidir, size: 64 << 20, window: 8}, o.usable(h100)) {
		if p.blocks() > h100.ctas-reservedCTAs {
			t.Errorf("%s: %d thread blocks of %d", p, p.blocks(), h100.ctas)
		}
	}
	o = Options{Launch: "persistent", Variant: "put", CTAs: 129}
	err := o.fits(o.usable(h100))
	if err == nil || !strings.Contains(err.Error(), "--ctas 129: put would have 129 thread blocks, and the device is sure to run only 128 at once together with the kernels") {
		t.Errorf("got %v", err)
	}
	o.Launch = "stream"
	if err := o.fits(o.usable(h100)); err != nil {
		t.Error(err)
	}
	cpu := limits{ctas: 64, warp: 1, cpu: true}
	if o.Launch = "persistent"; o.usable(cpu).ctas != cpu.ctas {
		t.Error("CPU memory needs no room for such kernels")
	}
}

func TestCandidates(t *testing.T) {
	h100 := limits{ctas: 132, warp: 32, wsBulk: true, putBulk: true, recordedWords: true}
	nvlink := h100
	nvlink.ll128 = true
	old := limits{ctas: 80, warp: 32}
	cpu := limits{ctas: 64, warp: 1, cpu: true}
	none, few := knob.Size(0), knob.Size(1000)
	for _, c := range []struct {
		o    Options
		s    shape
		l    limits
		want string
	}{
		{Options{}, shape{size: 8, aligned: false}, h100, "ce, ll 1 CTA, put ldst 1 CTA"},
		{Options{}, shape{size: 2048, aligned: true}, old, "ce, ll 1 CTA, ll 2 CTAs, ll 4 CTAs, put ldst 1 CTA, put ldst 2 CTAs, put ldst 4 CTAs"},
		{Options{}, shape{size: 2048, aligned: true, graph: true}, old, "ll 1 CTA, ll 2 CTAs, ll 4 CTAs, put ldst 1 CTA, put ldst 2 CTAs, put ldst 4 CTAs"},
		{
			Options{},
			shape{size: 256 << 10, aligned: true},
			old,
			"ce, ll 16 CTAs, ll 32 CTAs, put ldst 4 CTAs, put ldst 8 CTAs, put ldst 16 CTAs, put ldst 32 CTAs, put ldst 80 CTAs",
		},
		{
			Options{},
			shape{size: 256<<10 + 16, aligned: true},
			h100,
			"ce, put ldst 4 CTAs, put bulk 4 CTAs, put ldst 8 CTAs, put bulk 8 CTAs, put ldst 16 CTAs, put bulk 16 CTAs, " +
				"put ldst 32 CTAs, put bulk 32 CTAs, put ldst 132 CTAs, put bulk 132 CTAs",
		},
		{Options{CTAs: 4}, shape{size: 64 << 10, aligned: true}, h100, "ll 4 CTAs, put ldst 4 CTAs, put bulk 4 CTAs"},
		{Options{CTAs: 4}, shape{size: 65 << 10, aligned: true}, h100, "put ldst 4 CTAs, put bulk 4 CTAs"},
		{Options{CTAs: 100}, shape{size: 64 << 10}, h100, "ll 32 CTAs, put ldst 100 CTAs"},
		{Options{Launch: "persistent", CTAs: 0}, shape{size: 8}, h100, "ll 1 CTA, put ldst 1 CTA"},
		{Options{Variant: "ce"}, shape{size: 8}, h100, "ce"},
		{Options{Variant: "put", CTAs: 4, Copy: "ldst"}, shape{size: 1 << 20, aligned: true}, h100, "put ldst 4 CTAs"},
		{Options{Variant: "put", CTAs: 4, Copy: "bulk"}, shape{size: 1 << 20, aligned: true}, h100, "put bulk 4 CTAs"},
		{Options{Variant: "put", CTAs: 4, Copy: "bulk"}, shape{size: 1<<20 + 1}, h100, "put ldst 4 CTAs"},
		{Options{Variant: "put", CTAs: 4}, shape{size: 1 << 20, aligned: true}, old, "put ldst 4 CTAs"},
		{Options{Variant: "ws", Copy: "ldst"}, shape{size: 1 << 30, aligned: true}, h100, "ws ldst 4 CTAs, ws ldst 8 CTAs, ws ldst 16 CTAs, ws ldst 32 CTAs"},
		{Options{Variant: "ws", Stride: 1 << 20}, shape{size: 1 << 30}, old, "ws ldst 4 CTAs, ws ldst 8 CTAs"},
		{Options{Variant: "ws", Stages: 8192}, shape{size: 1 << 30}, old, "ws ldst 4 CTAs"},
		{Options{Variant: "stable"}, shape{size: 1 << 30}, old, "stable ldst 2×4 CTAs, stable ldst 2×8 CTAs, stable ldst 2×16 CTAs, stable ldst 2×32 CTAs"},
		{Options{Variant: "stable"}, shape{size: 1 << 30}, limits{ctas: 24, warp: 32}, "stable ldst 2×4 CTAs, stable ldst 2×8 CTAs, stable ldst 2×12 CTAs"},
		{Options{Variant: "ll"}, shape{size: 1 << 20}, old, "ll 32 CTAs"},
		{Options{Variant: "ll", CTAs: 3}, shape{size: 1 << 20}, old, "ll 3 CTAs"},
		{Options{Variant: "put"}, shape{size: 1 << 20}, cpu, "put ldst 1 CTA, put ldst 2 CTAs"},
		// Lines where they have room: up to a size, 16 KiB a block, and for 32 blocks.
		{Options{Variant: "ws"}, shape{size: 1024, aligned: true}, h100, "ws lines 1 CTA, ws lines 2 CTAs"},
		{Options{Variant: "ws", CTAs: 4}, shape{size: 64 << 10, aligned: true}, h100, "ws lines 4 CTAs"},
		{Options{Variant: "ws", CTAs: 4}, shape{size: 64<<10 + 16, aligned: true}, h100, "ws ldst 4 CTAs, ws bulk 4 CTAs"},
		{Options{Variant: "ws", CTAs: 3, Copy: "ldst"}, shape{size: 48 << 10}, h100, "ws lines 3 CTAs"},
		{Options{Variant: "ws", CTAs: 3, Copy: "ldst"}, shape{size: 48<<10 + 1}, h100, "ws ldst 3 CTAs"},
		{Options{Variant: "ws", CTAs: 32, Copy: "ldst"}, shape{size: 64 << 10}, h100, "ws lines 32 CTAs"},
		{Options{Variant: "ws", CTAs: 33, Copy: "ldst"}, shape{size: 64 << 10}, h100, "ws ldst 33 CTAs"},
		{Options{Variant: "ws", CTAs: 4, Copy: "bulk"}, shape{size: 4096, aligned: true}, h100, "ws lines 4 CTAs"},
		{Options{Variant: "ws", CTAs: 4, LLMax: &few, Copy: "ldst"}, shape{size: 1000}, h100, "ws lines 4 CTAs"},
		{Options{Variant: "ws", CTAs: 4, LLMax: &few, Copy: "ldst"}, shape{size: 1001}, h100, "ws ldst 4 CTAs"},
		{Options{Variant: "ws", CTAs: 4, LLMax: &none, Copy: "ldst"}, shape{size: 1}, h100, "ws ldst 4 CTAs"},
		{Options{Variant: "ws", CTAs: 4, LLMax: &none, Copy: "ldst"}, shape{}, h100, "ws ldst 4 CTAs"},
		{Options{Variant: "ws"}, shape{size: 64 << 10}, cpu, "ws ldst 1 CTA, ws ldst 2 CTAs"}, // no room in so few
		// A resident kernel carries a message of ll in one piece.
		// Lines of 128 bytes where they arrive whole.
		{Options{CTAs: 4}, shape{size: 64 << 10, aligned: true}, nvlink, "ll 4 CTAs, ll128 4 CTAs, put ldst 4 CTAs, put bulk 4 CTAs"},
		{Options{CTAs: 4}, shape{size: 65 << 10}, nvlink, "ll128 4 CTAs, put ldst 4 CTAs"},
		{Options{CTAs: 32}, shape{size: 256<<10 + 1}, nvlink, "put ldst 32 CTAs"},
		{Options{Variant: "ll", Launch: "persistent"}, shape{size: 64 << 10}, cpu, "ll 4 CTAs"},
		{Options{Variant: "ll128", Launch: "persistent"}, shape{size: 64 << 10}, cpu, "ll128 3 CTAs"},
		{Options{Variant: "ll128"}, shape{size: 60 << 10}, cpu, "ll128 2 CTAs"},
		{Options{Variant: "ll", Launch: "persistent"}, shape{size: 512 << 10}, cpu, "ll 32 CTAs"},
		{Options{Variant: "ll", Launch: "persistent"}, shape{size: 8}, cpu, "ll 1 CTA"},
		{Options{Variant: "ll"}, shape{size: 64 << 10}, cpu, "ll 2 CTAs"},
		// Its blocks answer each by itself: one, or as many as it takes.
		{
			Options{Launch: "persistent"},
			shape{op: transport.OpPingPong, size: 32 << 10, aligned: true},
			h100,
			"ll 2 CTAs, put ldst 1 CTA, put bulk 1 CTA",
		},
		{Options{Variant: "put", Launch: "persistent"}, shape{op: transport.OpPingPong, size: 1 << 20}, h100, "put ldst 1 CTA"},
		{Options{Variant: "put", Launch: "persistent", CTAs: 4}, shape{op: transport.OpPingPong, size: 1 << 20}, h100, "put ldst 4 CTAs"},
		// More commands than a queue can hold.
		{Options{CTAs: 4}, shape{op: transport.OpStream, size: 8, window: 513}, old, ""},
		{Options{CTAs: 4, Timing: "host"}, shape{op: transport.OpStream, size: 8, window: 513}, old, "ll 4 CTAs, put ldst 4 CTAs"},
		{Options{CTAs: 4}, shape{op: transport.OpStream, size: 8, window: 513, graph: true}, old, "ll 4 CTAs, put ldst 4 CTAs"},
		{Options{}, shape{op: transport.OpBidir, size: 8, window: 100}, old, "ce, ll 1 CTA, put ldst 1 CTA"},
		{Options{Variant: "ce"}, shape{op: transport.OpBidir, size: 8, window: 506}, old, "ce"},
		{Options{Variant: "ce"}, shape{op: transport.OpBidir, size: 8, window: 507}, old, ""},
		{Options{}, shape{op: transport.OpBidir, size: 8, window: 507}, old, "ll 1 CTA, put ldst 1 CTA"},
		{Options{Variant: "ll", CTAs: 1}, shape{op: transport.OpPingPong, size: 256 * 16 << 10, window: 1}, old, "ll 1 CTA"},
		{Options{Variant: "ll", CTAs: 1}, shape{op: transport.OpPingPong, size: 257 * 16 << 10, window: 1}, old, ""},
	} {
		o, err := c.o.settle()
		if err != nil {
			t.Fatal(err)
		}
		if got := names(o.candidates(c.s, c.l)); got != c.want {
			t.Errorf("%+v, %+v:\n got %s\nwant %s", c.o, c.s, got, c.want)
		}
	}
}

// severed is a device whose lines do not arrive whole.
type severed struct{ gpu.Device }

func (severed) StoresLines(gpu.Info) error { return fmt.Errorf("no NVLink: %w", gpu.ErrUnsupported) }
func (severed) Info() gpu.Info             { return gpu.Info{} }

// allVariants are all there are.
var allVariants = knob.Words(&Options{}, "variant")

func TestWholeLines(t *testing.T) {
	for _, variant := range allVariants {
		ep := &endpoint{o: Options{Variant: variant}, env: transport.Env{Device: severed{}, Devices: make([]gpu.Info, 2)}, near: neighboursOf(0, 2)}
		ep.limits.ll128 = true
		err := ep.findLines()
		if ep.limits.ll128 {
			t.Errorf("%s: would send lines of 128 bytes", variant)
		}
		if refused := errors.Is(err, gpu.ErrUnsupported) && strings.Contains(err.Error(), "no NVLink") && strings.Contains(err.Error(), "use --variant ll"); refused != (variant == "ll128") {
			t.Errorf("%s: %v", variant, err)
		}
	}
}

// A block has as many warps as do something for its share.
func TestWarps(t *testing.T) {
	ws, lines, stable := plan{variant: "ws"}, plan{variant: "ws", inLines: true}, plan{variant: "stable"}
	ll, ll128, put := plan{variant: "ll"}, plan{variant: "ll128"}, plan{variant: "put"}
	for _, c := range []struct {
		p                plan
		share            uint64
		cpu              bool
		sender, receiver int
	}{
		{ws, 0, false, 2, 2},
		{ws, 4 << 10, false, 2, 2},
		{ws, 4<<10 + 1, false, 4, 4},
		{ws, 8<<10 + 1, false, 8, 8},
		{ws, 1 << 30, false, 8, 8},
		{stable, 512, false, 2, 2},
		{stable, 64 << 10, false, 8, 8},
		{lines, 1, false, 1, 1},
		{lines, 256, false, 1, 1},
		{lines, 257, false, 2, 2},
		{lines, 16 << 10, false, 8, 8},
		{ll, 512, false, 1, 1}, // both roles' warps send, and then receive
		{ll, 8, false, 1, 0},
		{ll, 513, false, 2, 1},
		{ll, 16 << 10, false, 8, 8},
		{ll128, 480, false, 1, 0},
		{ll128, 4 << 10, false, 5, 4},
		{ll128, 30 << 10, false, 8, 8},
		{put, 0, false, 4, 1},
		{put, 8 << 10, false, 4, 1},
		{put, 8<<10 + 1, false, 8, 1},
		{put, 256 << 10, false, 8, 1},
		{put, 256<<10 + 1, false, 16, 1},
		{put, 1 << 30, true, 1, 1},
		{ws, 1 << 30, true, 1, 1},
		{ll, 16 << 10, true, 1, 1},
	} {
		if s, r := (Options{}).warps(c.p, c.share, limits{warp: 32, cpu: c.cpu}); s != c.sender || r != c.receiver {
			t.Errorf("%s, a share of %d bytes, cpu %t: (%d,%d), want (%d,%d)", c.p, c.share, c.cpu, s, r, c.sender, c.receiver)
		}
		if s, r := (Options{SenderWarps: 2, ReceiverWarps: 1}).warps(c.p, c.share, limits{warp: 32, cpu: c.cpu}); s != 2 || r != 1 {
			t.Errorf("%s, a share of %d bytes: (%d,%d) instead of the (2,1) that were asked for", c.p, c.share, s, r)
		}
	}
}

func TestEnough(t *testing.T) {
	for _, c := range []struct {
		bytes, each uint64
		most, want  int
	}{{0, 256, 8, 1}, {256, 256, 8, 1}, {257, 256, 8, 2}, {512, 256, 8, 2}, {513, 256, 8, 4}, {769, 256, 8, 4}, {1025, 256, 8, 8}, {1 << 40, 256, 8, 8}, {1 << 40, 1, 16, 16}, {5, 1, 1, 1}} {
		if got := enough(c.bytes, c.each, c.most); got != c.want {
			t.Errorf("%d bytes, %d a warp, at most %d: %d, want %d", c.bytes, c.each, c.most, got, c.want)
		}
	}
}

// Whatever is asked for, all candidates are possible: all ranks cut a message alike, steps fit the staging area, and
// lines are there for every block.
func FuzzCandidates(f *testing.F) {
	f.Add(uint8(1), uint16(0), uint16(0), uint32(0), uint64(64<<20), uint16(132), uint64(64<<10), uint8(0))
	f.Add(uint8(2), uint16(4), uint16(3), uint32(9), uint64(1), uint16(2), uint64(64<<10), uint8(0))
	f.Add(uint8(1), uint16(100), uint16(0), uint32(0), uint64(1<<30), uint16(132), uint64(64<<10), uint8(0))
	f.Add(uint8(4), uint16(3), uint16(0), uint32(0), uint64(1<<20), uint16(64), uint64(64<<10), uint8(0))
	f.Add(uint8(0), uint16(0), uint16(0), uint32(0), uint64(0), uint16(1), uint64(0), uint8(0))
	f.Add(uint8(1), uint16(4), uint16(0), uint32(0), uint64(64<<10), uint16(131), uint64(64<<10), uint8(0))
	f.Add(uint8(4), uint16(0), uint16(0), uint32(0), uint64(64<<10), uint16(63), uint64(0), uint8(3))
	f.Fuzz(func(t *testing.T, variant uint8, ctas, stages uint16, grains uint32, size uint64, device uint16, lines uint64, how uint8) {
		o := Options{Variant: allVariants[int(variant)%len(allVariants)], CTAs: int(ctas)}
		if o.staged() {
			o.Stages, o.Stride = int(stages), knob.Size(grains)*grain
		}
		if o.Variant == "ws" {
			most := knob.Size(lines)
			o.LLMax = &most
		}
		if how&1 != 0 {
			o.Launch = "persistent"
		}
		l := limits{ctas: int(device%maxCTAs) + 1, warp: 32, cpu: how&2 != 0, putBulk: true, wsBulk: true}
		o, err := o.settle()
		if err != nil || o.fits(l) != nil {
			return
		}
		s := shape{op: transport.OpLatency, size: size % (1 << 33), window: 1, aligned: true}
		plans := o.plans(s, l)
		if len(plans) == 0 {
			t.Fatalf("%+v: nothing to choose from", o)
		}
		for _, p := range plans {
			possible(t, p, s.size, l)
			if p.inLines && (p.variant != "ws" || s.size > lines) {
				t.Errorf("%+v: %s of %d bytes", o, p, s.size)
			}
			if o.CTAs != 0 && p.ctas != o.CTAs && lineRoom(p.variant) == 0 {
				t.Errorf("%+v: %s", o, p)
			}
		}
		if len(slices.CompactFunc(slices.Clone(plans), func(a, b plan) bool { return a == b })) != len(plans) {
			t.Errorf("%+v: tries one twice: %s", o, names(plans))
		}
	})
}

func possible(t *testing.T, p plan, size uint64, l limits) {
	t.Helper()
	what := fmt.Sprintf("%s %+v, %d bytes", p, p, size)
	if p.variant == "ce" {
		return
	}
	if p.ctas < 1 || p.blocks() > l.ctas {
		t.Fatalf("%s: %d blocks of %d", what, p.blocks(), l.ctas)
	}
	var sum uint64
	for b := range p.ctas {
		share := p.share(size, b)
		if sum += share; share%grain != 0 && sum != size {
			t.Errorf("%s: block %d's share is %d bytes", what, b, share)
		}
	}
	if sum != size {
		t.Errorf("%s: the shares are %d bytes", what, sum)
	}
	if p.staged() && (p.stride < grain || p.stride%grain != 0 || p.stride*uint64(p.ctas)*uint64(p.stages) > staging) {
		t.Errorf("%s: stride %d", what, p.stride)
	}
	if p.inLines && (p.bulk || p.ctas > maxLLCTAs || p.share(size, 0) > llBytes) {
		t.Errorf("%s: a share of %d bytes in lines", what, p.share(size, 0))
	}
	s, r := p.senderWarps, p.receiverWarps
	if lines := lineRoom(p.variant); lines > 0 {
		if p.ctas > maxLLCTAs || p.share(min(size, p.launchBytes()), 0) > lines {
			t.Errorf("%s: a share of %d bytes", what, p.share(size, 0))
		}
		if s < 1 || s > maxWarps || r < 0 || r > s {
			t.Errorf("%s: (%d,%d) warps", what, s, r)
		}
	} else if !powerOfTwo(s, maxPutWarps) || !powerOfTwo(r, maxWarps) || s != r && p.variant != "put" {
		t.Errorf("%s: (%d,%d) warps", what, s, r)
	}
}

// The parts of a rank's memory do not overlap, and those of a peer are where it says.
func TestLayout(t *testing.T) {
	for _, variant := range allVariants {
		for _, partitions := range []int{1, 2} {
			o := Options{Variant: variant}
			l := o.divide(partitions, 12345)
			n := uint64(partitions)
			lines, stages := n*lineBytes, n*staging
			if variant != "ws" && variant != "auto" && lineRoom(variant) == 0 {
				lines = 0
			}
			if !o.staged() {
				stages = 0
			}
			want := layout{Words: 0, Lines: n * wordBytes, Staging: n*wordBytes + lines, Inbox: n*wordBytes + lines + stages}
			want.Bytes = want.Inbox + 12345
			if l != want {
				t.Errorf("%s, %d partitions: %+v, want %+v", variant, partitions, l, want)
			}
		}
	}
	two, four := neighboursOf(1, 2), neighboursOf(3, 4)
	if fmt.Sprint(two, two.peers(), two.slot(0)) != "{0 0} [0] 0" {
		t.Error("rank 1 of 2:", two, two.peers(), two.slot(0))
	}
	if fmt.Sprint(four, four.peers(), four.slot(0), four.slot(2)) != "{0 2} [0 2] 0 1" {
		t.Error("rank 3 of 4:", four, four.peers(), four.slot(0), four.slot(2))
	}
}
