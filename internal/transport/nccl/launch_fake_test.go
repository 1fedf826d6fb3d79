package nccl_test

import (
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/nccl"
)

// unseen stands for a batch whose thread blocks are not known.
const unseen = -1

// launches is what a run says of its batches' launches, latency of 4 KiB and 1 MiB, pingpong of 4 KiB, stream of 1 MiB.
type launches struct {
	name   string
	fake   fake
	o      nccl.Options
	graph  bool // the batches ask for graphs
	ctas   [4]int
	engine string
}

const sendRecv = "nccl 2.28.9 ncclDevKernel_SendRecv"

// The fake launches 2 blocks for short messages and 16 for long ones, or what it was bound to; a pingpong is two
// kernels, a window one.
var allLaunches = []launches{
	{name: "its choice", ctas: [4]int{2, 16, 2, 16}, engine: sendRecv},
	{name: "bound", o: nccl.Options{CTAs: 4}, ctas: [4]int{4, 4, 4, 4}, engine: sendRecv},
	{name: "graphs", o: nccl.Options{Graph: true, CTAs: 8}, ctas: [4]int{8, 8, 8, 8}, engine: sendRecv},
	{name: "batches with graphs", graph: true, ctas: [4]int{2, 16, 2, 16}, engine: sendRecv},
	{name: "by kernel", fake: fake{env: []string{"FAKE_NCCL_BY_KERNEL=1"}}, ctas: [4]int{2, 16, 2, 16}, engine: sendRecv},
	{
		name: "driver before 12.3", fake: fake{flags: []string{"-DOMIT_NAMES"}}, ctas: [4]int{2, 16, 2, 16},
		engine: "nccl 2.28.9",
	},
	{
		name: "old driver", fake: fake{flags: []string{"-DOMIT_cuGraphGetNodes"}}, ctas: [4]int{unseen, unseen, unseen, unseen},
		engine: "nccl 2.28.9 (launches unknown: this driver has no cuGraphGetNodes)",
	},
	{
		name: "old driver, graphs", fake: fake{flags: []string{"-DOMIT_cuGraphGetNodes"}}, o: nccl.Options{Graph: true},
		ctas: [4]int{unseen, unseen, unseen, unseen}, engine: "nccl 2.28.9 (launches unknown: this driver has no cuGraphGetNodes)",
	},
	{
		name: "driver fails", fake: fake{env: []string{"FAKE_FAIL=cuGraphKernelNodeGetParams_v2:1"}},
		ctas: [4]int{unseen, unseen, unseen, unseen},
		engine: "nccl 2.28.9 (launches unknown: cuGraphKernelNodeGetParams_v2: CUDA_ERROR_FAKE (1): " +
			"the fake driver was told to)",
	},
	{
		name: "no second communicator", fake: fake{env: []string{"FAKE_NCCL_COMMS=1"}},
		ctas: [4]int{unseen, unseen, unseen, unseen},
		engine: "nccl 2.28.9 (launches unknown: no second communicator: ncclCommInitRankConfig: unhandled cuda error (1) " +
			"(NCCL_DEBUG=WARN says more))",
	},
}

// What NCCL launches is seen where the driver shows it, and where it does not the run goes on and says why. Nothing was
// ever captured on the communicator that is timed without graphs: the real NCCL would be slower from then on.
func TestFakeLaunches(t *testing.T) {
	for _, c := range allLaunches {
		t.Run(c.name, func(t *testing.T) {
			var read func() string
			if !child(t) {
				read = c.fake.log(t)
			}
			c.fake.on(t, func(t *testing.T) { c.check(t) })
			if child(t) {
				return
			}
			log := read()
			if strings.Contains(log, "after a capture") && !c.graph && !c.o.Graph {
				t.Errorf("the timed communicator was captured with:\n%s", log)
			}
			if n := strings.Count(log, "init"); n != strings.Count(log, "destroy") {
				t.Errorf("not every communicator was destroyed:\n%s", log)
			}
		})
	}
}

func (c launches) check(t *testing.T) {
	t.Helper()
	team, err := subject(t, c.o).Launch(t, 4<<20, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, team)
	for i, b := range []transport.Batch{
		batch(transport.OpLatency, 4096), batch(transport.OpLatency, 1<<20), batch(transport.OpPingPong, 4096),
		batch(transport.OpStream, 1<<20),
	} {
		b.Graph = c.graph
		if b.Op == transport.OpStream {
			b.Window = 4
		}
		for range 2 { // the second block of a cell is looked at no more
			out, err := team.Run(t.Context(), 0, []int{0, 1}, b)
			if err != nil {
				t.Fatal(err)
			}
			ctas, seen := out.Counters["nccl_ctas"]
			if seen != (c.ctas[i] != unseen) || seen && int(ctas) != c.ctas[i] {
				t.Errorf("%s of %d bytes: %d CTAs (seen: %v), want %d", b.Op, b.Size, ctas, seen, c.ctas[i])
			}
			if out.Engine != c.engine {
				t.Errorf("%s of %d bytes: %s, want %s", b.Op, b.Size, out.Engine, c.engine)
			}
		}
	}
	if _, err := team.Finish(t.Context()); err != nil {
		t.Error(err)
	}
}

// Batches with graphs and without in turns: each says what it launches itself.
func TestFakeGraphsAndNone(t *testing.T) {
	fake{}.on(t, func(t *testing.T) {
		team, err := subject(t, nccl.Options{}).Launch(t, 1<<20, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer closing(t, team)
		for i, size := range []uint64{64, 1 << 20, 64, 64, 1 << 20} {
			b := batch(transport.OpBidir, size)
			b.Graph = i%2 == 1
			out, err := team.Run(t.Context(), 0, []int{0, 1}, b)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[uint64]uint64{64: 2, 1 << 20: 16}[size]; out.Counters["nccl_ctas"] != want || out.Engine != sendRecv {
				t.Errorf("%d bytes, graph %v: %v, %s", size, b.Graph, out.Counters, out.Engine)
			}
		}
		if _, err := team.Finish(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
