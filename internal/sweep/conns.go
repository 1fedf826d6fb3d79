package sweep

import (
	"cmp"
	"maps"
	"slices"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// connections holds the statistics of an arm's connections, summed over the blocks of a cell.
type connections map[connection]*traffic

type connection struct{ rank, conn int }

type traffic struct {
	messages uint64
	busyNS   int64
	latency  map[int64]int64 // messages by ns
}

// add adds the statistics of one block.
func (all connections) add(stats []transport.ConnStat) {
	for _, s := range stats {
		key := connection{s.Rank, s.Conn}
		t := all[key]
		if t == nil {
			t = &traffic{latency: map[int64]int64{}}
			all[key] = t
		}
		t.messages += s.Messages
		t.busyNS += s.BusyNS
		for _, bin := range s.Latency {
			t.latency[bin[0]] += bin[1]
		}
	}
}

// records returns the connections that carried messages of size bytes, and Jain's fairness index of their rates.
func (all connections) records(size uint64) (conns []record.Connection, fairness *float64) {
	var rates []float64
	for key, t := range all {
		if t.messages == 0 {
			continue
		}
		c := record.Connection{Rank: key.rank, Conn: key.conn, Messages: t.messages}
		c.Times(t.bins())
		rate := float64(t.messages) / float64(max(t.busyNS, 1)) // per ns
		rates = append(rates, rate)
		if size > 0 {
			gbps := rate * float64(size)
			c.GBps = &gbps
		}
		conns = append(conns, c)
	}
	slices.SortFunc(conns, func(a, b record.Connection) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Conn, b.Conn))
	})
	slices.Sort(rates) // so that the sum does not depend on the map's order
	return conns, record.Jain(rates)
}

func (t *traffic) bins() (bins []record.Bin) {
	for _, ns := range slices.Sorted(maps.Keys(t.latency)) {
		bins = append(bins, record.Bin{NS: ns, Count: t.latency[ns]})
	}
	return bins
}
