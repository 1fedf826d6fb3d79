package sendrecv_test

import (
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/sendrecv"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// gpus are two GPUs.
func gpus(t *testing.T) []gpu.Info {
	t.Helper()
	return transporttest.Require(t, cuda.New(), 2)[:2]
}

// onGPU runs f for the options, and again for copies in bulk where the GPUs have them and the options would.
func onGPU(t *testing.T, devices []gpu.Info, name string, o sendrecv.Options, f func(*testing.T, sendrecv.Options)) {
	t.Helper()
	if o.Variant != "ws" && o.Variant != "put" {
		t.Run(name, func(t *testing.T) { f(t, o) })
		return
	}
	for _, how := range knob.Words(&sendrecv.Options{}, "copy") {
		if o.Copy = how; how == "bulk" {
			if devices[0].Arch < "sm_90" {
				continue
			}
			o.SenderWarps, o.ReceiverWarps = 0, 0
		}
		t.Run(name+" "+how, func(t *testing.T) { f(t, o) })
	}
}

// TestHWVariants runs the suite on every variant. Messages beyond 4 GiB take most of the time: a kernel and the copy
// engine carry them.
func TestHWVariants(t *testing.T) {
	devices := gpus(t)
	for name, o := range map[string]sendrecv.Options{
		"auto": {}, "ws": {Variant: "ws", CTAs: 16}, "ws, steps,": {Variant: "ws", CTAs: 16, LLMax: &zero},
		"stable": {Variant: "stable", CTAs: 16}, "put": {Variant: "put"},
		"ll": {Variant: "ll"}, "ll128": {Variant: "ll128"}, "ce": {Variant: "ce"}, "put, persistent,": {Variant: "put", Launch: "persistent", CTAs: 16},
	} {
		onGPU(t, devices, name, o, func(t *testing.T, o sendrecv.Options) {
			s := subject(t, devices, o)
			s.Graph = o.Launch == ""
			s.Free = devices[0].Memory * 9 / 10
			s.SkipLarge = o.Launch != "" || o.Variant != "put" && o.Variant != "ce"
			transporttest.Run(t, s)
		})
	}
}

// TestHWForms runs every operation in every form, with warps of every number.
func TestHWForms(t *testing.T) {
	devices := gpus(t)
	warps := 1
	for _, variant := range knob.Words(&sendrecv.Options{}, "variant") {
		for _, launched := range knob.Words(&sendrecv.Options{}, "launch") {
			for _, timing := range knob.Words(&sendrecv.Options{}, "timing") {
				o := sendrecv.Options{Variant: variant, Launch: launched, Timing: timing}
				if variant != "auto" && variant != "ce" {
					o.CTAs, o.SenderWarps = 5, warps // 5: a resident kernel of ll carries so much in one piece
					warps = warps % 8 * 2            // 1, 2, 4, 8
					if warps == 0 {
						warps = 1
					}
				}
				if _, err := sendrecv.New(o); err != nil {
					continue // TestOptions knows which
				}
				onGPU(t, devices, variant+" "+launched+" "+timing, o, func(t *testing.T, o sendrecv.Options) {
					everyOp(t, devices, o, 30001, 69632) // bytes that do not go in bulk, and more than ws sends in lines
				})
			}
		}
	}
}

// TestHWMixed runs batches of all kinds back to back.
func TestHWMixed(t *testing.T) {
	devices := gpus(t)
	for i, o := range mixed {
		t.Run(inWords(o), func(t *testing.T) { runSequence(t, devices, o, sequence(uint64(i), 40, o)) })
	}
}

// TestHWMany passes very many small messages, in which a word that comes too early or too late would be seen: 10,000
// launches of every variant, and 1,000,000 iterations of resident kernels in batches that follow each other.
func TestHWMany(t *testing.T) {
	devices := gpus(t)
	for name, o := range map[string]sendrecv.Options{
		"ll":             {Variant: "ll", CTAs: 4},
		"ll128":          {Variant: "ll128", CTAs: 4},
		"ws":             {Variant: "ws", CTAs: 4},
		"ws, no overlap": {Variant: "ws", CTAs: 4, Overlap: "off"},
		"ws, steps":      {Variant: "ws", CTAs: 4, Stride: 512, LLMax: &zero},
		"stable":         {Variant: "stable", CTAs: 4, Stride: 512},
		"put":            {Variant: "put", CTAs: 4},
		"ce":             {Variant: "ce"},
	} {
		onGPU(t, devices, name, o, func(t *testing.T, o sendrecv.Options) {
			many(t, devices, o, 8192, transport.CheckFull, 5000, transport.OpLatency, transport.OpBidir)
		})
	}
	for _, variant := range []string{"ll", "ll128"} {
		t.Run(variant+", persistent", func(t *testing.T) {
			o := sendrecv.Options{Variant: variant, CTAs: 1, Launch: "persistent"}
			var ops []transport.Op
			for range 13 {
				ops = append(ops, transport.OpPingPong, transport.OpBidir)
			}
			many(t, devices, o, 2000, transport.CheckSample, 20000, ops...)
		})
	}
}

// many runs a batch of so many iterations for each of ops, one after the other, by the same ranks.
func many(t *testing.T, devices []gpu.Info, o sendrecv.Options, size uint64, check transport.Check, iters int, ops ...transport.Op) {
	t.Helper()
	w := launch(t, subject(t, devices, o), size, 60*time.Second)
	first := uint64(0)
	for _, op := range ops {
		b := batch(op, size, 1)
		b.Warmup, b.Iters, b.First, b.Check = 10, iters, first, check
		first += uint64(b.Warmup + b.Iters)
		w.must(t, b)
	}
}

// TestHWRing sends around all GPUs of the machine.
func TestHWRing(t *testing.T) {
	devices := transporttest.Require(t, cuda.New(), 2)
	for name, o := range map[string]sendrecv.Options{
		"auto": {Ring: true}, "ws": {Variant: "ws", CTAs: 4, Ring: true}, "put": {Variant: "put", CTAs: 16, Ring: true},
		"ll": {Variant: "ll", Ring: true}, "ll128": {Variant: "ll128", Ring: true}, "ce": {Variant: "ce", Ring: true},
		"ws, persistent,": {Variant: "ws", CTAs: 4, Ring: true, Launch: "persistent"},
	} {
		onGPU(t, devices, name, o, func(t *testing.T, o sendrecv.Options) {
			s := subject(t, devices, o)
			w := launch(t, s, 64<<20, 60*time.Second)
			for i, size := range []uint64{1, 64 << 10, 100001, 8 << 20} {
				b := batch(transport.OpBidir, size, 4)
				b.First = uint64(7 * i)
				w.must(t, b)
			}
		})
	}
}

// TestHWKilled kills a rank while kernels wait for each other. The other one ends, and both GPUs do their work
// afterwards.
func TestHWKilled(t *testing.T) {
	devices := gpus(t)
	for name, o := range map[string]sendrecv.Options{
		"ws":              {Variant: "ws", CTAs: 16},
		"put":             {Variant: "put", CTAs: 16},
		"ll":              {Variant: "ll", CTAs: 16},
		"ll128":           {Variant: "ll128", CTAs: 16},
		"ce":              {Variant: "ce"},
		"put, persistent": {Variant: "put", CTAs: 16, Launch: "persistent"},
	} {
		onGPU(t, devices, name, o, func(t *testing.T, o sendrecv.Options) {
			s := subject(t, devices, o)
			for victim := range 2 {
				w := launch(t, s, 64<<20, 20*time.Second)
				b := batch(transport.OpBidir, 64<<10, 4)
				b.Iters, b.Check = 1<<24, transport.CheckOff
				time.AfterFunc(300*time.Millisecond, func() { w.kill(victim) })
				if _, err := w.run(b); err == nil || !strings.Contains(err.Error(), "killed by signal 9") {
					t.Errorf("rank %d killed: %v", victim, err)
				}
			}
			launch(t, s, 64<<20, 20*time.Second).must(t, batch(transport.OpBidir, 1<<20, 4))
		})
	}
}

// TestHWDeadline: what a GPU waits for in vain ends by itself, and the run says what it was.
func TestHWDeadline(t *testing.T) {
	devices := gpus(t)
	for _, c := range deadlines {
		t.Run(c.name, func(t *testing.T) { c.run(t, devices, 6*time.Second) })
	}
}
