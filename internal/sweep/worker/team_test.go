package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
	"github.com/p2pbench/p2pbench/internal/gpu/host"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
	"github.com/p2pbench/p2pbench/internal/transport"
	"github.com/p2pbench/p2pbench/internal/transport/ipc"
	"github.com/p2pbench/p2pbench/internal/transport/transporttest"
)

// asParent makes the test binary run as a parent of workers that a test can kill.
const asParent = "P2PBENCH_TEST_AS_PARENT"

// tagVariable marks every process of a test.
const tagVariable = "P2PBENCH_TEST_TAG"

func TestMain(m *testing.M) {
	if os.Getenv(asParent) != "" && len(os.Args) == 1 {
		os.Exit(parent())
	}
	transporttest.Main(m, func(options json.RawMessage) (transport.Transport, error) {
		var o gated
		if err := json.Unmarshal(options, &o); err != nil {
			return nil, err
		}
		t, err := ipc.New(ipc.Options{})
		o.Transport = t
		return o, err
	})
}

// gated is ipc whose rank Rank opens only when a file exists.
type gated struct {
	transport.Transport `json:"-"`
	Gate                string `json:"gate"` // the file; "": no gate
	Rank                int    `json:"rank"`
	Child               bool   `json:"child"` // leave a child process behind
}

func (g gated) Open(ctx context.Context, env transport.Env) (transport.Endpoint, error) {
	for g.Gate != "" && env.Rank == g.Rank {
		if _, err := os.Stat(g.Gate); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if g.Child {
		if err := exec.Command("sleep", "600").Start(); err != nil {
			return nil, err
		}
	}
	return g.Transport.Open(ctx, env)
}

func arm(g gated) worker.Arm {
	b, _ := json.Marshal(g) // cannot fail: plain values
	return worker.Arm{Name: "ipc", Transport: "ipc", Options: b}
}

// tag is the environment variable that marks the processes of a test, with its value.
func tag(t *testing.T) string { return fmt.Sprintf("%s=%s-%d", tagVariable, t.Name(), os.Getpid()) }

// config is a team of two on CPU memory whose processes carry the test's tag, since they inherit the environment.
func config(t *testing.T) worker.Config {
	t.Helper()
	name, value, _ := strings.Cut(tag(t), "=")
	t.Setenv(name, value)
	return pair(t)
}

// parallel is config for a test that sits out deadlines: it runs beside others, which no environment is set for.
func parallel(t *testing.T) worker.Config {
	t.Helper()
	t.Parallel()
	cfg := pair(t)
	cfg.Launcher = []string{"env", tag(t)}
	return cfg
}

func pair(t *testing.T) worker.Config {
	t.Helper()
	infos, err := host.Driver().Devices()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range left(t) {
			t.Errorf("process %d is left", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return worker.Config{
		Run: fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano()), Devices: []gpu.Info{infos[0], infos[0]},
		Arms: []worker.Arm{arm(gated{})}, Region: 1 << 20, Timeout: 20 * time.Second, Stderr: t.Output(),
	}
}

// left lists the processes with the test's tag, this one and zombies excluded.
func left(t *testing.T) []int {
	want := "\x00" + tag(t) + "\x00"
	dirs, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well-formed
	var pids []int
	for _, path := range dirs {
		var pid int
		env, err := os.ReadFile(path)
		if err != nil || !strings.Contains("\x00"+string(env), want) {
			continue
		}
		if _, err := fmt.Sscanf(path, "/proc/%d/environ", &pid); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func launch(t *testing.T, cfg worker.Config) *worker.Team {
	t.Helper()
	team, err := worker.Launch(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, team) })
	return team
}

func shut(t *testing.T, team *worker.Team) {
	t.Helper()
	if err := team.Close(); err != nil {
		t.Error(err)
	}
	if pids := left(t); len(pids) > 0 {
		t.Errorf("processes %v are left after Close", pids)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("in vain: " + what)
		}
	}
}

// endless returns a batch that outlasts every test.
var endless = transport.Batch{
	Op: transport.OpLatency, Size: 4096, Window: 1, Iters: 1 << 24, Check: transport.CheckFull,
}

var both = []int{0, 1}

// doing reads the state of a worker from the progress page.
func doing(pid, rank int) (s abi.State, ok bool) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/4", pid), os.O_RDWR, 0)
	if err != nil {
		return s, false
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || st.Size() < 2*abi.ProgressBytes {
		return s, false
	}
	page, err := abi.MapPage(f, 2)
	if err != nil {
		return s, false
	}
	defer func() { _ = page.Close() }()
	return page.Rank(rank).Read(), true
}

// timed waits until both ranks are in the timed part of a batch that ends as ended tells, and returns their processes
// by rank. parents are processes of the test that are no workers.
func timed(t *testing.T, ended <-chan error, parents ...int) (pids []int) {
	t.Helper()
	eventually(t, "both ranks are measuring", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("ended before both ranks measured: %v", err)
		default:
		}
		pids = slices.DeleteFunc(left(t), func(pid int) bool { return slices.Contains(parents, pid) })
		slices.Sort(pids) // started, and so numbered, in the order of ranks
		for rank, pid := range pids {
			if s, ok := doing(pid, rank); !ok || s.Phase != abi.PhaseTimed || s.Iter < 10 {
				return false
			}
		}
		return len(pids) == 2
	})
	return pids
}

