package nccl_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/cuda"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/nccl"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// fake is a machine without a GPU but with the driver and the NCCL of testdata.
type fake struct {
	flags  []string // compiler flags of the library
	noNCCL bool
	env    []string // more of the environment
}

// on runs body in another process, since libraries are loaded once per process, with the fake library.
func (f fake) on(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if os.Getenv("P2PBENCH_TEST_CHILD") == t.Name() {
		body(t)
		return
	}
	f.rerun(t, "^"+strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^")+"$", "P2PBENCH_TEST_CHILD="+t.Name())
}

// rerun runs tests of this binary in another process and returns its output.
func (f fake) rerun(t *testing.T, pattern string, env ...string) string {
	t.Helper()
	lib := f.build(t)
	ncclLib := lib
	if f.noNCCL {
		ncclLib = filepath.Join(t.TempDir(), "missing.so")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run="+pattern, "-test.v", "-test.timeout=5m", fmt.Sprint("-test.short=", testing.Short()))
	cmd.Env = slices.Concat(os.Environ(), []string{"P2PBENCH_LIBCUDA=" + lib, "P2PBENCH_LIBNCCL=" + ncclLib}, f.env, env)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// built are the libraries by their flags: compilers are slower than tests.
var built sync.Map

func (f fake) build(t *testing.T) string {
	t.Helper()
	lib, flags := filepath.Join(t.TempDir(), "fakenccl.so"), strings.Join(f.flags, " ")
	if b, ok := built.Load(flags); ok {
		if err := os.WriteFile(lib, b.([]byte), 0o600); err != nil {
			t.Fatal(err)
		}
		return lib
	}
	f.compile(t, lib)
	b, err := os.ReadFile(lib)
	if err != nil {
		t.Fatal(err)
	}
	built.Store(flags, b)
	return lib
}

func (f fake) compile(t *testing.T, lib string) {
	t.Helper()
	source := filepath.Join("testdata", "fakenccl.c")
	if _, err := os.Stat(source); err != nil {
		t.Skipf("the fake library needs the source tree: %v", err)
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("the fake library needs a compiler: %v", err)
	}
	args := append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I../..", source, "-o", lib}, f.flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%s", source, err, out)
	}
}

// log makes the fake keep a log and returns a function that reads it.
func (f *fake) log(t *testing.T) func() string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "log")
	f.env = append(f.env, "FAKE_NCCL_LOG="+file)
	return func() string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// child reports whether this is the process with the fake library in it.
func child(t *testing.T) bool { return os.Getenv("P2PBENCH_TEST_CHILD") == t.Name() }

func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, s := range parts {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not say %q", err, s)
		}
	}
}

func subject(t *testing.T, o nccl.Options) transporttest.Subject {
	t.Helper()
	return transporttest.Subject{
		Arm: transporttest.Arm(t, "nccl", o), Devices: transporttest.Require(t, cuda.New(), 2), Ranks: []int{0, 1},
	}
}

func closing(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func batch(op transport.Op, size uint64) transport.Batch {
	return transport.Batch{Op: op, Size: size, Window: 1, Warmup: 1, Iters: 3, Seed: 7, Check: transport.CheckFull}
}

// The whole suite, on two ranks that are real processes.
func TestFakeRunsHardwareTests(t *testing.T) {
	if os.Getenv("P2PBENCH_LIBNCCL") != "" {
		t.Skip("already on another NCCL")
	}
	out := fake{}.rerun(t, "^TestHW(NCCL|Launches)$", "P2PBENCH_REQUIRE=cuda,nccl") // others need a clock that can be trusted
	if n := strings.Count(out, "--- PASS: TestHWNCCL/"); n < 5*10 {
		t.Errorf("only %d tests passed:\n%s", n, out)
	}
	if !strings.Contains(out, "--- PASS: TestHWLaunches/") {
		t.Errorf("no launch was looked at:\n%s", out)
	}
}

func TestFakeRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		fake fake
		says []string
	}{
		{"missing", fake{noNCCL: true}, []string{"missing.so: cannot open shared object file", "install NCCL 2.18.0 or newer"}},
		{"missing function", fake{flags: []string{"-DOMIT_ncclSend"}}, []string{"no function ncclSend", "2.18.0 or newer"}},
		{"old", fake{env: []string{"FAKE_NCCL_VERSION=21701"}}, []string{"this is NCCL 2.17.1, 2.18.0 or newer is needed"}},
		{"very old", fake{env: []string{"FAKE_NCCL_VERSION=2708"}}, []string{"this is NCCL 2.7.8"}},
		{"no version", fake{env: []string{"FAKE_NCCL_FAIL=ncclGetVersion:3"}}, []string{"ncclGetVersion: internal error (3)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.fake.on(t, func(t *testing.T) {
				devices := transporttest.Require(t, cuda.New(), 2)
				tr, err := nccl.New(nccl.Options{})
				if err != nil {
					t.Fatal(err)
				}
				err = tr.Probe(devices)
				t.Log(err)
				if !errors.Is(err, gpu.ErrUnsupported) {
					t.Errorf("%v does not wrap ErrUnsupported", err)
				}
				says(t, err, c.says...)
			})
		})
	}
}

