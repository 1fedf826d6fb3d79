package sweep

import (
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/transport"
)

// measured describes the counters that the sweep adds to those of the subject's transport.
var measured = transport.Counters{
	{Name: "payload_bytes", Kind: transport.Count, Unit: transport.Bytes},
	{Name: "checked_bytes", Kind: transport.Count, Unit: transport.Bytes},
	{Name: "link_tx_bytes", Kind: transport.Count, Unit: transport.Bytes},
	{Name: "cpu_throttled_periods", Kind: transport.Count},
}

// transports is what the arms' transports say of themselves. Where several arms have the same one, the first counts.
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
			counters = append(counters[:len(counters):len(counters)], measured...)
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
