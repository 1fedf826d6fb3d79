package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/report/record"
)

// long is a run with a short first cell and a second one that outlasts every test.
func long(more ...string) []string {
	return append([]string{
		"ipc", "--device", "host", "--sizes", "8,16M", "--op", "latency", "-n", "50000", "-w", "0",
		"--format", "json",
	}, more...)
}

// document reads the output of --format json.
func document(t *testing.T, text string) record.Document {
	t.Helper()
	d, err := record.Read(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return d
}

// workers lists the workers of a run by rank: the processes that have the progress page open.
func (c *command) workers() []int {
	var pids []int
	for _, pid := range tagged(c.tag) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.HasSuffix(string(line), "\x00worker\x00") {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids) // started in the order of ranks
	return pids
}

// doing reads the state of a worker from the progress page.
func doing(pid, rank int) (abi.State, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/4", pid), os.O_RDWR, 0)
	if err != nil {
		return abi.State{}, err
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || st.Size() < 2*abi.ProgressBytes {
		return abi.State{}, fmt.Errorf("no progress page yet: %w", err)
	}
	page, err := abi.MapPage(f, 2)
	if err != nil {
		return abi.State{}, err
	}
	defer func() { _ = page.Close() }()
	return page.Rank(rank).Read(), nil
}

// hasEnded reports whether the command is a zombie.
func (c *command) hasEnded() bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
	return err != nil || strings.Contains(string(status), "\nState:\tZ")
}

// untilTimed waits until both ranks are in the timed part of a size, and returns their process ids.
func (c *command) untilTimed(t *testing.T, size uint64) []int {
	t.Helper()
	var pids []int
	eventually(t, fmt.Sprintf("both ranks measure size %d", size), func() bool {
		if c.hasEnded() {
			t.Fatalf("ended before both ranks measured size %d: %s", size, c.stderr.String())
		}
		pids = c.workers()
		for rank, pid := range pids {
			s, err := doing(pid, rank)
			if err != nil || s.Phase != abi.PhaseTimed || s.Size != size {
				return false
			}
		}
		return len(pids) == 2
	})
	return pids
}

// A rank killed by kill -9, or by the kernel for lack of memory: the run ends, names the rank, and keeps its cells.
func TestKilledWorker(t *testing.T) {
	for rank := range 2 {
		t.Run(fmt.Sprint("rank ", rank), func(t *testing.T) {
			c := newCommand(t, long()...)
			c.begin(t)
			pids := c.untilTimed(t, 16<<20)
			if err := syscall.Kill(pids[rank], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if code := c.end(t); code != exitLost {
				t.Errorf("exit code %d, want %d", code, exitLost)
			}
			text, err := complaint(c.stderr.String())
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				fmt.Sprintf("rank %d: killed by signal 9 (SIGKILL)", rank), "rank 0 was in phase timed, size 16777216",
				"rank 1 was in phase timed, size 16777216",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("%q does not say %q", text, want)
				}
			}
			d := document(t, c.stdout.String())
			if len(d.Cells) != 1 || d.Cells[0].Size != 8 || d.Exit != exitLost || len(d.Warnings) != 1 {
				t.Errorf("want the finished cell, the exit code and a warning, got %+v", d)
			}
		})
	}
}