// measure runs the endless batch in a goroutine and sends its error.
func measure(ctx context.Context, team *worker.Team) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := team.Run(ctx, 0, both, endless)
		ended <- err
	}()
	return ended
}

func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// A rank is stopped: its peer's deadline ends the run, and the error has the state of both.
func TestStoppedWorker(t *testing.T) {
	cfg := parallel(t)
	cfg.Timeout = time.Second
	team := launch(t, cfg)
	ended := measure(t.Context(), team)
	signal(t, timed(t, ended)[1], syscall.SIGSTOP)
	err := <-ended
	var f *worker.Failure
	if !errors.As(err, &f) || !errors.Is(err, worker.ErrHang) {
		t.Fatalf("got %v, want a hang", err)
	}
	if f.Rank != 0 || len(f.States) != 2 {
		t.Fatalf("%+v", f)
	}
	for rank, s := range f.States {
		if s.Phase != abi.PhaseTimed || s.Size != 4096 || s.Iter == 0 {
			t.Errorf("rank %d: %+v, want phase, size and iteration", rank, s)
		}
	}
	if f.States[0].Waiting == "" || f.States[0].Want <= f.States[0].Have {
		t.Errorf("rank 0: %+v, want what it waited for", f.States[0])
	}
	for _, want := range []string{
		"rank 0: ipc direct/cpu: latency, size 4096: waited ", "rank 0 was in phase timed, size 4096, iteration ",
		"waiting for the receiver's ", "rank 1 was in phase timed, size 4096, iteration ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	shut(t, team) // a stopped process cannot exit by itself
}

// Both ranks are stopped: only the parent can report it.
func TestAllStopped(t *testing.T) {
	cfg := parallel(t)
	cfg.Timeout = 500 * time.Millisecond
	team := launch(t, cfg)
	ended := measure(t.Context(), team)
	for _, pid := range timed(t, ended) {
		signal(t, pid, syscall.SIGSTOP)
	}
	err := <-ended
	if !errors.Is(err, worker.ErrHang) || !strings.Contains(err.Error(), "rank 0 was in phase timed, size 4096") {
		t.Errorf("got %v, want a hang with the states of both", err)
	}
}

// A worker that is ended by SIGTERM is a lost peer.
func TestTerminatedWorker(t *testing.T) {
	team := launch(t, config(t))
	ended := measure(t.Context(), team)
	signal(t, timed(t, ended)[0], syscall.SIGTERM)
	err := <-ended
	if !errors.Is(err, worker.ErrCrash) || !strings.Contains(err.Error(), "rank 0: killed by signal 15 (SIGTERM)") {
		t.Errorf("got %v", err)
	}
}

// A launcher that closes the control connection and continues to run is a lost peer: the team does not wait for its
// end.
func TestLostControl(t *testing.T) {
	cfg := parallel(t)
	cfg.Launcher = append(cfg.Launcher, "sh", "-c", "exec 3>&-; sleep 600")
	ended := make(chan error, 1)
	go func() {
		_, err := worker.Launch(t.Context(), cfg)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, worker.ErrCrash) || !strings.Contains(err.Error(), "ended, but the process did not") {
			t.Errorf("got %v, want a lost control connection", err)
		}
	case <-time.After(time.Minute):
		t.Error("waits for a process that has hung up")
	}
	eventually(t, "what the launcher started is gone", func() bool { return len(left(t)) == 0 })
}

