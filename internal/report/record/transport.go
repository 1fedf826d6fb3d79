package record

// Transport is what a transport says of itself: whoever shows its cells knows no more of it.
type Transport struct {
	Counters   []Counter `json:"counters"`              // in the order in which they are shown
	Over       []string  `json:"over,omitempty"`        // what carries the payload in place of the link between the devices
	OnlyRatios string    `json:"only_ratios,omitempty"` // why absolute figures mean nothing; absent: they do
	Notes      []Note    `json:"notes,omitempty"`       // to stand below the tables
}

// Counter describes one key of counters.
type Counter struct {
	Name string `json:"name"`
	// Kind is "count", "gauge", "max" or "min": counts of cells may be added up, the others tell what there was.
	Kind     string `json:"kind"`
	Unit     string `json:"unit,omitempty"`      // "bytes" or "ns"; absent: a number
	Label    string `json:"label,omitempty"`     // before the value below the tables; absent: it is not shown there
	OmitZero bool   `json:"omit_zero,omitempty"` // not shown there where it is zero
	TimeOf   string `json:"time_of,omitempty"`   // the counter of the events that took this time
	Column   string `json:"column,omitempty"`    // head of its column in the tables; absent: it has none
}

// IsCount reports whether the values of several cells may be added up.
func (c Counter) IsCount() bool { return c.Kind == "count" }

// Note is a line below the tables.
type Note struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}
