package verdict

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Run is one observation of every cell: a run of fresh processes.
type Run struct {
	Name    string // file or position it was read from
	Session string // consecutive runs on one machine share a session
	Version string // of p2pbench
	Host    string
	Command []string
	Started time.Time
	Facts   []Fact
	Cells   []Cell
}

// Cell is one cell of a run.
type Cell struct {
	Key
	Facts []Fact
	// Choice is the engine that auto chose by measurements at the start of the run; "": auto did not choose.
	Choice string
	P50    float64 // µs
	P99    float64 // µs; 0: too few samples
	Bytes  uint64  // moved in one direction in the time P50
}

// Key identifies a cell within a run.
type Key struct {
	Transport string `json:"transport"`
	Op        string `json:"op"`
	Size      uint64 `json:"size"`
	Offset    uint64 `json:"offset,omitempty"`
}

func (k Key) String() string {
	text := fmt.Sprintf("%s %s, %d bytes", k.Transport, k.Op, k.Size)
	if k.Offset > 0 {
		text += fmt.Sprintf(" at offset %d", k.Offset)
	}
	return text
}

// Fact is a property that must be equal on both sides.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// IncomparableError says why runs cannot be compared: they differ in a fact, or one is invalid.
type IncomparableError struct{ Why string }

func (e *IncomparableError) Error() string { return e.Why }

func incomparable(format string, a ...any) error {
	return &IncomparableError{fmt.Sprintf(format, a...)}
}

// carriesP99 is the number of samples from which p99 is not just their maximum.
const carriesP99 = 100

// Read makes a run from a document that `--out` wrote. Its error is an *[IncomparableError] if the document is well-formed
// but the run is invalid.
func Read(name string, data []byte) (Run, error) {
	d, err := record.Read(bytes.NewReader(data))
	if err != nil {
		return Run{}, err
	}
	if d.Exit != 0 {
		return Run{}, incomparable("%s: the run ended with exit code %d: a comparison takes runs that ended well", name, d.Exit)
	}
	if len(d.Cells) == 0 {
		return Run{}, incomparable("%s: the run has no cells", name)
	}
	r := Run{Name: name, Version: d.Version, Host: d.Env.Host, Command: d.Command, Started: d.Started, Facts: surroundings(d)}
	seen := map[Key]bool{}
	for _, c := range d.Cells {
		cell := cellOf(c)
		switch {
		case c.Invalid != nil:
			return Run{}, incomparable("%s: %s: invalid: %s", name, cell.Key, *c.Invalid)
		case c.N == 0 || c.Lat.P50 <= 0:
			return Run{}, incomparable("%s: %s: no time was measured", name, cell.Key)
		case seen[cell.Key]:
			return Run{}, incomparable("%s: %s: is there twice", name, cell.Key)
		}
		seen[cell.Key] = true
		r.Cells = append(r.Cells, cell)
	}
	return r, nil
}

func cellOf(c record.Cell) Cell {
	cell := Cell{
		Key: Key{Transport: c.Transport, Op: c.Op, Size: c.Size, Offset: c.Offset},
		P50: c.Lat.P50, Bytes: c.Size * uint64(max(c.Window, 1)), Facts: facts(c),
	}
	if isChoice(c) {
		cell.Choice = c.Engine
	}
	if c.N >= carriesP99 {
		cell.P99 = c.Lat.P99
	}
	return cell
}

// surroundings are the facts of the whole run.
func surroundings(d record.Document) []Fact {
	all := []Fact{{"schema", cmp.Or(d.Schema, record.Schema)}, {"architecture", d.Env.Arch}}
	e := d.Env
	all = append(all,
		Fact{"CPU", fmt.Sprintf("%s, %d CPUs", e.CPU.Model, e.CPU.Count)},
		Fact{"CPU governor", e.CPU.Governor})
	for _, r := range e.Ranks {
		text := r.Device.Kind + " " + r.Device.Name
		if r.Device.Kind != "host" { // the memory of host devices is that of the machine
			text += fmt.Sprintf(" %s, %d bytes", r.Device.Arch, r.Device.Memory)
		}
		all = append(all, Fact{fmt.Sprintf("device of rank %d", r.Rank), text})
	}
	if e.Link != nil {
		all = append(all, Fact{"link", strings.Trim(fmt.Sprintf("%s %d %s", e.Link.Type, e.Link.Count, e.Link.Detail), " ")})
	}
	all = append(all, Fact{"driver", e.Driver})
	for _, name := range slices.Sorted(maps.Keys(e.Libraries)) {
		all = append(all, Fact{"library " + name, e.Libraries[name]})
	}
	return all
}

// settingPrefix begins the name of a fact that is a setting.
const settingPrefix = "knob "

// chosen is the setting that lists what auto chose by measurements at the start of the run.
const chosen = "chosen"

// isChoice reports whether auto chose the engine: identical runs may choose differently.
func isChoice(c record.Cell) bool { return c.Knobs["engine"] == "auto" }

// facts are the facts of a cell.
func facts(c record.Cell) []Fact {
	var vs []string
	for _, v := range c.Vs {
		vs = append(vs, v.Name)
	}
	all := []Fact{
		{"device", c.Device},
		{"ranks", strconv.Itoa(c.Ranks)},
		{"baselines", strings.Join(vs, ",")},
		{"path", c.Path},
		{"completion", c.Completion},
		{"window", strconv.Itoa(c.Window)},
		{"warm-up", strconv.Itoa(c.Warmup)},
		{"iterations", strconv.Itoa(c.Iters)},
	}
	if !isChoice(c) {
		all = append(all, Fact{"engine", c.Engine})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Knobs)) {
		if name != chosen {
			all = append(all, Fact{settingPrefix + name, c.Knobs[name]})
		}
	}
	return all
}

// isSetting reports whether a fact depends on the settings of the path, in which a comparison of settings may differ.
func isSetting(name string) bool {
	return strings.HasPrefix(name, settingPrefix) ||
		slices.Contains([]string{"path", "engine", "completion", "window", "warm-up", "iterations"}, name)
}

// Difference is a fact that differs between the sides; "": a side does not have it.
type Difference struct {
	Name string `json:"name"`
	Base string `json:"base"`
	Head string `json:"head"`
}

func (d Difference) String() string {
	value := func(s string) string {
		if s == "" {
			return "absent"
		}
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%s is %s in base and %s in head", d.Name, value(d.Base), value(d.Head))
}

// differences returns the facts of a that are different or absent in b, then those that only b has.
func differences(a, b []Fact) []Difference {
	var all []Difference
	find := func(facts []Fact, name string) string {
		for _, f := range facts {
			if f.Name == name {
				return f.Value
			}
		}
		return ""
	}
	for _, f := range a {
		if v := find(b, f.Name); v != f.Value {
			all = append(all, Difference{f.Name, f.Value, v})
		}
	}
	for _, f := range b {
		if f.Value != "" && find(a, f.Name) == "" && !slices.ContainsFunc(all, func(d Difference) bool { return d.Name == f.Name }) {
			all = append(all, Difference{f.Name, "", f.Value})
		}
	}
	return all
}
