package claim

import (
	"math"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

func ptr[T any](v T) *T { return &v }

// around returns n samples with that median in ns, at most spread away from it.
func around(n int, median, spread int64) []int64 {
	s := make([]int64, n)
	for i := range s {
		s[i] = median + spread*int64(2*i-n+1)/int64(n)
	}
	return s
}

// cellOf returns a pingpong cell of two arms.
func cellOf(size uint64, a, b []int64) record.Cell {
	c := record.Cell{
		Transport: "ipc", Op: "pingpong", Size: size, Ranks: 2, Window: 1, Iters: len(a), N: len(a), Lat: record.Summarise(a), SamplesNS: a, Verified: ptr(true),
		Knobs: map[string]string{"check": "full"}, Counters: map[string]uint64{},
	}
	c.BWPerDir, c.BWSum, c.MsgRate = record.Rates(size, 1, 1, c.Lat.P50)
	if b != nil {
		c.Vs = []record.Vs{{Name: "b", N: len(b), Lat: record.Summarise(b), SamplesNS: b, Counters: map[string]uint64{}}}
		c.Vs[0].BWPerDir, _, _ = record.Rates(size, 1, 1, c.Vs[0].Lat.P50)
		c.Vs[0].Ratio = ptr(c.Vs[0].Lat.P50 / c.Lat.P50)
	}
	return c
}

// faster returns a test of two arms at 1K and 1M that expects B ÷ A above 1, or the given expectations.
func faster(expect ...Expectation) Test {
	if expect == nil {
		expect = []Expectation{Faster{}}
	}
	return Test{
		A: Arm{Label: "one", Args: []string{"ipc"}}, B: Arm{Label: "two", Args: []string{"ipc"}}, Op: "pingpong",
		Sizes: []uint64{1 << 10, 1 << 20}, Iters: 100, Warmup: 10, Expect: expect,
	}
}

func TestFactor(t *testing.T) {
	small := cellOf(1<<10, around(100, 1000, 100), around(100, 2000, 100))
	large := cellOf(1<<20, around(100, 10000, 100), around(100, 10100, 100))
	blurred := cellOf(1<<20, around(100, 10000, 900), around(100, 10100, 900)) // 1 % with intervals of 2 %
	at1K := []uint64{1 << 10}
	tests := []struct {
		name   string
		expect Expectation
		large  record.Cell
		want   Verdict
		rows   [2]Verdict
		why    string
	}{
		{"clear at both sizes", Faster{}, large, Reproduced, [2]Verdict{Reproduced, Reproduced}, "factor 1.01 to 2.00"},
		{"one size is in doubt", Faster{}, blurred, NotReproduced, [2]Verdict{Reproduced, NotReproduced}, "1M: factor 1.01 ["},
		{"that size is only shown", Faster{At: at1K}, blurred, Reproduced, [2]Verdict{Reproduced, Shown}, "factor 2.00"},
		{"not by as much", Faster{Min: 1.5}, large, NotReproduced, [2]Verdict{Reproduced, NotReproduced}, "expected at least 1.50"},
		{"not equal", Equal{Within: 0.1}, large, NotReproduced, [2]Verdict{NotReproduced, Reproduced}, "1K: factor 2.00"},
		{"equal", Equal{Within: 0.1, At: []uint64{1 << 20}}, large, Reproduced, [2]Verdict{Shown, Reproduced}, "factor 1.01"},
		{"equality in doubt", Equal{Within: 0.02, At: []uint64{1 << 20}}, blurred, NotReproduced, [2]Verdict{Shown, NotReproduced}, "expected between"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := faster(tt.expect).Judge(Run{Cells: []record.Cell{small, tt.large}})
			if o.Verdict != tt.want || o.Rows[0].Verdict != tt.rows[0] || o.Rows[1].Verdict != tt.rows[1] {
				t.Errorf("%q: %q, %q; want %q: %q", o.Verdict, o.Rows[0].Verdict, o.Rows[1].Verdict, tt.want, tt.rows)
			}
			if !strings.Contains(o.Why, tt.why) {
				t.Errorf("because %q, want %q in it", o.Why, tt.why)
			}
		})
	}
}

