package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/p2pbench/p2pbench/internal/report/record"
	"github.com/p2pbench/p2pbench/internal/sweep"
)

const fakeNCCLSource = "../../internal/transport/nccl/testdata/fakenccl.c"

// fakeNCCL is a file with a driver of two GPUs and an NCCL in it, for a machine that has neither.
func fakeNCCL(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(fakeNCCLSource); err != nil {
		t.Skipf("the fake library needs the source tree: %v", err)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("the fake library needs a compiler: %v", err)
	}
	lib := filepath.Join(t.TempDir(), "fakenccl.so")
	b, err := compiledNCCL()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lib, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return lib
}

// compiledNCCL compiles it, once for all tests.
var compiledNCCL = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "p2pbench-fake-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	lib := filepath.Join(dir, "fakenccl.so")
	if out, err := exec.Command("gcc", "-std=gnu11", "-O2", "-fPIC", "-shared", "-I../../internal", fakeNCCLSource, "-o", lib).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc %s: %w\n%s", fakeNCCLSource, err, out)
	}
	return os.ReadFile(lib)
})

// NCCL by the host and as graphs, by its own choice and bound, stand beside each other in one run, each with the thread
// blocks that it was seen to launch.
func TestVsNCCL(t *testing.T) {
	lib, file := fakeNCCL(t), filepath.Join(t.TempDir(), "run.json")
	c := newCommand(t, "ipc", "--device", "cuda", "--engine", "ce", "--sizes", "4K,1M", "--op", "latency,pingpong", "-n", "12",
		"--vs", "nccl,nccl-graph,nccl:4,nccl-graph:32,memcpy", "--require-vs", "--wide", "--out", file)
	c.Env = append(c.Env, "P2PBENCH_LIBCUDA="+lib, "P2PBENCH_LIBNCCL="+lib)
	c.begin(t)
	if code := c.end(t); code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.stderr.String())
	}
	if !regexp.MustCompile(`(?m)^ *size .*( CTAs.*){4}$`).MatchString(c.stdout.String()) {
		t.Errorf("the table has no four columns of CTAs:\n%s", c.stdout.String())
	}
	saved, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := document(t, string(saved))
	if len(d.Cells) != 4 {
		t.Fatalf("%d cells", len(d.Cells))
	}
	for _, cell := range d.Cells {
		own := map[uint64]uint64{4 << 10: 2, 1 << 20: 16}[cell.Size] // what the fake does
		for i, want := range []struct {
			name  string
			ctas  uint64
			knobs map[string]string
		}{
			{"nccl", own, map[string]string{"ctas": "auto", "cudagraph": ""}},
			{"nccl-graph", own, map[string]string{"ctas": "auto", "cudagraph": "window"}},
			{"nccl:4", 4, map[string]string{"ctas": "4", "cudagraph": ""}},
			{"nccl-graph:32", 32, map[string]string{"ctas": "32", "cudagraph": "window", "NCCL_NVLS_ENABLE": "0"}},
		} {
			checkNCCL(t, cell, cell.Vs[i], want.name, want.ctas, want.knobs)
		}
		if v := cell.Vs[4]; v.Name != "memcpy" || len(v.Counters) != 0 {
			t.Errorf("%+v, want memcpy without counters", v)
		}
	}
}

// A baseline that cannot start, or does not return from its start, is n/a with the reason, and the rest of the run is
// measured. --require-vs makes it an error.
func TestBaselineThatCannotStart(t *testing.T) {
	lib := fakeNCCL(t)
	for name, tt := range map[string]struct{ fault, why string }{
		"fails": {"FAKE_NCCL_FAIL=ncclCommInitRankConfig:2", "ncclCommInitRankConfig"},
		"hangs": {"FAKE_NCCL_INIT_HANG=1", "NCCL has not returned"},
	} {
		run := func(t *testing.T, flags ...string) (int, *command) {
			args := []string{
				"ipc", "--device", "cuda", "--engine", "ce", "--sizes", "4K", "--op", "latency", "-n", "12", "--timeout", "3s",
				"--vs", "nccl,memcpy", "--format", "json",
			}
			c := newCommand(t, append(args, flags...)...)
			c.Env = append(c.Env, "P2PBENCH_LIBCUDA="+lib, "P2PBENCH_LIBNCCL="+lib, tt.fault)
			c.begin(t)
			return c.end(t), c
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, c := run(t)
			if code != exitOK {
				t.Fatalf("exit code %d: %s", code, c.stderr.String())
			}
			if !strings.Contains(c.stderr.String(), "--vs nccl: rank") {
				t.Errorf("stderr does not say that NCCL is missing: %s", c.stderr.String())
			}
			d := document(t, c.stdout.String())
			if len(d.Cells) != 1 || len(d.Cells[0].Vs) != 2 {
				t.Fatalf("%+v", d.Cells)
			}
			for _, v := range d.Cells[0].Vs {
				if v.Name == "memcpy" && (v.NA != "" || v.N != 12) || v.Name == "nccl" && !strings.Contains(v.NA, tt.why) {
					t.Errorf("%+v", v)
				}
			}
		})
		t.Run(name+", required", func(t *testing.T) {
			t.Parallel()
			if code, c := run(t, "--require-vs"); code == exitOK || !strings.Contains(c.stderr.String(), tt.why) {
				t.Errorf("exit code %d: %s", code, c.stderr.String())
			}
		})
	}
}

