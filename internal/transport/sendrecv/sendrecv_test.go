package sendrecv_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/sendrecv"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// zero as Options.LLMax: ws sends in steps only.
var zero = knob.Size(0)

// TestRing: each rank sends to the next one and receives from the previous one, which are not the same.
func TestRing(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		for name, o := range map[string]sendrecv.Options{
			"auto":       {CTAs: 1},
			"auto, free": {},
			"ws":         {Variant: "ws", CTAs: 2},
			"ws, steps":  {Variant: "ws", CTAs: 2, LLMax: &zero},
			"put, graph": {Variant: "put", CTAs: 2, Launch: "graph"},
			"put, host":  {Variant: "put", CTAs: 2, Timing: "host"},
			"ll":         {Variant: "ll", CTAs: 2},
			"ll128":      {Variant: "ll128", CTAs: 2},
			"ce":         {Variant: "ce"},
			"persistent": {Variant: "ws", CTAs: 2, Launch: "persistent"},
		} {
			t.Run(fmt.Sprintf("%d ranks, %s", n, name), func(t *testing.T) {
				o.Ring = true
				s := subject(t, cpus(t, n), o)
				w := launch(t, s, 1<<20, 30*time.Second)
				for i, size := range []uint64{1, 100000, 4096} {
					b := batch(transport.OpBidir, size, 3)
					b.First = uint64(7 * i)
					w.must(t, b)
				}
			})
		}
	}
}

// inWords names a test by its options.
func inWords(o sendrecv.Options) string {
	b, _ := json.Marshal(o) // cannot fail: numbers and strings only
	return strings.NewReplacer(`"`, "", ":", " ", "{", "", "}", "").Replace(string(b))
}

// sequence makes batches of every kind in an order of its own.
func sequence(seed uint64, n int, o sendrecv.Options) []transport.Batch {
	r := rand.New(rand.NewPCG(seed, 0))
	sizes := []uint64{0, 1, 8, 15, 511, 512, 513, 4096, 10000, 65536, 65537, 300000}
	windows := []int{1, 2, 5, 9, 70}
	var out []transport.Batch
	first := uint64(0)
	for range n {
		op := transport.Ops[r.IntN(len(transport.Ops))]
		b := batch(op, sizes[r.IntN(len(sizes))], 1)
		if op == transport.OpStream || op == transport.OpBidir {
			b.Window = windows[r.IntN(len(windows))]
		}
		if b.Window > 9 {
			b.Size = min(b.Size, 4096)
		}
		b.Warmup, b.Iters, b.Offset = r.IntN(2), 1+r.IntN(3), uint64(r.IntN(3)*r.IntN(40))
		b.Graph = o.Launch == "" && r.IntN(3) == 0
		b.First, first = first, first+uint64(b.Warmup+b.Iters)
		out = append(out, b)
	}
	return out
}

func runSequence(t *testing.T, devices []gpu.Info, o sendrecv.Options, batches []transport.Batch) {
	t.Helper()
	s := subject(t, devices, o)
	region := uint64(0)
	for _, b := range batches {
		region = max(region, b.Region())
	}
	w := launch(t, s, region, 30*time.Second)
	for _, b := range batches {
		w.must(t, b)
	}
}

// mixed are the options whose protocols remember most from one batch to the next.
var mixed = []sendrecv.Options{
	{Variant: "ws", CTAs: 3},
	{Variant: "ws"}, // tries several numbers of blocks, and so divides the staging area anew each time
	{Variant: "stable", CTAs: 2, Stages: 3},
	{Variant: "ws", CTAs: 2, Stride: 512, Stages: 1, LLMax: &zero},
	{Variant: "ws", CTAs: 2, Stride: 1024, Launch: "persistent"}, // lines and steps in turn
	{Variant: "ws", CTAs: 2, Stride: 1024, LLMax: &zero, Launch: "persistent"},
	{Variant: "ws", CTAs: 3, Overlap: "off"},
	{Variant: "put", CTAs: 3},
	{Variant: "put", Launch: "persistent"},
	{Variant: "ll", CTAs: 3},
	{Variant: "ll", CTAs: 20, Launch: "persistent"},
	{Variant: "ll128", CTAs: 3},
	{Variant: "ll128", CTAs: 12, Launch: "persistent"},
	{Variant: "ws", CTAs: 1, Launch: "persistent", Burst: 5},
	{Variant: "ce"},
	{},
	{Timing: "host"},
	{Launch: "persistent"},
}

