package rdma_test

import (
	"fmt"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/rdmatest"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// TestHWSuite runs the suite on real verbs, on the form that has most to route and on one that has nothing to.
// TestHWForms runs them all, more briefly.
func TestHWSuite(t *testing.T) {
	rdmatest.Ports(t)
	for _, name := range []string{"shared", "shared, memory"} {
		t.Run(name, func(t *testing.T) {
			s := subject(t, 2, forms[name])
			most, _, err := forms[name].Largest(s.Devices)
			if err != nil {
				t.Fatal(err)
			}
			s.MaxSize, s.MinSize = most, least(forms[name])
			transporttest.Run(t, s)
		})
	}
}

// TestHWForms runs each form once, over one device and over two.
func TestHWForms(t *testing.T) {
	names := rdmatest.Ports(t)
	for name, o := range forms {
		for _, nics := range [][]string{names[:1], names} {
			t.Run(fmt.Sprintf("%s, %v", name, nics), func(t *testing.T) {
				o.NICs = nics
				w := launch(t, subject(t, 2, o), 1<<20)
				for i, op := range transport.Ops {
					window := 1
					if op == transport.OpStream || op == transport.OpBidir {
						window = 40
					}
					for k, size := range []uint64{8, 4097} {
						b := batch(op, size, window)
						b.First = uint64(20*i + 10*k)
						w.must(t, b)
					}
				}
			})
		}
	}
}

// TestHWFan runs fans, whose ranks share what ports there are.
func TestHWFan(t *testing.T) {
	rdmatest.Ports(t)
	for _, fan := range []rdma.Fan{rdma.FanOut, rdma.FanIn} {
		for _, name := range []string{"unshared", "shared"} {
			t.Run(fmt.Sprintf("%s, %s", fan, name), func(t *testing.T) {
				o := fanForms[name]
				o.Fan = fan
				w := launch(t, subject(t, 3, o), 1<<20)
				w.must(t, batch(transport.OpLatency, 64, 1))
				b := batch(transport.OpStream, 4097, 25)
				b.First = 10
				w.must(t, b)
			})
		}
	}
}

// TestHWAlwaysReady: what a receiver lets come finds a receive, also where there are no more receives than messages.
func TestHWAlwaysReady(t *testing.T) {
	rdmatest.Ports(t)
	for name, o := range map[string]rdma.Options{
		"one connection": {Conns: 1, Window: rdma.Requests, SignalEvery: 16},
		"several":        {Conns: 8, Groups: 1, Window: rdma.Requests / 8},
	} {
		t.Run(name, func(t *testing.T) {
			w := launch(t, subject(t, 2, o), 3000*512)
			out := w.must(t, batch(transport.OpStream, 64, 3000))
			rnr, counted := out.counters["rnr"]
			if rnr > 0 {
				t.Errorf("%d messages met no receive", rnr)
			}
			t.Logf("counted: %v", counted)
		})
	}
}

// TestHWLarge sends the largest messages that all devices take.
func TestHWLarge(t *testing.T) {
	rdmatest.Ports(t)
	b := batch(transport.OpStream, 8<<20, 2)
	b.Iters = 2
	launch(t, subject(t, 2, rdma.Options{Conns: 2}), b.Region()).must(t, b)
}
