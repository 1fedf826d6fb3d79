package sweep

import (
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// sweepCounters describes the counters that this package adds to those of the subject's transport.
var sweepCounters = transport.Counters{
	{Name: "payload_bytes", Kind: transport.Count, Unit: transport.Bytes},
	{Name: "checked_bytes", Kind: transport.Count, Unit: transport.Bytes},
	{Name: "link_tx_bytes", Kind: transport.Count, Unit: transport.Bytes},
	{Name: "cpu_throttled_periods", Kind: transport.Count},
}

// transports returns the descriptions of the arms' transports. If several arms use one transport, the first arm's
// counts.
func (j Job) transports() map[string]record.Transport {
	all := map[string]record.Transport{}
	for i, arm := range j.Plan.Arms {
		if _, known := all[arm.Transport]; known {
			continue
		}
		path := j.Paths[i][0]
		t := record.Transport{Counters: []record.Counter{}, Over: path.Over, OnlyRatios: path.OnlyRatios}
		for _, n := range path.Notes {
			t.Notes = append(t.Notes, record.Note(n))
		}
		counters := path.Counters
		if i == 0 {
			counters = append(counters[:len(counters):len(counters)], sweepCounters...)
		}
		for _, c := range counters {
			t.Counters = append(t.Counters, record.Counter{
				Name: c.Name, Kind: string(c.Kind), Unit: string(c.Unit), Label: c.Label, OmitZero: c.OmitZero, TimeOf: c.TimeOf,
				Column: c.Column,
			})
		}
		all[arm.Transport] = t
	}
	return all
}
