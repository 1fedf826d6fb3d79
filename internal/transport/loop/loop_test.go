package loop_test

import (
	"errors"
	"reflect"
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
