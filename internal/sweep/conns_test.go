package sweep

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// stat is a connection of a rank whose messages all took the same time.
func stat(rank, conn int, messages uint64, busyNS, each int64) transport.ConnStat {
	return transport.ConnStat{Rank: rank, Conn: conn, Messages: messages, BusyNS: busyNS, Latency: [][2]int64{{each, int64(messages)}}}
}

// The statistics of a connection are summed over the blocks of a cell. Connections are identified by rank and number,
// and those without messages are omitted.
func TestConnectionsOfBlocks(t *testing.T) {
	all := connections{}
	all.add([]transport.ConnStat{stat(1, 0, 100, 1000, 400), stat(0, 1, 98, 1000, 2000), stat(0, 0, 100, 1000, 1000), {Rank: 0, Conn: 2}})
	all.add([]transport.ConnStat{stat(0, 1, 2, 1000, 9000), stat(0, 0, 100, 1000, 3000)})
	conns, fairness := all.records(16)
	want := []record.Connection{
		{Rank: 0, Conn: 0, Messages: 200, P50: 1, P99: 3, Max: 3, GBps: us(1.6)},
		{Rank: 0, Conn: 1, Messages: 100, P50: 2, P99: 9, Max: 9, GBps: us(0.8)},
		{Rank: 1, Conn: 0, Messages: 100, P50: 0.4, P99: 0.4, Max: 0.4, GBps: us(1.6)},
	}
	if d := cmp.Diff(want, conns); d != "" {
		t.Errorf("want (-), got (+):\n%s", d)
	}
	if want := 25.0 / 27; !is(fairness, want) { // (2+1+2)² ÷ 3·(4+1+4)
		t.Errorf("fairness %v, want %v", show(fairness), want)
	}
	if conns, _ := all.records(0); conns[0].GBps != nil {
		t.Errorf("%v GB/s without bytes", *conns[0].GBps)
	}
}

// Percentiles are nearest-rank: of 100 messages the 99th, not the last.
func TestConnectionPercentiles(t *testing.T) {
	for tail, want := range map[int64]record.Connection{
		1: {Messages: 100, P50: 1, P99: 1, Max: 50},
		2: {Messages: 100, P50: 1, P99: 50, Max: 50},
	} {
		all := connections{}
		all.add([]transport.ConnStat{{Messages: 100, BusyNS: 100, Latency: [][2]int64{{1000, 100 - tail}, {50_000, tail}}}})
		conns, _ := all.records(0)
		if d := cmp.Diff([]record.Connection{want}, conns); d != "" {
			t.Errorf("tail of %d: want (-), got (+):\n%s", tail, d)
		}
	}
}

// Statistics of connections are per cell and arm.
func TestConnectionsOfCells(t *testing.T) {
	team := &fakeTeam{pace: []int64{1000, 2000}, outcome: func(_, arm int, b transport.Batch, o *worker.Outcome) error {
		for c := range 4 {
			o.Conns = append(o.Conns, stat(0, c, uint64(b.Iters), int64(b.Iters)*1000, int64(1+arm)*1000))
		}
		return nil
	}}
	for i, c := range run(t, job(t, team, func(s *Spec) { withBaseline(s); s.Sizes, s.Iters = []uint64{8, 64}, 40 })).Cells {
		if len(c.Conns) != 4 || c.Conns[3].Messages != 40 || c.Conns[3].P50 != 1 || !is(c.Fairness, 1) {
			t.Errorf("cell %d: %+v, fairness %v", i, c.Conns, show(c.Fairness))
		}
		if v := c.Vs[0]; len(v.Conns) != 4 || v.Conns[0].P50 != 2 || !is(v.Fairness, 1) {
			t.Errorf("cell %d: the baseline has %+v, fairness %v", i, v.Conns, show(v.Fairness))
		}
	}
}

func TestNoConnections(t *testing.T) {
	c := run(t, job(t, &fakeTeam{pace: []int64{1000}}, nil)).Cells[0]
	if c.Conns != nil || c.Fairness != nil {
		t.Errorf("%+v, fairness %v of a path that has no connections", c.Conns, show(c.Fairness))
	}
}

// In a fan several pairs of ranks have a window each in stream: sum of GB/s and payload are over all pairs.
func TestFan(t *testing.T) {
	j := job(t, nil, func(s *Spec) {
		s.Ops, s.Sizes, s.Window = []transport.Op{transport.OpStream, transport.OpLatency}, []uint64{1000}, 1
		s.Devices, s.Iters, s.Warmup = []gpu.Info{cpu0, cpu0, cpu0}, 10, 0
	})
	j.Ranks[0] = []int{0, 1, 2}
	j.Paths[0][0].Ways = 2
	j.Paths[0] = append(j.Paths[0], transport.Path{Ways: 2})
	j.Team = &threeRanks{}
	d := run(t, j)
	if c := d.Cells[0]; !is(c.BWPerDir, 1) || !is(c.BWSum, 2) || c.Counters["payload_bytes"] != 2*10*1000 {
		t.Errorf("stream: %v GB/s each, %v in sum, %d bytes: want 1, 2, 20000", show(c.BWPerDir), show(c.BWSum), c.Counters["payload_bytes"])
	}
	if c := d.Cells[1]; !is(c.BWSum, 1) || c.Counters["payload_bytes"] != 10*1000 {
		t.Errorf("latency: %v GB/s in sum, %d bytes: want 1, 10000", show(c.BWSum), c.Counters["payload_bytes"])
	}
}
