package record

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write the golden files anew")

func ptr[T any](v T) *T { return &v }

// example has every kind of value: samples, a histogram, a baseline with and without figures, null and absent.
func example() Document {
	raw := []int64{7812, 7790, 7801, 14803, 7795, 8011}
	base := []int64{9200, 9100, 9300}
	many := slices.Concat(slices.Repeat([]int64{51000}, 60000), slices.Repeat([]int64{51210}, 40001))
	bins := DistributionOf(many, nil)
	d := Document{
		Schema:  Schema,
		Version: "0.1.0",
		Started: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Command: []string{"p2pbench", "ipc", "--sizes", "1K,16M", "--vs", "memcpy,nccl"},
		Env: Env{
			Host: "node7", OS: "Ubuntu 24.04.1 LTS", Kernel: "6.8.0-48-generic", Arch: "amd64",
			CPU:       CPU{Model: "Intel(R) Xeon(R) Platinum 8480+", Count: 32, NUMANodes: 1},
			Driver:    "580.159.04 (CUDA 13.0)",
			Libraries: map[string]string{"nccl": "2.28.9"},
			Ranks: []Rank{{
				CPU: 4, Device: GPU{Kind: "cuda", Name: "NVIDIA H200", UUID: "GPU-0", PCI: "0000:3b:00.0", Arch: "sm_90"},
				Before: &Health{SMClockMHz: ptr(uint32(1980)), PowerW: ptr(118.5)}, ProcessUS: 31000, DeviceUS: 210000,
			}},
			Link:    &Link{Type: "NVLink", Count: 18},
			Harness: Harness{Clock: "TSC", OverheadNS: 21.5, WorstSkewUS: 0.8, FirstCellMS: 812},
		},
		Cells: []Cell{
			{
				Transport: "ipc", Path: "direct", Engine: "ce", Device: "cuda", Op: "latency", Size: 1024, Ranks: 2, Window: 1,
				Warmup: 5, Iters: 6, N: 6, Completion: "receiver", Lat: Summarise(raw),
				Verified: ptr(true),
				Cold:     Cold{ExportUS: ptr(12.1), OpenUS: ptr(1998.0), FirstUS: ptr(55.1)},
				Counters: map[string]uint64{"opens": 1, "closes": 0, "checked_bytes": 11264}, Knobs: map[string]string{"handle": "legacy"},
				Vs: []Vs{
					{Name: "memcpy", Engine: "ce", N: 3, Lat: Summarise(base), SamplesNS: base},
					{Name: "nccl", NA: "libnccl.so.2 not found"},
				},
				Warnings: []string{"<skew> \"12 µs\", p50 & more: [a] {b}\n"}, SkewUS: 0.8, SamplesNS: raw,
			},
			{
				Transport: "ipc", Path: "direct", Engine: "ce", Device: "cuda", Op: "stream", Size: 0, Ranks: 2, Window: 8,
				Iters: len(many), N: len(many), Completion: "receiver", Lat: Summarise(many), Invalid: ptr("throttled: power cap"),
				Histogram: bins,
			},
		},
		Exit: 3,
	}
	for i := range d.Cells {
		c := &d.Cells[i]
		c.BWPerDir, c.BWSum, c.MsgRate = Rates(c.Size, c.Window, 1, c.Lat.P50)
		for k := range c.Vs {
			v := &c.Vs[k]
			v.BWPerDir, _, _ = Rates(c.Size, c.Window, 1, v.Lat.P50)
			v.Ratio = v.ratio(*c)
		}
	}
	return d
}

func TestWriteGolden(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, example()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "example.golden.json")
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("differs from %s (-update writes it anew):\n%s", file, diff)
	}
}

