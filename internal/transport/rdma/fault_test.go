package rdma_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/rdma"
	"github.com/p2pbench/p2pbench/internal/transport/rdma/rdmatest"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// shared are options whose queue pairs serve several connections.
var shared = rdma.Options{Conns: 8, Groups: 2, Depth: 2}

// unseen are the same, whose receivers take no completions.
var unseen = rdma.Options{Conns: 8, Groups: 2, Depth: 2, Completion: rdma.InMemory, Burst: 16, Back: true}

// long is a batch that does not end before a fault befalls it.
func long(op transport.Op, size uint64, window int) transport.Batch {
	b := batch(op, size, window)
	b.Iters, b.Check = 1<<20, transport.CheckOff
	return b
}

// processes are the children that this process has.
func processes(t *testing.T) []string {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, task := range tasks {
		children, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		out = append(out, strings.Fields(string(children))...)
	}
	return out
}

// fails runs a batch, if workers start at all, and holds the error against what a user must read. No process is left.
func fails(t *testing.T, s transporttest.Subject, b transport.Batch, class error, parts ...string) {
	t.Helper()
	begin := time.Now()
	w, err := try(t, s, b.Region(), patience)
	if err == nil {
		_, err = w.run(w.all(), b)
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}
	if !errors.Is(err, class) {
		t.Errorf("got %v, want %v", err, class)
	}
	says(t, err, parts...)
	if took := time.Since(begin); took > patience {
		t.Errorf("that took %v, no shorter than a deadline", took)
	}
	if left := processes(t); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, faults string
		o            rdma.Options
		class        error
		says         []string
	}{
		{"wrong key", "fake0/bad-rkey=100", shared, transporttest.ErrFailed, []string{"remote access error"}},
		{"wrong key of a grant", "fake1/bad-rkey=100", shared, transporttest.ErrFailed, []string{"remote access error"}},
		{"memory cannot be locked", "memlock", shared, gpu.ErrUnsupported, []string{"rdma: open: ", "ulimit -l", "cannot allocate memory"}},
		{"no address", "no-gid", shared, gpu.ErrUnsupported, []string{"fake0 port 1", "no GID", "ip addr add"}},
		{"no address at one end", "fake1/no-gid", shared, gpu.ErrUnsupported, []string{"rank 1: ", "fake1 port 1", "no GID", "ip addr add"}},
		{"port down", "port-down", shared, gpu.ErrUnsupported, []string{"fake0 is DOWN, fake1 is DOWN", "ip link set up"}},
		{"port goes down", "fake0/port-down-after=500", shared, transporttest.ErrFailed, []string{"fake0", "port 1 is down"}},
		{"other port goes down", "fake1/port-down-after=500", shared, transporttest.ErrFailed, []string{"fake1", "port 1 is down"}},
		{"device removed", "fake0/removed-after=500", shared, transporttest.ErrFailed, []string{"fake0", "device removed or failed"}},
		{"other device removed", "fake1/removed-after=500", shared, transporttest.ErrFailed, []string{"fake1", "device removed or failed"}},
		{"no room to complete", "few-cqe=20", shared, gpu.ErrUnsupported, []string{"completion queue of 20 entries", "--window", "--groups"}},
		{"no room to post", "few-wr=32", shared, gpu.ErrUnsupported, []string{"--window", "--groups"}},
		{"few queue pairs", "few-qps=7", rdma.Options{Conns: 8}, gpu.ErrUnsupported, []string{"connection 8 of 8", "queue pairs", "7"}},
		{"another's immediate", "fake0/drop-imm=30", shared, transporttest.ErrFailed, []string{"misrouted", "connection"}},
		{"nobody's immediate", "fake0/drop-imm=5", rdma.Options{Conns: 1}, transporttest.ErrFailed, []string{"misrouted", "connection 0"}},
		{"another's immediate, unasked", "fake0/drop-imm=30", rdma.Options{Conns: 8, CTS: rdma.CTSPreGranted}, transporttest.ErrFailed, []string{"misrouted"}},
		{"no devices", "no-devices", shared, gpu.ErrUnsupported, []string{"no RDMA device", "rdma link add"}},
		{"no queue pairs", "fail-create_qp=12", shared, gpu.ErrUnsupported, []string{"ibv_create_qp", "cannot allocate memory"}},
		{"in memory: wrong key", "fake0/bad-rkey=100", unseen, transporttest.ErrFailed, []string{"remote access error"}},
		{"in memory: port goes down", "fake0/port-down-after=500", unseen, transporttest.ErrFailed, []string{"fake0", "port 1 is down"}},
		{"in memory: other port goes down", "fake1/port-down-after=50", unseen, transporttest.ErrFailed, []string{"fake1", "port 1 is down"}},
		{"in memory: device removed", "fake0/removed-after=500", unseen, transporttest.ErrFailed, []string{"fake0", "device removed or failed"}},
		{"cannot connect", "fake1/fail-modify_qp=110", shared, transporttest.ErrFailed, []string{"ibv_modify_qp", "timed out"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake(t, c.faults)
			fails(t, subject(t, 2, c.o), long(transport.OpStream, 64, 64), c.class, c.says...)
		})
	}
}

