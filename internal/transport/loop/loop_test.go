package loop_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/loop"
	"github.com/p2pbench/p2pbench/internal/transport/loop/looptest"
)

// A batch that would write beyond its buffers, or that makes no sense, never reaches C.
func TestPrepare(t *testing.T) {
	good := transport.Batch{Op: transport.OpStream, Size: 1000, Offset: 24, Window: 4, Iters: 10, Check: transport.CheckFull}
	for name, c := range map[string]struct {
		change  func(*transport.Batch)
		region  uint64
		records bool
		room    int
		want    string // "": accepted
	}{
		"as it should be":         {nil, 4120, false, 10, ""},
		"room to spare":           {nil, 1 << 20, true, 100, ""},
		"a byte too much":         {nil, 4119, false, 10, "4120 bytes needed, 4119 allocated"},
		"no bytes":                {func(b *transport.Batch) { b.Size, b.Offset = 0, 0 }, 0, false, 10, ""},
		"no room for the samples": {nil, 4120, false, 9, "room for 9 samples, 10 wanted"},
		"unknown operation":       {func(b *transport.Batch) { b.Op = "sideways" }, 4120, false, 10, `no operation "sideways"`},
		"unknown check":           {func(b *transport.Batch) { b.Check = "maybe" }, 4120, false, 10, `no check "maybe"`},
		"no check at all":         {func(b *transport.Batch) { b.Check = "" }, 4120, false, 10, `no check ""`},
		"no window":               {func(b *transport.Batch) { b.Window = 0 }, 4120, false, 10, "window 0"},
		"negative window":         {func(b *transport.Batch) { b.Window = -1 }, 4120, false, 10, "window -1"},
		"no iterations":           {func(b *transport.Batch) { b.Iters = 0 }, 4120, false, 10, "0 iterations"},
		"negative warm-up":        {func(b *transport.Batch) { b.Warmup = -1 }, 4120, false, 10, "-1 warm-up"},
		"latency with a window":   {func(b *transport.Batch) { b.Op = transport.OpLatency }, 4120, false, 10, "latency has one message in flight, not 4"},
		"pingpong with a window":  {func(b *transport.Batch) { b.Op = transport.OpPingPong }, 4120, false, 10, "pingpong has one message in flight, not 4"},
		"a graph":                 {func(b *transport.Batch) { b.Graph = true }, 4120, true, 10, ""},
		"a graph without graphs":  {func(b *transport.Batch) { b.Graph = true }, 4120, false, 10, "cannot record a window"},
		"a region that wraps":     {func(b *transport.Batch) { b.Size = 1 << 62 }, 4120, false, 10, "bytes needed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := good
			if c.change != nil {
				c.change(&b)
			}
			call, err := loop.Prepare(b, c.region, c.records, make([]int64, c.room))
			if c.want == "" {
				if err != nil || call == nil || call.Batch() == nil || call.Result() == nil || call.Error() == nil {
					t.Fatalf("%v, %v", call, err)
				}
				if res, err := call.Outcome("ipc"); err != nil || !reflect.DeepEqual(res, transport.Result{}) {
					t.Errorf("before it ran: %+v, %v", res, err)
				}
				return
			}
			if !errors.Is(err, abi.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A clock that shows an earlier time after a message than before it is an error, and no sample of 2^64 ns.
func TestClockThatGoesBackwards(t *testing.T) {
	b := transport.Batch{Op: transport.OpLatency, Size: 8, Window: 1, Iters: 2, Check: transport.CheckOff}
	for _, c := range []struct {
		times []uint64
		good  bool
	}{
		{[]uint64{1000, 1200, 1300, 1300}, true},
		{[]uint64{1000, 1200, 1300, 1299}, false},
		{[]uint64{1000, 10, 1300, 1400}, false},
	} {
		samples := make([]int64, b.Iters)
		call, err := loop.Prepare(b, 512, false, samples)
		if err != nil {
			t.Fatal(err)
		}
		looptest.Take(call, samples, c.times...)
		_, err = call.Outcome("ipc")
		if c.good && (err != nil || samples[0] != 200 || samples[1] != 0) {
			t.Errorf("%v: %v, %v", c.times, samples, err)
		}
		if !c.good && (!errors.Is(err, abi.ErrDevice) || !strings.Contains(err.Error(), "the clock went backwards")) {
			t.Errorf("%v: %v, samples %v; want an error that says so", c.times, err, samples)
		}
	}
}

// What is in a sample and what is not: a transfer takes 2 ns, an acknowledgement 10, the wait for one 100, and everything
// that does not belong to a sample 1,000.
func TestSample(t *testing.T) {
	const set, payload = "bind poison fill record ", "fill leave "
	for name, c := range map[string]struct {
		op     transport.Op
		timing int
		role   int
		want   []int64
		steps  string
	}{
		"latency, sender": {
			transport.OpLatency, looptest.Acknowledged, looptest.Send,
			[]int64{102},
			"bind fill record begin fill leave await_credit transfer await_ack cleanup",
		},
		"latency, receiver": {
			transport.OpLatency, looptest.Acknowledged, looptest.Receive, nil,
			"bind poison record begin credit transfer acknowledge cleanup verify",
		},
		"bidir": {
			transport.OpBidir, looptest.Acknowledged, looptest.Exchange,
			[]int64{112},
			set + "begin " + payload + "credit await_credit transfer acknowledge await_ack cleanup verify",
		},
		"pingpong, rank 0": {
			transport.OpPingPong, looptest.Acknowledged, looptest.Ping,
			[]int64{1},
			set + "begin " + payload + "credit await_credit transfer acknowledge cleanup verify",
		},
		"pingpong, rank 1": {
			transport.OpPingPong, looptest.Acknowledged, looptest.Pong, nil,
			set + "begin " + payload + "credit await_credit transfer await_ack cleanup verify",
		},
		"each its own, sender":      {transport.OpStream, looptest.Unacknowledged, looptest.Send, []int64{2}, "bind fill record fill leave transfer cleanup"},
		"each its own, receiver":    {transport.OpStream, looptest.Unacknowledged, looptest.Receive, []int64{2}, "bind poison record transfer cleanup verify"},
		"each its own, rank 1 pong": {transport.OpPingPong, looptest.Unacknowledged, looptest.Pong, nil, set + payload + "transfer cleanup verify"},
		"device, receiver": {
			transport.OpStream, looptest.Device, looptest.Receive,
			[]int64{70},
			"bind poison record await event0 enqueue0 event1 await event0 enqueue1 event1 wait wait cleanup verify",
		},
		"device, pingpong": {
			transport.OpPingPong, looptest.Device, looptest.Ping,
			[]int64{35},
			set + payload + "await event0 enqueue0 event1 await event0 enqueue1 event1 wait wait cleanup verify",
		},
		"burst of three": {
			transport.OpBidir, looptest.Bursts, looptest.Exchange,
			[]int64{40, 41, 42},
			set + "begin fill fill fill leave leave leave transfer cleanup verify verify verify",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := transport.Batch{Op: c.op, Size: 8, Window: 1, Iters: max(len(c.want), 1), Check: transport.CheckSample}
			samples := make([]int64, b.Iters)
			call, err := loop.Prepare(b, 512, false, samples)
			if err != nil {
				t.Fatal(err)
			}
			steps := looptest.Run(call, c.timing, c.role, "", samples).Steps
			if steps != c.steps {
				t.Errorf("steps:\n%s\nwant:\n%s", steps, c.steps)
			}
			r, err := call.Outcome("path")
			if err != nil || !slices.Equal(samples[:r.Samples], c.want) {
				t.Errorf("samples %v, %v; want %v", samples[:r.Samples], err, c.want)
			}
		})
	}
}

// A step that fails is the last one, and no queue is left waiting for a host that will not come to release it.
func TestStepThatFails(t *testing.T) {
	for _, c := range []struct {
		timing      int
		fails, last string
	}{
		{looptest.Acknowledged, "poison", "poison"},
		{looptest.Acknowledged, "record", "record"},
		{looptest.Acknowledged, "await_credit", "await_credit"},
		{looptest.Acknowledged, "transfer", "transfer"},
		{looptest.Acknowledged, "acknowledge", "acknowledge"},
		{looptest.Acknowledged, "cleanup", "cleanup"},
		{looptest.Acknowledged, "verify", "verify"},
		{looptest.Device, "enqueue1", "enqueue1"},
		{looptest.Device, "event1", "event1"},
		{looptest.Device, "wait", "wait"},
	} {
		b := transport.Batch{Op: transport.OpBidir, Size: 8, Window: 1, Iters: 2, Check: transport.CheckFull}
		samples := make([]int64, b.Iters)
		call, err := loop.Prepare(b, 512, false, samples)
		if err != nil {
			t.Fatal(err)
		}
		out := looptest.Run(call, c.timing, looptest.Exchange, c.fails, samples)
		steps := strings.Fields(out.Steps)
		if slices.Index(steps, c.last) != len(steps)-1 || !out.Released {
			t.Errorf("%s fails: %+v", c.fails, out)
		}
		if _, err := call.Outcome("path"); !errors.Is(err, abi.ErrDevice) {
			t.Errorf("%s fails: %v", c.fails, err)
		}
	}
}

// Without checks nothing is written between samples, and nothing compared.
func TestCheckOff(t *testing.T) {
	b := transport.Batch{Op: transport.OpBidir, Size: 8, Window: 1, Iters: 1, Check: transport.CheckOff}
	samples := make([]int64, b.Iters)
	call, err := loop.Prepare(b, 512, false, samples)
	if err != nil {
		t.Fatal(err)
	}
	const want = "bind fill record begin leave credit await_credit transfer acknowledge await_ack cleanup"
	if out := looptest.Run(call, looptest.Acknowledged, looptest.Exchange, "", samples); out.Steps != want {
		t.Errorf("steps:\n%s\nwant:\n%s", out.Steps, want)
	}
}

// Whatever its role, a rank is seen to prepare while it writes the first payloads, which may be gigabytes, and then to
// time.
func TestPhases(t *testing.T) {
	for _, c := range []struct {
		role  int
		fails string
		want  abi.Phase
	}{
		{looptest.Send, "fill", abi.PhasePrepare},
		{looptest.Receive, "poison", abi.PhasePrepare},
		{looptest.Exchange, "record", abi.PhasePrepare},
		{looptest.Send, "transfer", abi.PhaseTimed},
		{looptest.Exchange, "verify", abi.PhaseTimed},
		{looptest.Receive, "", abi.PhaseIdle},
	} {
		b := transport.Batch{Op: transport.OpBidir, Size: 8, Window: 1, Iters: 1, Check: transport.CheckSample}
		samples := make([]int64, b.Iters)
		call, err := loop.Prepare(b, 512, false, samples)
		if err != nil {
			t.Fatal(err)
		}
		if out := looptest.Run(call, looptest.Acknowledged, c.role, c.fails, samples); out.Phase != c.want {
			t.Errorf("role %d, %q fails: phase %v, want %v", c.role, c.fails, out.Phase, c.want)
		}
	}
}
