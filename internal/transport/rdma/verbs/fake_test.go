package verbs_test

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/verbs/verbstest"
)

// fake is a machine with the library of verbstest and no other RDMA.
type fake struct {
	flags  []string // compiler flags of the library
	faults []string
	lib    string // "": what the flags build
}

// on runs body in another process, since libraries are loaded once per process, with the fake library. All that it makes
// must be gone at its end.
func (f fake) on(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if child(t) {
		body(t)
		return
	}
	env, count := verbstest.Log(t)
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	f.rerun(t, pattern, append(env, "P2PBENCH_TEST_CHILD="+t.Name())...)
	if left, _ := count(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// child reports whether this is the process with the fake library in it.
func child(t *testing.T) bool { return os.Getenv("P2PBENCH_TEST_CHILD") == t.Name() }

// rerun runs tests of this binary in another process and returns its output.
func (f fake) rerun(t *testing.T, pattern string, env ...string) string {
	t.Helper()
	lib := f.lib
	if lib == "" {
		lib = verbstest.Build(t, f.flags...)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run="+pattern, "-test.v", "-test.timeout=5m")
	cmd.Env = slices.Concat(os.Environ(), verbstest.Env(lib, f.faults...), env)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// two are fake0 and fake1.
func two(t *testing.T) (a, b verbs.Device) {
	t.Helper()
	found, err := verbs.Devices()
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	return found[0], found[1]
}

// What holds for real devices holds for the fake, and with a library that is old.
func TestFakeRunsHardwareTests(t *testing.T) {
	if os.Getenv("P2PBENCH_LIBIBVERBS") != "" {
		t.Skip("already on another libibverbs")
	}
	for _, flags := range [][]string{nil, {"-DOLD"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			env, count := verbstest.Log(t)
			out := fake{flags: flags}.rerun(t, "^TestHW", append(env, "P2PBENCH_REQUIRE=rdma")...)
			if n := strings.Count(out, "--- PASS: TestHW"); n < 20 {
				t.Errorf("only %d tests passed:\n%s", n, out)
			}
			left, made := count()
			if len(left) > 0 || made["qp"] < 50 || made["mr"] < 50 || made["context"] < 50 {
				t.Errorf("left %v of %v", left, made)
			}
		})
	}
}

// The binary must start where there is no libibverbs.
func TestNotLinked(t *testing.T) {
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close() //nolint:errcheck // was only read
	libs, err := self.ImportedLibraries()
	if err != nil || len(libs) == 0 {
		t.Fatalf("%v, %v", libs, err)
	}
	for _, lib := range libs {
		if strings.Contains(lib, "verbs") {
			t.Errorf("linked with %s", lib)
		}
	}
}

func TestFakeLoads(t *testing.T) {
	for _, c := range []struct {
		name string
		fake fake
		says []string // nothing: it loads
	}{
		{"missing", fake{lib: "/nonexistent/libibverbs.so"}, []string{
			"verbs: /nonexistent/libibverbs.so: cannot open shared object file", "install libibverbs1 and ibverbs-providers",
			"P2PBENCH_LIBIBVERBS",
		}},
		{"missing function", fake{flags: []string{"-Dibv_create_qp=other"}}, []string{"fakeverbs.so: no function ibv_create_qp"}},
		{"without optional functions", fake{flags: []string{"-DOLD"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.fake.on(t, func(t *testing.T) {
				err := verbs.Load()
				_, listed := verbs.Devices()
				if len(c.says) == 0 {
					if err != nil || listed != nil {
						t.Errorf("%v, %v", err, listed)
					}
					two(t)
					return
				}
				_, opened := verbs.Open("fake0")
				for _, err := range []error{err, listed, opened} {
					if !errors.Is(err, gpu.ErrUnsupported) {
						t.Errorf("%v does not wrap ErrUnsupported", err)
					}
					says(t, err, c.says...)
				}
				if verbs.Version() != "" {
					t.Errorf("version %q", verbs.Version())
				}
			})
		})
	}
}

// The version is in the name of the file behind the links.
func TestFakeVersion(t *testing.T) {
	f := fake{}
	if !child(t) {
		dir, lib := t.TempDir(), verbstest.Build(t)
		f.lib = filepath.Join(dir, "libibverbs.so.1")
		if err := errors.Join(
			os.Rename(lib, filepath.Join(dir, "libibverbs.so.1.14.44.0")), os.Symlink("libibverbs.so.1.14.44.0", f.lib),
		); err != nil {
			t.Fatal(err)
		}
	}
	f.on(t, func(t *testing.T) {
		if v := verbs.Version(); v != "1.14.44.0" {
			t.Errorf("version %q", v)
		}
	})
}

// What cannot be listed or opened says so, with what would help.
func TestFakeRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults []string
		says   []string // nothing: fake0 can be used
	}{
		{"no devices", []string{"no-devices"}, []string{"no RDMA device", "rdma link add rxe0", "unsupported"}},
		{"no kernel modules", []string{"fail-get_device_list=38"}, []string{"no RDMA device", "unsupported"}},
		{"list", []string{"fail-get_device_list=12"}, []string{"ibv_get_device_list: cannot allocate memory (12)"}},
		{"not allowed", []string{"fail-open_device=13"}, []string{
			"fake0: ibv_open_device: permission denied (13)", "/dev/infiniband/uverbs*", "--device=/dev/infiniband",
		}},
		{"query", []string{"fail-query_device=5"}, []string{"fake0: ibv_query_device: input/output error (5)"}},
		{"port", []string{"fail-query_port=5"}, []string{"fake0: ibv_query_port: input/output error (5)"}},
		{"pd", []string{"fail-alloc_pd=12"}, []string{"fake0: ibv_alloc_pd: cannot allocate memory (12)"}},
		{"gids", []string{"fail-query_gid_table=22"}, []string{"fake0: ibv_query_gid_table: invalid argument (22)"}},
		{"region", []string{"fail-reg_mr=22"}, []string{"fake0: ibv_reg_mr: invalid argument (22)"}},
		{"cq", []string{"fail-create_cq=12"}, []string{
			"fake0: ibv_create_cq: cannot allocate memory (12): 1 entries; of 1024 completion queues that the device can have this process has 0",
		}},
		{"qp", []string{"fail-create_qp=12"}, []string{
			"fake0: ibv_create_qp: cannot allocate memory (12): 16 sends and 16 receives; of 512 queue pairs that the device can have this process has 0",
		}},
		{"iWARP", []string{"iwarp"}, []string{"fake0: connect: an iWARP device connects by rdma_cm", "unsupported"}},
		{"no RC", []string{"fail-create_qp=95"}, []string{"ibv_create_qp: operation not supported (95): unsupported"}},
		{"init", []string{"fail-modify_qp=22"}, []string{"fake0: ibv_modify_qp to INIT: invalid argument (22)"}},
		{"no address", []string{"no-gid"}, []string{"fake0 port 1: no GID", "no address", "ip addr add"}},
		{"one device of two", []string{"fake1/no-devices"}, nil},
		{"the other device", []string{"fake1/fail-create_qp=12"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake{faults: c.faults}.on(t, func(t *testing.T) {
				found, err := verbs.Devices()
				if err == nil {
					err = found[0].Err
				}
				if err == nil {
					var e *end
					e, err = newEnd(found[0], spec{})
					if err == nil {
						err = e.join(e.card())
					}
					err = errors.Join(err, e.Close())
				}
				t.Log(err)
				if err != nil && len(c.says) == 0 {
					t.Error(err)
				}
				says(t, err, c.says...)
				if unsupported := errors.Is(err, gpu.ErrUnsupported); len(c.says) > 0 &&
					unsupported != strings.Contains(strings.Join(c.says, ""), "unsupported") {
					t.Errorf("%v wraps ErrUnsupported: %v", err, unsupported)
				}
			})
		})
	}
}

// What cannot be closed stays open, and is counted as that.
func TestFakeRefusesToClose(t *testing.T) {
	for _, verb := range []string{"destroy_qp", "destroy_cq", "dereg_mr"} {
		t.Run(verb, func(t *testing.T) {
			if !child(t) { // and is in the log at the end, as it should
				fake{faults: []string{"fail-" + verb + "=5"}}.rerun(t, "^TestFakeRefusesToClose$/^"+verb+"$", "P2PBENCH_TEST_CHILD="+t.Name())
				return
			}
			a, _ := two(t)
			e, err := newEnd(a, spec{})
			if err != nil {
				t.Fatal(err)
			}
			says(t, e.Close(), "fake0: ibv_"+verb+": input/output error (5)", "are open")
			if qps, cqs, mrs := e.c.Objects(); qps+cqs+mrs == 0 {
				t.Error("nothing is open")
			}
		})
	}
}

func TestFakeLimits(t *testing.T) {
	for _, c := range []struct {
		fault string
		spec  spec
		says  string // "": it can be had
	}{
		{"few-cqe=100", spec{depth: 100}, ""},
		{"few-cqe=100", spec{depth: 101}, "a completion queue of 101 entries: the device takes 1 to 100"},
		{"few-wr=100", spec{QPSpec: verbs.QPSpec{SendWRs: 100, RecvWRs: 100}}, ""},
		{"few-wr=100", spec{QPSpec: verbs.QPSpec{SendWRs: 100, RecvWRs: 101}}, "100 sends and 101 receives: the device takes 1 to 100 work requests a queue"},
		{"few-wr=100", spec{QPSpec: verbs.QPSpec{SendWRs: -1}}, "-1 sends and 16 receives: the device takes 1 to 100"},
		{"few-qps=3", spec{QPSpec: verbs.QPSpec{Inline: -1}}, "-1 inline bytes"},
		{"few-qps=3", spec{QPSpec: verbs.QPSpec{AckTimeout: 32}}, "the acknowledgement timeout 32: use 1 to 31, or 0"},
		{"few-qps=3", spec{QPSpec: verbs.QPSpec{RNRRetry: 8}}, "8 RNR retries: use 0 or more bytes, and -1 to 7 retries"},
	} {
		t.Run(c.fault+" "+c.says, func(t *testing.T) {
			fake{faults: []string{c.fault}}.on(t, func(t *testing.T) {
				a, _ := two(t)
				e, err := newEnd(a, c.spec)
				err = errors.Join(err, e.Close())
				if c.says != "" {
					says(t, err, "verbs: fake0: ", c.says)
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// One queue pair more than the device has is refused with its number, and one that is closed makes room.
func TestFakeQueuePairsRunOut(t *testing.T) {
	fake{faults: []string{"few-qps=3"}}.on(t, func(t *testing.T) {
		a, _ := two(t)
		e := lone(t, a, spec{})
		s := verbs.QPSpec{CQ: e.cq, SendWRs: 1, RecvWRs: 1, Inline: 64}
		var qps []*verbs.QP
		for range 2 {
			qp, err := e.c.NewQP(s)
			if err != nil {
				t.Fatal(err)
			}
			qps = append(qps, qp)
		}
		_, err := e.c.NewQP(s)
		says(t, err, "cannot allocate memory (12)", "of 3 queue pairs that the device can have this process has 3")
		if err := qps[0].Close(); err != nil {
			t.Fatal(err)
		}
		if qps[0], err = e.c.NewQP(s); err != nil {
			t.Error(err)
		}
		for _, qp := range qps {
			if err := qp.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Too low a limit of locked memory is named.
func TestFakeLockedMemory(t *testing.T) {
	fake{faults: []string{"memlock"}}.on(t, func(t *testing.T) {
		a, _ := two(t)
		c, err := verbs.Open(a.Name)
		if err != nil {
			t.Fatal(err)
		}
		mem := make([]byte, 8192)
		for kib, want := range map[uint64]string{
			64:                      "8192 bytes must be locked, and this process may lock 64 KiB (ulimit -l): raise it with `ulimit -l unlimited`",
			unix.RLIM_INFINITY >> 9: "without limit",
		} {
			limit := unix.Rlimit{Cur: kib << 10, Max: unix.RLIM_INFINITY}
			if kib > 64 {
				limit.Cur = unix.RLIM_INFINITY
			}
			if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
				if kib > 64 {
					continue // only root may raise it
				}
				limit.Max = limit.Cur
				if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
					t.Fatal(err)
				}
			}
			_, err := c.Register(addrOf(mem), uint64(len(mem)), all)
			says(t, err, "fake0: ibv_reg_mr: cannot allocate memory (12)", want)
			if !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("%v does not wrap ENOMEM", err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Memory that is not there, and access flags that make no sense or may be left out.
func TestFakeRegister(t *testing.T) {
	for _, flags := range [][]string{nil, {"-DOLD"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			fake{flags: flags}.on(t, func(t *testing.T) {
				a, _ := two(t)
				e := lone(t, a, spec{})
				_, err := e.c.Register(1<<46, 4096, all)
				says(t, err, "ibv_reg_mr: bad address (14): there is no memory for devices at 0x400000000000", "nvidia_peermem")
				_, err = e.c.Register(e.addr(), size, verbs.RemoteWrite)
				says(t, err, "ibv_reg_mr: invalid argument (22)")
				mr, err := e.c.Register(e.addr(), size, all|verbs.RelaxedOrdering)
				if err != nil {
					t.Fatal(err)
				}
				if mr.RKey == e.mr.RKey {
					t.Errorf("two regions have the key %#x", mr.RKey)
				}
				if err := errors.Join(mr.Close(), mr.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A dma-buf is addressed from where it was said to be.
func TestFakeDMABuf(t *testing.T) {
	const iova, offset = 1 << 44, 5000
	for name, f := range map[string]fake{"": {}, "no-dmabuf": {faults: []string{"no-dmabuf"}}, "old": {flags: []string{"-DOLD"}}} {
		t.Run(name, func(t *testing.T) {
			f.on(t, func(t *testing.T) {
				a, _ := two(t)
				x, y := pair(t, a, a, spec{})
				fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd) //nolint:errcheck // of a test
				if err := unix.Ftruncate(fd, 1<<16); err != nil {
					t.Fatal(err)
				}
				mr, err := y.c.RegisterDMABuf(fd, offset, 4096, iova, all)
				if name != "" {
					says(t, err, "fake0: ibv_reg_dmabuf_mr: ", "not")
					if !errors.Is(err, gpu.ErrUnsupported) {
						t.Errorf("%v does not wrap ErrUnsupported", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				copy(x.mem, "dma-buf")
				s := x.write(card{Addr: iova + 100, RKey: mr.RKey}, 0, 7)
				x.post(t, s)
				x.succeed(t, 1)
				got := make([]byte, 7)
				if _, err := unix.Pread(fd, got, offset+100); err != nil || string(got) != "dma-buf" {
					t.Errorf("%q, %v", got, err)
				}
				if err := mr.Close(); err != nil {
					t.Error(err)
				}
				_, err = y.c.RegisterDMABuf(-1, 0, 4096, iova, all)
				says(t, err, "ibv_reg_dmabuf_mr: bad file descriptor (9)")
			})
		})
	}
}