// A child of a worker, as a library may start, has none of the run's descriptors and ends with the worker.
func TestChildOfAWorker(t *testing.T) {
	cfg := config(t)
	cfg.Arms = []worker.Arm{arm(gated{Child: true})}
	team := launch(t, cfg)
	children := 0
	for _, pid := range left(t) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(name)) != "sleep" {
			continue
		}
		children++
		for _, fd := range []int{3, 4} { // control, progress
			if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err == nil {
				t.Errorf("a worker's child holds descriptor %d open, %s", fd, to)
			}
		}
	}
	if children != 2 {
		t.Errorf("%d children, want one of each worker", children)
	}
	if _, err := team.Finish(t.Context()); err != nil {
		t.Error(err)
	}
	if err := team.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the children are gone", func() bool { return len(left(t)) == 0 })
}

func TestCancelled(t *testing.T) {
	team := launch(t, config(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := measure(ctx, team)
	timed(t, ended)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestCancelledWhileStarting(t *testing.T) {
	cfg := config(t)
	cfg.Arms = []worker.Arm{arm(gated{Gate: filepath.Join(t.TempDir(), "never"), Rank: 1})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := worker.Launch(ctx, cfg)
		ended <- err
	}()
	eventually(t, "two workers", func() bool { return len(left(t)) == 2 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if pids := left(t); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
}

// A worker that does not complete its start is a hang.
func TestHangWhileStarting(t *testing.T) {
	cfg := parallel(t)
	cfg.Timeout = 100 * time.Millisecond
	cfg.Arms = []worker.Arm{arm(gated{Gate: filepath.Join(t.TempDir(), "never"), Rank: 1})}
	_, err := worker.Launch(t.Context(), cfg)
	if !errors.Is(err, worker.ErrHang) || !strings.Contains(err.Error(), "rank 1 was in phase open") {
		t.Errorf("got %v, want a hang in phase open", err)
	}
}

func TestWorkerThatCannotStart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*worker.Config)
		want   string
		class  error
	}{
		"no such program": {
			func(c *worker.Config) { c.Launcher = []string{"/nonexistent/emulator", "-x"} },
			"worker: start rank 0: fork/exec /nonexistent/emulator: no such file or directory", nil,
		},
		"a program that gives up": {
			func(c *worker.Config) { c.Launcher = []string{"false"} }, "exited with status 1", worker.ErrCrash,
		},
		"no such device": {
			func(c *worker.Config) { c.Devices[1].UUID = "host-99" }, `rank 1: host: no device "host-99"`, gpu.ErrUnsupported,
		},
		"no such CPU": {
			func(c *worker.Config) { c.Placements = []worker.Placement{{CPU: 1000, CPUs: []int{1000}}, {CPU: -1}} },
			"worker: start rank 0: set CPUs [1000]: ", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			c.change(&cfg)
			_, err := worker.Launch(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want one line with %q", err, c.want)
			}
			if c.class != nil && !errors.Is(err, c.class) {
				t.Errorf("%v is not %v", err, c.class)
			}
			if pids := left(t); len(pids) > 0 {
				t.Errorf("processes %v are left", pids)
			}
		})
	}
}

// A failure to pin to a CPU is a warning.
func TestPinning(t *testing.T) {
	cfg := config(t)
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !set.IsSet(cpu) {
		cpu++
	}
	cfg.Placements = []worker.Placement{{CPU: cpu}, {CPU: 1000}}
	team := launch(t, cfg)
	if o := team.Opened[0]; o.CPU != cpu || len(o.Warnings) > 0 {
		t.Errorf("rank 0: %+v, want CPU %d", o, cpu)
	}
	if o := team.Opened[1]; o.CPU != -1 || len(o.Warnings) != 1 || !strings.Contains(o.Warnings[0], "rank 1: cannot pin to CPU 1000") {
		t.Errorf("rank 1: %+v, want a warning", o)
	}
}

// The sum of samples is at most the elapsed time, and both ranks count compared bytes.
func TestOutcome(t *testing.T) {
	team := launch(t, config(t))
	b := transport.Batch{Op: transport.OpBidir, Size: 3000, Window: 2, Warmup: 3, Iters: 50, Check: transport.CheckFull}
	begin := abi.RawNS()
	out, err := team.Run(t.Context(), 0, both, b)
	wall := abi.RawNS() - begin
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, s := range out.Samples {
		total += s
	}
	if len(out.Samples) != 50 || total <= 0 || total > wall {
		t.Errorf("%d samples of %d ns in all, in %d ns", len(out.Samples), total, wall)
	}
	if out.FirstNS <= 0 || out.FirstNS > wall || out.Skew < 0 || int64(out.Skew) > wall {
		t.Errorf("first %d ns, skew %v, in %d ns", out.FirstNS, out.Skew, wall)
	}
	if want := uint64(53 * 2 * 3000 * 2); out.Checked != want {
		t.Errorf("%d bytes checked, want %d", out.Checked, want)
	}
	if got := out.Counters["path_direct"]; got != 53*2*2 {
		t.Errorf("path_direct %d, want the %d messages of both ranks", got, 53*2*2)
	}
	used, err := team.Finish(t.Context())
	if err != nil || len(used) != 2 || used[0] <= 0 || used[1] <= 0 {
		t.Errorf("CPU seconds %v, %v", used, err)
	}
}

// A sampled check counts the bytes compared: 64 at every step, the last 64, and all of the last iteration.
func TestSampledBytes(t *testing.T) {
	team := launch(t, config(t))
	for size, sampled := range map[uint64]uint64{ // steps are of 4096 bytes up to 256 KiB
		0: 0, 64: 64, 65: 65, 128: 128, 1000: 128, 4096: 128, 4159: 128, 4160: 128, 4161: 129, 5000: 192, 8192: 192, 8256: 192, 1 << 16: 17 * 64,
	} {
		b := transport.Batch{Op: transport.OpLatency, Size: size, Window: 1, Iters: 3, Check: transport.CheckSample}
		out, err := team.Run(t.Context(), 0, both, b)
		if err != nil {
			t.Fatal(err)
		}
		if want := 2*sampled + size; out.Checked != want {
			t.Errorf("size %d: %d bytes checked, want 2 × %d + %d", size, out.Checked, sampled, size)
		}
	}
}

// ps and top show the rank of each process; with a launcher only top does.
func TestTitle(t *testing.T) {
	for name, launcher := range map[string][]string{"alone": nil, "launched": {"env"}} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			cfg.Launcher = launcher
			launch(t, cfg)
			lines, short := map[string]int{}, map[string]int{}
			for _, pid := range left(t) {
				cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				lines[strings.ReplaceAll(string(cmdline), "\x00", " ")]++
				short[strings.TrimSpace(string(comm))]++
			}
			if want := map[string]int{"p2pbench:rank0": 1, "p2pbench:rank1": 1}; !maps.Equal(short, want) {
				t.Errorf("short names %v, want %v", short, want)
			}
			want := map[string]int{"p2pbench: rank 0 worker ": 1, "p2pbench: rank 1 worker ": 1}
			if launcher == nil && !maps.Equal(lines, want) {
				t.Errorf("command lines %v, want %v", lines, want)
			}
		})
	}
}

