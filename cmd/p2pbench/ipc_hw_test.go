package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// TestHWSizeSweep runs the default sweep between two GPUs, or between two processes that share one.
func TestHWSizeSweep(t *testing.T) {
	transporttest.Require(t, cuda.New(), 1)
	c := newCommand(t, "ipc", "--device", "cuda", "--engine", "ce", "--sizes", "1K,1M,64M", "--vs", "memcpy",
		"--op", "latency,stream,bidir,pingpong", "-n", "40", "--require-path", "direct", "--format", "json")
	c.begin(t)
	code := c.end(t)
	if code != exitOK && code != exitInvalid {
		t.Fatalf("exit code %d: %s", code, c.stderr.String())
	}
	d := document(t, c.stdout.String())
	if len(d.Cells) != 12 || len(d.Env.Ranks) != 2 || d.Exit != code {
		t.Fatalf("%d cells of %d ranks, exit %d; want 12, 2, %d", len(d.Cells), len(d.Env.Ranks), d.Exit, code)
	}
	for _, cell := range d.Cells {
		t.Run(fmt.Sprintf("%s %d", cell.Op, cell.Size), func(t *testing.T) { checkHWCell(t, d, cell) })
	}
}

// The engine chosen by "auto" is in every cell, and the copies of autotuning are not counted as payload.
func TestHWAuto(t *testing.T) {
	transporttest.Require(t, cuda.New(), 1)
	c := newCommand(t, "ipc", "--device", "cuda", "--sizes", "1K,64M", "--op", "latency", "-n", "20", "--format", "json")
	c.begin(t)
	if code := c.end(t); code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.stderr.String())
	}
	for _, cell := range document(t, c.stdout.String()).Cells {
		if cell.Knobs["engine"] != "auto" || !strings.Contains(cell.Knobs["chosen"], cell.Engine) {
			t.Errorf("size %d went by %s, knobs %v", cell.Size, cell.Engine, cell.Knobs)
		}
		payload := cell.Counters["payload_bytes"]
		if sent, ok := cell.Counters["link_tx_bytes"]; ok && sent > 2*payload+1<<20 {
			t.Errorf("size %d: NVLink sent %d bytes for %d of payload", cell.Size, sent, payload)
		}
	}
}

func checkHWCell(t *testing.T, d record.Document, c record.Cell) {
	t.Logf("%s: p50 %.3f µs, p99 %.3f µs, %v", d.Env.Link.Type, c.Lat.P50, c.Lat.P99, c.Counters)
	if c.Verified == nil || !*c.Verified {
		t.Error("not verified")
	}
	if c.Path != "direct" || c.Engine != "ce" || c.Device != "cuda" || c.N != 40 {
		t.Errorf("path %s, engine %s, device %s, n %d; want direct, ce, cuda, 40", c.Path, c.Engine, c.Device, c.N)
	}
	if c.Lat.Min <= 0 || c.BWPerDir == nil || *c.BWPerDir <= 0 {
		t.Errorf("figures: %+v, %v GB/s", c.Lat, c.BWPerDir)
	}
	if len(c.Vs) != 1 || c.Vs[0].Ratio == nil || c.Vs[0].N != 40 {
		t.Errorf("baseline: %+v", c.Vs)
	} else {
		t.Logf("memcpy: p50 %.3f µs, ratio %.3f", c.Vs[0].Lat.P50, *c.Vs[0].Ratio)
	}
	if c.Invalid != nil && !strings.Contains(*c.Invalid, "clocks were throttled") { // clocks are not under the test's control
		t.Errorf("invalid: %s", *c.Invalid)
	}
	payload, tx := c.Counters["payload_bytes"], c.Counters["link_tx_bytes"]
	if want := (uint64(c.Warmup) + 40) * uint64(c.Window) * c.Size; payload < want {
		t.Errorf("%d payload bytes sent, want at least %d", payload, want)
	}
	if d.Env.Link.Type != "NVLink" || payload < 1<<20 { // the counters have a resolution of 1 KiB
		return
	}
	if tx < payload/10*9 {
		t.Errorf("NVLink carried %d of %d payload bytes", tx, payload)
	}
}