// The interval is the widest range that the intervals of both medians allow.
func TestFactorInterval(t *testing.T) {
	a, b := around(100, 1000, 100), around(100, 3000, 300)
	o := faster().Judge(Run{Cells: []record.Cell{cellOf(1<<10, a, b)}})
	aLow, aHigh, _ := record.DistributionOf(a, nil).MedianInterval(0.95)
	bLow, bHigh, _ := record.DistributionOf(b, nil).MedianInterval(0.95)
	f := o.Rows[0].Factor
	if !near64(f.Low, float64(bLow)/float64(aHigh)) || !near64(f.High, float64(bHigh)/float64(aLow)) {
		t.Errorf("%v of [%d, %d] over [%d, %d]", *f, bLow, bHigh, aLow, aHigh)
	}
	if f.Low >= f.Value || f.Value >= f.High {
		t.Errorf("%v does not hold its value", *f)
	}
	if m := o.Rows[0].B; m.N != 100 || m.Low != float64(bLow)/1e3 || m.P50 != record.Summarise(b).P50 {
		t.Errorf("B is %+v", *m)
	}
}

func near64(a, b float64) bool { return math.Abs(a/b-1) < 1e-12 }

func TestPublishedStandsBeside(t *testing.T) {
	test := faster()
	test.Factors = map[uint64]float64{1 << 10: 2.3}
	o := test.Judge(Run{Cells: []record.Cell{cellOf(1<<10, around(50, 10, 1), around(50, 30, 1))}})
	if p := o.Rows[0].Published; p == nil || *p != 2.3 {
		t.Errorf("published factor %v, want 2.3", p)
	}
	if o.Rows[1].Published != nil {
		t.Error("a published factor where none was published")
	}
}

func TestNotMeasurable(t *testing.T) {
	good := cellOf(1<<20, around(50, 1000, 10), around(50, 2000, 10))
	with := func(change func(*record.Cell)) []record.Cell {
		c := cellOf(1<<10, around(50, 1000, 10), around(50, 2000, 10))
		change(&c)
		return []record.Cell{c, good}
	}
	tests := []struct {
		name  string
		cells []record.Cell
		why   string
	}{
		{"a size is missing", []record.Cell{good}, "1K: was not measured"},
		{"another operation", with(func(c *record.Cell) { c.Op = "latency" }), "1K: was not measured"},
		{"clocks held down", with(func(c *record.Cell) { c.Invalid = ptr("clocks were throttled") }), "1K: clocks were throttled"},
		{"no samples", with(func(c *record.Cell) { c.N = 0 }), "1K: no samples"},
		{"B was not run", with(func(c *record.Cell) { c.Vs = nil }), "1K: two was not measured"},
		{"B cannot run", with(func(c *record.Cell) { c.Vs[0] = record.Vs{Name: "b", NA: "libnccl.so.2 not found"} }), "1K: libnccl.so.2 not found"},
		{"B has no samples", with(func(c *record.Cell) { c.Vs[0].N = 0 }), "1K: two: no samples"},
		{"too few samples", with(func(c *record.Cell) { *c = cellOf(1<<10, []int64{1, 2, 3, 4, 5}, []int64{7, 8, 9, 10, 11}) }), "1K: too few samples"},
		{"samples were not kept", with(func(c *record.Cell) { c.SamplesNS = nil }), "1K: too few samples"},
	}
	for _, tt := range tests {
		o := faster().Judge(Run{Cells: tt.cells})
		if o.Verdict != NotMeasurable || !strings.HasPrefix(o.Why, tt.why) {
			t.Errorf("%s: %s: %s; want not measurable: %s", tt.name, o.Verdict, o.Why, tt.why)
		}
		if o.Rows[1].Verdict != Reproduced {
			t.Errorf("%s: the other size is %q", tt.name, o.Rows[1].Verdict)
		}
	}
}

// Not reproduced outweighs not measurable.
func TestFailureOutweighs(t *testing.T) {
	o := faster().Judge(Run{Cells: []record.Cell{cellOf(1<<20, around(50, 2000, 10), around(50, 1000, 10))}})
	if o.Verdict != NotReproduced || !strings.HasPrefix(o.Why, "1M: factor 0.50") {
		t.Errorf("%s: %s", o.Verdict, o.Why)
	}
}

// A median of 0 ns, below the clock's resolution, does not give an infinite factor, which JSON cannot represent.
func TestZeroMedian(t *testing.T) {
	o := faster().Judge(Run{Cells: []record.Cell{
		cellOf(1<<10, make([]int64, 50), around(50, 2000, 10)),
		cellOf(1<<20, append(make([]int64, 25), around(26, 1000, 10)...), around(51, 2000, 10)),
	}})
	if o.Rows[0].Verdict != NotMeasurable || o.Rows[0].Factor != nil {
		t.Errorf("over zero: %v %v", o.Rows[0].Verdict, o.Rows[0].Factor)
	}
	if f := o.Rows[1].Factor; f == nil || f.High <= 0 || f.High > 1e7 {
		t.Errorf("over an interval from zero: %v", f)
	}
}

