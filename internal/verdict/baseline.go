package verdict

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// BaselineSchema is the version of the file that holds a [Baseline]; docs/ci.md describes it.
const BaselineSchema = "p2pbench-baseline/1"

// Baseline is a list of accepted sessions.
type Baseline struct{ Sessions []Session }

// Session is a sequence of runs with their provenance. It has the median and p99 of each run, no samples.
type Session struct {
	Accepted time.Time `json:"accepted"`
	Reason   string    `json:"reason"`
	Version  string    `json:"version"`
	Host     string    `json:"host"`
	Started  time.Time `json:"started"`
	Command  []string  `json:"command"`
	Facts    []Fact    `json:"facts"`
	Cells    []Figures `json:"-"` // lines of their own
}

// Figures are those of one cell in a session, by run.
type Figures struct {
	Key
	Bytes  uint64    `json:"bytes"`
	Choice string    `json:"choice,omitempty"` // engines that auto chose
	P50    []float64 `json:"p50_us"`
	P99    []float64 `json:"p99_us,omitempty"` // absent if there are too few samples
	Facts  []Fact    `json:"facts"`
}

// Runs returns the number of runs of the session.
func (s Session) Runs() int { return len(s.Cells[0].P50) }

// NewSession makes a session from runs; its facts are those of the first run.
func NewSession(runs []Run, reason string, accepted time.Time) (Session, error) {
	side := Side{Name: "session", Runs: runs}
	if err := new(Result).match(side, side, Options{}); err != nil {
		return Session{}, err
	}
	first := runs[0]
	s := Session{
		Accepted: accepted.UTC().Truncate(time.Second), Reason: reason, Version: first.Version, Host: first.Host, Started: first.Started,
		Command: first.Command, Facts: first.Facts,
	}
	for _, c := range first.Cells {
		f := Figures{Key: c.Key, Bytes: c.Bytes, Choice: side.choices(c.Key), Facts: c.Facts}
		for _, r := range runs {
			of, _ := r.cell(c.Key) // it has been checked
			f.P50 = append(f.P50, of.P50)
			if of.P99 > 0 {
				f.P99 = append(f.P99, of.P99)
			}
		}
		if len(f.P99) != len(f.P50) {
			f.P99 = nil
		}
		s.Cells = append(s.Cells, f)
	}
	return s, nil
}

// Add adds a session. It refuses a session that is not comparable with the latest one or is already present; the error is
// an *[IncomparableError].
func (b *Baseline) Add(s Session) error {
	for i, old := range b.Sessions {
		if old.Started.Equal(s.Started) && old.Host == s.Host {
			return incomparable("the session of %s is in the baseline already, as session %d", s.Started.UTC().Format(time.DateTime), i+1)
		}
	}
	if last := len(b.Sessions) - 1; last >= 0 {
		old, added := Baseline{b.Sessions[last:]}.RunsOf("baseline"), Baseline{[]Session{s}}.RunsOf("session")
		if d := differ(old[0], added[0], nothing); d != "" {
			return incomparable("not of the same things as the baseline: %s: with --fresh a new one begins", d)
		}
	}
	b.Sessions = append(b.Sessions, s)
	return nil
}

// RunsOf returns the runs of the baseline.
func (b Baseline) RunsOf(name string) []Run {
	var runs []Run
	for i, s := range b.Sessions {
		for k := range s.Runs() {
			r := Run{
				Name: fmt.Sprintf("%s: session %d, run %d", name, i+1, k+1), Session: fmt.Sprint(name, " ", i), Version: s.Version,
				Command: s.Command, Started: s.Started, Facts: s.Facts,
			}
			for _, f := range s.Cells {
				c := Cell{Key: f.Key, Facts: f.Facts, Choice: f.Choice, P50: f.P50[k], Bytes: f.Bytes}
				if f.P99 != nil {
					c.P99 = f.P99[k]
				}
				r.Cells = append(r.Cells, c)
			}
			runs = append(runs, r)
		}
	}
	return runs
}

// The lines of the file: the schema, then for each session one of its own and one for each of its cells, and at the end
// the checksum of all lines above it.
type baselineLine struct {
	Schema   string   `json:"schema,omitempty"`
	Session  *Session `json:"session,omitempty"`
	Cell     *Figures `json:"cell,omitempty"`
	Checksum string   `json:"sha256,omitempty"`
}