// What is asked for reaches NCCL, what runs is described, and all is given back.
func TestFakeOptions(t *testing.T) {
	for _, c := range []struct {
		name string
		fake fake
		o    nccl.Options
		log  []string
	}{
		{"default", fake{env: []string{"FAKE_NCCL_VERSION=22304"}}, nccl.Options{}, []string{"rank 1 init 0 0 nvls 0\n"}},
		{
			"ctas and registered",
			fake{env: []string{"NCCL_NVLS_ENABLE=1", "NCCL_ALGO=Ring"}},
			nccl.Options{CTAs: 4, Register: true},
			[]string{
				"rank 0 init 4 4 nvls 1\n", "rank 0 register 2097152 of cuMemCreate\n",
				"rank 1 register 2097152 of cuMemCreate\n", "rank 1 deregister\n",
			},
		},
		{
			"registered, old driver",
			fake{flags: []string{"-DOMIT_VMM"}},
			nccl.Options{Register: true},
			[]string{"rank 0 register 2097152 of cuMemAlloc\n", "rank 1 register 2097152 of cuMemAlloc\n"},
		},
		{"graph", fake{}, nccl.Options{Graph: true, CTAs: 64}, []string{"rank 1 init 64 64 nvls 0\n"}},
		{"without optional functions", fake{flags: []string{"-DOMIT_OPTIONAL"}}, nccl.Options{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var read func() string
			if !child(t) {
				read = c.fake.log(t)
			}
			c.fake.on(t, func(t *testing.T) { describes(t, c.o) })
			if child(t) {
				return
			}
			log := read()
			for _, line := range append(c.log, "rank 0 destroy\n", "rank 1 destroy\n") {
				if !strings.Contains(log, line) {
					t.Errorf("no %q in the log:\n%s", line, log)
				}
			}
			if strings.Contains(log, "abort") {
				t.Errorf("something was aborted:\n%s", log)
			}
		})
	}
}

func describes(t *testing.T, o nccl.Options) {
	t.Helper()
	team, err := subject(t, o).Launch(t, 1<<20, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, team)
	p := team.Paths[0][0]
	ctas, version := "auto", "2.28.9"
	if o.CTAs > 0 {
		ctas = fmt.Sprint(o.CTAs)
	}
	if os.Getenv("FAKE_NCCL_VERSION") != "" {
		version = "2.23.4"
	}
	if p.Path != "nccl" || p.Engine != "nccl "+version || p.Completion != "receiver" || *p.ConnectUS <= 0 ||
		p.Knobs["ctas"] != ctas || p.Knobs["register"] != fmt.Sprint(o.Register) || p.Knobs["protocol"] != "not reported by NCCL" {
		t.Errorf("%+v", p)
	}
	if graph := p.Knobs["cudagraph"]; (graph == "window") != o.Graph {
		t.Errorf("cudagraph is %q, and was asked for: %v", graph, o.Graph)
	}
	nvls := os.Getenv("NCCL_NVLS_ENABLE")
	if nvls == "" {
		nvls = "0"
	}
	if p.Knobs["NCCL_NVLS_ENABLE"] != nvls || p.Knobs["NCCL_ALGO"] != os.Getenv("NCCL_ALGO") {
		t.Errorf("%v does not show NCCL's environment", p.Knobs)
	}
	b := batch(transport.OpStream, 4096)
	b.Window, b.Graph = 4, true
	out, err := team.Run(t.Context(), 0, []int{0, 1}, b)
	if err != nil {
		t.Fatal(err)
	}
	if out.Counters["messages"] != 16 {
		t.Errorf("%v, want 16 messages", out.Counters)
	}
	if _, err := team.Finish(t.Context()); err != nil {
		t.Error(err)
	}
}