func checkNCCL(t *testing.T, c record.Cell, v record.Vs, name string, ctas uint64, knobs map[string]string) {
	t.Helper()
	if v.Name != name || v.N != 12 || v.Ratio == nil || v.Engine != "nccl 2.28.9 ncclDevKernel_SendRecv" {
		t.Errorf("%s of %d bytes: %+v, want %s", c.Op, c.Size, v, name)
	}
	if v.Counters["nccl_ctas"] != ctas || v.Counters["messages"] < 12 {
		t.Errorf("%s of %d bytes, %s: %v, want %d CTAs", c.Op, c.Size, name, v.Counters, ctas)
	}
	for k, want := range knobs {
		if v.Knobs[k] != want {
			t.Errorf("%s of %d bytes, %s: %s is %q, want %q", c.Op, c.Size, name, k, v.Knobs[k], want)
		}
	}
}

// Beside kernels NCCL and memcpy are timed as they are, NCCL runs the same ring, and has as many thread blocks.
func TestBesideKernels(t *testing.T) {
	lib := fakeNCCL(t)
	type options struct {
		Timing string `json:"timing"`
		Ring   bool   `json:"ring"`
		CTAs   int    `json:"ctas"`
		Graph  bool   `json:"graph"`
		// PerMessage is NCCL's; memcpy copies each message by itself anyway.
		PerMessage bool `json:"per_message"`
	}
	for _, tt := range []struct {
		flags []string
		want  []options
		names []string
	}{
		{
			[]string{"--variant", "ws", "--ctas", "4", "--vs", "nccl,nccl-graph:8,memcpy"},
			[]options{{"device", false, 4, false, true}, {"device", false, 8, true, true}, {"device", false, 0, false, false}},
			[]string{"nccl:4", "nccl-graph:8", "memcpy"},
		},
		{
			[]string{"--variant", "stable", "--ctas", "2", "--ring", "--timing", "host", "--vs", "nccl,nccl:auto"},
			[]options{{"host", true, 4, false, true}, {"host", true, 0, false, true}},
			[]string{"nccl:4", "nccl"},
		},
	} {
		c := newCommand(t, slices.Concat([]string{"plan", "sendrecv", "--device", "cuda", "--sizes", "1K", "--format", "json"}, tt.flags)...)
		c.Env = append(c.Env, "P2PBENCH_LIBCUDA="+lib, "P2PBENCH_LIBNCCL="+lib)
		c.begin(t)
		if code := c.end(t); code != exitOK {
			t.Fatalf("exit code %d: %s", code, c.stderr.String())
		}
		var p sweep.Plan
		if err := json.Unmarshal(c.stdout.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		for i, want := range tt.want {
			var got options
			if err := json.Unmarshal(p.Arms[i+1].Options, &got); err != nil || got != want || p.Arms[i+1].Name != tt.names[i] {
				t.Errorf("%q: %s is %+v, %v; want %s, %+v", tt.flags, p.Arms[i+1].Name, got, err, tt.names[i], want)
			}
		}
	}
}

// Kernels of two processes that wait for each other need a GPU each: a ring of three on two GPUs cannot be measured, and
// two ranks on one are refused.
func TestKernelsNeedGPUsOfTheirOwn(t *testing.T) {
	lib := fakeNCCL(t)
	for _, tt := range []struct {
		code int
		args []string
		says string
	}{
		{exitUsage, []string{"claims", "run", "torchcomms-2728/ring-peers", "-q", "--format", "json"}, `"why": "sendrecv: ranks 0 and 2 on GPU-`},
		{exitUsage, []string{"sendrecv", "--gpus", "1,1", "--sizes", "8"}, "sendrecv: ranks 0 and 1 on GPU-"},
		{exitOK, []string{"doctor", "--kernels"}, "cuda 1, Fake GPU 1:"},
	} {
		if tt.args[0] != "doctor" {
			tt.args = append(tt.args, "--device", "cuda")
		}
		c := newCommand(t, tt.args...)
		c.Env = append(c.Env, "P2PBENCH_LIBCUDA="+lib, "P2PBENCH_LIBNCCL="+lib)
		c.begin(t)
		if code := c.end(t); code != tt.code || !strings.Contains(c.stdout.String()+c.stderr.String(), tt.says) {
			t.Errorf("%q: exit code %d, want %d, and %q in:\n%s%s", tt.args, code, tt.code, tt.says, c.stdout.String(), c.stderr.String())
		}
	}
}