// TestVolleyFaults: in a ping-pong without completions to wait for, either end hears of what befell it or the other.
func TestVolleyFaults(t *testing.T) {
	for faults, says := range map[string]string{
		"fake0/bad-rkey=300": "remote", "fake1/bad-rkey=300": "remote", // as either end says it
		"fake0/port-down-after=500": "port 1 is down", "fake1/removed-after=500": "device removed or failed",
	} {
		t.Run(faults, func(t *testing.T) {
			fake(t, faults)
			fails(t, subject(t, 2, unseen), long(transport.OpPingPong, 64, 1), transporttest.ErrFailed, says)
		})
	}
}

// TestClosesAfterFault: whatever happened, closing an end gives all back.
func TestClosesAfterFault(t *testing.T) {
	for _, faults := range []string{
		"fake0/bad-rkey=100", "fake1/bad-rkey=100", "fake0/port-down-after=500", "fake1/removed-after=500", "fake0/drop-imm=30",
	} {
		for _, order := range []rdma.Order{rdma.LIFO, rdma.FIFO, rdma.Random} {
			t.Run(fmt.Sprintf("%s, %s", faults, order), func(t *testing.T) {
				rdmatest.OnFake(t, faults, func(t *testing.T) {
					o := shared
					o.Close = order
					b := long(transport.OpStream, 64, 64)
					ranks := gather(t, 2, o, b.Region(), nil)
					if err := together(t, ranks, b, true); err == nil {
						t.Error("no fault befell it")
					}
					for _, r := range ranks {
						r.one(t, b)
						says(t, r.err, "an earlier batch failed")
					}
				})
			})
		}
	}
}

// TestTrouble: a rank whose own requests all went well ends as soon as its port goes down, and does not wait for
// others.
func TestTrouble(t *testing.T) {
	rdmatest.OnFake(t, "fake0/port-down-after=500", func(t *testing.T) {
		o := shared
		o.NICs = []string{"fake0"}
		b := long(transport.OpStream, 64, 64)
		ranks := gather(t, 2, o, b.Region(), nil)
		if err := together(t, ranks, b, false); err == nil {
			t.Error("no fault befell it")
		}
		for _, r := range ranks {
			says(t, r.err, "fake0: port error: port 1 is down")
			if strings.Contains(r.err.Error(), "waited") {
				t.Errorf("rank %d ended by its deadline: %v", r.number, r.err)
			}
		}
	})
}

// TestKilled: either end dies in the middle of a window, or of a burst.
func TestKilled(t *testing.T) {
	for name, o := range map[string]rdma.Options{"shared": shared, "in memory": unseen} {
		for victim := range 2 {
			t.Run(fmt.Sprintf("%s, %d", name, victim), func(t *testing.T) {
				fake(t, "")
				b := long(transport.OpStream, 4096, 64)
				if o.Burst > 1 {
					b = long(transport.OpPingPong, 4096, 1)
				}
				w := launch(t, subject(t, 2, o), b.Region())
				time.AfterFunc(200*time.Millisecond, func() { w.kill(victim) })
				_, err := w.run(w.all(), b)
				says(t, err, fmt.Sprintf("rank %d: killed by signal 9", victim))
			})
		}
	}
}