// TestMixed runs batches of all kinds back to back.
func TestMixed(t *testing.T) {
	for i, o := range mixed {
		t.Run(inWords(o), func(t *testing.T) { runSequence(t, cpus(t, 2), o, sequence(uint64(i), 25, o)) })
	}
}

// FuzzMixed looks for an order that goes wrong.
func FuzzMixed(f *testing.F) {
	f.Add(uint8(0), uint64(1))
	f.Add(uint8(1), uint64(2))
	f.Fuzz(func(t *testing.T, which uint8, seed uint64) {
		o := mixed[int(which)%len(mixed)]
		runSequence(t, cpus(t, 2), o, sequence(seed, 15, o))
	})
}

// TestCounters: what was counted is what the protocol does for the messages.
func TestCounters(t *testing.T) {
	for _, c := range []struct {
		o      sendrecv.Options
		b      transport.Batch // 7 iterations
		engine string
		want   map[string]uint64
	}{
		{
			sendrecv.Options{Variant: "ws", CTAs: 2, Stride: 1024, LLMax: &zero},
			batch(transport.OpLatency, 8192, 1), "ws ldst 2 CTAs",
			map[string]uint64{"messages": 7, "ctas": 2, "stride": 1024, "steps": 7 * 8, "fences": 2 * 7 * 8},
		},
		{
			sendrecv.Options{Variant: "ws", CTAs: 2, Stride: 1024},
			batch(transport.OpLatency, 8192, 1), "ws lines 2 CTAs",
			map[string]uint64{"messages": 7, "ctas": 2, "steps": 7 * 2, "fences": 7 * 2},
		},
		{
			sendrecv.Options{Variant: "ws", CTAs: 4, Overlap: "off"},
			batch(transport.OpBidir, 64<<10, 3), "ws lines 4 CTAs",
			map[string]uint64{"messages": 42, "ctas": 4, "steps": 42 * 4, "fences": 42 * 4},
		},
		{
			sendrecv.Options{Variant: "ws", CTAs: 2},
			batch(transport.OpBidir, 3<<20, 2), "ws ldst 2 CTAs",
			map[string]uint64{"messages": 28, "ctas": 2, "stride": 768 << 10, "steps": 28 * 2 * 2, "fences": 2 * 28 * 2 * 2},
		},
		{
			sendrecv.Options{Variant: "stable", CTAs: 2, Stride: 4096},
			batch(transport.OpPingPong, 4096, 1), "stable ldst 2×2 CTAs",
			map[string]uint64{"messages": 14, "ctas": 4, "stride": 4096, "steps": 14 * 2, "fences": 2 * 14 * 2},
		},
		{
			sendrecv.Options{Variant: "put", CTAs: 2},
			batch(transport.OpStream, 4096, 5), "put ldst 2 CTAs",
			map[string]uint64{"messages": 35, "ctas": 2, "steps": 70, "fences": 70 + 7*2},
		},
		{
			sendrecv.Options{Variant: "ll", CTAs: 1},
			batch(transport.OpLatency, 4096, 1), "ll 1 CTA",
			map[string]uint64{"messages": 7, "ctas": 1, "steps": 7, "fences": 7},
		},
		{
			sendrecv.Options{Variant: "ll128", CTAs: 1},
			batch(transport.OpLatency, 30<<10+1, 1), "ll128 1 CTA", // two launches
			map[string]uint64{"messages": 7, "ctas": 1, "steps": 14, "fences": 14},
		},
		{
			sendrecv.Options{Variant: "ce"},
			batch(transport.OpLatency, 4096, 1), "ce",
			map[string]uint64{"messages": 7, "ctas": 0, "steps": 7, "fences": 0},
		},
		{
			sendrecv.Options{Variant: "ce"},
			batch(transport.OpStream, 4096, 100), "ce",
			map[string]uint64{"messages": 700, "ctas": 0, "steps": 7, "fences": 0},
		},
	} {
		t.Run(inWords(c.o), func(t *testing.T) {
			s := subject(t, cpus(t, 2), c.o)
			w := launch(t, s, c.b.Region(), 30*time.Second)
			out := w.must(t, c.b)
			if !maps.Equal(out.counters, c.want) {
				t.Errorf("got %v, want %v", out.counters, c.want)
			}
			if out.engine != c.engine {
				t.Errorf("engine %q, want %q", out.engine, c.engine)
			}
			again := w.must(t, c.b).counters
			twice := maps.Clone(c.want)
			for _, sum := range []string{"messages", "steps", "fences"} {
				twice[sum] *= 2
			}
			if !maps.Equal(again, twice) {
				t.Errorf("after a second batch: %v, after the first: %v", again, c.want)
			}
		})
	}
}

