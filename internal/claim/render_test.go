package claim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
)

// examples returns a document of real claims with made-up runs that has every kind of verdict.
func examples(t *testing.T) Document {
	t.Helper()
	claims, err := Find([]string{
		"uccl-876/vs-nccl", "uccl-876/relay-unchanged", "uccl-876/same-process", "mpich-7862/stale-safe", "mpich-7862/lru-cliff",
	})
	if err != nil {
		t.Fatal(err)
	}
	env := reporttest.GPUEnv()
	d := Document{
		Schema: Schema, Version: "0.1.0", Started: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Command: []string{"p2pbench", "claims", "run", "all", "--require"}, Env: &env,
		Warnings: []string{"fewer CPUs than ranks: waits give the CPU away"}, Exit: 3,
	}
	for _, c := range claims {
		var outcomes []Outcome
		for _, test := range c.Tests {
			o := test.Judge(madeUp(c.ID+":"+test.Name, test))
			o.A.Command = append([]string{"p2pbench"}, test.Command(test.A, true)...)
			if o.B != nil {
				o.B.Command = append([]string{"p2pbench"}, test.Command(test.B, true)...)
			}
			outcomes = append(outcomes, o)
		}
		d.Claims = append(d.Claims, c.Conclude(outcomes, true))
	}
	return d
}

