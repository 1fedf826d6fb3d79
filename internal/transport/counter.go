package transport

import "slices"

// Counter describes one of a transport's counters. The sweep and the reports use only this description.
type Counter struct {
	Name string `json:"name"` // key in Endpoint.Counters and in the result
	Kind Kind   `json:"kind"`
	Unit Unit   `json:"unit,omitempty"`
	// Label precedes the value in the line of counters below the tables; "": the line omits the counter.
	Label string `json:"label,omitempty"`
	// OmitZero omits the counter from that line where its value is zero.
	OmitZero bool `json:"omit_zero,omitempty"`
	// TimeOf is the name of the counter of the events that took this time. The line shows the time per event after
	// their number.
	TimeOf string `json:"time_of,omitempty"`
	// Column is the heading of the counter's column in the tables; "": no column. For a baseline, the line below the
	// tables shows the counters that have a column.
	Column string `json:"column,omitempty"`
}

// Kind says how values of one counter are combined.
type Kind string

// The kinds of counter.
const (
	Count Kind = "count" // events since Connect: the sum over ranks
	Gauge Kind = "gauge" // the current value: the sum over ranks
	Max   Kind = "max"   // the current value: the maximum over ranks
	Min   Kind = "min"   // the current value: the minimum over ranks
)

// Unit is the unit of a counter's values.
type Unit string

// The units of counters.
const (
	Number      Unit = ""
	Bytes       Unit = "bytes"
	Nanoseconds Unit = "ns"
)

// Counters are the descriptions of a transport's counters, in the order in which they are shown.
type Counters []Counter

// kind returns the kind of the named counter, Count if it is not described.
func (c Counters) kind(name string) Kind {
	if i := slices.IndexFunc(c, func(c Counter) bool { return c.Name == name }); i >= 0 {
		return c[i].Kind
	}
	return Count
}

// Join combines another rank's values with those in sum.
func (c Counters) Join(sum, values map[string]uint64) {
	for name, v := range values {
		before, known := sum[name]
		switch kind := c.kind(name); {
		case !known:
		case kind == Max:
			v = max(v, before)
		case kind == Min:
			v = min(v, before)
		default:
			v += before
		}
		sum[name] = v
	}
}

// Advance adds to total the difference between two readings of an endpoint's counters. Counters that are not counts are
// set to their value in now.
func (c Counters) Advance(total, before, now map[string]uint64) {
	for name, v := range now {
		if c.kind(name) == Count {
			v = total[name] + v - before[name]
		}
		total[name] = v
	}
}