// TestChoice: what auto chose for a shape stays, is one of what it may choose from, and what it tried is not counted.
func TestChoice(t *testing.T) {
	for _, c := range []struct {
		o    sendrecv.Options
		size uint64
		from string
	}{
		{sendrecv.Options{}, 8, "ce, ll 1 CTA, ll128 1 CTA, put ldst 1 CTA"},
		{sendrecv.Options{}, 1 << 20, "ce, put ldst 1 CTA, put ldst 2 CTAs"},
		{sendrecv.Options{CTAs: 2}, 4096, "ll 2 CTAs, ll128 2 CTAs, put ldst 2 CTAs"},
		{sendrecv.Options{CTAs: 2}, 1 << 20, "put ldst 2 CTAs"},
		{sendrecv.Options{Launch: "persistent"}, 8, "ll 1 CTA, ll128 1 CTA, put ldst 1 CTA"},
		{sendrecv.Options{Variant: "ws"}, 4096, "ws lines 1 CTA, ws lines 2 CTAs"},
		{sendrecv.Options{Variant: "ws"}, 24 << 10, "ws ldst 1 CTA, ws lines 2 CTAs"},
		{sendrecv.Options{Variant: "ws", LLMax: &zero}, 4096, "ws ldst 1 CTA, ws ldst 2 CTAs"},
	} {
		t.Run(fmt.Sprintf("%s, %d", inWords(c.o), c.size), func(t *testing.T) {
			s := subject(t, cpus(t, 2), c.o)
			w := launch(t, s, 1<<20, 30*time.Second)
			one := w.must(t, batch(transport.OpLatency, c.size, 1))
			if !strings.Contains(", "+c.from+",", ", "+one.engine+",") {
				t.Errorf("went by %q, not one of %s", one.engine, c.from)
			}
			if one.counters["messages"] != 7 {
				t.Errorf("%d messages were counted, 7 were sent", one.counters["messages"])
			}
			if two := w.must(t, batch(transport.OpLatency, c.size, 1)); two.engine != one.engine {
				t.Errorf("went by %q, then by %q", one.engine, two.engine)
			}
		})
	}
}

// TestBursts: however round trips follow each other, each is a sample, and all bytes of each are compared.
func TestBursts(t *testing.T) {
	for _, variant := range []string{"ws", "put", "ll", "ll128", "auto"} {
		for _, burst := range []int{1, 3, 64} {
			o := sendrecv.Options{Variant: variant, CTAs: 1, Launch: "persistent", Burst: burst}
			t.Run(inWords(o), func(t *testing.T) {
				w := launch(t, subject(t, cpus(t, 2), o), 300<<10, 30*time.Second) // too small for a burst of the largest message
				first := uint64(0)
				for _, size := range []uint64{0, 8, 4000, 4096, 16 << 10, 5} {
					for _, iters := range []int{1, 4, 130} {
						b := batch(transport.OpPingPong, size, 1)
						b.First, b.Iters = first, iters
						first += uint64(b.Warmup + b.Iters)
						out := w.must(t, b)
						if got, most := out.counters["burst"], min(uint64(burst), max(2<<20, 300<<10)/max(b.Stride(), 1)); got != most {
							t.Errorf("%d bytes: bursts of %d, want %d", size, got, most)
						}
						if len(out.samples) != iters || slices.Min(out.samples) <= 0 {
							t.Errorf("%d bytes: %d samples of %d iterations: %v", size, len(out.samples), iters, out.samples)
						}
					}
				}
			})
		}
	}
}