// Rank 0 ignores connections from outside the run, whatever they send.
func TestStrangerIsIgnored(t *testing.T) {
	for name, says := range map[string]string{
		"another run": `{"run": "another", "handle": {"kind": "memfd", "bytes": 4096}}`,
		"no rank":     "GET / HTTP/1.1\r\n\r\n",
		"nothing":     "",
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			gate := filepath.Join(t.TempDir(), "open")
			cfg.Arms = []worker.Arm{arm(gated{Gate: gate, Rank: 1})}
			met := make(chan error, 1)
			go func() { met <- stranger(cfg.Run, says, gate) }()
			team := launch(t, cfg)
			if err := <-met; err != nil {
				t.Errorf("the stranger: %v", err)
			}
			b := transport.Batch{Op: transport.OpLatency, Size: 100, Window: 1, Iters: 5, Check: transport.CheckFull}
			if _, err := team.Run(t.Context(), 0, both, b); err != nil {
				t.Error(err)
			}
		})
	}
}

// stranger connects to a run before its rank 1, which opens and connects when the file gate exists.
func stranger(run, says, gate string) error {
	name := &net.UnixAddr{Name: "@p2pbench-" + run + "-ipc", Net: "unixpacket"}
	var c *net.UnixConn
	for deadline := time.Now().Add(time.Minute); c == nil; time.Sleep(time.Millisecond) {
		var err error
		if c, err = net.DialUnix("unixpacket", nil, name); err != nil && time.Now().After(deadline) {
			return errors.Join(err, os.WriteFile(gate, nil, 0o600))
		}
	}
	defer func() { _ = c.Close() }()
	if says == "" {
		_ = c.CloseWrite()
	} else if _, err := c.Write([]byte(says)); err != nil {
		return err
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		return err
	}
	answer := make([]byte, 100)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(answer); n > 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("it was told %q, %w, and not hung up on", answer[:n], err)
	}
	return nil
}

