package rdma_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/rdmatest"
)

// inWords names a test by its options.
func inWords(o rdma.Options) string {
	b, _ := json.Marshal(o) // cannot fail: numbers and strings only
	return strings.NewReplacer(`"`, "", ":", " ", "{", "", "}", "").Replace(string(b))
}

// TestHeld: what connections hold of a device, shared and not.
func TestHeld(t *testing.T) {
	fake(t, "")
	for _, c := range []struct {
		o                rdma.Options
		qps, cqs, comms  uint64
		sends, receives  uint64 // of a queue pair
		cqe              uint64 // of a completion queue
		mrs              uint64
		sharing          bool
		grants, messages uint64
	}{
		{rdma.Options{Conns: 16, QPs: 4}, 64, 16, 16, 512, 256, 3072, 2, false, 7 * 48, 7 * 48},
		{rdma.Options{Conns: 16, QPs: 1}, 16, 16, 16, 512, 256, 768, 2, false, 7 * 48, 7 * 48},
		{rdma.Options{Conns: 16, Groups: 4, Depth: 2}, 4, 4, 16, 1024, 512, 1536, 2, true, 7 * 48, 7 * 48},
		{rdma.Options{Conns: 16, Groups: 16}, 16, 16, 16, 512, 256, 768, 2, false, 7 * 48, 7 * 48},
		{rdma.Options{Conns: 16, Groups: 1, QPs: 2}, 2, 1, 16, 512, 256, 1536, 2, true, 7 * 48, 7 * 48},
		{rdma.Options{Conns: 16, Groups: 3, CTS: rdma.CTSPreGranted}, 3, 3, 16, 512, 256, 768, 2, true, 0, 7 * 48},
		{rdma.Options{Conns: 16, Depth: 3}, 16, 16, 16, 1536, 768, 2304, 2, false, 7 * 48, 7 * 48},
		{rdma.Options{Conns: 4, Groups: 2, Back: true}, 4, 4, 8, 512, 256, 768, 3, true, 7 * 48, 7 * 48},
	} {
		t.Run(inWords(c.o), func(t *testing.T) {
			got := launch(t, subject(t, 2, c.o), 1<<20).must(t, batch(transport.OpStream, 256, 48)).counters
			for name, want := range map[string]uint64{
				"qps": c.qps, "cqs": c.cqs, "comms": c.comms, "misroutes": 0, "grants": c.grants, "messages": c.messages,
				"mrs": c.mrs, "inline": 64,
				"queue_bytes": c.qps*(64*c.sends+16*c.receives) + c.cqs*64*c.cqe,
			} {
				if v, ok := got[name]; !ok || v != want {
					t.Errorf("%s %d, want %d", name, v, want)
				}
			}
			if _, ok := got["setup_shared_ns"]; ok != c.sharing || got["setup_ns"] == 0 {
				t.Errorf("set-up %d ns, shared %d ns (%v)", got["setup_ns"], got["setup_shared_ns"], ok)
			}
		})
	}
}

