package claim

import (
	"fmt"
	"slices"
	"strings"
)

// Expectation is a condition that must hold for a claim to be reproduced.
type Expectation interface {
	fmt.Stringer
	// judge returns the verdict for one size and its reason; [Shown] if nothing is expected of that size.
	judge(m measured) (Verdict, string)
}

// Faster expects B's time to be at least Min times A's; with Min 0, greater than A's. The lower end of the factor's
// interval must meet the bound.
type Faster struct {
	Min float64
	At  []uint64 // sizes that are judged; nil: all
}

func (e Faster) String() string {
	if e.Min == 0 {
		return "B ÷ A above 1" + atText(e.At)
	}
	return "B ÷ A at least " + factorText(e.Min) + atText(e.At)
}

func (e Faster) judge(m measured) (Verdict, string) {
	f := m.row.Factor
	switch {
	case !judged(e.At, m.row.Size):
		return Shown, ""
	case f == nil:
		return NotMeasurable, tooFew
	case e.Min == 0 && f.Low > 1, e.Min > 0 && f.Low >= e.Min:
		return Reproduced, ""
	}
	return NotReproduced, fmt.Sprintf("factor %v, expected %s", *f, strings.TrimPrefix(Faster{Min: e.Min}.String(), "B ÷ A "))
}

// Equal expects B's time to equal A's within a fraction: 0.1 means a factor from 1/1.1 to 1.1. The whole interval must
// be in that range.
type Equal struct {
	Within float64
	At     []uint64 // as in Faster
}

func (e Equal) bounds() (lo, hi float64) { return 1 / (1 + e.Within), 1 + e.Within }

func (e Equal) String() string {
	lo, hi := e.bounds()
	return fmt.Sprintf("B ÷ A between %s and %s%s", factorText(lo), factorText(hi), atText(e.At))
}

func (e Equal) judge(m measured) (Verdict, string) {
	lo, hi := e.bounds()
	f := m.row.Factor
	switch {
	case !judged(e.At, m.row.Size):
		return Shown, ""
	case f == nil:
		return NotMeasurable, tooFew
	case f.Low >= lo && f.High <= hi:
		return Reproduced, ""
	}
	return NotReproduced, fmt.Sprintf("factor %v, expected between %s and %s", *f, factorText(lo), factorText(hi))
}

// Near expects arm A's round trip, twice its ping-pong sample, to be between the published one ÷ Factor and × Factor.
type Near struct {
	RoundTripUS map[uint64]float64 // published, by size
	Factor      float64
}

func (e Near) String() string {
	return fmt.Sprintf("A's round trip ÷ published round trip between %s and %s", factorText(1/e.Factor), factorText(e.Factor))
}

func (e Near) judge(m measured) (Verdict, string) {
	f := m.row.Factor
	switch {
	case e.RoundTripUS[m.row.Size] == 0:
		return Shown, ""
	case f == nil:
		return NotMeasurable, tooFew
	case f.Low >= 1/e.Factor && f.High <= e.Factor:
		return Reproduced, ""
	}
	return NotReproduced, fmt.Sprintf("factor %v, expected between %s and %s", *f, factorText(1/e.Factor), factorText(e.Factor))
}

// FirstSlower expects B's first message to take longer than A's. This is one observation per arm: the test needs no
// warm-up, and arms whose first messages differ much.
type FirstSlower struct{}

func (FirstSlower) String() string {
	return "B's first message takes longer than A's (one observation)"
}

func (FirstSlower) judge(m measured) (Verdict, string) {
	if m.b == nil || len(m.cell.SamplesNS) == 0 || len(m.b.SamplesNS) == 0 {
		return NotMeasurable, "the samples are not in the order in which they were taken"
	}
	a, b := float64(m.cell.SamplesNS[0])/1e3, float64(m.b.SamplesNS[0])/1e3
	text := fmt.Sprintf("first message: A %.1f µs, B %.1f µs (one observation)", a, b)
	if b > a {
		return Reproduced, text
	}
	return NotReproduced, text
}

// Count expects a counter of an arm to have a value. Counters are sums over the ranks for one size, warm-up included.
type Count struct {
	Of      Letter
	Counter string
	Is      Relation
	Value   uint64
	Per     Per // factor of Value
}

// Letter names an arm.
type Letter string

// The arms.
const (
	A Letter = "A"
	B Letter = "B"
)

// Relation compares a counter with its bound.
type Relation string

// The relations.
const (
	Exactly Relation = "="
	AtMost  Relation = "≤"
	AtLeast Relation = "≥"
	None    Relation = "none" // zero or absent
)

// Per is the factor by which Count.Value is multiplied; "": 1.
type Per string