// parent runs a team until it is killed.
func parent() int {
	infos, err := host.Driver().Devices()
	if err != nil {
		return 1
	}
	team, err := worker.Launch(context.Background(), worker.Config{
		Run: fmt.Sprintf("test-%d", os.Getpid()), Devices: []gpu.Info{infos[0], infos[0]}, Arms: []worker.Arm{arm(gated{})},
		Region: 1 << 20, Timeout: time.Minute, Stderr: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv(asParent) == "idle" {
		fmt.Println("ready")
		select {}
	}
	_, err = team.Run(context.Background(), 0, both, endless)
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// Workers end with a killed parent, whether they measure, wait for requests, or are stopped.
func TestKilledParent(t *testing.T) {
	for _, what := range []string{"idle", "measuring", "stopped"} {
		t.Run(what, func(t *testing.T) {
			config(t) // sets the tag and the check for remaining processes
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), asParent+"="+what)
			cmd.Stderr = t.Output()
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if what == "idle" {
				_, err = stdout.Read(make([]byte, 10))
			} else {
				pids := timed(t, nil, cmd.Process.Pid)
				if what == "stopped" {
					signal(t, pids[0], syscall.SIGSTOP)
				}
			}
			if err != nil {
				t.Errorf("the parent never became ready: %v", err)
			}
			if n := len(left(t)); n != 3 {
				t.Errorf("%d processes, want a parent and two workers", n)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed
			eventually(t, "the workers are gone", func() bool { return len(left(t)) == 0 })
		})
	}
}
