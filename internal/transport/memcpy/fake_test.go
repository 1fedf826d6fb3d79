package memcpy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/memcpy"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// onFake runs body in another process with a driver without a GPU, since libraries are loaded once per process.
func onFake(t *testing.T, env []string, body func(t *testing.T)) {
	t.Helper()
	if os.Getenv("P2PBENCH_TEST_CHILD") == t.Name() {
		body(t)
		return
	}
	source := filepath.Join("..", "..", "gpu", "cuda", "testdata", "fakecuda.c")
	if _, err := os.Stat(source); err != nil {
		t.Skipf("the fake driver needs the source tree: %v", err)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("the fake driver needs a compiler: %v", err)
	}
	lib := filepath.Join(t.TempDir(), "fakecuda.so")
	args := []string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I../..", source, "-o", lib}
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", source, err, out)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
	cmd.Env = slices.Concat(os.Environ(), env, []string{"P2PBENCH_LIBCUDA=" + lib, "P2PBENCH_TEST_CHILD=" + t.Name()})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func onTwoGPUs(t *testing.T) transporttest.Subject {
	t.Helper()
	return subject(t, memcpy.Options{Timing: memcpy.TimingDevice}, transporttest.Require(t, cuda.New(), 2), 0, true)
}

// Samples are what the devices' clocks say.
func TestFakeClock(t *testing.T) {
	onFake(t, []string{"FAKE_ELAPSED_MS=2.5"}, func(t *testing.T) {
		s := onTwoGPUs(t)
		team, err := s.Launch(t, 1<<20, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer closing(t, team)
		for _, op := range transport.Ops {
			for _, graph := range []bool{false, true} {
				b := transport.Batch{Op: op, Size: 4096, Window: 1, Warmup: 1, Iters: 3, Seed: 7, Check: transport.CheckFull, Graph: graph}
				out, err := team.Run(t.Context(), 0, s.Ranks, b)
				if err != nil {
					t.Fatal(err)
				}
				want := int64(2_500_000)
				if op == transport.OpPingPong {
					want /= 2
				}
				if !slices.Equal(out.Samples, []int64{want, want, want}) {
					t.Errorf("%s, graph %v: %v, want %d each", op, graph, out.Samples, want)
				}
			}
		}
	})
}

// Whatever fails, the queues are let go, and the run ends with what failed first.
func TestFakeFails(t *testing.T) {
	onFake(t, []string{"FAKE_FAIL_BYTES=777", "FAKE_HANG_BYTES=888"}, func(t *testing.T) {
		s := onTwoGPUs(t)
		for size, want := range map[uint64]struct {
			class error
			says  string
		}{
			777: {transporttest.ErrFailed, "bidir, size 777: cuStreamQuery: CUDA_ERROR_FAKE (700)"},
			888: {transporttest.ErrHang, "bidir, size 888: waited 1."},
		} {
			team, err := s.Launch(t, 4096, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			b := transport.Batch{Op: transport.OpBidir, Size: size, Window: 1, Iters: 3, Check: transport.CheckFull}
			_, err = team.Run(t.Context(), 0, s.Ranks, b)
			t.Log(err)
			if !errors.Is(err, want.class) || !strings.Contains(err.Error(), want.says) {
				t.Errorf("got %v, want %v: %s", err, want.class, want.says)
			}
			closing(t, team)
		}
	})
}