// TestKnobs: the path says what is in force.
func TestKnobs(t *testing.T) {
	for _, c := range []struct {
		o            sendrecv.Options
		path, engine string
		knobs        map[string]string // beside the handle's
	}{
		{sendrecv.Options{}, "auto", "auto", map[string]string{
			"variant": "auto", "engine": "auto", "ctas": "auto", "copy": "auto", "launch": "stream", "timing": "device", "ring": "false",
			"overlap": "on",
		}},
		{sendrecv.Options{Variant: "ws", CTAs: 4, SenderWarps: 4, Copy: "ldst", LLMax: &zero, Overlap: "off"}, "ws", "ws ldst 4 CTAs", map[string]string{
			"variant": "ws", "engine": "ws ldst 4 CTAs", "ctas": "4", "copy": "ldst", "launch": "stream", "timing": "device", "ring": "false",
			"sender-warps": "4", "receiver-warps": "4", "stages": "2", "stride": "adaptive", "ll-max": "0", "overlap": "off",
		}},
		{sendrecv.Options{Variant: "ws", CTAs: 4, Copy: "ldst"}, "ws", "auto", map[string]string{ // lines or steps, by the size
			"variant": "ws", "engine": "auto", "ctas": "4", "copy": "ldst", "launch": "stream", "timing": "device", "ring": "false",
			"sender-warps": "by size", "receiver-warps": "by size", "stages": "2", "stride": "adaptive", "ll-max": "64K", "overlap": "on",
		}},
		{sendrecv.Options{Variant: "put", Launch: "persistent", Ring: true}, "put", "auto", map[string]string{
			"variant": "put", "engine": "auto", "ctas": "auto", "copy": "auto", "launch": "persistent", "timing": "device", "ring": "true",
			"burst":        "64",
			"sender-warps": "by size", "receiver-warps": "by size",
		}},
		{sendrecv.Options{Variant: "stable", CTAs: 2, Stride: 4096, Stages: 3, Timing: "host"}, "stable", "stable ldst 2×2 CTAs", map[string]string{
			"variant": "stable", "engine": "stable ldst 2×2 CTAs", "ctas": "2", "copy": "auto", "launch": "stream", "timing": "host", "ring": "false",
			"sender-warps": "by size", "receiver-warps": "by size", "stages": "3", "stride": "4K", "overlap": "on",
		}},
		{sendrecv.Options{Variant: "ce"}, "ce", "ce", map[string]string{
			"variant": "ce", "engine": "ce", "launch": "stream", "timing": "device", "ring": "false",
		}},
	} {
		w := launch(t, subject(t, cpus(t, 2), c.o), 4096, 30*time.Second)
		p := w.path
		c.knobs["handle"], c.knobs["handle_why"] = "memfd", "the only kind of CPU memory"
		if p.Path != c.path || p.Engine != c.engine || p.Completion != "receiver" || !maps.Equal(p.Knobs, c.knobs) {
			t.Errorf("%+v:\n got %s, %s, %s, %v\nwant %s, %s, receiver, %v", c.o, p.Path, p.Engine, p.Completion, p.Knobs, c.path, c.engine, c.knobs)
		}
		if p.ConnectUS == nil || p.OpenUS == nil || p.ExportUS == nil {
			t.Errorf("%+v: cold costs are missing: %+v", c.o, p)
		}
	}
}

