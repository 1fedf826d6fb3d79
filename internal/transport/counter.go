package transport

import "slices"

// Counter describes one of a transport's counters. Whoever adds counters up or shows them knows no more of them.
type Counter struct {
	Name string `json:"name"` // its key in Endpoint.Counters and in the result
	Kind Kind   `json:"kind"`
	Unit Unit   `json:"unit,omitempty"`
	// Label stands before the value in the line of counters below the tables; "": the line leaves the counter out.
	Label string `json:"label,omitempty"`
	// OmitZero leaves the counter out of that line where it is zero.
	OmitZero bool `json:"omit_zero,omitempty"`
	// TimeOf names the counter of the events that took this time. The line shows the time of one, behind their number.
	TimeOf string `json:"time_of,omitempty"`
	// Column is the head of a column of its own in the tables; "": it has none. Of a baseline's counters, the line below
	// the tables shows those that have a column.
	Column string `json:"column,omitempty"`
}

// Kind says how the values of one counter are put together.
type Kind string

// The kinds of counter.
const (
	Count Kind = "count" // what happened since Connect: the sum over ranks
	Gauge Kind = "gauge" // what there is now: the sum over ranks
	Max   Kind = "max"   // what there is now: the largest of any rank
	Min   Kind = "min"   // what there is now: the smallest of any rank
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

// kind is the kind of the counter of that name; one that is not described counts events.
func (c Counters) kind(name string) Kind {
	if i := slices.IndexFunc(c, func(c Counter) bool { return c.Name == name }); i >= 0 {
		return c[i].Kind
	}
	return Count
}

// Join adds another rank's values to sum.
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

// Advance adds to total what was counted from one reading of the endpoint to the next. What is not a count becomes what
// it is now.
func (c Counters) Advance(total, before, now map[string]uint64) {
	for name, v := range now {
		if c.kind(name) == Count {
			v = total[name] + v - before[name]
		}
		total[name] = v
	}
}
