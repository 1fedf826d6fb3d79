package record

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestRates(t *testing.T) {
	for _, c := range []struct {
		name     string
		size     uint64
		window   int
		together int
		p50      float64 // µs
		perDir   float64 // GB/s; 0: none
		sum      float64
		rate     float64
	}{
		{"latency: one message in flight", 1000, 1, 1, 1, 1, 1, 1e6},
		{"stream: the window", 1e6, 8, 1, 100, 80, 80, 8e4},
		{"bidir: both ways", 1e6, 8, 2, 100, 80, 160, 8e4},
		{"a ring: every rank sends", 1e6, 8, 5, 100, 80, 400, 8e4},
		{"pingpong: one way at a time", 1000, 1, 1, 0.5, 2, 2, 2e6},
		{"no bytes, no bandwidth", 0, 8, 2, 2, 0, 0, 4e6},
		{"a clock too coarse", 8, 1, 1, 0, 0, 0, 0},
	} {
		perDir, sum, rate := Rates(c.size, c.window, c.together, c.p50)
		is := func(p *float64, want float64) bool {
			return p == nil && want == 0 || p != nil && want != 0 && near(*p, want)
		}
		if !is(perDir, c.perDir) || !is(sum, c.sum) || !near(rate, c.rate) {
			t.Errorf("%s: %s, %s GB/s, %v messages/s; want %v, %v, %v", c.name, figure(perDir), figure(sum), rate, c.perDir, c.sum, c.rate)
		}
	}
}

// edited returns the error of Read for a modified result.
func edited(t *testing.T, change func(*Document)) error {
	t.Helper()
	d := example()
	d.Cells[0].Knobs = map[string]string{"check": "full", "path": "direct", "engine": "ce"}
	d.Cells[0].Counters["payload_bytes"] = 11264
	if change != nil {
		change(&d)
	}
	var b bytes.Buffer
	if err := Write(&b, d); err != nil {
		t.Fatal(err)
	}
	_, err := Read(&b)
	return err
}

