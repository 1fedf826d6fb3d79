package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/report/claim"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

// judged is a document of real claims with made-up runs: everything that a verdict can be.
func judged(t *testing.T) claim.Document {
	t.Helper()
	claims, err := claim.Find([]string{
		"uccl-876/vs-nccl", "uccl-876/relay-unchanged", "uccl-876/same-process", "mpich-7862/stale-safe", "mpich-7862/lru-cliff",
	})
	if err != nil {
		t.Fatal(err)
	}
	env := gpuEnv()
	d := claim.Document{
		Schema: claim.Schema, Version: "0.1.0", Started: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Command: []string{"p2pbench", "claims", "run", "all", "--require"}, Env: &env,
		Warnings: []string{"fewer CPUs than ranks: waits give the CPU away"}, Exit: 3,
	}
	for _, c := range claims {
		var outcomes []claim.Outcome
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

func madeUp(id string, test claim.Test) claim.Run {
	switch id {
	case "mpich-7862/stale-safe:no-validation":
		return claim.Run{Corrupt: "rank 1: data corruption: ipc get/ce latency, size 1048576, iteration 1, message 0: offset 0 " +
			"expected 0xc9, got 0x56 (1044556 bytes wrong)"}
	case "uccl-876/same-process:":
		return claim.Run{Absent: "ipc: this device shares no pointers: not here"}
	}
	var r claim.Run
	for _, size := range test.Sizes {
		us := 4 + float64(size)/350_000
		c := ipc(test.Op, size, 1, test.Iters, us)
		c.Counters = map[string]uint64{"hits": 300, "misses": 16, "stale": 279}
		if strings.Contains(id, "relay") {
			c = measured(c, sampling(test.Iters, 300*us))
		}
		if test.Paired() {
			c = against(c, test.B.Label, "", sampling(test.Iters, 10+float64(size)/330_000))
			c.Vs[0].Counters = map[string]uint64{"hits": 0, "misses": 300}
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

func renderedClaims(t *testing.T, d claim.Document, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := RenderClaims(&b, d, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGoldenClaims(t *testing.T) {
	d := judged(t)
	golden(t, "claims.table", renderedClaims(t, d, "table"))
	golden(t, "claims.md", renderedClaims(t, d, "md"))
	checkMarkdownTables(t, renderedClaims(t, d, "md"))
}

// The examples have all verdicts in them, or the golden files would show too little.
func TestExamplesHaveEveryVerdict(t *testing.T) {
	d := judged(t)
	for _, v := range []claim.Verdict{claim.Reproduced, claim.NotReproduced, claim.NotMeasurable} {
		if d.Count(v) == 0 {
			t.Errorf("none is %s", v)
		}
	}
}

// One line for each claim, test and size, found by its ID, within 120 columns; every claim is explained.
func TestClaimsTable(t *testing.T) {
	d := judged(t)
	text := renderedClaims(t, d, "table")
	for line := range strings.Lines(text) {
		if w := narrow.StringWidth(strings.TrimSuffix(line, "\n")); w > 120 {
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

// The longest claim there is fits, with figures at their longest.
func TestWidestClaimFits(t *testing.T) {
	var d claim.Document
	for _, c := range claim.All() {
		r := claim.Result{ID: c.ID}
		for _, test := range c.Tests {
			r.Tests = append(r.Tests, claim.Outcome{Name: test.Name, Rows: []claim.Row{{
				Size: 256 << 20, A: &claim.Median{P50: 12345678}, B: &claim.Median{P50: 12345678},
				Factor:  &claim.Factor{Value: 10544, Low: 10131, High: 10607},
				Verdict: claim.NotReproduced, PublishedUS: ptr(3609.5),
			}}})
		}
		d.Claims = append(d.Claims, r)
	}
	for line := range strings.Lines(renderedClaims(t, d, "table")) {
		if w := narrow.StringWidth(strings.TrimSuffix(line, "\n")); w > 120 {
			t.Errorf("%d columns: %s", w, line)
		}
	}
}

func TestClaimsJSON(t *testing.T) {
	text := renderedClaims(t, judged(t), "json")
	var d claim.Document
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if d.Schema != claim.Schema || len(d.Claims) != 5 || strings.Contains(text, "samples_ns") {
		t.Errorf("schema %s, %d claims, samples %v", d.Schema, len(d.Claims), strings.Contains(text, "samples_ns"))
	}
	last := d.Claims[len(d.Claims)-1].Tests[0]
	if len(last.Cells) != len(last.Rows) || len(last.Rows) == 0 {
		t.Errorf("%d cells of %d sizes", len(last.Cells), len(last.Rows))
	}
}

func TestClaimsWriteErrors(t *testing.T) {
	for _, format := range ClaimFormats {
		if err := RenderClaims(fullDisk{}, judged(t), format); !errors.Is(err, errFull) {
			t.Errorf("%s: %v", format, err)
		}
	}
	if err := RenderClaims(io.Discard, claim.Document{}, "csv"); err == nil || !strings.Contains(err.Error(), "use one of table, json, md") {
		t.Errorf("csv: %v", err)
	}
}

func TestListClaims(t *testing.T) {
	var b bytes.Buffer
	if err := ListClaims(&b, claim.All()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, c := range claim.All() {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, c.ID+"  ") }) {
			t.Errorf("%s is not listed", c.ID)
		}
	}
}

// Text from a machine cannot reach the terminal's control, nor break a table.
func TestHostileClaims(t *testing.T) {
	evil := "a|b\x1b[31m\nc <script>*_`"
	o := claim.Outcome{Name: evil, Verdict: claim.NotMeasurable, Why: evil, A: claim.Side{Label: evil, Command: []string{evil}}}
	env := record.Env{Host: evil}
	d := claim.Document{Env: &env, Claims: []claim.Result{{ID: "x-1/y", Title: evil, Why: evil, Tests: []claim.Outcome{o}}}}
	for _, format := range []string{"table", "md"} {
		text := renderedClaims(t, d, format)
		if strings.Contains(text, "\x1b") || format == "md" && strings.Contains(text, "<script") {
			t.Errorf("%s: %q", format, text)
		}
	}
	checkMarkdownTables(t, renderedClaims(t, d, "md"))
}

// A verdict with a caveat never stands without it.
func TestClaimsWithACaveat(t *testing.T) {
	d := judged(t)
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