// TestConnections: each connection has its share of the messages, and says how long they took.
func TestConnections(t *testing.T) {
	fake(t, "")
	for _, c := range []struct {
		o      rdma.Options
		op     transport.Op
		window int
		silent bool // some messages do not report their completion
	}{
		{rdma.Options{Conns: 16, Groups: 4}, transport.OpStream, 128, false},
		{rdma.Options{Conns: 16, QPs: 2}, transport.OpStream, 50, false},
		{rdma.Options{Conns: 5, Groups: 2, Completion: rdma.WriteThenImm}, transport.OpStream, 33, false},
		{rdma.Options{Conns: 4, CTS: rdma.CTSPreGranted, SignalEvery: 4}, transport.OpStream, 64, true},
		{rdma.Options{Conns: 3, Groups: 1, SignalEvery: 256}, transport.OpStream, 300, true},
		{rdma.Options{Conns: 4, Back: true}, transport.OpBidir, 42, false},
		{rdma.Options{Conns: 5}, transport.OpStream, 5, false},
		{rdma.Options{Conns: 3}, transport.OpLatency, 1, false},
	} {
		t.Run(fmt.Sprintf("%s, %s of %d", inWords(c.o), c.op, c.window), func(t *testing.T) {
			b := batch(c.op, 512, c.window)
			b.Iters = 12
			out := launch(t, subject(t, 2, c.o), b.Region()).must(t, b)
			total, most := int64(0), int64(0)
			for _, ns := range out.samples {
				total, most = total+ns, max(most, ns)
			}
			byRank := map[int]uint64{}
			for _, s := range out.conns {
				byRank[s.Rank] += s.Messages
				share := uint64(b.Iters * (c.window / c.o.Conns))
				if s.Conn < c.window%c.o.Conns {
					share += uint64(b.Iters)
				}
				if c.op == transport.OpLatency { // they take turns
					share = uint64(b.Iters / c.o.Conns)
				}
				if s.Messages != share {
					t.Errorf("rank %d, connection %d: %d messages, want %d", s.Rank, s.Conn, s.Messages, share)
				}
				if s.BusyNS <= 0 || s.Rank == 0 && c.op != transport.OpBidir && s.BusyNS > total {
					t.Errorf("rank %d, connection %d: busy for %d ns of %d", s.Rank, s.Conn, s.BusyNS, total)
				}
				reported, before, sum := uint64(0), int64(-1), int64(0)
				for _, bin := range s.Latency {
					if bin[0] <= before || bin[1] <= 0 || bin[0] > most+most/32+1 {
						t.Errorf("rank %d, connection %d: %d messages took %d ns, behind %d ns; the longest sample took %d ns",
							s.Rank, s.Conn, bin[1], bin[0], before, most)
					}
					reported, before, sum = reported+uint64(bin[1]), bin[0], sum+bin[0]*bin[1]
				}
				if c.window <= c.o.Conns && s.BusyNS < sum-sum/32 { // one message a sample
					t.Errorf("rank %d, connection %d: busy for %d ns, with messages of %d ns in all", s.Rank, s.Conn, s.BusyNS, sum)
				}
				if reported == 0 || reported > s.Messages || (reported < s.Messages) != c.silent {
					t.Errorf("rank %d, connection %d: %d of %d messages have a latency", s.Rank, s.Conn, reported, s.Messages)
				}
			}
			ranks := 1
			if c.op == transport.OpBidir {
				ranks = 2
			}
			if len(byRank) != ranks || byRank[0] != uint64(b.Iters*c.window) || byRank[ranks-1] != byRank[0] {
				t.Errorf("messages by rank: %v", byRank)
			}
		})
	}
}

// TestCloseOrder: connections that share nothing are closed in the order that was asked for.
func TestCloseOrder(t *testing.T) {
	for _, order := range []rdma.Order{rdma.LIFO, rdma.FIFO, rdma.Random} {
		t.Run(string(order), func(t *testing.T) {
			rdmatest.OnFake(t, "", func(t *testing.T) {
				r, err := newRig(t, 2, 2, 4096).open(t, 0, rdma.Options{Conns: 9, Close: order}, "")
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				text, err := os.ReadFile(os.Getenv("FAKEVERBS_LOG"))
				if err != nil {
					t.Fatal(err)
				}
				var made, closed []string
				for line := range strings.Lines(string(text)) {
					if number, ok := strings.CutPrefix(line, "+qp "); ok {
						made = append(made, number)
					} else if number, ok := strings.CutPrefix(line, "-qp "); ok {
						closed = append(closed, number)
					}
				}
				got := rdma.Random
				if slices.Equal(made, closed) {
					got = rdma.FIFO
				}
				slices.Reverse(closed)
				if slices.Equal(made, closed) {
					got = rdma.LIFO
				}
				if len(made) != 9 || got != order {
					t.Errorf("made %q, closed in reverse %q", made, closed)
				}
			})
		})
	}
}