// A rank that cannot connect says why.
func TestFakeConnectFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		fake  fake
		class error
		o     nccl.Options
		says  []string
	}{
		{
			"id",
			fake{env: []string{"FAKE_NCCL_FAIL=ncclGetUniqueId:2"}},
			transporttest.ErrFailed,
			nccl.Options{},
			[]string{"nccl: open: ncclGetUniqueId: unhandled system error (2)", "NCCL_DEBUG=WARN"},
		},
		{
			"init",
			fake{env: []string{"FAKE_NCCL_FAIL=ncclCommInitRankConfig:3"}},
			transporttest.ErrFailed,
			nccl.Options{},
			[]string{"nccl: connect: ncclCommInitRankConfig: internal error (3)", "NCCL_DEBUG=WARN"},
		},
		{
			"one GPU for two",
			fake{env: []string{"FAKE_NCCL_SAME_GPU=1"}},
			transporttest.ErrFailed,
			nccl.Options{},
			[]string{"ncclCommInitRankConfig: invalid usage (5)"},
		},
		{
			"init hangs",
			fake{env: []string{"FAKE_NCCL_INIT_HANG=1"}},
			transporttest.ErrHang,
			nccl.Options{},
			[]string{"NCCL has not returned from the making of the communicator after 1."},
		},
		{
			"first send",
			fake{env: []string{"FAKE_NCCL_FAIL=ncclSend:1"}},
			transporttest.ErrFailed,
			nccl.Options{},
			[]string{"ncclSend: unhandled cuda error (1): the fake was told to"},
		},
		{
			"group",
			fake{env: []string{"FAKE_NCCL_FAIL=ncclGroupStart:3"}},
			transporttest.ErrFailed,
			nccl.Options{},
			[]string{"ncclGroupStart: internal error (3)"},
		},
		{
			"first byte never comes",
			fake{env: []string{"FAKE_NCCL_HANG_BYTES=1"}},
			transporttest.ErrHang,
			nccl.Options{},
			nil, // whoever notices first: the wait, or the deadline around it
		},
		{
			"no memory to register",
			fake{env: []string{"FAKE_FAIL=cuMemCreate:2"}},
			transporttest.ErrFailed,
			nccl.Options{Register: true},
			[]string{"nccl: open: allocate 1048576 bytes as vmm-fd: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2)"},
		},
		{
			"no registration",
			fake{flags: []string{"-DOMIT_OPTIONAL"}},
			transporttest.ErrFailed,
			nccl.Options{Register: true},
			[]string{"ncclCommRegister: this NCCL has no such function (-1)"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.fake.on(t, func(t *testing.T) {
				_, err := subject(t, c.o).Launch(t, 1<<20, time.Second)
				t.Log(err)
				if !errors.Is(err, c.class) {
					t.Errorf("got %v, want %v", err, c.class)
				}
				says(t, err, c.says...)
			})
		})
	}
}

// A failure in a batch is named, and what NCCL has under way is aborted.
func TestFakeRunFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		env   []string
		size  uint64
		class error
		says  []string
	}{
		{"send", []string{"FAKE_NCCL_FAIL_BYTES=777"}, 777, transporttest.ErrFailed, []string{
			"nccl 2.28.9: bidir, size 777: ncclSend: unhandled cuda error (1): the fake was told to", "NCCL_DEBUG=WARN",
		}},
		{"never ends", []string{"FAKE_NCCL_HANG_BYTES=777"}, 777, transporttest.ErrHang, []string{
			"nccl 2.28.9: bidir, size 777: waited 1.",
		}},
		{"abort hangs too", []string{"FAKE_NCCL_HANG_BYTES=777", "FAKE_NCCL_ABORT_HANG=1"}, 777, transporttest.ErrHang, []string{
			"nccl 2.28.9: bidir, size 777: waited 1.",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fake{env: c.env}
			var read func() string
			if !child(t) {
				read = f.log(t)
			}
			f.on(t, func(t *testing.T) {
				team, err := subject(t, nccl.Options{}).Launch(t, 1<<20, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer closing(t, team)
				if _, err := team.Run(t.Context(), 0, []int{0, 1}, batch(transport.OpBidir, 776)); err != nil {
					t.Fatal(err)
				}
				_, err = team.Run(t.Context(), 0, []int{0, 1}, batch(transport.OpBidir, c.size))
				t.Log(err)
				if !errors.Is(err, c.class) {
					t.Errorf("got %v, want %v", err, c.class)
				}
				says(t, err, c.says...)
			})
			if log := ""; !child(t) {
				if log = read(); !strings.Contains(log, " abort\n") || strings.Contains(log, "destroy") {
					t.Errorf("the communicator was not aborted:\n%s", log)
				}
			}
		})
	}
}
