package report

import (
	"bytes"
	"encoding/csv"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
)

func rendered(t *testing.T, d record.Document, format string, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Render(&b, d, format, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	documents := map[string]record.Document{"gpus": reporttest.GPUs(), "host": reporttest.Host(), "settings": reporttest.Settings(), "empty": {}, "kernels": reporttest.Kernels(), "ring": reporttest.Circle()}
	for name, d := range documents {
		for _, format := range Formats {
			t.Run(name+"."+format, func(t *testing.T) {
				reporttest.Golden(t, name+"."+format, rendered(t, d, format, Options{}))
			})
		}
	}
	reporttest.Golden(t, "gpus-wide.table", rendered(t, reporttest.GPUs(), "table", Options{Wide: true}))
	reporttest.Golden(t, "gpus-wide.md", rendered(t, reporttest.GPUs(), "md", Options{Wide: true}))
}

func TestUnknownFormat(t *testing.T) {
	err := Render(&bytes.Buffer{}, reporttest.Host(), "xml", Options{})
	want := `report: unknown format "xml": use one of table, json, csv, md, benchfmt`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRenderReportsWriteErrors(t *testing.T) {
	for _, format := range Formats {
		if err := Render(reporttest.FullDisk{}, reporttest.Host(), format, Options{}); !errors.Is(err, reporttest.ErrFull) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// The example documents are valid, so that the golden files show possible results.
func TestExamplesAreDocuments(t *testing.T) {
	for _, d := range []record.Document{reporttest.GPUs(), reporttest.Host(), reporttest.Settings(), reporttest.Kernels(), reporttest.Circle(), reporttest.Pooled(), reporttest.Fanned()} {
		var b bytes.Buffer
		if err := record.Write(&b, d); err != nil {
			t.Fatal(err)
		}
		if _, err := record.Read(&b); err != nil {
			t.Error(err)
		}
	}
}

func TestTableFits(t *testing.T) {
	long := reporttest.GPUs()
	long.Warnings = append(long.Warnings, strings.Repeat("a long warning about this machine and ", 12))
	long.Cells[1].Warnings = []string{strings.Repeat("so much to say about one cell, ", 9)}
	long.Env.Ranks[0].Device.Name = strings.Repeat("NVIDIA Very Long Name ", 8)
	for _, d := range []record.Document{reporttest.GPUs(), reporttest.Host(), reporttest.Settings(), reporttest.Kernels(), reporttest.Circle(), reporttest.Pooled(), reporttest.Fanned(), long, crowded()} {
		for _, line := range strings.Split(rendered(t, d, "table", Options{}), "\n") {
			if w := reporttest.Narrow.StringWidth(line); w > 120 {
				t.Errorf("%d columns: %s", w, line)
			}
			if strings.TrimRight(line, " ") != line {
				t.Errorf("trailing space: %q", line)
			}
		}
	}
}

// crowded returns documents of every kind of table with two baselines and the longest figures.
func crowded() record.Document {
	d := reporttest.GPUs()
	for i, c := range d.Cells {
		if c.N == 0 {
			continue
		}
		samples := reporttest.Sampling(30, 98765.43)
		c = reporttest.Measured(c, samples)
		c.Vs, c.Invalid, c.Warnings = nil, reporttest.Ptr("one"), []string{"two", "three"}
		c = reporttest.Against(reporttest.Against(c, "memcpy", "ce", samples), "nccl", "graph", samples)
		c.Offset = uint64(i) * 123456
		d.Cells[i] = c
	}
	return d
}

func TestNarrowTableSaysWhatIsMissing(t *testing.T) {
	normal, wide := rendered(t, reporttest.Settings(), "table", Options{}), rendered(t, reporttest.Settings(), "table", Options{Wide: true})
	if !regexp.MustCompile(`left out to fit: .*p90 µs.*\(--wide shows all columns\)`).MatchString(normal) {
		t.Errorf("the table does not say what it left out:\n%s", normal)
	}
	if strings.Contains(wide, "left out") || !strings.Contains(wide, "p90 µs") {
		t.Errorf("the wide table left something out:\n%s", wide)
	}
}

// The first four columns of every table are stable, since scripts rely on them.
func TestFirstColumns(t *testing.T) {
	for _, d := range []record.Document{reporttest.GPUs(), reporttest.Host(), reporttest.Settings()} {
		var heads []string
		for line := range strings.Lines(rendered(t, d, "table", Options{})) {
			if strings.HasPrefix(strings.TrimSpace(line), "size ") {
				heads = append(heads, strings.Join(strings.Fields(line), " "))
			}
		}
		if len(heads) != len(blocks(d)) {
			t.Errorf("%d heads for %d blocks", len(heads), len(blocks(d)))
		}
		for _, h := range heads {
			if !strings.HasPrefix(h, "size p50 µs p99 µs GB/s") {
				t.Errorf("a table begins with %q", h)
			}
		}
	}
}

func TestHostileText(t *testing.T) {
	d := reporttest.Host()
	evil := "a|b\x1b[31m\nc,\"d\"\r <script>*_`"
	d.Cells[0].Warnings = []string{evil}
	d.Cells[0].Invalid = &evil
	d.Cells[0].Engine = "a/b=c d"
	d.Cells[0].Path, d.Cells[0].Knobs["k\n|"] = evil, evil
	d.Cells[0].Vs = []record.Vs{{Name: evil, NA: evil}}
	d.Env.Ranks[0].Device.Name, d.Env.Host, d.Warnings = evil, evil, []string{evil}
	for _, format := range []string{"table", "md", "benchfmt"} {
		text := rendered(t, d, format, Options{Wide: true})
		if strings.ContainsAny(text, "\x1b\r") {
			t.Errorf("%s: a control character came through", format)
		}
		if format == "md" {
			if strings.Contains(text, "<script") {
				t.Error("md: markup came through")
			}
			reporttest.CheckMarkdownTables(t, text)
		}
	}
	if text := rendered(t, d, "benchfmt", Options{}); !strings.Contains(text, "/engine=a_b_c_d-2") {
		t.Errorf("benchfmt: an engine's name broke the benchmark's:\n%s", text)
	}
	rows, err := csv.NewReader(strings.NewReader(rendered(t, d, "csv", Options{}))).ReadAll()
	if err != nil || len(rows) != 1+len(d.Cells) {
		t.Errorf("csv: %d rows, %v", len(rows), err)
	}
}

func TestMarkdownTables(t *testing.T) {
	for _, d := range []record.Document{reporttest.GPUs(), reporttest.Host(), reporttest.Settings()} {
		reporttest.CheckMarkdownTables(t, rendered(t, d, "md", Options{}))
	}
}

func TestCSV(t *testing.T) {
	text := rendered(t, reporttest.GPUs(), "csv", Options{})
	if strings.Count(text, "\n") != strings.Count(text, "\r\n") {
		t.Error("a line does not end in CR LF")
	}
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		if _, twice := at[name]; twice {
			t.Errorf("two columns %s", name)
		}
		at[name] = i
	}
	for i, c := range reporttest.GPUs().Cells {
		row := rows[i+1]
		if c.N > 0 && row[at["p50_us"]] != full(c.Lat.P50) {
			t.Errorf("row %d: p50_us is %s, not %v", i, row[at["p50_us"]], c.Lat.P50)
		}
		if c.N == 0 && row[at["p50_us"]]+row[at["msg_rate"]] != "" {
			t.Errorf("row %d: figures without samples", i)
		}
		if row[at["vs_nccl_na"]] == "" || row[at["vs_nccl_p50_us"]] != "" {
			t.Errorf("row %d: nccl is not n/a", i)
		}
	}
}

// The grammar of golang.org/design/14313-benchmark-format.
func TestBenchfmt(t *testing.T) {
	var (
		config = regexp.MustCompile(`^[a-z][^A-Z\s:]*: \S.*$`)
		unit   = regexp.MustCompile(`^Unit \S+ \S+=\S+$`)
		result = regexp.MustCompile(`^Benchmark[A-Z]\S*-\d+ [1-9]\d*( [0-9.e+-]+ [^\s0-9]\S*)+$`)
	)
	for name, d := range map[string]record.Document{"gpus": reporttest.GPUs(), "host": reporttest.Host(), "settings": reporttest.Settings()} {
		seen := map[string]bool{}
		for line := range strings.Lines(rendered(t, d, "benchfmt", Options{})) {
			line = strings.TrimSuffix(line, "\n")
			if bench, _, ok := strings.Cut(line, " "); ok && result.MatchString(line) {
				if seen[bench] {
					t.Errorf("%s: two results %s", name, bench)
				}
				seen[bench] = true
				continue
			}
			if line != "" && !strings.HasPrefix(line, "# ") && !config.MatchString(line) && !unit.MatchString(line) {
				t.Errorf("%s: not a line of the format: %s", name, line)
			}
		}
		if len(seen) == 0 {
			t.Errorf("%s: no results", name)
		}
	}
}

func TestBenchfmtHidesInvalidCells(t *testing.T) {
	d := reporttest.Host()
	d.Cells[0].Invalid = reporttest.Ptr("throttled")
	d.Cells[1].Verified = reporttest.Ptr(false)
	text := rendered(t, d, "benchfmt", Options{})
	if n := strings.Count(text, "\nBenchmark"); n != 1 {
		t.Errorf("%d results, want 1:\n%s", n, text)
	}
	if n := strings.Count(text, "\n# invalid: BenchmarkIpc/"); n != 2 {
		t.Errorf("%d comments, want 2", n)
	}
}

func TestJSONHasNoSamples(t *testing.T) {
	text := rendered(t, reporttest.GPUs(), "json", Options{})
	if strings.Contains(text, "samples_ns") || strings.Contains(text, "histogram_ns") {
		t.Error("the samples are there")
	}
	d, err := record.Read(strings.NewReader(text))
	if err != nil || len(d.Cells) != len(reporttest.GPUs().Cells) {
		t.Errorf("%d cells, %v", len(d.Cells), err)
	}
}

func TestRenderLeavesTheDocumentAlone(t *testing.T) {
	d, want := reporttest.GPUs(), reporttest.GPUs()
	for _, format := range Formats {
		rendered(t, d, format, Options{Wide: true})
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
}

func TestNotesOfACell(t *testing.T) {
	good, bad, reason := reporttest.Ptr(true), reporttest.Ptr(false), "throttled"
	tests := []struct {
		name  string
		cell  record.Cell
		mark  string
		texts []string
	}{
		{"nothing to say", record.Cell{N: 1, Verified: good}, "", nil},
		{"not checked", record.Cell{N: 1}, "[1]", []string{"the payload was not checked"}},
		{"corrupt", record.Cell{N: 1, Verified: bad}, "corrupt [1]", []string{"corrupt: the received payload differs from the payload sent"}},
		{"invalid", record.Cell{N: 0, Verified: good, Invalid: &reason}, "invalid [1]", []string{"invalid: throttled"}},
		{"no samples", record.Cell{Verified: good}, "[1]", []string{"no samples were taken"}},
		{
			"twice the same",
			record.Cell{N: 1, Verified: good, Warnings: []string{"w", "x", "w"}},
			"[1] [2]",
			[]string{"w", "x"},
		},
		{
			"baselines",
			record.Cell{N: 1, Verified: good, Vs: []record.Vs{{Name: "a", NA: "gone"}, {Name: "b", N: 1}, {Name: "c", N: 1, Verified: bad}}},
			"[1] [2] [3]",
			[]string{"a n/a: gone", "b: the payload was not checked", "c: the received payload differs from the payload sent"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var n Notes
			if got := n.Of(tt.cell); got != tt.mark {
				t.Errorf("marked %q, want %q", got, tt.mark)
			}
			if diff := cmp.Diff(tt.texts, n.texts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 1: "1", 1000: "1000", 1024: "1K", 1536: "1536", 3 << 10: "3K", 1 << 20: "1M", 1536 << 10: "1536K", 1_000_001: "1000001",
		1 << 30: "1G", 5 << 40: "5T", 1 << 50: "1024T", 1<<64 - 1: "18446744073709551615",
	} {
		if got := Size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
	for us, want := range map[float64]string{
		0: "0.00", 0.057: "0.057", 0.1: "0.100", 7.812: "7.81", 999.99: "999.99", 999.996: "1000", 1000: "1000", 12345.6: "12346",
	} {
		if got := Micros(us); got != want {
			t.Errorf("micros(%v) = %s, want %s", us, got, want)
		}
	}
	for v, want := range map[float64]string{
		0: "0.00", 396.512: "396.51", 0.1312: "0.13", 0.0995: "0.10", 0.01312: "0.0131", 0.00013: "0.000130", 0.0000321: "3.21e-05", 1234.5: "1234.50",
	} {
		if got := GBps(v); got != want {
			t.Errorf("gbps(%v) = %s, want %s", v, got, want)
		}
	}
}

func TestSubject(t *testing.T) {
	rank := func(kind, name, uuid string) record.Rank {
		return record.Rank{Device: record.GPU{Kind: kind, Name: name, UUID: uuid}}
	}
	two := []record.Rank{rank("cuda", "H200", "0"), rank("cuda", "H200", "1")}
	link := &record.Link{Type: "NVLink"}
	cell := record.Cell{Transport: "ipc", Op: "stream", Device: "cuda", Ranks: 2, Window: 8}
	moved, wider := cell, cell
	moved.Offset, wider.Window = 512, 16
	tests := []struct {
		name  string
		env   record.Env
		cells []record.Cell
		want  string
	}{
		{"little known", record.Env{}, []record.Cell{cell}, "stream: ipc, cuda, window 8"},
		{"two alike", record.Env{Ranks: two, Link: link}, []record.Cell{cell}, "stream: ipc, 2 × H200, link NVLink, window 8"},
		{
			"two different",
			record.Env{Ranks: []record.Rank{two[0], rank("cuda", "A100", "1")}},
			[]record.Cell{cell},
			"stream: ipc, H200 → A100, window 8",
		},
		{
			"one shared",
			record.Env{Ranks: []record.Rank{two[0], two[0]}},
			[]record.Cell{cell},
			"stream: ipc, 2 ranks on one H200, window 8",
		},
		{"fewer ranks than asked for", record.Env{Ranks: two[:1]}, []record.Cell{cell}, "stream: ipc, H200, window 8"},
		{"other devices than the cell's", record.Env{Ranks: []record.Rank{rank("host", "CPU memory", "0")}}, []record.Cell{cell}, "stream: ipc, cuda, window 8"},
		{"offset", record.Env{}, []record.Cell{moved, moved}, "stream: ipc, cuda, window 8, offset 512"},
		{"offset by row", record.Env{}, []record.Cell{moved, cell}, "stream: ipc, cuda, window 8"},
		{
			"three on two",
			record.Env{Ranks: []record.Rank{two[0], two[1], two[0]}},
			[]record.Cell{with(cell, "ring", "true", func(c *record.Cell) { c.Ranks = 3 })},
			"stream: ipc, ring of 3, 3 ranks on 2 × H200, window 8",
		},
		{"timing", record.Env{}, []record.Cell{with(cell, "timing", "device", nil)}, "stream: ipc, cuda, timed by the device, window 8"},
		{"a graph", record.Env{}, []record.Cell{with(cell, "cudagraph", "window", nil)}, "stream: ipc, cuda, graph of 8"},
		{"no graph", record.Env{}, []record.Cell{with(cell, "launch", "stream", nil)}, "stream: ipc, cuda, window 8"},
		{"graph by row", record.Env{}, []record.Cell{
			with(cell, "launch", "graph", nil), with(wider, "launch", "graph", nil),
		}, "stream: ipc, cuda, graph of a window, by row"},
		{"one of two a graph", record.Env{}, []record.Cell{cell, with(cell, "launch", "graph", nil)}, "stream: ipc, cuda, window 8"},
		{"resident", record.Env{}, []record.Cell{
			with(cell, "launch", "persistent", nil),
		}, "stream: ipc, cuda, persistent kernel, window 8"},
		{"bursts", record.Env{}, []record.Cell{
			with(cell, "launch", "persistent", func(c *record.Cell) { c.Op, c.Window, c.Knobs["burst"] = "pingpong", 1, "64" }),
		}, "pingpong: ipc, cuda, persistent kernel, in bursts of up to 64"},
		{"no bursts", record.Env{}, []record.Cell{
			with(cell, "launch", "persistent", func(c *record.Cell) { c.Op, c.Window, c.Knobs["burst"] = "pingpong", 1, "1" }),
		}, "pingpong: ipc, cuda, persistent kernel, one round trip per barrier"},
		{"window by row", record.Env{}, []record.Cell{cell, wider}, "stream: ipc, cuda, window by row"},
	}
	for _, tt := range tests {
		if got := (block{env: tt.env, cells: tt.cells}).subject(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// with returns the cell with another value of a knob, and modified by change.
func with(c record.Cell, knob, value string, change func(*record.Cell)) record.Cell {
	c.Knobs = map[string]string{knob: value}
	if change != nil {
		change(&c)
	}
	return c
}

func TestVerifiedText(t *testing.T) {
	full := map[string]string{"check": "full"}
	yes, no, unknown := record.Cell{Verified: reporttest.Ptr(true), Knobs: full}, record.Cell{Verified: reporttest.Ptr(false), Knobs: full}, record.Cell{}
	for _, tt := range []struct {
		cells []record.Cell
		want  string
	}{
		{nil, ""},
		{[]record.Cell{yes, yes}, "verified in 2 of 2 cells, every byte of every message"},
		{[]record.Cell{yes, {Verified: reporttest.Ptr(true)}}, "verified in 2 of 2 cells"},
		{[]record.Cell{yes, unknown}, "verified in 1 of 2 cells"},
		{[]record.Cell{yes, no}, "verified in 1 of 2 cells, CORRUPT in 1"},
	} {
		if got := verifiedText(tt.cells); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	var b bytes.Buffer
	writeWrapped(&b, "[1] ", strings.Repeat("wörd ", 30)+strings.Repeat("x", 130))
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 3 || reporttest.Narrow.StringWidth(lines[0]) > 120 || !strings.HasPrefix(lines[1], "    wörd") || len(lines[2]) != 134 {
		t.Errorf("%q", lines)
	}
}