func TestCount(t *testing.T) {
	cell := func(a, b map[string]uint64) record.Cell {
		c := cellOf(1<<10, around(50, 1000, 10), around(40, 2000, 10))
		c.Counters, c.Vs[0].Counters = a, b
		return c
	}
	counted := cell(map[string]uint64{"opens": 1, "hits": 55, "mapped_bytes": 64}, map[string]uint64{"opens": 40, "mapped_bytes": 64})
	tests := []struct {
		expect Count
		want   Verdict
		why    string
	}{
		{Count{Of: A, Counter: "opens", Is: Exactly, Value: 1}, Reproduced, "A opens 1"},
		{Count{Of: A, Counter: "opens", Is: Exactly, Value: 2}, NotReproduced, "1K: A opens is 1, expected = 2"},
		{Count{Of: A, Counter: "opens", Is: AtMost, Value: 1}, Reproduced, "A opens 1"},
		{Count{Of: B, Counter: "opens", Is: AtMost, Value: 39}, NotReproduced, "1K: B opens is 40, expected ≤ 39"},
		{Count{Of: A, Counter: "hits", Is: AtLeast, Value: 1, Per: PerSample}, Reproduced, "A hits 55"},
		{Count{Of: B, Counter: "opens", Is: AtLeast, Value: 1, Per: PerSample}, Reproduced, "B opens 40"},
		{Count{Of: A, Counter: "opens", Is: AtLeast, Value: 1, Per: PerSample}, NotReproduced, "1K: A opens is 1, expected ≥ 50"},
		{Count{Of: A, Counter: "mapped_bytes", Is: AtMost, Value: 1, Per: PerOther}, Reproduced, "A mapped_bytes 64"},
		{Count{Of: B, Counter: "opens", Is: AtMost, Value: 2, Per: PerOther}, NotReproduced, "1K: B opens is 40, expected ≤ 2"},
		{Count{Of: A, Counter: "exports", Is: None}, Reproduced, "A no exports"},
		{Count{Of: A, Counter: "opens", Is: None}, NotReproduced, "1K: A opens is 1, expected none"},
		{Count{Of: A, Counter: "closes", Is: Exactly}, NotMeasurable, "1K: arm A has no counter closes"},
		{Count{Of: B, Counter: "hits", Is: AtLeast, Value: 1}, NotMeasurable, "1K: arm B has no counter hits"},
		{Count{Of: A, Counter: "hits", Is: AtMost, Value: 1, Per: PerOther}, NotMeasurable, "1K: arm B has no counter hits"},
	}
	for _, tt := range tests {
		test := faster(tt.expect)
		test.Sizes = test.Sizes[:1]
		o := test.Judge(Run{Cells: []record.Cell{counted}})
		if o.Verdict != tt.want || o.Why != tt.why {
			t.Errorf("%s: %s: %s; want %s: %s", tt.expect, o.Verdict, o.Why, tt.want, tt.why)
		}
	}
}

// Counters decide the verdict of a claim whose times are only shown.
func TestCountBesideFactor(t *testing.T) {
	opens := Count{Of: A, Counter: "opens", Is: Exactly, Value: 1}
	slow := cellOf(1<<10, around(50, 2000, 10), around(50, 1000, 10))
	slow.Counters["opens"] = 1
	test := faster(opens)
	test.Sizes = test.Sizes[:1]
	if o := test.Judge(Run{Cells: []record.Cell{slow}}); o.Verdict != Reproduced || o.Rows[0].Factor == nil || o.Why != "A opens 1" {
		t.Errorf("counters only: %s: %s", o.Verdict, o.Why)
	}
	test.Expect = []Expectation{Faster{}, opens}
	fast := cellOf(1<<10, around(50, 1000, 10), around(50, 2000, 10))
	if o := test.Judge(Run{Cells: []record.Cell{fast}}); o.Verdict != NotMeasurable || !strings.Contains(o.Why, "no counter opens") {
		t.Errorf("without the counter: %s: %s", o.Verdict, o.Why)
	}
	fast.Counters["opens"] = 7
	if o := test.Judge(Run{Cells: []record.Cell{fast}}); o.Verdict != NotReproduced || !strings.Contains(o.Why, "opens is 7") {
		t.Errorf("with a wrong counter: %s: %s", o.Verdict, o.Why)
	}
}

