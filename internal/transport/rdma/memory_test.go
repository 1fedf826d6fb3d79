package rdma_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/rdmatest"
)

// TestNothingToReceive: what befalls immediate data, or messages that find no receive, does not befall messages that
// are seen in memory.
func TestNothingToReceive(t *testing.T) {
	for _, faults := range []string{"fake0/drop-imm=1,fake1/drop-imm=1", "rnr=3"} {
		t.Run(faults, func(t *testing.T) {
			fake(t, faults)
			met := unready(t)
			w := launch(t, subject(t, 2, rdma.Options{Conns: 4, Groups: 2, Completion: rdma.InMemory, Back: true}), 1<<20)
			for i, op := range transport.Ops {
				b := batch(op, 64, 1)
				if op == transport.OpStream || op == transport.OpBidir {
					b.Window = 50
				}
				b.First = uint64(10 * i)
				if out := w.must(t, b); out.counters["grants"] != 0 {
					t.Errorf("%s: %d grants", op, out.counters["grants"])
				}
			}
			if n := met(); n != 0 {
				t.Errorf("%d messages wanted a receive", n)
			}
			if knobs := w.paths[0].Knobs; knobs["route"] != "none" || knobs["cts"] != "pre-granted" || w.paths[0].Path != "memory" {
				t.Errorf("path %s, %v", w.paths[0].Path, knobs)
			}
		})
	}
}

// TestNothingToSee: a message without bytes, and memory that the CPU does not see, are refused.
func TestNothingToSee(t *testing.T) {
	rdmatest.OnFake(t, "", func(t *testing.T) {
		o := rdma.Options{Conns: 1, Completion: rdma.InMemory}
		ranks := gather(t, 2, o, 4096, nil)
		for _, r := range ranks {
			r.one(t, batch(transport.OpLatency, 0, 1))
			says(t, r.err, "a message of 0 bytes", "use --completion write-imm")
			if !errors.Is(r.err, abi.ErrInvalid) {
				t.Error(r.err)
			}
		}
		path, err := rdma.New(o)
		if err != nil {
			t.Fatal(err)
		}
		devices := cpus(t, 2)
		devices[1].Kind = "cuda"
		err = path.Probe(devices)
		says(t, err, "rank 1: --completion memory", "cuda device", "use --completion write-imm")
		if !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("%v does not say that this machine cannot", err)
		}
	})
}

// TestBurstHasOneCredit: the receiver lets the messages of a burst come all at once. Its device has a word to write for
// each burst, and fails where it has one to write for each sample.
func TestBurstHasOneCredit(t *testing.T) {
	for _, notify := range []rdma.Completion{rdma.WriteImm, rdma.InMemory} {
		for _, burst := range []int{1, 25} {
			t.Run(fmt.Sprintf("%s, %d", notify, burst), func(t *testing.T) {
				fake(t, "fake1/removed-after=150")
				o := rdma.Options{Conns: 2, Completion: notify, CTS: rdma.CTSPreGranted, Burst: burst, Back: true}
				w := launch(t, subject(t, 2, o), 1<<20)
				b := batch(transport.OpPingPong, 64, 1)
				b.Iters = 100
				if burst > 1 {
					w.must(t, b)
				} else if _, err := w.run(w.all(), b); err == nil {
					t.Error("the ranks did not meet for each sample")
				}
			})
		}
	}
}

// TestSilence: however few work requests report their completion, full windows open again and samples end.
func TestSilence(t *testing.T) {
	rdmatest.OnFake(t, "", func(t *testing.T) {
		for _, notify := range []rdma.Completion{rdma.WriteImm, rdma.WriteThenImm, rdma.InMemory} {
			for _, every := range []int{1, 3, 16, rdma.Requests} {
				for _, form := range []rdma.Options{
					{Conns: 1, Window: 1},
					{Conns: 1, QPs: 5, Window: 3},
					{Conns: 1, QPs: 4, Window: 128},
					{Conns: 3, Groups: 1, QPs: 2, Window: 7},
					{Conns: 8, Groups: 3, Window: 2},
				} {
					form.Completion, form.SignalEvery = notify, every
					t.Run(fmt.Sprintf("%s, %d conns, %d groups, %d qps, window %d, every %d", notify, form.Conns, form.Groups, form.QPs, form.Window, every), func(t *testing.T) {
						ranks := gather(t, 2, form, 1<<20, nil)
						for i, n := range []int{1, 2, 9, 400} {
							b := batch(transport.OpStream, 64, n)
							b.First = uint64(10 * i)
							if err := together(t, ranks, b, true); err != nil {
								t.Fatalf("%d messages: %v", n, err)
							}
						}
					})
				}
			}
		}
	})
}
