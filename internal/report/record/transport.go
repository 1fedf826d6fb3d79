package record

// Transport is the description of a transport. Views use no other knowledge of it.
type Transport struct {
	Counters   []Counter `json:"counters"`              // in display order
	Over       []string  `json:"over,omitempty"`        // what carries the payload, if not the link between the devices
	OnlyRatios string    `json:"only_ratios,omitempty"` // why absolute figures are meaningless; absent: they are meaningful
	Notes      []Note    `json:"notes,omitempty"`       // lines below the tables
}

// Counter describes a key of the objects named counters.
type Counter struct {
	Name string `json:"name"`
	// Kind is "count", "gauge", "max" or "min". Only counts of several cells may be added up.
	Kind     string `json:"kind"`
	Unit     string `json:"unit,omitempty"`      // "bytes" or "ns"; absent: a number
	Label    string `json:"label,omitempty"`     // precedes the value below the tables; absent: not shown there
	OmitZero bool   `json:"omit_zero,omitempty"` // not shown there if zero
	TimeOf   string `json:"time_of,omitempty"`   // the counter of the events that took this time
	Column   string `json:"column,omitempty"`    // heading of its column in the tables; absent: no column
}

// IsCount reports whether the values of several cells may be added up.
func (c Counter) IsCount() bool { return c.Kind == "count" }

// Note is a line below the tables.
type Note struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}