func TestNear(t *testing.T) {
	alone := func(us float64, samples []int64) Outcome {
		test := Test{
			A: Arm{Label: "one", Args: []string{"ipc"}}, Op: "pingpong", Sizes: []uint64{1 << 10},
			Expect: []Expectation{Near{RoundTripUS: map[uint64]float64{1 << 10: us}, Factor: 2}},
		}
		return test.Judge(Run{Cells: []record.Cell{cellOf(1<<10, samples, nil)}})
	}
	half := around(50, 600_000, 1000) // a round trip of 1200 µs
	o := alone(1000, half)
	if o.Verdict != Reproduced || o.B != nil || o.Rows[0].Factor.String() != "1.20 [1.20, 1.20]" || *o.Rows[0].PublishedUS != 1000 {
		t.Errorf("%s: %s: %v", o.Verdict, o.Why, o.Rows[0].Factor)
	}
	for _, us := range []float64{500, 2500} {
		if o := alone(us, half); o.Verdict != NotReproduced || !strings.Contains(o.Why, "expected between 0.50 and 2.00") {
			t.Errorf("published %v µs: %s: %s", us, o.Verdict, o.Why)
		}
	}
	if o := alone(1000, half[:5]); o.Verdict != NotMeasurable {
		t.Errorf("five samples: %s: %s", o.Verdict, o.Why)
	}
}

func TestFirstMessage(t *testing.T) {
	test := faster(FirstSlower{})
	test.Sizes = test.Sizes[:1]
	judge := func(a, b []int64) Outcome { return test.Judge(Run{Cells: []record.Cell{cellOf(1<<10, a, b)}}) }
	if o := judge([]int64{5000, 1, 1}, []int64{90000, 1, 1}); o.Verdict != Reproduced || !strings.Contains(o.Why, "A 5.0 µs, B 90.0 µs") {
		t.Errorf("%s: %s", o.Verdict, o.Why)
	}
	if o := judge([]int64{5000, 1, 1}, []int64{4000, 90000, 90000}); o.Verdict != NotReproduced {
		t.Errorf("later messages counted: %s: %s", o.Verdict, o.Why)
	}
	c := cellOf(1<<10, []int64{5}, []int64{6})
	c.SamplesNS = nil
	if o := test.Judge(Run{Cells: []record.Cell{c}}); o.Verdict != NotMeasurable {
		t.Errorf("without samples: %s: %s", o.Verdict, o.Why)
	}
}

func TestDataCheck(t *testing.T) {
	test := Test{A: Arm{Label: "one", Args: []string{"ipc"}}, Op: "pingpong", Sizes: []uint64{1 << 10}}
	good := cellOf(1<<10, around(50, 1000, 10), nil)
	unchecked, sampled, wrong := good, good, good
	unchecked.Verified = nil
	sampled.Knobs = map[string]string{"check": "sample"}
	wrong.Verified = ptr(false)
	corrupt := "data corruption: ipc get: offset 0 expected 0x01, got 0x02"
	for _, tt := range []struct {
		name   string
		expect Expectation
		run    Run
		want   Verdict
		why    string
	}{
		{"caught", Caught{}, Run{Corrupt: corrupt}, Reproduced, "detected wrong data: " + corrupt},
		{"not caught", Caught{}, Run{Cells: []record.Cell{good}}, NotReproduced, "no wrong data to detect"},
		{"broke down instead", Caught{}, Run{Absent: "rank 1: hang"}, NotMeasurable, "rank 1: hang"},
		{"intact", Intact{}, Run{Cells: []record.Cell{good}}, Reproduced, "every byte verified"},
		{"corrupt", Intact{}, Run{Corrupt: corrupt}, NotReproduced, corrupt},
		{"corrupt by the record", Intact{}, Run{Cells: []record.Cell{wrong}}, NotReproduced, "differs from the payload sent"},
		{"not checked", Intact{}, Run{Cells: []record.Cell{unchecked}}, NotMeasurable, "not checked in full"},
		{"checked in part", Intact{}, Run{Cells: []record.Cell{sampled}}, NotMeasurable, "not checked in full"},
		{"corrupt arm of a comparison", Faster{}, Run{Corrupt: corrupt}, NotReproduced, corrupt},
	} {
		test.Expect = []Expectation{tt.expect}
		if o := test.Judge(tt.run); o.Verdict != tt.want || !strings.Contains(o.Why, tt.why) {
			t.Errorf("%s: %s: %s; want %s: %s", tt.name, o.Verdict, o.Why, tt.want, tt.why)
		}
	}
}

