package verdict

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// interleave gives both sides of a trial in blocks as runs that took turns, a second apart.
func interleave(t Trial) (base, head Side) {
	base.Name, head.Name = "base", "head"
	values := make([][]float64, len(t.Values))
	for i, isHead := range t.Head {
		for c := range values {
			values[c] = t.Values[c][i : i+1]
		}
		side := &base
		if isHead {
			side = &head
		}
		side.Runs = append(side.Runs, runsOf(side.Name, start.Add(time.Duration(i)*time.Second), 0, values)...)
	}
	return base, head
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name    string
		effects []float64
		want    Verdict
		why     string
	}{
		{"equal", nil, Pass, "none of 4 figures is slower by 10 %"},
		{"slower", []float64{0, 0, math.Log(1.3)}, Regress, "1 of 4 figures are slower; the worst is p50 of ipc latency, 4096 bytes, by "},
		{"faster", []float64{-1, -1, -1, -1}, Pass, ""},
	} {
		base, head := interleave(machine{4, 0.02, 0.5, 0, 0.05}.trial(10, true, random(2), c.effects...))
		r, err := Compare(base, head, judged)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if r.Verdict != c.want || !strings.Contains(r.Why, c.why) || r.Design != interleaved || r.Base.Runs != 10 {
			t.Errorf("%s: %s: %s (%+v)", c.name, r.Verdict, r.Why, r)
		}
		for i, row := range r.Rows {
			if row.Low > row.Slower || row.Slower > row.High || i > 0 && row.Verdict == Regress && r.Rows[i-1].Verdict != Regress {
				t.Errorf("%s: row %d: %+v", c.name, i, row)
			}
		}
	}
}

// A large family is judged like a small one: one of 200 cells that is slower is found, and no other.
func TestManyCells(t *testing.T) {
	base, head := interleave(machine{200, 0.02, 0.5, 0, 0.03}.trial(20, true, random(6), math.Log(1.2)))
	r, err := Compare(base, head, judged)
	if err != nil || r.Count(Regress) != 1 || r.Rows[0].Size != 1024 || len(r.Rows) != 200 {
		t.Errorf("%v: %s: %+v", err, r.Why, r.Rows[0])
	}
}

// BenchmarkCompare is what `p2pbench compare` does with 200 cells and 20 runs a side once it has read them.
func BenchmarkCompare(b *testing.B) {
	base, head := interleave(machine{200, 0.03, 0.5, 0.02, 0.02}.trial(20, true, random(1)))
	for b.Loop() {
		if _, err := Compare(base, head, judged); err != nil {
			b.Fatal(err)
		}
	}
}

// A cell that is too noisy is no pass, and the way out is named.
func TestAmbiguous(t *testing.T) {
	base, head := interleave(machine{4, 0.15, 0.5, 0, 0}.trial(8, true, random(2)))
	r, err := Compare(base, head, judged)
	if err != nil || r.Verdict != Ambiguous || !strings.Contains(r.Why, "too noisy to tell; the smallest change that could have been seen") {
		t.Fatalf("%v: %+v", err, r)
	}
	if n := r.RunsToDecide(); n != 0 && n <= 8 {
		t.Errorf("%d runs are said to decide what 8 did not", n)
	}
	// One session of each side, one after the other.
	runs := machine{4, 0.01, 0.5, 0, 0}.trial(10, false, random(2), math.Log(2)).Values
	var first, second [][]float64
	for _, v := range runs {
		first, second = append(first, v[:10]), append(second, v[10:])
	}
	base = Side{"old", runsOf("a", start, time.Second, first)}
	head = Side{"new", runsOf("b", start.AddDate(0, 0, 1), time.Second, second)}
	if r, err = Compare(base, head, judged); err != nil || r.Verdict != Ambiguous || !strings.Contains(r.Why, "base has 1 of the 3 sessions") || r.Design != sessions {
		t.Fatalf("%v: %+v", err, r)
	}
}

