package cuda

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/p2pbench/p2pbench/internal/gpu"
)

const fakeUUID0, fakeUUID1 = "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0", "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1"

// fake is a machine without a GPU, with the fake libraries of testdata.
type fake struct {
	cuda, nvml []string // compiler flags of the two libraries
	noCUDA     bool     // there is no libcuda
	noNVML     bool
	env        []string // additional environment
	leaves     bool     // resources remain open, as intended
}

// on runs body with the fake libraries and checks that it released everything. It uses another process, since libraries
// are loaded once per process.
func (f fake) on(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if os.Getenv("P2PBENCH_TEST_CHILD") == t.Name() {
		body(t)
		return
	}
	missing := filepath.Join(t.TempDir(), "missing.so")
	cuda, nvml := missing, missing
	if !f.noCUDA {
		cuda = buildFake(t, "fakecuda", f.cuda)
	}
	if !f.noNVML {
		nvml = buildFake(t, "fakenvml", f.nvml)
	}
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	live := filepath.Join(t.TempDir(), "live")
	rerun(t, pattern, append([]string{
		"P2PBENCH_TEST_CHILD=" + t.Name(), "P2PBENCH_LIBCUDA=" + cuda, "P2PBENCH_LIBNVML=" + nvml, "FAKE_LIVE=" + live,
	}, f.env...)...)
	if f.noCUDA || f.leaves {
		return
	}
	counts, err := os.ReadFile(live)
	if err != nil {
		t.Fatalf("the fake driver was not loaded: %v", err)
	}
	if len(bytes.Trim(counts, "\x00")) != 0 {
		t.Errorf("not everything was released: counts %v of enum BLOCKS in testdata/fakecuda.c", counts)
	}
}

// rerun runs this test binary again and returns its output.
func rerun(t *testing.T, pattern string, env ...string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run="+pattern, "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// buildFake compiles a library of testdata, once per set of flags.
func buildFake(t *testing.T, name string, flags []string) string {
	t.Helper()
	source := filepath.Join("testdata", name+".c")
	if _, err := os.Stat(source); err != nil {
		t.Skipf("the fake libraries need the source tree: %v", err)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("the fake libraries need a compiler: %v", err)
	}
	lib := filepath.Join(fakeDir(), name+strings.Join(flags, "")+".so")
	if _, err := os.Stat(lib); err == nil {
		return lib
	}
	args := append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", "-I../..", source, "-o", lib}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", source, err, out)
	}
	return lib
}

// refused fails the test unless err wraps ErrUnsupported and contains the given texts.
func refused(t *testing.T, err error, says ...string) {
	t.Helper()
	if !errors.Is(err, gpu.ErrUnsupported) {
		t.Fatalf("error %v does not wrap ErrUnsupported", err)
	}
	reports(t, err, says...)
}

func reports(t *testing.T, err error, says ...string) {
	t.Helper()
	for _, s := range says {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not say %q", err, s)
		}
	}
}

// fakeDir is the folder in which the fake libraries are built.
var fakeDir = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "p2pbench-fake-")
	if err != nil {
		panic(err)
	}
	return dir
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("P2PBENCH_TEST_CHILD") == "" {
		_ = os.RemoveAll(fakeDir())
	}
	os.Exit(code)
}
