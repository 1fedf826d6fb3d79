package sendrecv_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/knob"
	"github.com/p2pbench/p2pbench/internal/transport/sendrecv"
)

// What does not exist or does not go together is refused with what was wrong and what would be right.
func TestOptions(t *testing.T) {
	lines := knob.Size(4096)
	for _, c := range []struct {
		o     sendrecv.Options
		says  []string // nothing: accepted
		about string
	}{
		{about: "defaults"},
		{o: sendrecv.Options{Variant: "tunnel"}, says: []string{"--variant tunnel", "auto, ws, stable, put, ll, ll128 or ce"}},
		{o: sendrecv.Options{Copy: "dma"}, says: []string{"--copy dma", "ldst or bulk"}},
		{o: sendrecv.Options{Launch: "often"}, says: []string{"--launch often", "stream, graph or persistent"}},
		{o: sendrecv.Options{Timing: "sundial"}, says: []string{"--timing sundial", "device or host"}},
		{o: sendrecv.Options{Overlap: "perhaps"}, says: []string{"--overlap perhaps", "on or off"}},
		{o: sendrecv.Options{Overlap: "on"}},
		{o: sendrecv.Options{Variant: "put", Overlap: "off"}},

		{o: sendrecv.Options{Variant: "ws", LLMax: &lines}},
		{o: sendrecv.Options{Variant: "ws", LLMax: &zero}},
		{o: sendrecv.Options{Variant: "stable", LLMax: &lines}, says: []string{"--ll-max 4K: it applies to --variant ws, not to stable"}},
		{o: sendrecv.Options{Variant: "ll", LLMax: &zero}, says: []string{"--ll-max 0: it applies to --variant ws"}},
		{o: sendrecv.Options{LLMax: &lines}, says: []string{"--ll-max 4K: it applies to --variant ws, not to auto"}},

		{o: sendrecv.Options{Variant: "ws", SenderWarps: 1, ReceiverWarps: 1}},
		{o: sendrecv.Options{Variant: "ws", SenderWarps: 2, ReceiverWarps: 2}},
		{o: sendrecv.Options{Variant: "stable", SenderWarps: 4, ReceiverWarps: 4}},
		{o: sendrecv.Options{Variant: "ll", SenderWarps: 8, ReceiverWarps: 8}},
		{o: sendrecv.Options{Variant: "ws", SenderWarps: 4}, about: "the other role's follow"},
		{o: sendrecv.Options{Variant: "ws", ReceiverWarps: 4}},
		{o: sendrecv.Options{Variant: "ws", SenderWarps: 3, ReceiverWarps: 3}, says: []string{"--sender-warps 3 --receiver-warps 3", "(1,1), (2,2), (4,4) or (8,8)"}},
		{o: sendrecv.Options{Variant: "ws", SenderWarps: 4, ReceiverWarps: 2}, says: []string{"--sender-warps 4 --receiver-warps 2", "(4,4)"}},
		{o: sendrecv.Options{Variant: "stable", SenderWarps: 16, ReceiverWarps: 16}, says: []string{"(8,8)"}},
		{o: sendrecv.Options{Variant: "ws", SenderWarps: -1, ReceiverWarps: -1}, says: []string{"--sender-warps -1: want 1 to 16"}},
		{o: sendrecv.Options{Variant: "ll", SenderWarps: 1, ReceiverWarps: 8}, says: []string{"(1,1)"}},
		{o: sendrecv.Options{Variant: "put", SenderWarps: 16}},
		{o: sendrecv.Options{Variant: "put", SenderWarps: 4, ReceiverWarps: 1}},
		{o: sendrecv.Options{Variant: "put", ReceiverWarps: 1}},
		{o: sendrecv.Options{Variant: "put", SenderWarps: 12}, says: []string{"--sender-warps 12", "1, 2, 4, 8 or 16"}},
		{o: sendrecv.Options{Variant: "put", SenderWarps: 32}, says: []string{"--sender-warps 32: want 1 to 16"}},
		{o: sendrecv.Options{Variant: "put", SenderWarps: 4, ReceiverWarps: 4}, says: []string{"--receiver-warps 4", "use 1"}},
		{o: sendrecv.Options{SenderWarps: 4}, says: []string{"--sender-warps 4: it has no effect with --variant auto"}},
		{o: sendrecv.Options{Variant: "ce", SenderWarps: 1}, says: []string{"--sender-warps 1: it has no effect with --variant ce"}},
		{o: sendrecv.Options{Variant: "ws", Copy: "bulk", SenderWarps: 4}, says: []string{"--sender-warps 4: it has no effect with --copy bulk"}},

		{o: sendrecv.Options{Variant: "ws", Copy: "bulk"}},
		{o: sendrecv.Options{Variant: "put", Copy: "bulk"}},
		{o: sendrecv.Options{Variant: "ll", Copy: "ldst"}},
		{o: sendrecv.Options{Variant: "stable", Copy: "bulk"}, says: []string{"--copy bulk: stable", "ws or put"}},
		{o: sendrecv.Options{Variant: "ll", Copy: "bulk"}, says: []string{"--copy bulk: ll"}},
		{o: sendrecv.Options{Variant: "ce", Copy: "ldst"}, says: []string{"--copy ldst: it has no effect with --variant ce"}},
		{o: sendrecv.Options{Copy: "bulk"}, says: []string{"--copy bulk: it has no effect with --variant auto"}},

		{o: sendrecv.Options{Variant: "put", CTAs: 256}},
		{o: sendrecv.Options{CTAs: 100}},
		{o: sendrecv.Options{Variant: "put", CTAs: 257}, says: []string{"--ctas 257", "1 to 256"}},
		{o: sendrecv.Options{Variant: "put", CTAs: -1}, says: []string{"--ctas -1", "1 to 256"}},
		{o: sendrecv.Options{Variant: "ll", CTAs: 32}},
		{o: sendrecv.Options{Variant: "ll", CTAs: 33}, says: []string{"--ctas 33: ll takes 1 to 32"}},
		{o: sendrecv.Options{Variant: "ll128", CTAs: 33}, says: []string{"--ctas 33: ll128 takes 1 to 32"}},
		{o: sendrecv.Options{Variant: "ll128", Copy: "bulk"}, says: []string{"--copy bulk: ll128"}},
		{o: sendrecv.Options{Launch: "persistent", Burst: 512}},
		{o: sendrecv.Options{Launch: "persistent", Burst: 513}, says: []string{"--burst 513", "1 to 512"}},
		{o: sendrecv.Options{Launch: "persistent", Burst: -1}, says: []string{"--burst -1"}},
		{o: sendrecv.Options{Burst: 1}, says: []string{"--burst 1: it applies to --launch persistent"}},
		{o: sendrecv.Options{Variant: "stable", CTAs: 128}},
		{o: sendrecv.Options{Variant: "stable", CTAs: 129}, says: []string{"--ctas 129: stable takes 1 to 128"}},
		{o: sendrecv.Options{Variant: "ce", CTAs: 1}, says: []string{"it has no effect with --variant ce"}},

		{o: sendrecv.Options{Variant: "ws", Stride: 512}},
		{o: sendrecv.Options{Variant: "ws", Stride: 16 << 20, Stages: 1}},
		{o: sendrecv.Options{Variant: "ws", Stride: 768}, says: []string{"--stride 768", "multiple of 512"}},
		{o: sendrecv.Options{Variant: "ws", Stride: 16 << 20}, says: []string{"1 CTAs × --stride 16M × --stages 2", "has 16M"}},
		{o: sendrecv.Options{Variant: "ws", Stride: 256 << 10, CTAs: 33}, says: []string{"33 CTAs × --stride 256K × --stages 2"}},
		{o: sendrecv.Options{Variant: "stable", Stages: 64, CTAs: 128}},
		{o: sendrecv.Options{Variant: "stable", Stages: 512, CTAs: 128}, says: []string{"128 CTAs", "--stages 512"}},
		{o: sendrecv.Options{Variant: "ws", Stages: -1}, says: []string{"--stages -1", "1 to 32768"}},
		{o: sendrecv.Options{Variant: "ws", Stages: 1 << 20}, says: []string{"1 to 32768"}},
		{o: sendrecv.Options{Variant: "ws", Stride: 1 << 63, Stages: 2}, says: []string{"--stride 8589934592G"}},
		{o: sendrecv.Options{Variant: "put", Stride: 512}, says: []string{"--stride 512: it applies to --variant ws or stable, not to put"}},
		{o: sendrecv.Options{Stages: 2}, says: []string{"--stages 2: it applies to --variant ws or stable"}},

		{o: sendrecv.Options{Variant: "put", Launch: "persistent"}},
		{o: sendrecv.Options{Launch: "persistent"}},
		{o: sendrecv.Options{Variant: "ce", Launch: "graph"}},
		{o: sendrecv.Options{Variant: "ce", Launch: "persistent"}, says: []string{"ce starts no kernel", "stream or graph"}},
		{o: sendrecv.Options{Variant: "put", Launch: "persistent", Timing: "host"}, says: []string{"--timing device"}},
	} {
		_, err := sendrecv.New(c.o)
		if (err == nil) != (len(c.says) == 0) {
			t.Errorf("%+v (%s): %v", c.o, c.about, err)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%+v: %q, want it to say %q", c.o, err, s)
			}
		}
	}
}

