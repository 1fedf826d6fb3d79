package reporttest

import (
	"math"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// Ptr returns a pointer to v.
func Ptr[T any](v T) *T { return &v }

// Sampling returns n deterministic samples around a median of us µs, with a tail.
func Sampling(n int, us float64) []int64 {
	rng := rand.New(rand.NewPCG(uint64(n), math.Float64bits(us)))
	s := make([]int64, n)
	for i := range s {
		s[i] = int64(us * 1000 * (0.98 + 0.03*rng.Float64() + 0.02*rng.ExpFloat64()))
	}
	return s
}

// Measured sets the fields that follow from the samples, as a run does.
func Measured(c record.Cell, samples []int64) record.Cell {
	c.N, c.Lat, c.SamplesNS = len(samples), record.Summarise(samples), samples
	if c.Iters == 0 {
		c.Iters = c.N
	}
	together := 1
	if c.Op == "bidir" {
		together = 2
	}
	c.BWPerDir, c.BWSum, c.MsgRate = record.Rates(c.Size, c.Window, together, c.Lat.P50)
	return c
}

// Payload adds payload_bytes and checked_bytes to counters.
func Payload(bytes uint64, counters map[string]uint64) map[string]uint64 {
	counters["payload_bytes"], counters["checked_bytes"] = bytes, bytes
	return counters
}

// Against adds a baseline.
func Against(c record.Cell, name, engine string, samples []int64) record.Cell {
	b := Measured(record.Cell{Op: c.Op, Size: c.Size, Window: c.Window}, samples)
	v := record.Vs{
		Name: name, Transport: regexp.MustCompile(`^[a-z]+`).FindString(name), Engine: engine, N: b.N, Lat: b.Lat, BWPerDir: b.BWPerDir, Verified: c.Verified, SamplesNS: samples,
	}
	if c.Lat.P50 > 0 {
		v.Ratio = Ptr(b.Lat.P50 / c.Lat.P50)
	}
	c.Vs = append(c.Vs, v)
	return c
}

// IPC is a cell between two H200.
func IPC(op string, size uint64, window, n int, us float64) record.Cell {
	c := record.Cell{
		Transport: "ipc", Path: "direct", Engine: "ce", Device: "cuda", Op: op, Size: size, Ranks: 2, Window: window,
		Warmup: 100, Completion: "receiver", Verified: Ptr(true), SkewUS: 0.4,
		Counters: Payload(size*uint64(window*n), map[string]uint64{"opens": 1}),
		Knobs:    map[string]string{"handle": "legacy", "check": "full", "seed": "1"},
	}
	if op == "pingpong" {
		c.Completion = "oneway"
	}
	return Measured(c, Sampling(n, us))
}

// GPUs is a run on two H200 that has every special case: baselines with and without figures, few samples, no samples,
// size 0, an invalid and an unverified cell, different windows.
func GPUs() record.Document {
	noNCCL := record.Vs{Name: "nccl", NA: "libnccl.so.2 not found: install NCCL or set LD_LIBRARY_PATH"}
	cell := func(op string, size uint64, window, n int, us, memcpyUS float64) record.Cell {
		c := Against(IPC(op, size, window, n, us), "memcpy", "ce", Sampling(n, memcpyUS))
		c.Vs = append(c.Vs, noNCCL)
		return c
	}
	zero := cell("latency", 0, 1, 1000, 3.9, 3.1)
	zero.Cold = record.Cold{ExportUS: Ptr(12.1), OpenUS: Ptr(1998.4), ConnectUS: Ptr(310.0), FirstUS: Ptr(55.12)}
	few := cell("latency", 1_000_001, 1, 30, 10.7, 9.9)
	few.Iters, few.Warnings = 1000, []string{"the median is not known to ±1 % after 5s or 30 samples"}
	held := cell("latency", 256<<20, 1, 200, 712, 686)
	held.Invalid = Ptr("clocks were throttled (rank 1: sw power cap)")
	unchecked := cell("stream", 256<<20, 4, 120, 2790, 2755)
	unchecked.Verified, unchecked.Vs[0].Verified = nil, nil
	delete(unchecked.Counters, "checked_bytes")
	empty := IPC("bidir", 1<<30, 2, 0, 1)
	empty.Vs = []record.Vs{noNCCL}
	return record.Document{
		Schema: record.Schema, Version: "0.1.0", Started: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		Command: []string{"p2pbench", "ipc", "--op", "latency,stream,bidir,pingpong", "--vs", "memcpy,nccl"},
		Env:     GPUEnv(), Transports: Transports(),
		Cells: []record.Cell{
			zero, cell("stream", 1<<20, 8, 1000, 40.3, 39.1),
			cell("latency", 1<<10, 1, 1000, 7.8, 7.1), few, held,
			unchecked,
			cell("pingpong", 1<<10, 1, 2000, 6.2, 5.9),
			cell("bidir", 1536, 8, 999, 21.4, 20.2), cell("bidir", 64<<20, 8, 150, 1391, 1370), empty,
		},
		Warnings: []string{"CPU governor is powersave: figures below 10 µs scatter"},
		Exit:     3,
	}
}

// GPUEnv is a machine with two H200.
func GPUEnv() record.Env {
	rank := func(i int, pci, uuid string) record.Rank {
		return record.Rank{
			Rank: i, CPU: 4 + i, ProcessUS: 31000 + float64(i), DeviceUS: 212000,
			Device: record.GPU{Kind: "cuda", Index: i, Name: "NVIDIA H200", UUID: uuid, PCI: pci, Arch: "sm_90", Memory: 150_754_820_096},
		}
	}
	e := record.Env{
		Host: "node7", OS: "Ubuntu 24.04.1 LTS", Kernel: "6.8.0-48-generic", Arch: "amd64", MemoryB: 1 << 40,
		CPU:    record.CPU{Model: "Intel(R) Xeon(R) Platinum 8480+", Count: 32, NUMANodes: 1, Governor: "powersave"},
		Driver: "580.159.04 (CUDA 13.0)",
		Ranks: []record.Rank{
			rank(0, "0000:3b:00.0", "GPU-3f0c8a52-1d5e-7e3b-9a10-4c2f6b7d8e90"),
			rank(1, "0000:86:00.0", "GPU-91b2c3d4-0a1b-2c3d-4e5f-60718293a4b5"),
		},
		Link:    &record.Link{Type: "NVLink", Count: 18, Detail: "18 × NVLink 4, 26.562 GB/s each"},
		Harness: record.Harness{Clock: "TSC", OverheadNS: 21.46, WorstSkewUS: 0.83, FirstCellMS: 812.4},
	}
	e.Ranks[1].After = &record.Health{Throttle: []string{"sw power cap"}}
	return e
}

// Host is a minimal run: CPU memory, no baselines, no warnings.
func Host() record.Document {
	cell := func(op string, size uint64, window int, us float64) record.Cell {
		c := IPC(op, size, window, 1000, us)
		c.Device, c.Engine = "host", "memcpy"
		c.Knobs["handle"] = "memfd"
		return c
	}
	rank := func(i int) record.Rank {
		return record.Rank{Rank: i, CPU: i, ProcessUS: 9100, DeviceUS: 120, Device: record.GPU{Kind: "host", Name: "CPU memory", UUID: "host-0"}}
	}
	return record.Document{
		Schema: record.Schema, Version: "0.1.0", Started: time.Date(2026, 11, 20, 11, 30, 0, 0, time.UTC),
		Command:    []string{"p2pbench", "ipc", "--device", "host"},
		Transports: Transports(),
		Env: record.Env{
			Host: "laptop", OS: "Debian GNU/Linux 12 (bookworm)", Kernel: "6.1.0-18-amd64", Arch: "amd64",
			CPU: record.CPU{Model: "AMD EPYC", Count: 2, NUMANodes: 1}, Ranks: []record.Rank{rank(0), rank(1)},
			Link:    &record.Link{Type: "CPU memory"},
			Harness: record.Harness{Clock: "CLOCK_MONOTONIC_RAW", OverheadNS: 38.2, WorstSkewUS: 4.1, FirstCellMS: 61},
		},
		Cells: []record.Cell{
			cell("latency", 8, 1, 0.0571), cell("latency", 4096, 1, 0.812), cell("stream", 1<<20, 8, 812.3),
		},
	}
}

// Settings is a run of one path with different settings and two baselines: the widest default table.
func Settings() record.Document {
	d := Host()
	d.Command, d.Cells = []string{"p2pbench", "claims", "run", "mpich-7862/direct-hit"}, nil
	for _, v := range []struct {
		cache string
		us    float64
	}{{"sender", 16.1}, {"off", 2016}} {
		c := IPC("latency", 4<<20, 1, 5000, v.us)
		c.Knobs["cache"] = v.cache
		c = Against(c, "memcpy", "ce", Sampling(5000, 15.2))
		d.Cells = append(d.Cells, Against(c, "nccl", "", Sampling(800, 23.9)))
	}
	d.Env = GPUEnv()
	return d
}

// Sendrecv is a cell of sendrecv on two H200.
func Sendrecv(op string, size uint64, window, n int, us float64) record.Cell {
	c := IPC(op, size, window, n, us)
	c.Transport, c.Path, c.Engine = "sendrecv", "auto", "put bulk 16 CTAs"
	c.Counters = Payload(size*uint64(window*n), map[string]uint64{
		"messages": uint64(window * n), "steps": uint64(16 * window * n), "fences": uint64(17 * window * n), "ctas": 16,
	})
	c.Knobs = map[string]string{
		"handle": "legacy", "check": "full", "seed": "1", "variant": "auto", "engine": "auto", "launch": "stream",
		"timing": "device", "ring": "false", "ctas": "auto", "copy": "auto",
	}
	return c
}

// Kernels is a run of sendrecv with variants chosen by size and NCCL in graphs, in stream and bidir.
func Kernels() record.Document {
	d := GPUs()
	d.Cells, d.Warnings, d.Exit = nil, []string{}, 0
	d.Command = []string{"p2pbench", "sendrecv", "--vs", "nccl-graph"}
	for _, op := range []string{"stream", "bidir"} {
		for i, size := range []uint64{32, 64 << 10, 8 << 20} {
			us := 9 + float64(size)/44_000
			c := Sendrecv(op, size, 8, 400, us)
			c.Engine = []string{"ll 1 CTA", "put bulk 16 CTAs", "ce"}[i]
			c.Counters["ctas"] = []uint64{1, 16, 0}[i]
			c = Against(c, "nccl-graph", "nccl 2.28.3", Sampling(400, 12+float64(size)/33_000))
			c.Vs[0].Counters = map[string]uint64{"nccl_ctas": 2 << (2 * i), "messages": 3200}
			d.Cells = append(d.Cells, c)
		}
	}
	return d
}

// Circle is a ring of four ranks on two GPUs: a staged kernel in graphs of up to 20 messages.
func Circle() record.Document {
	d := Kernels()
	d.Command, d.Cells = []string{"p2pbench", "sendrecv", "--ring", "--ranks", "4", "-G", "20", "--variant", "ws"}, nil
	d.Env.Ranks = append(d.Env.Ranks, d.Env.Ranks...)
	for r := range d.Env.Ranks {
		d.Env.Ranks[r].Rank = r
	}
	for i, window := range []int{20, 2} {
		c := Sendrecv("bidir", 1<<(20+10*i), window, 100, 40*float64(window<<(8*i)))
		c.Path, c.Engine, c.Ranks = "ws", "ws ldst 4 CTAs", 4
		c.BWSum = Ptr(4 * *c.BWPerDir)
		c.Knobs["ring"], c.Knobs["launch"], c.Knobs["engine"], c.Knobs["cudagraph"] = "true", "graph", "ws ldst 4 CTAs", "window"
		c.Counters["ctas"], c.Counters["stride"] = 4, 256<<(10+3*i)
		d.Cells = append(d.Cells, c)
	}
	return d
}

// Transports returns the descriptions of the transports in these documents.
func Transports() map[string]record.Transport {
	count := func(name string) record.Counter { return record.Counter{Name: name, Kind: "count", Label: name} }
	most := func(name, unit, label string) record.Counter {
		return record.Counter{Name: name, Kind: "max", Unit: unit, Label: label}
	}
	return map[string]record.Transport{
		"ipc":      {Counters: []record.Counter{count("opens")}},
		"memcpy":   {Counters: []record.Counter{}},
		"sendrecv": {Counters: []record.Counter{count("steps"), count("fences"), most("ctas", "", "ctas"), most("stride", "bytes", "stride")}},
		"nccl": {Counters: []record.Counter{
			{Name: "messages", Kind: "count"},
			{Name: "nccl_ctas", Kind: "max", Label: "CTAs", Column: "CTAs"},
		}},
	}
}
