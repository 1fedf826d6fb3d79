package memcpy_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/memcpy"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

const fakeSource = "../../gpu/cuda/testdata/fakecuda.c"

// compiledFake compiles the driver without a GPU, once for all tests.
var compiledFake = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "p2pbench-fake-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	lib := filepath.Join(dir, "fakecuda.so")
	args := []string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I../..", fakeSource, "-o", lib}
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc %s: %w\n%s", fakeSource, err, out)
	}
	return os.ReadFile(lib)
})

// onFake runs body in another process with a driver without a GPU, since libraries are loaded once per process.
func onFake(t *testing.T, env []string, body func(t *testing.T)) {
	t.Helper()
	if os.Getenv("P2PBENCH_TEST_CHILD") == t.Name() {
		body(t)
		return
	}
	if _, err := os.Stat(fakeSource); err != nil {
		t.Skipf("the fake driver needs the source tree: %v", err)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("the fake driver needs a compiler: %v", err)
	}
	lib := filepath.Join(t.TempDir(), "fakecuda.so")
	b, err := compiledFake()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lib, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m", fmt.Sprint("-test.short=", testing.Short()))
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