// TestBounds: the tags name bounds that are the protocol's.
func TestBounds(t *testing.T) {
	for name, most := range map[string]int{"ctas": sendrecv.MaxCTAs, "burst": sendrecv.MaxBurst, "stages": sendrecv.MaxStages} {
		for _, f := range knob.Fields(&sendrecv.Options{}) {
			if f.Name != name {
				continue
			}
			if err := f.Set(strconv.Itoa(most)); err != nil {
				t.Errorf("--%s %d: %v", name, most, err)
			}
			if err := f.Set(strconv.Itoa(most + 1)); err == nil {
				t.Errorf("--%s %d is taken", name, most+1)
			}
		}
	}
}

func TestProbe(t *testing.T) {
	cpu := gpu.Info{Kind: "host", UUID: "host-0", Warp: 1}
	a, b, c := gpu.Info{Kind: "cuda", UUID: "GPU-a", Warp: 32}, gpu.Info{Kind: "cuda", UUID: "GPU-b", Warp: 32}, gpu.Info{Kind: "cuda", UUID: "GPU-c", Warp: 32}
	for _, x := range []struct {
		ring    bool
		devices []gpu.Info
		says    string // "": it can
	}{
		{false, []gpu.Info{cpu, cpu}, ""},
		{false, []gpu.Info{a, b}, ""},
		{true, []gpu.Info{a, b}, ""},
		{true, []gpu.Info{a, b, c}, ""},
		{true, []gpu.Info{cpu, cpu, cpu, cpu}, ""},
		{true, []gpu.Info{a}, "1 rank: it needs two"},
		{false, []gpu.Info{a, b, c}, "add --ring"},
		{false, []gpu.Info{cpu, a}, "from host to cuda"},
		{false, []gpu.Info{a, a}, "ranks 0 and 1 on GPU-a"},
		{true, []gpu.Info{a, b, c, b}, "ranks 1 and 3 on GPU-b"},
		{false, []gpu.Info{a, {Kind: "cuda", UUID: "GPU-w", Warp: 64}}, "warps of 32 and of 64 threads"},
	} {
		tr, err := sendrecv.New(sendrecv.Options{Ring: x.ring})
		if err != nil {
			t.Fatal(err)
		}
		err = tr.Probe(x.devices)
		if x.says == "" && err != nil {
			t.Errorf("%v: %v", x.devices, err)
		}
		if x.says != "" && (!errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), x.says)) {
			t.Errorf("%v: %v, want it to say %q", x.devices, err, x.says)
		}
	}
}
