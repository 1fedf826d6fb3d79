package verdict

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// session makes a session of so many runs on that day.
func session(t testing.TB, day, runs int, slower float64) Session {
	t.Helper()
	trial := machine{3, 0.01, 0.5, 0, 0}.trial(runs/2, false, random(day))
	for _, values := range trial.Values {
		for i := range values {
			values[i] += math.Log1p(slower)
		}
	}
	s, err := NewSession(runsOf("s", start.AddDate(0, 0, day), time.Minute, trial.Values), "it was quiet", start.AddDate(0, 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encoded(t testing.TB, b Baseline) []byte {
	t.Helper()
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A baseline is read as it was written, has a line for each session and cell, and judges as its runs do.
func TestBaseline(t *testing.T) {
	var b Baseline
	for day := range 4 {
		if err := b.Add(session(t, day, 8, 0)); err != nil {
			t.Fatal(err)
		}
	}
	data := encoded(t, b)
	if n := bytes.Count(data, []byte("\n")); n != 1+4*(1+3)+1 {
		t.Errorf("%d lines", n)
	}
	got, err := ReadBaseline(data)
	if err != nil || !cmp.Equal(got, b) {
		t.Fatalf("%v: %s", err, cmp.Diff(got, b))
	}
	for slower, want := range map[float64]Verdict{0: Pass, 0.3: Regress} {
		head := Side{"head", Baseline{[]Session{session(t, 9, 8, slower)}}.RunsOf("head")}
		if r, err := Compare(Side{"base", got.RunsOf("base")}, head, judged); err != nil || r.Verdict != want || r.Base.Sessions != 4 {
			t.Errorf("%v slower: %v: %s: %s", slower, err, r.Verdict, r.Why)
		}
	}
	var no *IncomparableError
	if err := got.Add(session(t, 2, 8, 0)); !errors.As(err, &no) || !strings.Contains(err.Error(), "is in the baseline already, as session 3") {
		t.Error(err)
	}
	other := session(t, 5, 8, 0)
	other.Facts = []Fact{{"CPU", "slow"}}
	if err := got.Add(other); !errors.As(err, &no) || !strings.Contains(err.Error(), `CPU is "fast" in base and "slow" in head`) {
		t.Error(err)
	}
}

// sealed gives text the checksum that it should have.
func sealed(lines ...string) []byte {
	text := strings.Join(lines, "\n") + "\n"
	return []byte(text + `{"sha256":"` + checksum([]byte(text)) + "\"}\n")
}

func TestBaselineRefused(t *testing.T) {
	good := encoded(t, Baseline{[]Session{session(t, 1, 8, 0)}})
	lines := strings.Split(strings.TrimSpace(string(good)), "\n")
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":       {nil, "no baseline: want the schema"},
		"a run":         {[]byte(`{"schema": "p2pbench/1"}`), "no baseline"},
		"cut off":       {good[:len(good)-1], "truncated"},
		"cut at a line": {[]byte(strings.Join(lines[:3], "\n") + "\n"), "the last line is no checksum: the file is truncated"},
		"edited":        {bytes.Replace(good, []byte("it was quiet"), []byte("it is faster"), 1), "the checksum does not match: the file was edited by hand or merged"},
		"newer":         {sealed(`{"schema":"p2pbench-baseline/2"}`, "{}"), `schema "p2pbench-baseline/2": this p2pbench reads p2pbench-baseline/1`},
		"no session":    {sealed(lines[0], lines[2]), "line 2: want a session, or a cell below one"},
		"no cells":      {sealed(lines[0], lines[1]), "session 1: has no runs"},
		"cell twice":    {sealed(lines[0], lines[1], lines[2], lines[2]), "is there twice"},
		"no JSON":       {sealed(lines[0], "{"), "line 2: malformed"},
		"unknown key":   {sealed(lines[0], `{"rule":1}`), "line 2: malformed"},
		"no time":       {sealed(lines[0], lines[1], `{"cell":{"transport":"ipc","op":"x","size":1,"bytes":1,"p50_us":[0],"facts":[]}}`), "0 µs is no time"},
		"ragged":        {sealed(lines[0], lines[1], lines[2], `{"cell":{"transport":"ipc","op":"x","size":1,"bytes":1,"p50_us":[1],"facts":[]}}`), "figures of 1 runs, want 8"},
	} {
		if _, err := ReadBaseline(c.data); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzBaseline: whatever a file holds, it is refused or can be compared; the checksum is made to fit.
func FuzzBaseline(f *testing.F) {
	good := encoded(f, Baseline{[]Session{session(f, 1, 2, 0)}})
	body, _, _ := bytes.Cut(good, []byte(`{"sha256"`))
	f.Add(body)
	f.Add([]byte(`{"schema":"p2pbench-baseline/1"}` + "\n" + `{"session":{}}` + "\n" + `{"cell":{"p50_us":[1]}}` + "\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := ReadBaseline(sealed(strings.TrimSuffix(string(body), "\n")))
		if err != nil {
			return
		}
		if _, err := ReadBaseline(encoded(t, b)); err != nil {
			t.Errorf("was read, and what is written of it not: %v", err)
		}
		side := Side{"x", b.RunsOf("x")}
		if len(side.Runs) > 20 {
			return
		}
		var few *TooFewError
		var no *IncomparableError
		if _, err := Compare(side, side, judged); err != nil && !errors.As(err, &few) && !errors.As(err, &no) {
			t.Error(err)
		}
	})
}
