package ipc_test

import (
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/ipc"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// gpus are two GPUs where there are two, else one twice.
func gpus(t *testing.T) (gpu.Info, gpu.Info) {
	t.Helper()
	infos := transporttest.Require(t, cuda.New(), 1)
	return infos[0], infos[len(infos)-1]
}

// TestHWVariants runs the suite on every path, with the handles that need a descriptor and with those that do not.
func TestHWVariants(t *testing.T) {
	a, b := gpus(t)
	for name, o := range variants {
		t.Run(name, func(t *testing.T) { suite(t, a, b, o) })
	}
	for _, name := range []string{"handshake", "get", "get, dual cache"} {
		o := variants[name]
		o.Handle = gpu.HandleVMM
		t.Run(name+", vmm-fd", func(t *testing.T) { suite(t, a, b, o) })
	}
	t.Run("two streams", func(t *testing.T) { suite(t, a, b, ipc.Options{Streams: 2}) })
}

func suite(t *testing.T, a, b gpu.Info, o ipc.Options) {
	t.Helper()
	s := subject(t, a, b, o)
	s.Free = a.Memory * 9 / 10
	transporttest.Run(t, s)
}

// TestHWCounters wants of a GPU what TestCounters wants of CPU memory. Virtual memory can be placed, so that a buffer
// comes back where it was.
func TestHWCounters(t *testing.T) {
	a, b := gpus(t)
	for _, c := range knobs {
		t.Run(c.name, func(t *testing.T) {
			o := c.o
			if !o.SameProcess && o.Path != "relay" {
				o.Handle = gpu.HandleVMM
			}
			counted(t, measure(t, subject(t, a, b, o), messages(transport.OpLatency, 1<<20+1, 1, 40)), c.want)
		})
	}
}

// TestHWLegacyRealloc frees and allocates what the peer has mapped. The driver decides where the new buffer comes; the
// bytes are right wherever that is.
func TestHWLegacyRealloc(t *testing.T) {
	a, b := gpus(t)
	for _, path := range []string{"direct", "handshake", "get"} {
		for _, buffers := range []ipc.Buffers{"realloc-same", "realloc-overlap"} {
			t.Run(path+" "+string(buffers), func(t *testing.T) {
				o := ipc.Options{Path: path, Buffers: buffers, Handle: gpu.HandleLegacy}
				t.Log(measure(t, subject(t, a, b, o), everyOp(4)...))
			})
		}
	}
}

// TestHWRebinds re-registers a buffer 10,000 times: neither mappings nor memory of the GPU are lost.
func TestHWRebinds(t *testing.T) {
	const warm, n = 100, 10000
	a, b := gpus(t)
	for _, handle := range []gpu.HandleKind{gpu.HandleLegacy, gpu.HandleVMM} {
		t.Run(string(handle), func(t *testing.T) {
			s := subject(t, a, b, ipc.Options{Open: "lazy", Publish: "always", Handle: handle, Engine: "ce"})
			team, err := s.Launch(t, 4096, 60*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = team.Close() }()
			first := messages(transport.OpLatency, 64, 1, warm)
			before, err := team.Run(t.Context(), 0, s.Ranks, first)
			if err != nil {
				t.Fatal(err)
			}
			rest := messages(transport.OpLatency, 64, 1, n)
			rest.First = warm
			after, err := team.Run(t.Context(), 0, s.Ranks, rest)
			if err != nil {
				t.Fatal(err)
			}
			x, y := before.Counters, after.Counters
			if y["opens"]-x["opens"] != n || y["closes"]-x["closes"] != n || y["mapped_bytes"] != x["mapped_bytes"] {
				t.Errorf("before: %v, after: %v", x, y)
			}
			if y["device_free_bytes"]+16<<20 < x["device_free_bytes"] {
				t.Errorf("the GPU lost %d bytes", x["device_free_bytes"]-y["device_free_bytes"])
			}
			t.Logf("open %.1f µs, close %.1f µs each", float64(y["open_ns"])/float64(y["opens"])/1e3, float64(y["close_ns"])/float64(y["closes"])/1e3)
		})
	}
}

// TestHWSilentCorruption: the unsound caches are caught on a GPU as well.
func TestHWSilentCorruption(t *testing.T) {
	a, b := gpus(t)
	for _, c := range silent {
		t.Run(c.name, func(t *testing.T) {
			o := c.o
			o.Handle = gpu.HandleVMM
			s := subject(t, a, b, o)
			team, err := s.Launch(t, c.b.Region(), 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = team.Close() }()
			if _, err = team.Run(t.Context(), 0, s.Ranks, c.b); err == nil || !strings.Contains(err.Error(), "data corruption") {
				t.Errorf("got %v, want the comparison of the payload to see it", err)
			}
		})
	}
}