func madeUp(id string, test Test) Run {
	switch id {
	case "mpich-7862/stale-safe:no-validation":
		return Run{Corrupt: "rank 1: data corruption: ipc get/ce latency, size 1048576, iteration 1, message 0: offset 0 " +
			"expected 0xc9, got 0x56 (1044556 bytes wrong)"}
	case "uccl-876/same-process:":
		return Run{Absent: "ipc: this device shares no pointers: not here"}
	}
	var r Run
	for _, size := range test.Sizes {
		us := 4 + float64(size)/350_000
		c := reporttest.IPC(test.Op, size, 1, test.Iters, us)
		c.Counters = map[string]uint64{"hits": 300, "misses": 16, "stale": 279}
		if strings.Contains(id, "relay") {
			c = reporttest.Measured(c, reporttest.Sampling(test.Iters, 300*us))
		}
		if test.Paired() {
			c = reporttest.Against(c, test.B.Label, "", reporttest.Sampling(test.Iters, 10+float64(size)/330_000))
			c.Vs[0].Counters = map[string]uint64{"hits": 0, "misses": 300}
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

func renderedClaims(t *testing.T, d Document, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := Render(&b, d, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGoldenClaims(t *testing.T) {
	d := examples(t)
	reporttest.Golden(t, "claims.table", renderedClaims(t, d, "table"))
	reporttest.Golden(t, "claims.md", renderedClaims(t, d, "md"))
	reporttest.CheckMarkdownTables(t, renderedClaims(t, d, "md"))
}

// The examples contain all verdicts.
func TestExamplesHaveEveryVerdict(t *testing.T) {
	d := examples(t)
	for _, v := range []Verdict{Reproduced, NotReproduced, NotMeasurable} {
		if d.Count(v) == 0 {
			t.Errorf("none is %s", v)
		}
	}
}

// The table has a line of at most 120 columns for each claim, test and size, and every claim has its text.
func TestClaimsTable(t *testing.T) {
	d := examples(t)
	text := renderedClaims(t, d, "table")
	for line := range strings.Lines(text) {
		if w := reporttest.Narrow.StringWidth(strings.TrimSuffix(line, "\n")); w > 120 {
			t.Errorf("%d columns: %s", w, line)
		}
	}
	for _, c := range d.Claims {
		rows := 0
		for _, o := range c.Tests {
			rows += max(len(o.Rows), 1)
		}
		if n := strings.Count(text, "\n "+c.ID); n != rows {
			t.Errorf("%s: %d lines, want %d", c.ID, n, rows)
		}
		if !strings.Contains(text, "\n"+c.ID+": "+string(c.Verdict)) {
			t.Errorf("%s: no explanation", c.ID)
		}
	}
}

// The claim with the longest ID fits with the longest figures.
func TestWidestClaimFits(t *testing.T) {
	var d Document
	for _, c := range All() {
		r := Result{ID: c.ID}
		for _, test := range c.Tests {
			r.Tests = append(r.Tests, Outcome{Name: test.Name, Rows: []Row{{
				Size: 256 << 20, A: &Median{P50: 12345678}, B: &Median{P50: 12345678},
				Factor:  &Factor{Value: 10544, Low: 10131, High: 10607},
				Verdict: NotReproduced, PublishedUS: reporttest.Ptr(3609.5),
			}}})
		}
		d.Claims = append(d.Claims, r)
	}
	for line := range strings.Lines(renderedClaims(t, d, "table")) {
		if w := reporttest.Narrow.StringWidth(strings.TrimSuffix(line, "\n")); w > 120 {
			t.Errorf("%d columns: %s", w, line)
		}
	}
}

func TestClaimsJSON(t *testing.T) {
	text := renderedClaims(t, examples(t), "json")
	var d Document
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if d.Schema != Schema || len(d.Claims) != 5 || strings.Contains(text, "samples_ns") {
		t.Errorf("schema %s, %d claims, samples %v", d.Schema, len(d.Claims), strings.Contains(text, "samples_ns"))
	}
	last := d.Claims[len(d.Claims)-1].Tests[0]
	if len(last.Cells) != len(last.Rows) || len(last.Rows) == 0 {
		t.Errorf("%d cells of %d sizes", len(last.Cells), len(last.Rows))
	}
}

func TestClaimsWriteErrors(t *testing.T) {
	for _, format := range Formats {
		if err := Render(reporttest.FullDisk{}, examples(t), format); !errors.Is(err, reporttest.ErrFull) {
			t.Errorf("%s: %v", format, err)
		}
	}
	if err := Render(io.Discard, Document{}, "csv"); err == nil || !strings.Contains(err.Error(), "use one of table, json, md") {
		t.Errorf("csv: %v", err)
	}
}

func TestList(t *testing.T) {
	var b bytes.Buffer
	if err := List(&b, All()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, c := range All() {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, c.ID+"  ") }) {
			t.Errorf("%s is not listed", c.ID)
		}
	}
}

// Text from a machine contains no control characters in the output and cannot break a table.
func TestHostileClaims(t *testing.T) {
	evil := "a|b\x1b[31m\nc <script>*_`"
	o := Outcome{Name: evil, Verdict: NotMeasurable, Why: evil, A: Side{Label: evil, Command: []string{evil}}}
	env := record.Env{Host: evil}
	d := Document{Env: &env, Claims: []Result{{ID: "x-1/y", Title: evil, Why: evil, Tests: []Outcome{o}}}}
	for _, format := range []string{"table", "md"} {
		text := renderedClaims(t, d, format)
		if strings.Contains(text, "\x1b") || format == "md" && strings.Contains(text, "<script") {
			t.Errorf("%s: %q", format, text)
		}
	}
	reporttest.CheckMarkdownTables(t, renderedClaims(t, d, "md"))
}

// A verdict is never shown without its caveat.
func TestClaimsWithACaveat(t *testing.T) {
	d := examples(t)
	for i := range d.Claims {
		d.Claims[i].Caveat = "of something else"
	}
	for _, format := range []string{"table", "md"} {
		text := renderedClaims(t, d, format)
		verdicts := regexp.MustCompile(`(not )?reproduced( here|\b)(, with a caveat)?`)
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "verdicts") || strings.HasPrefix(line, "- verdicts") {
				continue
			}
			for _, m := range verdicts.FindAllStringSubmatch(line, -1) {
				if m[3] == "" {
					t.Errorf("%s: %q", format, line)
				}
			}
		}
		if n := strings.Count(text, "of something else"); n != len(d.Claims) {
			t.Errorf("%s: the caveat stands there %d times, for %d claims", format, n, len(d.Claims))
		}
	}
}

// Untrusted files may be rendered: no control characters reach the terminal.
func TestNoViewObeys(t *testing.T) {
	hidden := func(r rune) bool { return r != '\n' && record.Hidden(r) }
	doc := examples(t)
	reporttest.Spoil(reflect.ValueOf(&doc).Elem(), reporttest.Obeyed, reporttest.Obeyed, "Started", "Verdict")
	for _, format := range Formats {
		text := renderedClaims(t, doc, format)
		if i := strings.IndexFunc(text, hidden); i >= 0 {
			t.Errorf("claims as %s: %q", format, text[max(i-20, 0):min(i+20, len(text))])
		}
	}
	for name, d := range presets() {
		reporttest.Spoil(reflect.ValueOf(&d).Elem(), reporttest.Obeyed, reporttest.Obeyed, "Op", "Preset", "Started")
		for _, format := range []string{"table", "md"} {
			text := rendered(t, d, format, true)
			if i := strings.IndexFunc(text, hidden); i >= 0 {
				t.Errorf("%s as %s: %q", name, format, text[max(i-20, 0):min(i+20, len(text))])
			}
		}
	}
}
