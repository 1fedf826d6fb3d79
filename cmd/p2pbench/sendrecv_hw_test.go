package main

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// pairOfGPUs returns false on a machine with one GPU, after checking the error of sendrecv there.
func pairOfGPUs(t *testing.T) bool {
	t.Helper()
	if len(transporttest.Require(t, cuda.New(), 1)) > 1 {
		return true
	}
	c := exitsWith(t, exitUsage, "sendrecv", "--device", "cuda", "--sizes", "8", "-q")
	if text, err := complaint(c.stderr.String()); err != nil || !strings.Contains(text, "give each rank a GPU of its own") {
		t.Errorf("%q, %v", text, err)
	}
	return false
}

// TestHWSendrecv runs the command with each variant and each kind of launch.
func TestHWSendrecv(t *testing.T) {
	if !pairOfGPUs(t) {
		return
	}
	for name, flags := range map[string][]string{
		"auto":       {"--op", "latency,stream,bidir,pingpong"},
		"ws":         {"--variant", "ws", "--ctas", "4", "--op", "latency,stream,bidir,pingpong"},
		"stable":     {"--variant", "stable", "--ctas", "4"},
		"put graph":  {"--variant", "put", "--ctas", "8", "-G", "5"},
		"ll":         {"--variant", "ll"},
		"ce":         {"--variant", "ce"},
		"persistent": {"--variant", "put", "--launch", "persistent"},
		"host":       {"--variant", "ws", "--timing", "host"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCommand(t, slices.Concat([]string{
				"sendrecv", "--device", "cuda", "--sizes", "1,1K,1M,16M", "-n", "30", "--vs", "memcpy", "--format", "json",
			}, flags)...)
			c.begin(t)
			code := c.end(t)
			if code != exitOK && code != exitInvalid {
				t.Fatalf("exit code %d: %s", code, c.stderr.String())
			}
			for _, cell := range document(t, c.stdout.String()).Cells {
				checkHWKernels(t, cell)
			}
		})
	}
}

func checkHWKernels(t *testing.T, c record.Cell) {
	t.Helper()
	t.Logf("%s %d, %s, window %d: p50 %.3f µs, p99 %.3f µs, %v", c.Op, c.Size, c.Engine, c.Window, c.Lat.P50, c.Lat.P99, c.Counters)
	if c.Verified == nil || !*c.Verified || c.N != 30 || c.Lat.Min <= 0 {
		t.Errorf("%s %d: verified %v, n %d, %+v", c.Op, c.Size, c.Verified, c.N, c.Lat)
	}
	if len(c.Vs) != 1 || c.Vs[0].Ratio == nil || c.Vs[0].Knobs["timing"] != c.Knobs["timing"] {
		t.Errorf("%s %d: baseline %+v", c.Op, c.Size, c.Vs)
	}
	if c.Invalid != nil && !strings.Contains(*c.Invalid, "clocks were throttled") { // clocks are not under the test's control
		t.Errorf("%s %d: invalid: %s", c.Op, c.Size, *c.Invalid)
	}
	if strings.HasPrefix(c.Engine, "ce") == (c.Counters["ctas"] > 0) {
		t.Errorf("%s %d: %s has %d thread blocks", c.Op, c.Size, c.Engine, c.Counters["ctas"])
	}
}

// TestHWKernelsKilled kills a rank while kernels on two GPUs wait for each other: afterwards both GPUs are idle.
func TestHWKernelsKilled(t *testing.T) {
	if !pairOfGPUs(t) {
		return
	}
	for name, flags := range waitingKernels {
		t.Run(name, func(t *testing.T) {
			c := newCommand(t, slices.Concat([]string{
				"sendrecv", "--device", "cuda", "--sizes", "64M", "--op", "bidir", "-n", "100000", "-w", "0", "-T", "5s", "-q",
			}, flags)...)
			c.begin(t)
			pids := c.untilTimed(t, 64<<20)
			if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if code := c.end(t); code != exitLost {
				t.Errorf("exit code %d, want %d: %s", code, exitLost, c.stderr.String())
			}
		})
	}
	exitsWith(t, exitOK, "sendrecv", "--device", "cuda", "--sizes", "1M", "-n", "20", "--format", "json")
}

// TestHWDoctorKernels lists the kernels as compiled by the driver.
func TestHWDoctorKernels(t *testing.T) {
	transporttest.Require(t, cuda.New(), 1)
	c := exitsWith(t, exitOK, "doctor", "--kernels", "--format", "json")
	var d diagnosis
	if err := json.Unmarshal(c.stdout.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	if d.Kernels == nil || len(*d.Kernels) == 0 {
		t.Fatal("no device told of its kernels")
	}
	for _, r := range *d.Kernels {
		if r.Problem != "" || len(r.Kernels) == 0 {
			t.Errorf("%s: %d kernels, %s", r.Device, len(r.Kernels), r.Problem)
		}
		for _, k := range r.Kernels {
			t.Logf("%s: %+v", r.Device, k)
			if k.Name == "" || k.Registers <= 0 || k.Threads <= 0 || k.Target == "" {
				t.Errorf("%s: %+v", r.Device, k)
			}
		}
	}
}