// The units of bounds.
const (
	PerSample Per = " × samples"         // samples taken; with the warm-up there were more messages
	PerOther  Per = " × the other arm's" // the other arm's counter of that name
)

func (e Count) String() string {
	switch {
	case e.Is == None:
		return fmt.Sprintf("%s has no %s", e.Of, e.Counter)
	case e.Per == PerOther && e.Value == 1:
		return fmt.Sprintf("%s %s %s the other arm's", e.Of, e.Counter, e.Is)
	}
	return fmt.Sprintf("%s %s %s %d%s", e.Of, e.Counter, e.Is, e.Value, e.Per)
}

func (e Count) judge(m measured) (Verdict, string) {
	got, n, ok := m.count(e.Of, e.Counter)
	if e.Is == None && got == 0 {
		return Reproduced, fmt.Sprintf("%s no %s", e.Of, e.Counter)
	}
	if !ok {
		return NotMeasurable, fmt.Sprintf("arm %s has no counter %s", e.Of, e.Counter)
	}
	bound := e.Value
	switch e.Per {
	case PerSample:
		bound *= uint64(n)
	case PerOther:
		other, _, ok := m.count(e.Of.other(), e.Counter)
		if !ok {
			return NotMeasurable, fmt.Sprintf("arm %s has no counter %s", e.Of.other(), e.Counter)
		}
		bound *= other
	}
	if map[Relation]bool{Exactly: got == bound, AtMost: got <= bound, AtLeast: got >= bound}[e.Is] {
		return Reproduced, fmt.Sprintf("%s %s %d", e.Of, e.Counter, got)
	}
	if e.Is == None {
		return NotReproduced, fmt.Sprintf("%s %s is %d, expected none", e.Of, e.Counter, got)
	}
	return NotReproduced, fmt.Sprintf("%s %s is %d, expected %s %d", e.Of, e.Counter, got, e.Is, bound)
}

// Counter names a counter of an arm.
type Counter struct {
	Of   Letter
	Name string
}

func (c Counter) String() string { return fmt.Sprintf("%s %s", c.Of, c.Name) }

// Times expects a counter to be at least Min times another counter, of the same or the other arm.
type Times struct {
	More, Less Counter
	Min        float64
}

func (e Times) String() string {
	return fmt.Sprintf("%s at least %s × %s", e.More, factorText(e.Min), e.Less)
}

func (e Times) judge(m measured) (Verdict, string) {
	var values [2]uint64
	for i, c := range []Counter{e.More, e.Less} {
		v, _, ok := m.count(c.Of, c.Name)
		if !ok {
			return NotMeasurable, fmt.Sprintf("arm %s has no counter %s", c.Of, c.Name)
		}
		values[i] = v
	}
	factor := float64(values[0]) / float64(max(values[1], 1))
	text := fmt.Sprintf("%s %d ÷ %s %d: %s", e.More, values[0], e.Less, values[1], factorText(factor))
	if factor >= e.Min {
		return Reproduced, text
	}
	return NotReproduced, text + ", expected at least " + factorText(e.Min)
}

func (l Letter) other() Letter {
	if l == A {
		return B
	}
	return A
}

// count returns an arm's counter and its number of samples.
func (m measured) count(of Letter, counter string) (value uint64, n int, ok bool) {
	switch {
	case of == A:
		value, ok = m.cell.Counters[counter]
		return value, m.cell.N, ok
	case m.b == nil:
		return 0, 0, false
	}
	value, ok = m.b.Counters[counter]
	return value, m.b.N, ok
}

// Intact expects that the receiver compared every byte of A and found it correct.
type Intact struct{}

func (Intact) String() string { return "every byte that A receives is correct" }

func (Intact) judge(m measured) (Verdict, string) {
	switch v := m.cell.Verified; {
	case v == nil || m.cell.Knobs["check"] != "full":
		return NotMeasurable, "the payload was not checked in full"
	case !*v:
		return NotReproduced, "the received payload differs from the payload sent"
	}
	return Reproduced, "every byte verified"
}

// Caught expects A's run to end with the error of data corruption. Test.Judge checks it, because such a run has no
// figures.
type Caught struct{}

func (Caught) String() string { return "the payload check detects wrong data in A" }

func (Caught) judge(measured) (Verdict, string) { return Shown, "" }

// Ends expects A's run to end. Test.Judge checks it, because a run that hangs has no figures.
type Ends struct{}

func (Ends) String() string { return "A's run ends" }

func (Ends) judge(measured) (Verdict, string) { return Reproduced, "the run ended" }

const tooFew = "too few samples for an interval of the median"

func judged(at []uint64, size uint64) bool { return at == nil || slices.Contains(at, size) }

func atText(at []uint64) string {
	if at == nil {
		return ""
	}
	return " at " + strings.ReplaceAll(sizeList(at), ",", ", ")
}