// Edited values that follow from samples, size and window are refused, and so is an edited verification.
func TestReadRefusesEdited(t *testing.T) {
	if err := edited(t, nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Document)
		want   string
	}{
		"bandwidth":         {func(d *Document) { *d.Cells[0].BWPerDir *= 1.001 }, "bw_GBps_per_dir is "},
		"bandwidth removed": {func(d *Document) { d.Cells[0].BWPerDir = nil }, "bw_GBps_per_dir is null, expected "},
		"bandwidth of none": {func(d *Document) { d.Cells[1].BWSum = ptr(1.0) }, "bw_GBps_sum is 1, expected null from size, window and p50"},
		"sum":               {func(d *Document) { *d.Cells[0].BWSum *= 2 }, "bw_GBps_sum is "},
		"sum both ways":     {func(d *Document) { d.Cells[0].Op = "bidir" }, "bw_GBps_sum is "},
		"sum of a fan": {func(d *Document) {
			c := &d.Cells[0]
			c.Op, c.Ranks, c.Knobs["fan"] = "stream", 4, "out"
		}, "bw_GBps_sum is "},
		"rate":           {func(d *Document) { d.Cells[1].MsgRate++ }, "msg_rate is "},
		"size":           {func(d *Document) { d.Cells[0].Size = 2048 }, "bw_GBps_per_dir is "},
		"window":         {func(d *Document) { d.Cells[1].Window = 16 }, "msg_rate is "},
		"ratio":          {func(d *Document) { *d.Cells[0].Vs[0].Ratio = 2 }, "ratio is 2, expected "},
		"baseline":       {func(d *Document) { *d.Cells[0].Vs[0].BWPerDir /= 2 }, "bw_GBps_per_dir is "},
		"absent ratio":   {func(d *Document) { d.Cells[0].Vs[1].Ratio = ptr(1.0) }, "ratio is 1, expected null from size, window and p50"},
		"absent proof":   {func(d *Document) { d.Cells[0].Vs[1].Verified = ptr(true) }, "is verified, but n/a"},
		"proof":          {func(d *Document) { delete(d.Cells[0].Counters, "checked_bytes") }, "verified, but counters have no checked_bytes"},
		"proof of none":  {func(d *Document) { d.Cells[0].Counters["checked_bytes"] = 0 }, "verified, but counters have no checked_bytes"},
		"proof of less":  {func(d *Document) { d.Cells[0].Counters["checked_bytes"] = 6143 }, "checked_bytes is 6143 with a full check, fewer than the 6144 of the samples"},
		"proof unasked":  {func(d *Document) { d.Cells[0].Knobs["check"] = "off" }, "verified, but the check is off"},
		"no proof":       {func(d *Document) { d.Cells[0].Verified = nil }, "verified is null, but counters have checked_bytes"},
		"payload":        {func(d *Document) { d.Cells[0].Counters["payload_bytes"] = 6143 }, "payload_bytes is 6143, fewer than the 6144 of the samples"},
		"corrupt":        {func(d *Document) { d.Cells[0].Verified = ptr(false) }, "not verified, but exit is 3, expected 5"},
		"corrupt beside": {func(d *Document) { d.Cells[0].Vs[0].Verified = ptr(false) }, "not verified, but exit is 3, expected 5"},
		"invalid":        {func(d *Document) { d.Exit = 0 }, "invalid, but exit is 0"},
		"path":           {func(d *Document) { d.Cells[0].Path = "relay" }, `path is "relay", and "direct" in knobs`},
		"engine":         {func(d *Document) { d.Cells[0].Engine = "sm" }, `engine is "sm", and "ce" in knobs`},
		"fairness": {func(d *Document) {
			d.Cells[0].Conns = []Connection{{GBps: ptr(1.0)}, {Conn: 1, GBps: ptr(3.0)}}
			d.Cells[0].Fairness = ptr(1.0)
		}, "jain_fairness is 1, expected 0.8 from GBps"},
	} {
		if err := edited(t, c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A product that overflows saturates.
func TestSampledBytes(t *testing.T) {
	if got := (Cell{Size: 1 << 62, N: 2, Window: 2}).sampledBytes(); got != 1<<64-1 {
		t.Errorf("%d", got)
	}
	if got := (Cell{Size: 3, N: 5, Window: 7}).sampledBytes(); got != 105 {
		t.Errorf("%d", got)
	}
}

// Names of counters and settings are case-sensitive.
func TestKeysOfMaps(t *testing.T) {
	doc := cell(`"knobs": {"NCCL_ALGO": "a", "nccl_algo": "b"}, "counters": {"A": 1, "a": 2}`)
	d, err := Read(strings.NewReader(doc))
	if err != nil || len(d.Cells[0].Knobs) != 2 || len(d.Cells[0].Counters) != 2 {
		t.Errorf("%v: %+v", err, d.Cells)
	}
}

// endless repeats text and counts the bytes read.
type endless struct {
	text string
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[(e.read+i)%len(e.text)]
	}
	e.read += len(p)
	return len(p), nil
}

// Input that is not a document is not read to its end, since it may be endless.
func TestReadEndsEarly(t *testing.T) {
	for text, want := range map[string]string{
		"\x00": `malformed JSON: invalid character '\x00'`,
		"[":    "exceeded max depth",
		"[1, ": "malformed JSON: invalid character '['",
		"{":    "malformed JSON: invalid character '{'",
		" \n":  "starts with 64 KiB of white space",
		"1":    "starts with '1', expected a JSON object",
		"y\n":  "malformed JSON: invalid character 'y'",
	} {
		r := &endless{text: text}
		if _, err := Read(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q without end: %v, want %q", text, err, want)
		}
		if r.read > 2*headBytes {
			t.Errorf("%q: %d bytes were read", text, r.read)
		}
	}
}

// Input that starts like a document is read up to a limit, which the error names.
func TestReadLimit(t *testing.T) {
	const limit = 1 << 20
	text := `{"schema": "p2pbench/1"` + strings.Repeat(" ", limit)
	r := strings.NewReader(text + "}")
	if _, err := readAll(r, limit); err == nil || err.Error() != "larger than 1 MiB: not a p2pbench result" {
		t.Errorf("%v", err)
	}
	if read := len(text) - r.Len(); read > limit+1 {
		t.Errorf("%d bytes were read", read)
	}
	for _, n := range []int{1, headBytes - 1, headBytes, headBytes + 1, limit} {
		whole := `{` + strings.Repeat(" ", max(n-2, 0)) + `}`
		if n == 1 {
			whole = "7"
		}
		if data, err := readAll(strings.NewReader(whole), limit); err != nil || string(data) != whole {
			t.Errorf("%d bytes: %d, %v", n, len(data), err)
		}
	}
	if _, err := readAll(io.MultiReader(strings.NewReader(text[:headBytes]), failing{}), limit); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a reader that fails later: %v", err)
	}
}

// A file with 10¹² samples needs little memory.
func TestReadOfManySamples(t *testing.T) {
	doc := cell(`"n": 1099511627776, "msg_rate": 1000000000, "lat_us": {"min": 0.001, "p50": 0.001, "p90": 0.001, "p99": 0.001, "p999": 0.001, "max": 0.001, "mean": 0.001}, "histogram_ns": [{"ns": 1, "count": 1099511627776}]`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Read(strings.NewReader(doc)); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("%d bytes", took)
	}
}

// Every result in docs/results can be read.
func TestCommittedResults(t *testing.T) {
	names, err := filepath.Glob("../../../docs/results/*/*.json")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data[:min(len(data), 100)], []byte(`"p2pbench-claims/`)) {
			continue
		}
		if _, err := Read(bytes.NewReader(data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		read++
	}
	if read < 50 {
		t.Errorf("%d results", read)
	}
}