func TestWriteThenRead(t *testing.T) {
	for name, d := range map[string]Document{
		"example":         example(),
		"without samples": example().WithoutSamples(),
		"empty":           {Schema: Schema},
		"no schema set":   {},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Write(&b, d); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String(), `"cells": null`) {
				t.Error("cells is null")
			}
			got, err := Read(&b)
			if err != nil {
				t.Fatal(err)
			}
			d.Schema = Schema
			if diff := cmp.Diff(d, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWriteLeavesTheDocumentAlone(t *testing.T) {
	d := example()
	if err := Write(&bytes.Buffer{}, d); err != nil {
		t.Fatal(err)
	}
	if d.Cells[1].Counters != nil || d.Cells[1].Vs != nil || d.Warnings != nil {
		t.Error("Write changed its argument")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }
func (failing) Read([]byte) (int, error)  { return 0, errors.New("bad sector") }

func TestErrorsOfTheFile(t *testing.T) {
	if err := Write(failing{}, example()); err == nil || err.Error() != "record: write: disk full" {
		t.Errorf("Write: %v", err)
	}
	if _, err := Read(failing{}); err == nil || err.Error() != "record: read: bad sector" {
		t.Errorf("Read: %v", err)
	}
	d := example()
	d.Cells[0].SkewUS = math.NaN()
	var b bytes.Buffer
	if err := Write(&b, d); err == nil || b.Len() > 0 {
		t.Errorf("a NaN was written: %v, %d bytes", err, b.Len())
	}
}

func TestWithoutSamples(t *testing.T) {
	d := example()
	for _, c := range d.WithoutSamples().Cells {
		if c.SamplesNS != nil || c.Histogram != nil || len(c.Vs) > 0 && c.Vs[0].SamplesNS != nil {
			t.Errorf("%s %d still has samples", c.Op, c.Size)
		}
		if c.N == 0 || c.Lat.P50 == 0 {
			t.Errorf("%s %d lost its figures", c.Op, c.Size)
		}
	}
	if d.Cells[0].SamplesNS == nil || d.Cells[1].Histogram == nil || d.Cells[0].Vs[0].SamplesNS == nil {
		t.Error("the document itself lost its samples")
	}
}

// A distribution gives the samples in ascending order.
func TestDistribution(t *testing.T) {
	raw := []int64{30, 10, 30, 20, 10, 30}
	d := DistributionOf(raw, nil)
	if diff := cmp.Diff(Distribution{{10, 2}, {20, 1}, {30, 3}}, d); diff != "" {
		t.Error(diff)
	}
	for i, want := range slices.Sorted(slices.Values(raw)) {
		if got := d.At(i + 1); got != want {
			t.Errorf("place %d: %d, want %d", i+1, got, want)
		}
	}
	if diff := cmp.Diff(d, DistributionOf(nil, d)); diff != "" {
		t.Errorf("of a histogram: %s", diff)
	}
	if none := DistributionOf(nil, nil); none.N() != 0 || none.At(1) != 0 || none.Summary() != (Latency{}) {
		t.Errorf("nothing became %v", none)
	}
}

// A few bytes of a file may represent 10⁹ samples, which are never expanded.
func TestDistributionTakesNoMemory(t *testing.T) {
	bins := []Bin{{NS: 5, Count: maxN / 2}, {NS: 7, Count: maxN / 2}}
	allocs := testing.AllocsPerRun(100, func() {
		d := DistributionOf(nil, bins)
		lo, hi, ok := d.MedianInterval(0.95)
		if s := d.Summary(); d.N() != maxN || s.P50 != 0.005 || s.Mean != 0.006 || lo != 5 || hi != 7 || !ok {
			t.Errorf("%d samples, %+v, median between %d and %d (%v)", d.N(), s, lo, hi, ok)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// Samples keep their order up to the limit, and exact values and counts above it.
func TestSamples(t *testing.T) {
	for _, n := range []int{0, 1, 10, MaxRawSamples, MaxRawSamples + 1, 3*MaxRawSamples + 7} {
		var s Samples
		var all []int64
		for i := 0; i < n; i += 1000 {
			block := make([]int64, min(1000, n-i))
			for j := range block {
				block[j] = int64((i + j) * 7919 % 4001)
			}
			s.Add(block...)
			all = append(all, block...)
		}
		raw, bins := s.Kept()
		switch {
		case s.N() != n:
			t.Errorf("%d of %d samples", s.N(), n)
		case n <= MaxRawSamples && (!slices.Equal(raw, all) || bins != nil):
			t.Errorf("%d samples: %d in order, %d bins", n, len(raw), len(bins))
		case n > MaxRawSamples && (raw != nil || !slices.Equal(bins, DistributionOf(all, nil))):
			t.Errorf("%d samples: %d in order, and not every value in as many bins", n, len(raw))
		}
		if diff := cmp.Diff(DistributionOf(all, nil), s.Distribution()); diff != "" {
			t.Errorf("%d samples: %s", n, diff)
		}
		if got := s.Summary(); !same(got, Summarise(all)) {
			t.Errorf("%d samples: %v, want %v", n, got, Summarise(all))
		}
	}
}

func TestSummarise(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 2, 9, 10, 99, 100, 101, 999, 1000, 1001} {
		s := make([]int64, n)
		for i := range s {
			s[i] = 7000 + rng.Int64N(500)
		}
		l := Summarise(s)
		if (n < 100 && l.P99 != l.Max) || (n < 1000 && l.P999 != l.Max) {
			t.Errorf("n=%d: p99 %v p99.9 %v, max %v", n, l.P99, l.P999, l.Max)
		}
		if l.Max != float64(slices.Max(s))/1000 || l.Min != float64(slices.Min(s))/1000 {
			t.Errorf("n=%d: min %v max %v are not the samples' in µs", n, l.Min, l.Max)
		}
		if d := DistributionOf(s, nil).Summary(); !same(l, d) {
			t.Errorf("n=%d: the distribution's summary differs: %v, %v", n, l, d)
		}
	}
	if Summarise(nil) != (Latency{}) {
		t.Error("no samples have figures")
	}
}

func TestMedianInterval(t *testing.T) {
	samples := []int64{9, 1, 8, 2, 7, 3, 6, 4, 5}
	lo, hi, ok := DistributionOf(samples, nil).MedianInterval(0.95)
	if !ok || lo != 2 || hi != 8 { // ranks 2 and 8 of 9
		t.Errorf("[%d, %d] %v, want [2, 8]", lo, hi, ok)
	}
	if _, _, ok := DistributionOf(samples[:5], nil).MedianInterval(0.95); ok {
		t.Error("5 samples gave an interval of 95 %")
	}
	if samples[0] != 9 {
		t.Error("the caller's samples were reordered")
	}
}