// GB/s and p50 are one figure; p99 is another of the same family.
func TestMetrics(t *testing.T) {
	base, head := interleave(machine{3, 0.02, 0.5, 0, 0}.trial(10, true, random(4)))
	o := judged
	o.Metrics = []string{P50, GBps, P99}
	for i := range head.Runs {
		head.Runs[i].Cells[1].P99 *= 1.5
	}
	r, err := Compare(base, head, o)
	if err != nil || r.Verdict != Regress || r.Count(Regress) != 1 || r.Rows[0].Metric != P99 || r.Rows[0].Size != 2048 || len(r.Rows) != 9 {
		t.Fatalf("%v: %+v", err, r)
	}
	by := map[string]Row{}
	for _, row := range r.Rows {
		if row.Size == 1024 {
			by[row.Metric] = row
		}
	}
	if by[P50].Slower != by[GBps].Slower || math.Abs(by[GBps].Base*by[P50].Base*1e3-1024) > 30 {
		t.Errorf("%+v", by)
	}
	head.Runs[3].Cells[0].P99 = 0
	var no *IncomparableError
	if _, err = Compare(base, head, o); !errors.As(err, &no) || !strings.Contains(err.Error(), "p99 of fewer than 100 samples") {
		t.Error(err)
	}
}

func TestIncomparable(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(base, head *Side)
		settings bool
		want     string // of the refusal; "": none
		differ   int
		warnings int
	}{
		"machine": {func(_, h *Side) { each1(h, func(r *Run) { r.Facts = []Fact{{"CPU", "slow"}} }) }, false, `base and head are not comparable: CPU is "fast" in base and "slow" in head`, 0, 0},
		"driver":  {func(_, h *Side) { each1(h, func(r *Run) { r.Facts = append(r.Facts, Fact{"driver", "2"}) }) }, false, `driver is absent in base and "2" in head`, 0, 0},
		"path":    {func(_, h *Side) { each1(h, func(r *Run) { r.Cells[2].Facts[0].Value = "relay" }) }, false, `ipc latency, 4096 bytes: path is "direct" in base and "relay" in head`, 0, 0},
		"knob":    {func(_, h *Side) { each1(h, func(r *Run) { r.Cells[0].Facts[1].Value = "2" }) }, false, `knob seed is "1" in base and "2" in head`, 0, 0},
		"new knob": {func(_, h *Side) {
			each1(h, func(r *Run) { r.Cells[0].Facts = append(r.Cells[0].Facts, Fact{"knob new", "x"}) })
		}, false, `knob new is absent in base`, 0, 0},
		"newer version": {func(_, h *Side) {
			each1(h, func(r *Run) { r.Version = "2"; r.Cells[0].Facts = append(r.Cells[0].Facts, Fact{"knob new", "x"}) })
		}, false, "", 0, 1},
		"on purpose":     {func(_, h *Side) { each1(h, func(r *Run) { r.Cells[0].Facts[0].Value = "relay" }) }, true, "", 1, 0},
		"not on purpose": {func(_, h *Side) { each1(h, func(r *Run) { r.Facts[0].Value = "slow" }) }, true, "CPU is", 0, 0},
		"one run":        {func(_, h *Side) { h.Runs[4].Cells[0].Facts = []Fact{{"path", "relay"}, {"knob seed", "1"}} }, true, "runs of one side differ: ipc latency, 1024 bytes: path", 0, 0},
		"cell missing":   {func(_, h *Side) { each1(h, func(r *Run) { r.Cells = r.Cells[:2] }) }, false, "ipc latency, 4096 bytes is missing in head/0", 0, 0},
		"cell too many":  {func(b, _ *Side) { each1(b, func(r *Run) { r.Cells = r.Cells[:2] }) }, false, "ipc latency, 4096 bytes is missing in base/0", 0, 0},
		"cell in one":    {func(b, _ *Side) { b.Runs[2].Cells = b.Runs[2].Cells[:2] }, false, "runs of one side differ", 0, 0},
		"chosen":         {func(_, h *Side) { h.Runs[4].Cells[0].Choice = "ce" }, false, "", 0, 1},
		"nothing":        {func(b, _ *Side) { b.Runs = nil }, false, "base: holds no runs", 0, 0},
	} {
		base, head := interleave(machine{3, 0.02, 0.5, 0, 0}.trial(10, true, random(4)))
		c.change(&base, &head)
		o := judged
		o.Settings = c.settings
		r, err := Compare(base, head, o)
		var no *IncomparableError
		switch {
		case c.want == "" && (err != nil || len(r.Differ) != c.differ || len(r.Warnings) != c.warnings):
			t.Errorf("%s: %v: %q, %q", name, err, r.Differ, r.Warnings)
		case c.want != "" && (!errors.As(err, &no) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func each1(s *Side, change func(*Run)) {
	for i := range s.Runs {
		change(&s.Runs[i])
	}
}

func TestBlocksOf(t *testing.T) {
	for text, want := range map[string][]int{
		"abbabaab":     {0, 0, 0, 0, 1, 1, 1, 1},
		"abab":         nil,
		"abbaab":       {0, 0, 0, 0, 1, 1},
		"aabbbbaa":     {0, 0, 0, 0, 1, 1, 1, 1},
		"aaaabbbb":     nil,
		"aaabbbaaabbb": nil,
		"abbaa":        nil,
		"ab":           nil,
		"":             nil,
	} {
		var head []bool
		for _, r := range text {
			head = append(head, r == 'b')
		}
		if got := blocksOf(head); !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// written is a document as --out writes it.
func written(t testing.TB, change func(*record.Document)) []byte {
	t.Helper()
	d := reporttest.Host()
	d.Exit = 0
	for i := range d.Cells {
		d.Cells[i].Invalid = nil
	}
	if change != nil {
		change(&d)
	}
	var b bytes.Buffer
	if err := record.Write(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRead(t *testing.T) {
	r, err := Read("x", written(t, nil))
	if err != nil || len(r.Cells) == 0 || len(r.Facts) == 0 || r.Cells[0].P50 <= 0 || len(r.Cells[0].Facts) == 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	auto, err := Read("x", written(t, func(d *record.Document) {
		d.Cells[0].Knobs["engine"], d.Cells[0].Knobs["chosen"] = "auto", "cpu from 1 byte"
	}))
	if err != nil || auto.Cells[0].Choice != "memcpy" || r.Cells[0].Choice != "" {
		t.Errorf("%v: chose %q; and %q without auto", err, auto.Cells[0].Choice, r.Cells[0].Choice)
	}
	// What equal runs may choose otherwise is none of the facts.
	for _, f := range auto.Cells[0].Facts {
		if f.Value == "memcpy" || f.Name == "knob chosen" {
			t.Errorf("%+v", f)
		}
	}
	for name, c := range map[string]struct {
		change func(*record.Document)
		want   string
	}{
		"failed":  {func(d *record.Document) { d.Exit = 4 }, "x: the run ended with exit code 4"},
		"invalid": {func(d *record.Document) { d.Exit, d.Cells[0].Invalid = 3, reporttest.Ptr("throttled") }, "x: the run ended with exit code 3"},
		"empty":   {func(d *record.Document) { d.Cells = nil }, "x: the run has no cells"},
		"twice":   {func(d *record.Document) { d.Cells = append(d.Cells, d.Cells[0]) }, "is there twice"},
		"no time": {func(d *record.Document) {
			c := &d.Cells[0]
			d.Cells[0] = record.Cell{Transport: c.Transport, Op: c.Op, Size: c.Size}
		}, "no time was measured"},
	} {
		var no *IncomparableError
		if _, err := Read("x", written(t, c.change)); !errors.As(err, &no) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, text := range []string{"", "{", "[]", string(written(t, nil)[:500]), `{"schema": "p2pbench/2"}`, `{"schema": "benchstat"}`} {
		var no *IncomparableError
		if _, err := Read("x", []byte(text)); err == nil || errors.As(err, &no) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.20q: %v; want one line that refuses the file", text, err)
		}
	}
}

// FuzzRead: whatever a file holds, it is refused in one line or gives figures that have logarithms.
func FuzzRead(f *testing.F) {
	f.Add(written(f, nil))
	f.Add([]byte(`{"schema": "p2pbench/1", "cells": [{"transport": "ipc", "op": "latency"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read("x", data)
		if err != nil {
			return
		}
		for _, c := range r.Cells {
			if _, cost, err := c.figure(P50); err != nil || math.IsNaN(cost) || math.IsInf(cost, 0) {
				t.Errorf("%s: %v, %v", c.Key, cost, err)
			}
		}
	})
}
