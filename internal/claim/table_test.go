package claim

import (
	"bytes"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/report/reporttest"
)

// rendered returns a view with the tables of presets.
func rendered(t *testing.T, d record.Document, format string, wide bool) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Render(&b, d, format, report.Options{Wide: wide, Tables: Tables}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// preset returns the document of a run with that preset on two H200: ops at the sizes of its table, with made-up
// samples.
func preset(name string, iters int, ops ...string) record.Document {
	p, _ := PresetNamed(name)
	d := record.Document{
		Schema: record.Schema, Version: "0.1.0", Preset: name, Env: reporttest.GPUEnv(), Transports: reporttest.Transports(),
		Command: []string{"p2pbench", p.Path, "--preset", name},
	}
	flags := p.On(true)
	i := slices.IndexFunc(flags, func(f Flag) bool { return f.Name == "sizes" })
	for _, op := range ops {
		for _, text := range strings.Split(flags[i].Value, ",") {
			size := bytesOf(text)
			switch p.Path {
			case "sendrecv":
				d.Cells = append(d.Cells, call(name, op, size, iters))
				continue
			case "rdma":
				d.Cells = append(d.Cells, arms().Cells[0])
				continue
			}
			window := 1
			if op == "stream" {
				window = 8
			}
			us := (4 + float64(size)/350_000) * math.Sqrt(float64(window))
			path := "direct"
			if strings.HasSuffix(name, "relay") {
				path, us = "relay", 300*us
			}
			c := reporttest.IPC(op, size, window, iters, us)
			c.Path, c.Warmup = path, iters/10
			d.Cells = append(d.Cells, c)
		}
	}
	return d
}

// bytesOf parses sizes such as 4K and 16M.
func bytesOf(text string) uint64 {
	n := uint64(0)
	for _, r := range text {
		switch r {
		case 'K':
			n <<= 10
		case 'M':
			n <<= 20
		case 'G':
			n <<= 30
		default:
			n = 10*n + uint64(r-'0')
		}
	}
	return n
}

// call is a cell of one message, in one direction or in each, as a graph of torchcomms' kernel and of NCCL's.
func call(preset, op string, size uint64, iters int) record.Cell {
	ctas, n := "4", uint64(4)
	if strings.HasSuffix(preset, "16") {
		ctas, n = "16", 16
	}
	us := 5 + float64(size)/float64(22_500*n)
	c := reporttest.Measured(reporttest.Sendrecv(op, size, 1, iters, us), reporttest.Sampling(iters, us))
	c.Path, c.Engine, c.Warmup = "ws", "ws bulk "+ctas+" CTAs", iters/10
	c.Knobs["launch"], c.Knobs["ctas"], c.Knobs["engine"] = "graph", ctas, "auto"
	c.Counters["ctas"] = n
	c = reporttest.Against(c, "nccl:"+ctas, "nccl 2.28.3", reporttest.Sampling(iters, 7+float64(size)/float64(20_000*n)))
	c.Vs[0].Counters = map[string]uint64{"nccl_ctas": min(n, 1+size>>20)}
	return c
}

// presets returns runs of all presets, with every kind of footnote.
func presets() map[string]record.Document {
	sweep := preset("uccl-876-sweep", 10, "latency", "stream", "pingpong")
	last := len(sweep.Cells) - 1
	sweep.Cells[last].Invalid = reporttest.Ptr("clocks were throttled (rank 1: sw power cap)")
	for i, c := range sweep.Cells {
		if c.Op == "stream" && c.Size > 64<<20 {
			sweep.Cells[i].Window = 4
		}
	}
	compare := preset("uccl-876-compare", 20, "pingpong")
	for i, c := range compare.Cells {
		compare.Cells[i] = reporttest.Against(c, "nccl", "nccl 2.28.3", reporttest.Sampling(20, 10+float64(c.Size)/320_000))
	}
	bothWays := preset("torchcomms-2728", 200, "bidir")
	bothWays.Cells[1].Vs[0] = record.Vs{Name: "nccl:4", NA: "libnccl.so.2 not found: install NCCL"}
	bothWays.Cells[2].Invalid = reporttest.Ptr("clocks were throttled (rank 1: sw power cap)")
	return map[string]record.Document{
		"sweep": sweep, "anchor": preset("uccl-876-anchor", 50, "latency", "stream", "pingpong"), "compare": compare,
		"relay": preset("uccl-876-relay", 50, "latency", "pingpong"), "both-ways": bothWays,
		"one-way":    preset("torchcomms-2728-one-way", 200, "stream"),
		"one-way-16": preset("torchcomms-2728-one-way-16", 200, "stream"),
	}
}

func TestGoldenPresets(t *testing.T) {
	for name, d := range presets() {
		t.Run(name, func(t *testing.T) { reporttest.Golden(t, "preset-"+name+".table", rendered(t, d, "table", false)) })
	}
	reporttest.Golden(t, "preset-compare-wide.table", rendered(t, presets()["compare"], "table", true))
	reporttest.Golden(t, "preset-both-ways.md", rendered(t, presets()["both-ways"], "md", false))
	reporttest.Golden(t, "preset-anchor.md", rendered(t, presets()["anchor"], "md", false))
	reporttest.CheckMarkdownTables(t, rendered(t, presets()["anchor"], "md", false))
}

func TestPresetTablesFit(t *testing.T) {
	for name, d := range presets() {
		for line := range strings.Lines(rendered(t, d, "table", false)) {
			if w := reporttest.Narrow.StringWidth(strings.TrimSuffix(line, "\n")); w > 120 {
				t.Errorf("%s: %d columns: %s", name, w, line)
			}
		}
	}
}

// Every preset has its own table; a document with an unknown preset has the ordinary ones.
func TestEveryPresetHasItsTable(t *testing.T) {
	titles := map[string]bool{}
	for _, name := range PresetNames("") {
		d := preset(name, 10, "stream", "pingpong")
		text := rendered(t, d, "table", false)
		title, _, _ := strings.Cut(text, "\n")
		if !strings.Contains(title, "(preset "+name+")") || titles[title] {
			t.Errorf("%s: %s", name, title)
		}
		titles[title] = true
	}
	d := reporttest.Host()
	want := rendered(t, d, "table", false)
	d.Preset = "uccl-999-sweep"
	if got := rendered(t, d, "table", false); got != want {
		t.Errorf("an unknown preset changed the table:\n%s", got)
	}
	if text := rendered(t, record.Document{Preset: "uccl-876-sweep"}, "table", false); !strings.Contains(text, "no cell was measured") {
		t.Errorf("an empty run: %s", text)
	}
}

// The pull request's definitions: a full round trip, sample ⌊q·n⌋ of the sorted ones.
func TestQuantile(t *testing.T) {
	l := layout{notes: &report.Notes{}}
	c := reporttest.IPC("pingpong", 1<<10, 1, 50, 1)
	c.SamplesNS = nil
	for i := range 50 {
		c.SamplesNS = append(c.SamplesNS, int64(50-i)*1000) // 50 µs … 1 µs
	}
	if got := l.quantile(&c, 0.5); got != "52.00" { // sample 25 from 0 is 26 µs; nearest rank would be 25
		t.Errorf("p50 %s, want 52.00", got)
	}
	if got := l.quantile(&c, 0.99); got != "100.00" {
		t.Errorf("p99 %s, want the maximum, 100.00", got)
	}
	c.SamplesNS = nil
	const unkept = "needs the samples, which this file does not have: use the file that --out wrote"
	if got := l.quantile(&c, 0.5); got != "-[1]" || l.notes.Ref(unkept) != "[1]" {
		t.Errorf("without samples: %s", got)
	}
	if got := l.quantile(nil, 0.5); got != report.None {
		t.Errorf("not measured: %s", got)
	}
}

// A histogram of a few bytes may represent 10⁹ samples: rendering it needs no more memory than others.
func TestPresetOfManySamples(t *testing.T) {
	memory := func(each int64) uint64 {
		d := preset("uccl-876-anchor", 10, "pingpong")
		c := &d.Cells[0]
		c.SamplesNS, c.Histogram = nil, []record.Bin{{NS: 1000, Count: each}, {NS: 3000, Count: each}}
		c.N, c.Lat = int(2*each), record.Distribution(c.Histogram).Summary()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := report.Render(io.Discard, d, "table", report.Options{Tables: Tables}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := memory(10), memory(1<<24); many > 2*few {
		t.Errorf("%d bytes for 20 samples, %d for 2^25", few, many)
	}
}

// 8 messages of 1 GiB in a second are 8 GiB/s, independent of the median.
func TestBinaryRate(t *testing.T) {
	c := record.Cell{Op: "stream", Size: 1 << 30, Window: 8, N: 2, Lat: record.Latency{P50: 1, Mean: 1e6}}
	if got := binaryRate(&c); got != "8.00" {
		t.Errorf("%s GiB/s, want 8.00", got)
	}
	if got := tripRate(1<<20, 2*1048.576); got != "1.00" {
		t.Errorf("%s GB/s both ways, want 1.00", got)
	}
}

// Published ranges are shown with the published number of decimals.
func TestRangeText(t *testing.T) {
	for _, r := range []struct {
		low, high float64
		want      string
	}{{1.4, 1.7, "1.4–1.7"}, {1.10, 1.13, "1.10–1.13"}, {1.16, 1.16, "1.16"}} {
		if got := rangeText(r.low, r.high); got != r.want {
			t.Errorf("%s, want %s", got, r.want)
		}
	}
}

// GB/s of one message is size ÷ time, and NCCL's time ÷ the kernel's is above 1 if the kernel is faster.
func TestCallRate(t *testing.T) {
	c := record.Cell{Size: 1 << 20, Window: 2}
	if got := callRate(c, 2*1048.576); got != "1.00" {
		t.Errorf("%s GB/s, want 1.00", got)
	}
	if got := callRate(c, 0) + ratioText(3, 0) + ratioText(3, 2); got != "--1.50" {
		t.Errorf("%s, want none, none, 1.50", got)
	}
}
