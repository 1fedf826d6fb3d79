package memcpy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/fault"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/memcpy"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// twice runs a batch of one message and then another one on a device that commits the fault.
func twice(t *testing.T, f fault.Fault, first, second transport.Batch) error {
	t.Helper()
	infos := transporttest.Require(t, host.Driver(), 1)
	device, err := host.Driver().Open(infos[0].UUID)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, device)
	page, err := abi.NewPage(1)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, page)
	wait := abi.NewCtx(page, 0, time.Minute, false)
	defer wait.Close()
	tr, err := memcpy.New(memcpy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ep, err := tr.Open(t.Context(), transport.Env{
		Devices: []gpu.Info{infos[0], infos[0]}, Device: fault.Wrap(device, f), Wait: wait, CPUs: []int{-1, -1},
		Region: first.Region(), Timeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, ep)
	if err := ep.Connect(t.Context(), make([][]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := ep.Run(t.Context(), first, make([]int64, 1)); err != nil {
		t.Fatalf("the first batch: %v", err)
	}
	_, err = ep.Run(t.Context(), second, make([]int64, 1))
	return err
}

// What an earlier cell left in the buffers never passes for a message of a later one, of the same size and number, even
// where nothing is written over it.
func TestStaleData(t *testing.T) {
	latency := transport.Batch{Op: transport.OpLatency, Size: 4096, Window: 1, Iters: 1, Seed: 1, Check: transport.CheckFull}
	stream, later := latency, latency
	stream.Op, later.Cell = transport.OpStream, 1
	stale := fault.Fault{What: fault.Stale, Copy: 1} // each engine fills once, in the first batch
	for name, c := range map[string]struct {
		second  transport.Batch
		corrupt bool
	}{
		"the same cell again, to show that its data stay": {latency, false},
		"another operation": {stream, true},
		"another cell":      {later, true},
	} {
		var corrupt *transport.CorruptError
		if err := twice(t, stale, latency, c.second); errors.As(err, &corrupt) != c.corrupt || !c.corrupt && err != nil {
			t.Errorf("%s: %v, corrupt %v", name, err, c.corrupt)
		}
	}
}

// A message that does not come is missed, although what was there before is the very same: the buffer was made to hold no
// message.
func TestMissingMessage(t *testing.T) {
	b := transport.Batch{Op: transport.OpLatency, Size: 4096, Window: 1, Iters: 1, Seed: 1, Check: transport.CheckFull}
	var corrupt *transport.CorruptError
	if err := twice(t, fault.Fault{What: fault.Drop, Copy: 1}, b, b); !errors.As(err, &corrupt) {
		t.Errorf("the second message was not copied, and nobody noticed: %v", err)
	}
	if err := twice(t, fault.Fault{What: fault.Drop, Copy: 2}, b, b); err != nil {
		t.Errorf("both were copied: %v", err)
	}
}
