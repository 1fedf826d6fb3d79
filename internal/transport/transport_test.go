package transport_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport"
)

// Messages of a window have a stride that is a multiple of 512 bytes and do not overlap; the region holds all of them.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		size, offset   uint64
		window         int
		stride, region uint64
	}{
		{0, 0, 1, 0, 0},
		{0, 7, 8, 0, 7},
		{1, 0, 1, 512, 512},
		{512, 0, 8, 512, 4096},
		{513, 0, 2, 1024, 2048},
		{513, 13, 2, 1024, 2061},
		{1 << 30, 1, 3, 1 << 30, 3<<30 + 1},
		{4<<30 + 1, 0, 2, 4<<30 + 512, 8<<30 + 1024},
		{100, 0, 0, 512, 512}, // a batch without a window
	} {
		b := transport.Batch{Size: c.size, Offset: c.offset, Window: c.window}
		if b.Stride() != c.stride || b.Region() != c.region {
			t.Errorf("%+v: stride %d, region %d; want %d, %d", b, b.Stride(), b.Region(), c.stride, c.region)
		}
		if b.Stride() < b.Size {
			t.Errorf("%+v: messages overlap", b)
		}
	}
}

// The error of exit code 5 names the place of the wrong byte in one line.
func TestCorruptError(t *testing.T) {
	e := &transport.CorruptError{
		Path: "ipc direct/ce", Op: transport.OpStream, Size: 4096, Iteration: 17, Slot: 3, Offset: 100, Expected: 0x0f, Got: 0xa0, Count: 2,
	}
	want := "data corruption: ipc direct/ce stream, size 4096, iteration 17, message 3: offset 100 expected 0x0f, got 0xa0 (2 bytes wrong)"
	if e.Error() != want {
		t.Errorf("got %q, want %q", e, want)
	}
}

// A batch survives encoding as JSON, with the largest values.
func TestBatchCrosses(t *testing.T) {
	b := transport.Batch{
		Op: transport.OpBidir, Size: 1<<64 - 1, Offset: 1<<63 + 1, Window: 3, Warmup: 4, Iters: 5, First: 1<<53 + 1, Seed: 1<<64 - 1,
		Check: transport.CheckSample, Graph: true, Barrier: 7,
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var back transport.Batch
	if err := json.Unmarshal(text, &back); err != nil || back != b {
		t.Errorf("%s becomes %+v, %v", text, back, err)
	}
	if strings.Contains(string(text), "null") {
		t.Errorf("%s", text)
	}
}

func TestOps(t *testing.T) {
	want := []transport.Op{"latency", "stream", "bidir", "pingpong"} // as users type them, and as tables show them
	if !slices.Equal(transport.Ops, want) {
		t.Errorf("%v, want %v", transport.Ops, want)
	}
}