// A rank that sleeps between polls keeps its deadline: it reports what it waited for before the watchdog does.
func TestStoppedPeerOfASleeper(t *testing.T) {
	c := newCommand(t, "ipc", "--device", "host", "--sizes", "8", "--op", "latency", "-n", "1000000", "-w", "0", "--wake", "sleep:100ms",
		"--timeout", "1s", "-q")
	c.begin(t)
	pids := c.untilTimed(t, 8)
	if err := syscall.Kill(pids[1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != exitLost {
		t.Errorf("exit code %d, want %d", code, exitLost)
	}
	text, err := complaint(c.stderr.String())
	if err != nil || !strings.Contains(text, "rank 0: ipc direct/cpu: latency, size 8: waited ") {
		t.Errorf("%q (%v): want rank 0 to say what it waited for", text, err)
	}
}

// After SIGINT, SIGTERM or SIGHUP the complete cells are shown, with a warning that cells are missing.
func TestInterrupted(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, exitInterrupt}, {syscall.SIGTERM, exitTerminate}, {syscall.SIGHUP, exitHangup}} {
		t.Run(unix.SignalName(c.signal), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run.json")
			p := newCommand(t, long("--out", out)...)
			p.begin(t)
			p.untilTimed(t, 16<<20)
			if err := p.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			if code := p.end(t); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if text, err := complaint(p.stderr.String()); err != nil || text != "interrupted" {
				t.Errorf("stderr: %q, %v", text, err)
			}
			saved, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			for where, text := range map[string]string{"stdout": p.stdout.String(), "--out": string(saved)} {
				d := document(t, text)
				if len(d.Cells) != 1 || d.Cells[0].Size != 8 {
					t.Errorf("%s: %d cells, want the one that was complete", where, len(d.Cells))
				}
				if len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], "1 of 2 cells") {
					t.Errorf("%s: warnings %q, want one that says 1 of 2 cells", where, d.Warnings)
				}
				if d.Exit != c.code {
					t.Errorf("%s: says exit %d, was %d", where, d.Exit, c.code)
				}
			}
		})
	}
}

// Before the first cell is complete nothing is shown.
func TestInterruptedInTheFirstCell(t *testing.T) {
	c := newCommand(t, "ipc", "--device", "host", "--sizes", "8", "--op", "latency", "-n", "100000000")
	c.begin(t)
	c.untilTimed(t, 8)
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != exitInterrupt || c.stdout.Len() > 0 {
		t.Errorf("exit code %d, stdout %q", code, c.stdout.String())
	}
}

// The workers of a killed parent end by themselves.
func TestKilledParent(t *testing.T) {
	for name, early := range map[string]bool{"measuring": false, "starting": true} {
		t.Run(name, func(t *testing.T) {
			c := newCommand(t, long()...)
			c.begin(t)
			if early {
				eventually(t, "there is a worker", func() bool { return len(c.workers()) > 0 })
			} else {
				c.untilTimed(t, 16<<20)
			}
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait() // killed
			eventually(t, "the workers are gone", func() bool { return len(tagged(c.tag)) == 0 })
		})
	}
}

// Concurrent runs are independent: each has its own names, sockets and memory.
func TestTwoRunsAtOnce(t *testing.T) {
	var runs []*command
	for range 2 {
		c := newCommand(t, "ipc", "--device", "host", "--sizes", "8,64K", "--vs", "memcpy", "-n", "300", "--format", "json")
		c.begin(t)
		runs = append(runs, c)
	}
	for _, c := range runs {
		if code := c.end(t); code != exitOK {
			t.Errorf("exit code %d: %s", code, c.stderr.String())
			continue
		}
		if d := document(t, c.stdout.String()); len(d.Cells) != 4 {
			t.Errorf("%d cells, want 4", len(d.Cells))
		}
	}
}

// beginOnOneCPU starts the command with an affinity of one CPU and returns that CPU.
func (c *command) beginOnOneCPU(t *testing.T) int {
	t.Helper()
	all, err := abi.ProcessCPUs()
	if err != nil {
		t.Fatal(err)
	}
	cpu := all.List()[0]
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread with the changed affinity ends here
		if err := abi.CPUsOf(cpu).Pin(); err != nil {
			started <- err
			return
		}
		started <- c.Start()
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	c.cleanUp(t)
	return cpu
}

// Two spinning ranks on one CPU must alternate: the run ends, with a warning.
func TestOneCPU(t *testing.T) {
	c := newCommand(t, "ipc", "--device", "host", "--sizes", "8,64K", "--op", "latency,bidir,pingpong", "-n", "20",
		"--format", "json")
	cpu := c.beginOnOneCPU(t)
	if code := c.end(t); code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.stderr.String())
	}
	d := document(t, c.stdout.String())
	if len(d.Cells) != 6 {
		t.Errorf("%d cells, want 6", len(d.Cells))
	}
	for _, cell := range d.Cells {
		if got := cell.Knobs["wake"]; got != "yield" {
			t.Errorf("%s %d: says that ranks wait by %q, want yield", cell.Op, cell.Size, got)
		}
	}
	if !slices.ContainsFunc(d.Warnings, func(w string) bool { return strings.HasPrefix(w, "2 ranks share 1 CPU(s): ") }) {
		t.Errorf("warnings %q, want one that the ranks share a CPU", d.Warnings)
	}
	for _, r := range d.Env.Ranks {
		if r.CPU != cpu && r.CPU != -1 {
			t.Errorf("rank %d says it ran on CPU %d; there was only %d", r.Rank, r.CPU, cpu)
		}
	}
}

