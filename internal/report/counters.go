package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// tally holds the values of an arm's counters: by name, in the order of the cells.
type tally struct {
	values   map[string][]uint64
	counters []record.Counter // descriptions
	owner    string           // prefix of each label: name of the baseline, or empty
	intro    string           // prefix of the first label
}

func (t *tally) add(counters map[string]uint64) {
	if t.values == nil {
		t.values = map[string][]uint64{}
	}
	for name, v := range counters {
		t.values[name] = append(t.values[name], v)
	}
}

// countersText formats the line of counters: those of the transport, then those of baselines that have a column.
func countersText(d record.Document) string {
	var order []string
	all := map[string]*tally{}
	of := func(key string, first func() *tally) *tally {
		if all[key] == nil {
			order, all[key] = append(order, key), first()
		}
		return all[key]
	}
	for _, c := range d.Cells {
		of(c.Transport, func() *tally {
			if described := d.Transports[c.Transport].Counters; len(described) > 0 {
				return &tally{counters: described}
			}
			return &tally{counters: undescribed(d.Cells), intro: "per cell: "}
		}).add(c.Counters)
	}
	for _, c := range d.Cells {
		for _, v := range c.Vs {
			of("vs "+v.Name, func() *tally {
				return &tally{counters: withColumn(d.Transports[v.Transport].Counters), owner: v.Name + " "}
			}).add(v.Counters)
		}
	}
	var parts []string
	for _, key := range order {
		parts = append(parts, all[key].texts()...)
	}
	return strings.Join(parts, ", ")
}

// undescribed makes descriptions for documents of earlier versions, which have none. Such counters are shown per cell
// and not added up.
func undescribed(cells []record.Cell) (counters []record.Counter) {
	names := map[string]bool{}
	for _, c := range cells {
		for name := range c.Counters {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		counters = append(counters, record.Counter{Name: name, Label: name, OmitZero: true})
	}
	return counters
}

func withColumn(counters []record.Counter) []record.Counter {
	return slices.DeleteFunc(slices.Clone(counters), func(c record.Counter) bool { return c.Column == "" })
}

func (t *tally) texts() (parts []string) {
	for _, c := range t.counters {
		values := t.values[c.Name]
		if c.Label == "" || len(values) == 0 || c.OmitZero && slices.Max(values) == 0 {
			continue
		}
		text := spanText(c, values)
		if c.IsCount() {
			text = t.sumText(c)
		}
		parts = append(parts, t.owner+c.Label+" "+text)
	}
	if len(parts) > 0 {
		parts[0] = t.intro + parts[0]
	}
	return parts
}

// sumText formats the sum over the cells, and the time per event if that is counted.
func (t *tally) sumText(c record.Counter) string {
	n := sum(t.values[c.Name])
	text := counterText(c, n)
	if c.Unit == "bytes" {
		text = fmt.Sprint(n) // a sum is rarely a multiple of a unit
	}
	i := slices.IndexFunc(t.counters, func(of record.Counter) bool { return of.TimeOf == c.Name })
	if i < 0 || n == 0 {
		return text
	}
	if ns := sum(t.values[t.counters[i].Name]); ns > 0 {
		text += fmt.Sprintf(" (%s µs each)", Micros(float64(ns)/1e3/float64(n)))
	}
	return text
}

func sum(values []uint64) (n uint64) {
	for _, v := range values {
		n += v
	}
	return n
}

// spanText formats the range of a counter over the cells: "4", "256K to 2M".
func spanText(c record.Counter, values []uint64) string {
	text := counterText(c, slices.Min(values))
	if most := slices.Max(values); most > slices.Min(values) {
		text += " to " + counterText(c, most)
	}
	return text
}

func counterText(c record.Counter, v uint64) string {
	switch c.Unit {
	case "bytes":
		return Size(v)
	case "ns":
		return Micros(float64(v)/1e3) + " µs"
	}
	return fmt.Sprint(v)
}

// counterColumns returns the columns of counters that have one and a value in some cell. of returns the counters of a
// cell or of its baseline.
func (b block) counterColumns(counters []record.Counter, of func(record.Cell) map[string]uint64) (cols []Column) {
	for _, c := range withColumn(counters) {
		known := false
		col := b.column(Clean(c.Column), 1, func(cell record.Cell) string {
			v, ok := of(cell)[c.Name]
			if !ok {
				return None
			}
			known = true
			return counterText(c, v)
		})
		if known {
			cols = append(cols, col)
		}
	}
	return cols
}