func TestConclude(t *testing.T) {
	c := Claim{ID: "x-1/y", Title: "t", Differs: "d "}
	outcome := func(name string, v Verdict, why string) Outcome { return Outcome{Name: name, Verdict: v, Why: why} }
	for _, tt := range []struct {
		tests []Outcome
		want  Verdict
		why   string
	}{
		{[]Outcome{outcome("", Reproduced, "good")}, Reproduced, "good"},
		{[]Outcome{outcome("a", Reproduced, "good"), outcome("b", Reproduced, "too")}, Reproduced, "a: good"},
		{[]Outcome{outcome("a", Reproduced, "good"), outcome("b", NotMeasurable, "no GPU")}, NotMeasurable, "b: no GPU"},
		{[]Outcome{outcome("a", NotMeasurable, "no GPU"), outcome("b", NotReproduced, "slow")}, NotReproduced, "b: slow"},
	} {
		if r := c.Conclude(tt.tests, true); r.Verdict != tt.want || r.Why != tt.why || r.ID != c.ID || r.Differs != "d" {
			t.Errorf("%s: %s; want %s: %s", r.Verdict, r.Why, tt.want, tt.why)
		}
	}
}

// A counter is compared with another one, of the same or the other arm.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		name   string
		expect Times
		want   Verdict
		why    string
	}{
		{"as much", Times{Counter{B, "setup_ns"}, Counter{A, "setup_shared_ns"}, 5}, Reproduced, "B setup_ns 500 ÷ A setup_shared_ns 100: 5.00"},
		{
			"less",
			Times{Counter{B, "setup_ns"}, Counter{A, "setup_shared_ns"}, 5.1},
			NotReproduced, "1K: B setup_ns 500 ÷ A setup_shared_ns 100: 5.00, expected at least 5.10",
		},
		{"of one arm", Times{Counter{A, "setup_ns"}, Counter{A, "setup_shared_ns"}, 4}, Reproduced, "A setup_ns 400 ÷ A setup_shared_ns 100: 4.00"},
		{"of nothing", Times{Counter{A, "setup_ns"}, Counter{A, "zero"}, 4}, Reproduced, "A setup_ns 400 ÷ A zero 0: 400"},
		{"not counted", Times{Counter{B, "setup_ns"}, Counter{B, "setup_shared_ns"}, 5}, NotMeasurable, "1K: arm B has no counter setup_shared_ns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cell := cellOf(1<<10, around(50, 1000, 10), around(50, 1000, 10))
			cell.Counters = map[string]uint64{"setup_ns": 400, "setup_shared_ns": 100, "zero": 0}
			cell.Vs[0].Counters["setup_ns"] = 500
			test := faster(c.expect)
			test.Sizes = test.Sizes[:1]
			if o := test.Judge(Run{Cells: []record.Cell{cell}}); o.Verdict != c.want || o.Why != c.why {
				t.Errorf("%s: %q, want %s: %q", o.Verdict, o.Why, c.want, c.why)
			}
		})
	}
	if text := (Times{Counter{B, "setup_ns"}, Counter{A, "setup_shared_ns"}, 5}).String(); text != "B setup_ns at least 5.00 × A setup_shared_ns" {
		t.Error(text)
	}
}

// The verdict of a claim about GPUs that was measured without a GPU has a caveat.
func TestCaveat(t *testing.T) {
	about := map[bool]int{}
	for _, c := range All() {
		about[c.GPUs]++
		for _, v := range []Verdict{Reproduced, NotReproduced, NotMeasurable} {
			o := []Outcome{{Verdict: v}}
			if r := c.Conclude(o, true); r.Caveat != "" {
				t.Errorf("%s on GPUs, %s: %s", c.ID, v, r.Caveat)
			}
			if r := c.Conclude(o, false); (r.Caveat != "") != (c.Seed() != "anp-20" && v != NotMeasurable) {
				t.Errorf("%s between CPU memories, %s: caveat %q", c.ID, v, r.Caveat)
			}
		}
	}
	if about[true] < 20 || about[false] != 5 {
		t.Errorf("%d claims about GPUs, %d about others", about[true], about[false])
	}
}

func TestMeasured(t *testing.T) {
	of := func(v Verdict, cells int) Document {
		return Document{Claims: []Result{{Verdict: NotMeasurable}, {Verdict: v, Tests: []Outcome{{Cells: make([]record.Cell, cells)}}}}}
	}
	for want, docs := range map[bool][]Document{
		true:  {of(Reproduced, 1), of(Reproduced, 0), of(NotReproduced, 0), of(NotMeasurable, 1)},
		false: {of(NotMeasurable, 0), {}},
	} {
		for _, d := range docs {
			if d.Measured() != want {
				t.Errorf("%+v: want %v", d.Claims, want)
			}
		}
	}
}