// Other threads than the timing thread stay on the CPUs that the run may use.
func TestThreadsStay(t *testing.T) {
	for thread, args := range map[string][]string{
		"p2p-queue":     {"sendrecv", "--variant", "put", "--op", "latency", "-n", "1000000"},
		"p2p-warp":      {"sendrecv", "--variant", "put", "--op", "latency", "-n", "1000000"},
		"p2p-copy-back": {"ipc", "--vs", "memcpy", "--op", "bidir", "--window", "1", "-n", "1000000"},
	} {
		t.Run(thread, func(t *testing.T) {
			c := newCommand(t, append(args, "--device", "host", "--sizes", "64K", "-q")...)
			cpu := c.beginOnOneCPU(t)
			seen := 0
			eventually(t, thread+" runs", func() bool {
				for _, allowed := range c.threads(thread) {
					seen++
					if allowed != strconv.Itoa(cpu) {
						t.Fatalf("%s may run on CPUs %s, the run on %d", thread, allowed, cpu)
					}
				}
				return seen >= 20 // its affinity is set just after its start
			})
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if code := c.end(t); code != exitInterrupt {
				t.Errorf("exit code %d, want %d", code, exitInterrupt)
			}
		})
	}
}

// threads lists the CPU affinity of each thread of that name in a worker, in the kernel's list format.
func (c *command) threads(name string) (allowed []string) {
	for _, pid := range c.workers() {
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid)) // the pattern is well-formed
		for _, path := range paths {
			status, err := os.ReadFile(path)
			if err != nil || !strings.HasPrefix(string(status), "Name:\t"+name+"\n") {
				continue
			}
			_, list, _ := strings.Cut(string(status), "\nCpus_allowed_list:\t")
			list, _, _ = strings.Cut(list, "\n")
			allowed = append(allowed, list)
		}
	}
	return allowed
}

// Containers have a /dev/shm of 64 MiB or none. Its size does not matter: buffers, control words and progress page are
// memfds, which belong to no mounted file system, and sockets are in the abstract namespace. Needs the right to mount;
// the /dev/shm of the test is smaller than a message.
func TestTinySharedMemory(t *testing.T) {
	mount := `mount -t tmpfs -o size=4k tmpfs /dev/shm`
	if out, err := exec.Command("unshare", "--mount", "sh", "-c", mount).CombinedOutput(); err != nil {
		t.Skipf("cannot mount in a namespace of its own here: %v: %s", err, out)
	}
	c := newCommandUnder(t, []string{"unshare", "--mount", "sh", "-c", mount + ` && exec "$@"`, "sh"},
		"ipc", "--device", "host", "--sizes", "1M", "--op", "latency,bidir", "-n", "10", "--format", "json")
	c.begin(t)
	if code := c.end(t); code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.stderr.String())
	}
	for _, cell := range document(t, c.stdout.String()).Cells {
		if cell.Verified == nil || !*cell.Verified {
			t.Errorf("%s %d: not verified", cell.Op, cell.Size)
		}
	}
}

// A worker that ends before its first reply is a lost peer, not a usage error.
func TestLauncherThatGivesUp(t *testing.T) {
	c := exitsWith(t, exitLost, "ipc", "--device", "host", "--sizes", "8", "--launcher", "false")
	if text, err := complaint(c.stderr.String()); err != nil || !strings.Contains(text, "exited with status 1") {
		t.Errorf("%q, %v", text, err)
	}
}

// A result is written atomically, also if many runs write to one file.
func TestOneOutputForMany(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "run.json")
	var wg sync.WaitGroup
	for range 3 {
		c := newCommand(t, "ipc", "--device", "host", "--sizes", "8", "-n", "50", "-q", "--out", out)
		c.begin(t)
		wg.Go(func() {
			if code := c.end(t); code != exitOK {
				t.Errorf("exit code %d: %s", code, c.stderr.String())
			}
		})
	}
	wg.Wait()
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b) {
		t.Errorf("torn: %s", b)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
