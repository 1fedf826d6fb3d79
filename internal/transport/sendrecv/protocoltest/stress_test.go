package protocoltest_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	pt "github.com/p2pbench/p2pbench/internal/transport/sendrecv/protocoltest"
)

const (
	windowBytes = 6  // of a fuzzer's input that say what a window is
	planBytes   = 11 // and of those in front of the first one
	patience    = 60 * time.Second
)

var (
	directions = []sides{bothWays, forwards, backwards, pingPong}
	strides    = []uint32{pt.Grain, 2 * pt.Grain, pt.Grain / 8, pt.Grain + 48, 3 * pt.Grain, 8 * pt.Grain, 40, 16 * pt.Grain}
	starts     = []uint64{0, 1<<32 - 5, 2*flagWraps - 9, 1<<40 + 3}
)

// size is a message of none to a few grains a block, often a byte more or less than some.
func size(ctas uint32, b, c byte) uint32 {
	grains := uint32(b) % (3*ctas + 2)
	switch c % 4 {
	case 0:
		return grains * pt.Grain
	case 1:
		return grains*pt.Grain + 1
	case 2:
		return max(grains*pt.Grain, 1) - 1
	default:
		return grains*pt.Grain + uint32(c)
	}
}

// windowOf is the window that so many bytes say.
func windowOf(b []byte) []pt.Launch {
	ctas := 1 + uint32(b[1])%4
	d := directions[b[0]/3%4]
	n := 1 + uint32(b[1])/4%4
	bytes := size(ctas, b[2], b[3])
	switch pt.Variant(b[0] % 3) {
	case pt.Put:
		return window(n, d.put(bytes, ctas))
	case pt.LL:
		if b[4]%2 == 1 {
			return window(n, d.ll128(bytes, ctas))
		}
		return window(n, d.ll(bytes, ctas))
	default:
		return window(n, d.staged(bytes, ctas, strides[b[4]%8], 1+uint32(b[5])%4))
	}
}

// planOfBytes is what a fuzzer's input says: a window after the other, or, for a resident kernel, one again and again.
func planOfBytes(data []byte) (pt.Plan, bool) {
	if len(data) < planBytes+windowBytes {
		return pt.Plan{}, false
	}
	p := pt.Plan{
		Threads: 1 + int(data[0])%3, Skew: int(data[1]) % 8, Timeout: patience,
		Start: starts[data[2]%4] + binary.LittleEndian.Uint64(data[3:])%16,
	}
	var windows [][]pt.Launch
	for rest := data[planBytes:]; len(rest) >= windowBytes && len(windows) < 64; rest = rest[windowBytes:] {
		windows = append(windows, windowOf(rest))
	}
	if data[2]&128 == 0 {
		p.Launches = drained(windows...)
		return p, true
	}
	p.Launches = drained(times(len(windows), windows[0]))
	return resident(p), true
}

func describe(p pt.Plan) string {
	s := fmt.Sprintf("%d threads a role, skew %d, start %d, resident %v:\n", p.Threads, p.Skew, p.Start, p.Resident)
	for i, l := range p.Launches {
		s += fmt.Sprintf("%3d: %s, %d bytes, %d blocks, stride %d, %d stages, slot %d, %+v\n", i, l.Variant, l.Bytes, l.CTAs,
			l.Stride, l.Stages, l.Slot, l.Side)
	}
	return s
}

// TestRandomConfigurations passes messages of all kinds in a row between threads: by seeds that are always the same, and
// by one that is not.
func TestRandomConfigurations(t *testing.T) {
	messages := uint64(0)
	for _, seed := range []uint64{1, 2, rand.Uint64()} {
		random := rand.New(rand.NewPCG(seed, 0))
		t.Logf("seed %d", seed)
		for range 20 {
			data := make([]byte, planBytes+32*windowBytes)
			for i := range data {
				data[i] = byte(random.Uint32())
			}
			p, _ := planOfBytes(data)
			r := pt.Stress(p)
			if r.Failed != "" {
				t.Fatalf("seed %d: %s, in\n%s", seed, r.Failed, describe(p))
			}
			messages += r.Messages
		}
	}
	t.Logf("%d messages", messages)
}

func FuzzConfigurations(f *testing.F) {
	header := func(threads, skew, start byte) []byte {
		return append([]byte{threads, skew, start}, make([]byte, 8)...)
	}
	for _, seed := range [][]byte{
		append(header(0, 0, 0), 0, 0, 1, 0, 0, 0),                                        // one staged message both ways
		append(header(1, 3, 1), 0, 1, 5, 1, 0, 0, 0, 1, 5, 1, 4, 2, 3, 3, 9, 0, 1, 1),    // other strides, other blocks
		append(header(2, 0, 129), 1, 13, 4, 2, 0, 0, 1, 1, 1, 1, 1, 1),                   // resident put
		append(header(0, 1, 1), 2, 3, 3, 3, 0, 0, 5, 3, 1, 1, 0, 0, 8, 1, 2, 2, 0, 0),    // lines past their flags' wrap
		append(header(1, 7, 2), 0, 3, 7, 1, 1, 1, 1, 3, 7, 1, 1, 1, 2, 3, 7, 1, 1, 1),    // all variants
		append(header(0, 0, 0), 9, 1, 6, 0, 0, 1, 10, 1, 6, 0, 0, 1, 11, 1, 6, 0, 0, 1),  // ping-pong
		append(header(0, 2, 3), 3, 0, 4, 3, 2, 0, 6, 0, 4, 3, 3, 0, 0, 0, 4, 3, 5, 1, 0), // there, back, both ways
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, ok := planOfBytes(data)
		if !ok {
			t.Skip("too short for a window")
		}
		if r := pt.Stress(p); r.Failed != "" {
			t.Fatalf("%s, in\n%s", r.Failed, describe(p))
		}
	})
}