// Encode returns the contents of the file.
func (b Baseline) Encode() ([]byte, error) {
	var out bytes.Buffer
	lines := []baselineLine{{Schema: BaselineSchema}}
	for _, s := range b.Sessions {
		lines = append(lines, baselineLine{Session: &s})
		for _, c := range s.Cells {
			lines = append(lines, baselineLine{Cell: &c})
		}
	}
	for _, l := range lines {
		if err := encodeLine(&out, l); err != nil {
			return nil, err
		}
	}
	err := encodeLine(&out, baselineLine{Checksum: checksum(out.Bytes())})
	return out.Bytes(), err
}

func encodeLine(out *bytes.Buffer, l baselineLine) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("verdict: baseline: %w", err)
	}
	out.Write(data)
	out.WriteByte('\n')
	return nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// IsBaseline reports whether the data is a baseline of any version.
func IsBaseline(data []byte) bool {
	return bytes.HasPrefix(data, []byte(`{"schema":"p2pbench-baseline/`))
}

// ReadBaseline reads the file. It returns a one-line error for data that Encode has not written.
func ReadBaseline(data []byte) (Baseline, error) {
	b, err := readBaseline(data)
	if err != nil {
		return Baseline{}, fmt.Errorf("baseline: %w", err)
	}
	return b, nil
}

func readBaseline(data []byte) (Baseline, error) {
	if !IsBaseline(data) {
		return Baseline{}, fmt.Errorf("no baseline: want the schema %q in the first line", BaselineSchema)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	if len(lines) < 3 || len(lines[len(lines)-1]) > 0 {
		return Baseline{}, errors.New("the file is truncated")
	}
	last := len(lines) - 2
	var head, end baselineLine
	if err := json.Unmarshal(lines[0], &head); err != nil {
		return Baseline{}, fmt.Errorf("line 1: malformed JSON: %w", err)
	}
	if head.Schema != BaselineSchema {
		return Baseline{}, fmt.Errorf("schema %q: this p2pbench reads %s", head.Schema, BaselineSchema)
	}
	if err := json.Unmarshal(lines[last], &end); err != nil || end.Checksum == "" {
		return Baseline{}, errors.New("the last line is no checksum: the file is truncated")
	}
	if end.Checksum != checksum(bytes.Join(lines[:last], nil)) {
		return Baseline{}, errors.New("the checksum does not match: the file was edited by hand or merged: accept the sessions again with `p2pbench baseline accept`")
	}
	var b Baseline
	for i, text := range lines[1:last] {
		if err := b.add(text); err != nil {
			return Baseline{}, fmt.Errorf("line %d: %w", i+2, err)
		}
	}
	for i, s := range b.Sessions {
		if err := s.check(); err != nil {
			return Baseline{}, fmt.Errorf("session %d: %w", i+1, err)
		}
	}
	return b, nil
}

// add parses a line.
func (b *Baseline) add(text []byte) error {
	var l baselineLine
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return fmt.Errorf("malformed: %w", err)
	}
	switch last := len(b.Sessions) - 1; {
	case l.Session != nil && l.Cell == nil:
		b.Sessions = append(b.Sessions, *l.Session)
	case l.Cell != nil && l.Session == nil && last >= 0:
		b.Sessions[last].Cells = append(b.Sessions[last].Cells, *l.Cell)
	default:
		return errors.New("want a session, or a cell below one")
	}
	return nil
}

// check refuses inconsistent sessions.
func (s Session) check() error {
	if len(s.Cells) == 0 || s.Runs() == 0 {
		return errors.New("has no runs")
	}
	for _, f := range s.Cells {
		if len(f.P50) != s.Runs() || f.P99 != nil && len(f.P99) != s.Runs() {
			return fmt.Errorf("%s: figures of %d runs, want %d", f.Key, len(f.P50), s.Runs())
		}
		for _, v := range slices.Concat(f.P50, f.P99) {
			if !(v > 0) || math.IsInf(v, 0) {
				return fmt.Errorf("%s: %v µs is no time", f.Key, v)
			}
		}
		if slices.ContainsFunc(s.Cells, func(o Figures) bool { return o.Key == f.Key && &o.P50[0] != &f.P50[0] }) {
			return fmt.Errorf("%s: is there twice", f.Key)
		}
	}
	return nil
}