func TestHWCorruption(t *testing.T) {
	transporttest.Require(t, cuda.New(), 1)
	for _, engine := range []string{"ce", "sm"} {
		c := exitsWith(t, exitCorrupt, "ipc", "--device", "cuda", "--engine", engine, "--sizes", "64K", "--op", "latency",
			"-n", "20", "--quiet", "--inject", "flip=9:4321")
		want := fmt.Sprintf("rank 1: data corruption: ipc direct/%s latency, size 65536, iteration 9, message 0: offset 4321 expected", engine)
		if text, err := complaint(c.stderr.String()); err != nil || !strings.HasPrefix(text, want) {
			t.Errorf("%q, %v: want %q", text, err, want)
		}
		if c.stdout.Len() > 0 {
			t.Errorf("stdout: %s", c.stdout.String())
		}
	}
}

func TestHWUnknownGPU(t *testing.T) {
	infos := transporttest.Require(t, cuda.New(), 1)
	c := exitsWith(t, exitUsage, "ipc", "--device", "cuda", "--gpus", fmt.Sprintf("0,%d", len(infos)))
	want := fmt.Sprintf("--gpus 0,%d: no device %d: ", len(infos), len(infos))
	if text, err := complaint(c.stderr.String()); err != nil || !strings.HasPrefix(text, want) {
		t.Errorf("%q, %v", text, err)
	}
}

// A run that needs more memory than the GPU has is refused before a worker is started.
func TestHWMoreMemoryThanThereIs(t *testing.T) {
	infos := transporttest.Require(t, cuda.New(), 1)
	c := exitsWith(t, exitUsage, "ipc", "--device", "cuda", "--op", "latency", "--sizes", fmt.Sprint(infos[0].Memory))
	if text, err := complaint(c.stderr.String()); err != nil || !strings.Contains(text, "GiB, and has") {
		t.Errorf("%q, %v", text, err)
	}
}

// The GPU memory of a killed worker is freed.
func TestHWKilledWorker(t *testing.T) {
	infos := transporttest.Require(t, cuda.New(), 1)
	exitsWith(t, exitOK, "ipc", "--device", "cuda", "--sizes", "8", "--op", "latency", "-n", "5", "-q") // initialises the driver
	before := freeMemory(t, infos)
	c := newCommand(t, "ipc", "--device", "cuda", "--sizes", "512M", "--op", "latency", "-n", "1000000", "-q")
	c.begin(t)
	pids := c.untilTimed(t, 512<<20)
	if during := freeMemory(t, infos); during[0]+512<<20 > before[0] {
		t.Fatalf("%d bytes free during the run, %d before: this test sees nothing", during[0], before[0])
	}
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != exitLost {
		t.Errorf("exit code %d: %s", code, c.stderr.String())
	}
	text, err := complaint(c.stderr.String())
	if err != nil || !strings.HasPrefix(text, "rank 1: killed by signal 9 (SIGKILL)") {
		t.Errorf("%q, %v", text, err)
	}
	const tolerance = 64 << 20 // caches of the driver
	eventually(t, "the GPUs' memory is free again", func() bool {
		for i, now := range freeMemory(t, infos) {
			if now+tolerance < before[i] {
				return false
			}
		}
		return true
	})
	exitsWith(t, exitOK, "ipc", "--device", "cuda", "--sizes", "1M", "--op", "bidir", "-n", "5", "-q")
}

// freeMemory returns the free bytes of each GPU.
func freeMemory(t *testing.T, infos []gpu.Info) []uint64 {
	t.Helper()
	driver := cuda.New()
	var out []uint64
	for _, i := range infos {
		d, err := driver.Open(i.UUID)
		if err != nil {
			t.Fatal(err)
		}
		free, err := d.Free()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		out = append(out, free)
	}
	return out
}
