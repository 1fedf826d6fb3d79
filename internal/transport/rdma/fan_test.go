package rdma_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/rdmatest"
)

// fanForms are the ways in which fans differ from pairs: which queue pairs serve which peers, and who lets messages
// come.
var fanForms = map[string]rdma.Options{
	"unshared":        {Conns: 3, QPs: 2},
	"shared":          {Conns: 6, Groups: 2, SignalEvery: 5},
	"pre-granted":     {Conns: 4, Groups: 1, CTS: rdma.CTSPreGranted},
	"routed by order": {Conns: 2, QPs: 3, Route: rdma.RouteFIFO, Completion: rdma.WriteThenImm},
	"in memory":       {Conns: 3, Groups: 2, QPs: 2, Completion: rdma.InMemory, SignalEvery: 3},
	"burst":           {Conns: 2, Burst: 3},
	"memory, burst":   {Conns: 2, Completion: rdma.InMemory, Burst: 4},
}

// TestFan: one rank sends to all others, or they to it, and every byte is the right one of the right rank.
func TestFan(t *testing.T) {
	fake(t, "")
	for _, fan := range []rdma.Fan{rdma.FanOut, rdma.FanIn} {
		for _, ranks := range []int{3, 4} {
			for name, o := range fanForms {
				t.Run(fmt.Sprintf("%s, %d ranks, %s", fan, ranks, name), func(t *testing.T) {
					o.Fan = fan
					s := subject(t, ranks, o)
					w := launch(t, s, 1<<20)
					if w.ways != ranks-1 {
						t.Errorf("%d ways", w.ways)
					}
					for i, size := range []uint64{0, 1, 64, 4097, 30000} {
						if size < least(o) {
							continue
						}
						b := batch(transport.OpLatency, size, 1)
						b.First = uint64(20 * i)
						w.must(t, b)
						b.Op, b.Window, b.First = transport.OpStream, 25, b.First+10
						w.must(t, b)
					}
				})
			}
		}
	}
}

// TestFanShares: every rank's connections carry its messages, evenly.
func TestFanShares(t *testing.T) {
	fake(t, "")
	for fan, senders := range map[rdma.Fan][]int{rdma.FanOut: {0}, rdma.FanIn: {1, 2, 3}} {
		t.Run(string(fan), func(t *testing.T) {
			w := launch(t, subject(t, 4, rdma.Options{Conns: 4, Groups: 2, Fan: fan}), 1<<20)
			b := batch(transport.OpStream, 64, 24)
			out := w.must(t, b)
			got, want := map[int]uint64{}, map[int]uint64{}
			for _, c := range out.conns {
				got[c.Rank] += c.Messages
				if c.Messages != 24/4*uint64(b.Iters) {
					t.Errorf("connection %d of rank %d had %d messages", c.Conn, c.Rank, c.Messages)
				}
			}
			for _, r := range senders {
				want[r] = uint64(24*b.Iters*3) / uint64(len(senders))
			}
			if !maps.Equal(got, want) {
				t.Errorf("messages by rank: %v, want %v", got, want)
			}
			if out.counters["messages"] != 3*24*7 || out.counters["misroutes"] != 0 {
				t.Errorf("%v", out.counters)
			}
		})
	}
}

// TestOneAddress: several processes behind one address send to one rank, and none takes another's for its own.
func TestOneAddress(t *testing.T) {
	fake(t, "")
	for name, nics := range map[string][]string{"to another": {"fake1", "fake0", "fake0", "fake0"}, "to itself": {"fake0"}} {
		for _, groups := range []int{0, 1, 2} {
			t.Run(fmt.Sprintf("%s, groups %d", name, groups), func(t *testing.T) {
				w := launch(t, subject(t, 4, rdma.Options{Conns: 4, Groups: groups, Fan: rdma.FanIn, NICs: nics}), 1<<20)
				for i := range 3 {
					b := batch(transport.OpStream, 5000, 20)
					b.First = uint64(10 * i)
					out := w.must(t, b)
					want := uint64(3 * 4) // no process shares with another
					if groups > 0 {
						want = uint64(3 * groups)
					}
					if out.counters["qps"] != want || out.counters["misroutes"] != 0 {
						t.Errorf("%v, want %d queue pairs", out.counters, want)
					}
				}
			})
		}
	}
}

// TestFanCorruption: a byte that is wrong is found, in whichever rank's message it is.
func TestFanCorruption(t *testing.T) {
	for _, fan := range []rdma.Fan{rdma.FanOut, rdma.FanIn} {
		for sender := range 3 {
			if (fan == rdma.FanOut) != (sender == 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s, rank %d", fan, sender), func(t *testing.T) {
				rdmatest.OnFake(t, "", func(t *testing.T) {
					const window, iter, message, offset = 6, 3, 4, 77
					o := rdma.Options{Conns: 2, Groups: 1, Fan: fan}
					ranks := gather(t, 3, o, 1<<16, map[int]string{sender: fmt.Sprintf("flip=%d:%d", iter*window+message, offset)})
					b := batch(transport.OpStream, 1000, window)
					b.First = 10
					err := together(t, ranks, b, true)
					var corrupt *transport.CorruptError
					if !errors.As(err, &corrupt) {
						t.Fatalf("it went unnoticed: %v", err)
					}
					if corrupt.Iteration != b.First+iter || corrupt.Slot != message || corrupt.Offset != offset || corrupt.Count != 1 {
						t.Errorf("%+v", corrupt)
					}
				})
			})
		}
	}
}

// TestFanOneWay: fans have no operations both ways.
func TestFanOneWay(t *testing.T) {
	fake(t, "")
	for _, op := range []transport.Op{transport.OpBidir, transport.OpPingPong} {
		w := launch(t, subject(t, 3, rdma.Options{Fan: rdma.FanOut}), 1<<20)
		_, err := w.run(w.all(), batch(op, 64, 1))
		says(t, err, "rdma: run: ", string(op), "no connections from rank 1 to rank 0")
	}
}