// TestSilentPeer: a rank that the other one never answers says what it waits for, and ends.
func TestSilentPeer(t *testing.T) {
	fake(t, "")
	seen := rdma.Options{Conns: 3, Completion: rdma.InMemory, Burst: 2, Back: true}
	for _, c := range []struct {
		o    rdma.Options
		op   transport.Op
		n    int // messages of a sample
		rank int
		says string
	}{
		{rdma.Options{Conns: 3}, transport.OpStream, 6, 0, " s for the receiver's credit (want 1, have 0)"},
		{rdma.Options{Conns: 3}, transport.OpStream, 6, 1, " s for the sender's completion (want 6, have 0)"},
		{seen, transport.OpStream, 6, 0, " s for the receiver's credit (want 1, have 0)"},
		{seen, transport.OpStream, 6, 1, " s for the sender's completion (want 6, have 0)"},
		{seen, transport.OpPingPong, 1, 0, " s for the receiver's credit (want 1, have 0)"},
		{seen, transport.OpPingPong, 1, 1, " s for the sender's completion (want 1, have 0)"},
	} {
		path := string(c.o.Completion)
		if path == "" {
			path = "write-imm"
		}
		t.Run(fmt.Sprintf("%s, %s, %d", path, c.op, c.rank), func(t *testing.T) {
			t.Parallel() // it waits most of the time
			w, err := try(t, subject(t, 2, c.o), 1<<20, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.run([]int{c.rank}, batch(c.op, 64, c.n))
			if !errors.Is(err, transporttest.ErrHang) {
				t.Error(err)
			}
			says(t, err, fmt.Sprintf("rank %d: rdma %s: %s, size 64: waited ", c.rank, path, c.op), c.says,
				fmt.Sprintf("rank %d was in phase warm-up, size 64, iteration 0, waiting for", c.rank),
				fmt.Sprintf("rank %d was in phase idle", 1-c.rank))
		})
	}
}

// TestNoLibrary: the program runs without libibverbs, and says what to install.
func TestNoLibrary(t *testing.T) {
	t.Setenv("P2PBENCH_LIBIBVERBS", "/nonexistent/libibverbs.so")
	fails(t, subject(t, 2, shared), batch(transport.OpLatency, 8, 1), gpu.ErrUnsupported,
		"/nonexistent/libibverbs.so", "install libibverbs1 and ibverbs-providers")
}

// TestNotReady: messages that meet no receive are sent again.
func TestNotReady(t *testing.T) {
	fake(t, "rnr=20")
	met := unready(t)
	launch(t, subject(t, 2, shared), 1<<20).must(t, batch(transport.OpStream, 64, 64))
	if n := met(); n != 20 {
		t.Errorf("%d messages met no receive, want the first 20 of the sender", n)
	}
}

// TestClamped: queues are as long as the device allows; what fits runs, under full load, and is warned of.
func TestClamped(t *testing.T) {
	for _, c := range []struct{ faults, warns string }{
		{"few-cqe=200", "completion queue of 200 entries instead of 1536"},
		{"few-wr=70", "send queue of 70 entries instead of 1024"},
	} {
		t.Run(c.faults, func(t *testing.T) {
			fake(t, c.faults)
			o := shared
			o.Back, o.SignalEvery = true, 1
			w := launch(t, subject(t, 2, o), 1<<20)
			for rank, p := range w.paths {
				if !slices.ContainsFunc(p.Warnings, func(s string) bool { return strings.Contains(s, c.warns) }) {
					t.Errorf("rank %d warns of %q, want %q", rank, p.Warnings, c.warns)
				}
			}
			for i, op := range []transport.Op{transport.OpStream, transport.OpBidir} {
				b := batch(op, 64, 500)
				b.First = uint64(10 * i)
				w.must(t, b)
			}
		})
	}
}

// TestProbe: what cannot be is said before anything starts.
func TestProbe(t *testing.T) {
	for _, c := range []struct {
		faults string
		ranks  int
		o      rdma.Options
		says   string // "": nothing is wrong
	}{
		{"", 2, shared, ""},
		{"", 4, rdma.Options{Fan: rdma.FanIn}, ""},
		{"fake0/port-down", 2, shared, ""}, // both use fake1
		{"fake0/iwarp", 2, shared, ""},
		{"", 1, shared, "one rank: want at least 2"},
		{"", 3, shared, "3 ranks: --fan pair runs between two: use --fan out or --fan in"},
		{"", 4, rdma.Options{Fan: rdma.FanOut, Conns: 1366}, "4098 connections, at most 4095: use a smaller --conns"},
		{"", 2, rdma.Options{NICs: []string{"fake0", "mlx5_7"}}, "rank 1: --nics: no RDMA device mlx5_7: there are fake0, fake1"},
		{"port-down", 2, shared, "rank 0: no port of an RDMA device is up: fake0 is DOWN, fake1 is DOWN"},
		{"fake0/port-down", 2, rdma.Options{NICs: []string{"fake1", "fake0"}}, "rank 1: port 1 of fake0 is DOWN"},
		{"no-devices", 2, shared, "no RDMA device"},
	} {
		t.Run(fmt.Sprintf("%s %d %s", c.faults, c.ranks, c.says), func(t *testing.T) {
			rdmatest.OnFake(t, c.faults, func(t *testing.T) {
				path, err := rdma.New(c.o)
				if err != nil {
					t.Fatal(err)
				}
				err = path.Probe(cpus(t, c.ranks))
				if c.says == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				says(t, err, "rdma: ", c.says)
				if !errors.Is(err, gpu.ErrUnsupported) {
					t.Errorf("%v does not say that this machine cannot", err)
				}
			})
		})
	}
}
