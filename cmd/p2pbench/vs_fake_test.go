package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/p2pbench/p2pbench/internal/report/record"
)

// fakeNCCL is a file with a driver of two GPUs and an NCCL in it, for a machine that has neither.
func fakeNCCL(t *testing.T) string {
	t.Helper()
	source := filepath.Join("..", "..", "internal", "transport", "nccl", "testdata", "fakenccl.c")
	if _, err := os.Stat(source); err != nil {
		t.Skipf("the fake library needs the source tree: %v", err)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("the fake library needs a compiler: %v", err)
	}
	lib := filepath.Join(t.TempDir(), "fakenccl.so")
	if out, err := exec.Command("gcc", "-std=gnu11", "-O2", "-fPIC", "-shared", source, "-o", lib).CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", source, err, out)
	}
	return lib
}

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
		kernels := map[string]uint64{"latency": 1, "pingpong": 2}[cell.Op]
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
			checkNCCL(t, cell, cell.Vs[i], want.name, want.ctas*kernels, want.knobs)
		}
		if v := cell.Vs[4]; v.Name != "memcpy" || len(v.Counters) != 0 {
			t.Errorf("%+v, want memcpy without counters", v)
		}
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