// TestRefusals: a batch that cannot be is refused with what would be right.
func TestRefusals(t *testing.T) {
	graph := batch(transport.OpLatency, 64, 1)
	graph.Graph = true
	for _, c := range []struct {
		o    sendrecv.Options
		b    transport.Batch
		says string
	}{
		{sendrecv.Options{Ring: true}, batch(transport.OpLatency, 64, 1), "latency in a ring: all ranks send at the same time: use bidir, or leave out --ring"},
		{sendrecv.Options{Launch: "persistent"}, graph, "leave out --cudagraph or --launch persistent"},
		{
			sendrecv.Options{Variant: "stable", CTAs: 2, Launch: "persistent"},
			batch(transport.OpPingPong, 64, 1), "pingpong with a persistent stable kernel: its sending blocks do not learn when its receiving blocks are done: use --launch stream, or --variant ws",
		},
		{sendrecv.Options{Variant: "ll", Launch: "persistent"}, batch(transport.OpLatency, 512<<10+1, 1), "at most 524288 bytes with this number of CTAs"},
		{sendrecv.Options{Variant: "ce"}, batch(transport.OpStream, 64, 507), "a window of 507 messages of 64 bytes is more than the 512 commands"},
		{sendrecv.Options{Variant: "ll", CTAs: 2, Launch: "persistent"}, batch(transport.OpLatency, 32769, 1), "at most 32768 bytes with this number of CTAs, not 32769: use more --ctas, or --variant put"},
	} {
		w := launch(t, subject(t, cpus(t, 2), c.o), 1<<20, 30*time.Second)
		if _, err := w.run(c.b); !errors.Is(err, transporttest.ErrFailed) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want it to say %q", c.o, err, c.says)
		}
	}
	held := launch(t, subject(t, cpus(t, 2), sendrecv.Options{Variant: "put", CTAs: 1}), 1<<20, 30*time.Second)
	if _, err := held.run(batch(transport.OpStream, 64, 513)); err == nil || !strings.Contains(err.Error(), "a window of 513 messages of 64 bytes is more than the 512 commands") {
		t.Errorf("a window of 513: %v", err)
	}
	team, err := subject(t, cpus(t, 2), sendrecv.Options{Variant: "stable", CTAs: 33}).Launch(t, 4096, 30*time.Second)
	if err == nil {
		_ = team.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "--ctas 33: stable would have 66 thread blocks, and the device is sure to run only 64") {
		t.Errorf("66 thread blocks: %v", err)
	}
}

// TestLargest: the largest that there is room for goes through, and is whole.
func TestLargest(t *testing.T) {
	for _, c := range []struct {
		o      sendrecv.Options
		b      transport.Batch
		engine string
	}{
		{sendrecv.Options{Variant: "ll", Launch: "persistent"}, batch(transport.OpPingPong, 64<<10, 1), "ll 4 CTAs"},
		{sendrecv.Options{Variant: "ll", Launch: "persistent"}, batch(transport.OpBidir, 64<<10, 9), "ll 4 CTAs"},
		{sendrecv.Options{Variant: "ll128", Launch: "persistent"}, batch(transport.OpPingPong, 64<<10, 1), "ll128 3 CTAs"},
		{sendrecv.Options{Variant: "ws", CTAs: 4}, batch(transport.OpBidir, 64<<10, 9), "ws lines 4 CTAs"},
		{sendrecv.Options{Variant: "ws", CTAs: 4, Launch: "persistent"}, batch(transport.OpPingPong, 64<<10, 1), "ws lines 4 CTAs"},
		{sendrecv.Options{Variant: "ce"}, batch(transport.OpBidir, 1000, 65), "ce"},
		{sendrecv.Options{Variant: "ce"}, batch(transport.OpStream, 1000, 506), "ce"},
		{sendrecv.Options{Variant: "ce", Timing: "host"}, batch(transport.OpBidir, 1000, 600), "ce"},
	} {
		w := launch(t, subject(t, cpus(t, 2), c.o), c.b.Region(), 30*time.Second)
		if out := w.must(t, c.b); out.engine != c.engine {
			t.Errorf("%+v: went by %q, want %q", c.o, out.engine, c.engine)
		}
	}
}

// late is a batch in which a message never comes, or is never taken.
type late struct {
	name string
	o    sendrecv.Options
	less int          // the rank that knows less of the batch
	op   transport.Op // "": the batch's; or what that rank takes it for
	b    transport.Batch
	says string
}

