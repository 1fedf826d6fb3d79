package rdma_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs/verbstest"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

func TestMain(m *testing.M) {
	transporttest.Main(m, func(options json.RawMessage) (transport.Transport, error) {
		var o rdma.Options
		if err := json.Unmarshal(options, &o); err != nil {
			return nil, err
		}
		return rdma.New(o)
	})
}

// cpus are n times the first device of the host.
func cpus(t *testing.T, n int) []gpu.Info {
	t.Helper()
	devices := make([]gpu.Info, n)
	for i := range devices {
		devices[i] = transporttest.Require(t, host.Driver(), 1)[0]
	}
	return devices
}

func subject(t *testing.T, ranks int, o rdma.Options) transporttest.Subject {
	t.Helper()
	s := transporttest.Subject{Arm: transporttest.Arm(t, "rdma", o), Devices: cpus(t, ranks)}
	for r := range ranks {
		s.Ranks = append(s.Ranks, r)
	}
	return s
}

// fake gives workers the fake library, with these faults.
func fake(t *testing.T, faults string) {
	t.Helper()
	t.Setenv("P2PBENCH_LIBIBVERBS", verbstest.Build(t))
	t.Setenv("FAKEVERBS_FAULT", faults)
}

// unready makes the fake count how many messages met no receive by the fault rnr, and returns a function that tells.
func unready(t *testing.T) func() int {
	t.Helper()
	env, count := verbstest.Log(t)
	name, value, _ := strings.Cut(env[0], "=")
	t.Setenv(name, value)
	return func() int {
		_, made := count()
		return made["rnr"]
	}
}

// forms are the ways of the transport that the suite is run on.
var forms = map[string]rdma.Options{
	"alone":           {Conns: 1, Back: true},
	"unshared":        {Conns: 4, QPs: 4, Back: true},
	"shared":          {Conns: 16, Groups: 4, Back: true},
	"one for all":     {Conns: 5, Groups: 1, Depth: 2, QPs: 3, Window: 3, SignalEvery: 7, Close: rdma.FIFO, Back: true},
	"pre-granted":     {Conns: 6, Groups: 3, QPs: 2, CTS: rdma.CTSPreGranted, SignalEvery: 4, Close: rdma.Random, Back: true},
	"write, then imm": {Conns: 4, Groups: 2, Completion: rdma.WriteThenImm, Window: 2, Back: true},
	"routed by order": {Conns: 3, QPs: 3, Route: rdma.RouteFIFO, Back: true},
	"order, unasked":  {Conns: 3, QPs: 2, Route: rdma.RouteFIFO, CTS: rdma.CTSPreGranted, Back: true},
	"nothing inlined": {Conns: 4, Groups: 2, Inline: new(int), Back: true},
	"one at a time":   {Conns: 4, Groups: 2, Window: 1, Back: true},
	"as many as go":   {Conns: 1, Window: rdma.Requests, SignalEvery: 64, Back: true},
	"in memory":       {Conns: 4, QPs: 3, Completion: rdma.InMemory, SignalEvery: 4, Back: true},
	"shared, memory":  {Conns: 6, Groups: 2, QPs: 2, Completion: rdma.InMemory, Burst: 3, Back: true},
	"memory, burst":   {Conns: 1, Completion: rdma.InMemory, Burst: rdma.MaxBurst, Inline: new(int), Back: true},
	"burst":           {Conns: 3, Groups: 1, Burst: 4, Back: true},
	"burst, unasked":  {Conns: 2, Completion: rdma.WriteThenImm, CTS: rdma.CTSPreGranted, Burst: 5, Back: true},
}

// least is how many bytes a message must have.
func least(o rdma.Options) uint64 {
	if o.Completion == rdma.InMemory {
		return 1
	}
	return 0
}

func TestSuite(t *testing.T) {
	fake(t, "")
	for name, o := range forms {
		t.Run(name, func(t *testing.T) {
			s := subject(t, 2, o)
			s.MaxSize, s.MinSize = 1<<30, least(o) // of the fake's ports
			transporttest.Run(t, s)
		})
	}
}

// batch is a small one, fully checked.
func batch(op transport.Op, size uint64, window int) transport.Batch {
	return transport.Batch{Op: op, Size: size, Window: window, Warmup: 2, Iters: 5, Seed: 7, Check: transport.CheckFull}
}

const patience = 30 * time.Second

// team is workers that run a subject's batches until the test ends.
type team struct {
	ways  int // that carry messages in latency and stream
	paths []transport.Path
	run   func(ranks []int, b transport.Batch) (outcome, error)
	kill  func(rank int)
	close func() error
}

// outcome is a batch as all ranks saw it.
type outcome struct {
	samples  []int64
	checked  uint64
	counters map[string]uint64
	conns    []transport.ConnStat
}

func launch(t *testing.T, s transporttest.Subject, region uint64) team {
	t.Helper()
	w, err := try(t, s, region, patience)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// try is launch for workers that may fail to start, or have less patience.
func try(t *testing.T, s transporttest.Subject, region uint64, timeout time.Duration) (team, error) {
	t.Helper()
	workers, err := s.Launch(t, region, timeout)
	if err != nil {
		return team{}, err
	}
	w := team{
		ways: max(workers.Paths[0][0].Ways, 1), paths: workers.Paths[0], kill: workers.Kill, close: workers.Close,
		run: func(ranks []int, b transport.Batch) (outcome, error) {
			out, err := workers.Run(t.Context(), 0, ranks, b)
			return outcome{samples: out.Samples, checked: out.Checked, counters: out.Counters, conns: out.Conns}, err
		},
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w, nil
}

func (w team) all() []int {
	ranks := make([]int, len(w.paths))
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

// must runs a batch on all ranks: every sample is there, and every byte was compared.
func (w team) must(t *testing.T, b transport.Batch) outcome {
	t.Helper()
	out, err := w.run(w.all(), b)
	if err != nil {
		t.Fatalf("%+v: %v", b, err)
	}
	if len(out.samples) != b.Iters {
		t.Errorf("%+v: %d samples, want %d", b, len(out.samples), b.Iters)
	}
	ways := w.ways
	if b.Op == transport.OpBidir || b.Op == transport.OpPingPong {
		ways = 2
	}
	if want := uint64((b.Warmup+b.Iters)*b.Window*ways) * b.Size; b.Check == transport.CheckFull && out.checked != want {
		t.Errorf("%+v: %d payload bytes were checked, want %d", b, out.checked, want)
	}
	return out
}