var deadlines = []late{
	{"put, no grant", sendrecv.Options{Variant: "put", CTAs: 2, Copy: "ldst"}, 1, "", batch(transport.OpLatency, 4096, 1), "p2p_sr_put: rank 0: block 1 of the sender waits for message 1, has 0"},
	{"put, graph", sendrecv.Options{Variant: "put", CTAs: 2, Copy: "ldst", Launch: "graph"}, 0, "", batch(transport.OpLatency, 4096, 1), "p2p_sr_put: rank 1: block 1 of the receiver waits for message 1, has 0"},
	// Which of its blocks gives up first is a race: the one that has no grant, or the one that waits for that one.
	{"put, persistent", sendrecv.Options{Variant: "put", CTAs: 2, Copy: "ldst", Launch: "persistent"}, 1, "", batch(transport.OpLatency, 4096, 1), "waits for message or iteration 1, has 0"},
	{"ws", sendrecv.Options{Variant: "ws", CTAs: 2, Copy: "ldst", LLMax: &zero}, 0, "", batch(transport.OpLatency, 4096, 1), "p2p_sr_ws: rank 1: block 1 of the receiver waits for step 1, has 0"},
	{"ws, host", sendrecv.Options{Variant: "ws", CTAs: 2, Copy: "ldst", LLMax: &zero, Timing: "host"}, 0, "", batch(transport.OpLatency, 4096, 1), "p2p_sr_ws: rank 1: block 1 of the receiver waits for step 1, has 0"},
	{"ws, lines", sendrecv.Options{Variant: "ws", CTAs: 2, Copy: "ldst"}, 0, "", batch(transport.OpLatency, 4096, 1), "of the receiver waits for message 1, has 0"},
	{"stable", sendrecv.Options{Variant: "stable", CTAs: 2}, 0, "", batch(transport.OpLatency, 4096, 1), "p2p_sr_stable: rank 1: block 1 of the receiver waits for step 1, has 0"},
	{"ll", sendrecv.Options{Variant: "ll", CTAs: 2}, 0, "", batch(transport.OpLatency, 4096, 1), "of the receiver waits for message 1, has 0"},
	// A rank of ce that takes bidir for latency does half of its part: rank 0 credits nothing, rank 1 fills nothing.
	// Which rank gives up first is a race: the one whose queue waits, or the one that waits for it.
	{"ce, no credit", sendrecv.Options{Variant: "ce"}, 0, transport.OpLatency, batch(transport.OpBidir, 64, 1), "ce: "},
	{"ce, nothing comes", sendrecv.Options{Variant: "ce"}, 1, transport.OpLatency, batch(transport.OpBidir, 64, 1), "ce: "},
}

// TestDeadline: such a batch ends by itself and says who waits for what. It is half a second from the deadline of a
// wait for the own device to that for other ranks, which a busy machine must not take to get from one to the other.
func TestDeadline(t *testing.T) {
	for _, c := range deadlines {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			c.run(t, cpus(t, 2), 2*time.Second)
		})
	}
}

func (c late) run(t *testing.T, devices []gpu.Info, timeout time.Duration) {
	t.Helper()
	s := subject(t, devices, c.o)
	s.Arm = transporttest.Arm(t, "sendrecv", scantOptions{c.o, &c.less, c.op})
	w := launch(t, s, c.b.Region(), timeout)
	c.b.Check = transport.CheckOff // what does come is not what was announced
	_, err := w.run(c.b)
	if err == nil || !strings.Contains(err.Error(), c.says) {
		t.Errorf("got %v, want it to say %q", err, c.says)
	}
	if err != nil && strings.Contains(err.Error(), "has not stopped") {
		t.Error("what was on the queue stayed there")
	}
}

// TestTwoRuns: runs of one machine do not meet each other.
func TestTwoRuns(t *testing.T) {
	var all sync.WaitGroup
	for _, variant := range []string{"put", "put", "ce", "ws"} {
		s := subject(t, cpus(t, 2), sendrecv.Options{Variant: variant, CTAs: map[string]int{"put": 2, "ws": 2}[variant]})
		w := launch(t, s, 1<<20, 30*time.Second)
		all.Go(func() {
			for i := range 5 {
				b := batch(transport.OpBidir, 10000, 4)
				b.Seed, b.First = uint64(len(variant)), uint64(7*i)
				if _, err := w.run(b); err != nil {
					t.Errorf("%s: %v", variant, err)
				}
			}
		})
	}
	all.Wait()
}
