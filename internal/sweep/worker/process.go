package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/gpu/abi"
)

// process is the parent's handle of one worker.
type process struct {
	rank    int
	cmd     *exec.Cmd
	control *os.File
	enc     *json.Encoder
	replies chan reply
	gone    chan struct{} // closed when the process has been reaped
	state   *os.ProcessState
}

// spawner starts workers from one thread that outlives them. A worker requests SIGKILL at its parent's death
// (PR_SET_PDEATHSIG), and for the kernel the parent is the thread that forked it.
type spawner struct {
	jobs chan func()
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // never unlocked: its affinity was changed, so the thread ends with the goroutine
		for f := range s.jobs {
			f()
		}
		close(s.done)
	}()
	return s
}

// do runs f on the spawner's thread.
func (s *spawner) do(f func() error) error {
	err := make(chan error, 1)
	s.jobs <- func() { err <- f() }
	return <-err
}

// stop ends the thread. All workers must have ended.
func (s *spawner) stop() {
	close(s.jobs)
	<-s.done
}

// start starts the worker of rank r. launcher is a command line that runs the worker, such as an emulator, a debugger
// or a profiler.
func (s *spawner) start(r int, p Placement, page *os.File, launcher []string, stderr io.Writer) (*process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("worker: socketpair: %w", advised(err))
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that Close interrupts a Read
		return nil, fmt.Errorf("worker: control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer func() { _ = theirs.Close() }()
	argv, err := commandLine(launcher)
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	out := &prefixer{w: stderr, prefix: fmt.Sprintf("rank %d: ", r)}
	cmd := exec.Command(argv[0], argv[1:]...)
	if len(launcher) == 0 {
		cmd.Args[0] = title(r)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{theirs, page} // descriptors 3 and 4
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = s.do(func() error {
		if p.CPUs != nil {
			if err := abi.CPUsOf(p.CPUs...).Pin(); err != nil {
				return fmt.Errorf("set CPUs %v: %w", p.CPUs, err)
			}
		}
		return cmd.Start()
	})
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("worker: start rank %d: %w", r, advised(err))
	}
	proc := &process{
		rank: r, cmd: cmd, control: ours, enc: json.NewEncoder(ours), replies: make(chan reply, 1),
		gone: make(chan struct{}),
	}
	go proc.read()
	go proc.reap(out)
	return proc, nil
}

func commandLine(launcher []string) ([]string, error) {
	if len(launcher) == 0 {
		return []string{"/proc/self/exe", "worker"}, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("worker: own executable: %w", err)
	}
	return append(append([]string{}, launcher...), exe, "worker"), nil
}

func (p *process) read() {
	d := json.NewDecoder(p.control)
	for {
		var r reply
		if err := d.Decode(&r); err != nil {
			close(p.replies)
			return
		}
		p.replies <- r
	}
}

func (p *process) reap(out *prefixer) {
	_ = p.cmd.Wait() // ProcessState holds the result
	p.state = p.cmd.ProcessState
	out.flush()
	close(p.gone)
}

// endedBy reports whether the signal sig has ended the process.
func (p *process) endedBy(sig syscall.Signal) bool {
	select {
	case <-p.gone:
	default:
		return false
	}
	ws, ok := p.state.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == sig
}

// end describes how the process ended.
func (p *process) end() string {
	ws, ok := p.state.Sys().(syscall.WaitStatus)
	switch {
	case ok && ws.Signaled():
		return fmt.Sprintf("killed by signal %d (%s)", ws.Signal(), unix.SignalName(ws.Signal()))
	case ok:
		return fmt.Sprintf("exited with status %d", ws.ExitStatus())
	}
	return p.state.String()
}

// loss describes the end of a process whose control connection has ended. The process may still run: a launcher may
// have closed the connection, or a call of the driver does not return.
func (p *process) loss() string {
	if p.within(exitTimeout) {
		return p.end()
	}
	return fmt.Sprintf("the control connection to process %d ended, but the process did not", p.cmd.Process.Pid)
}

// exitTimeout is the deadline of each step that ends a worker. Releasing a GPU's context can take a second.
const exitTimeout = 3 * time.Second

// stop ends the process and its children. It waits for a process that was sent a finish request, then closes the
// control connection, then sends SIGTERM, then SIGKILL to the process group.
func (p *process) stop(leaving bool) error {
	defer func() {
		_ = p.control.Close()
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}()
	if leaving && p.within(exitTimeout) {
		return nil
	}
	_ = p.control.Close()
	if p.within(exitTimeout) {
		return nil
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGCONT) // a stopped process cannot die of SIGTERM
	if p.within(exitTimeout) {
		return nil
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	if p.within(10 * time.Second) {
		return nil
	}
	return fmt.Errorf("worker: rank %d (pid %d) survives SIGKILL: it hangs in the kernel", p.rank, p.cmd.Process.Pid)
}

func (p *process) within(d time.Duration) bool {
	select {
	case <-p.gone:
		return true
	case <-time.After(d):
		return false
	}
}

// send sends a request to the process. It returns ErrHang if the process has not read it within timeout and grace.
func (p *process) send(r request, timeout time.Duration) error {
	_ = p.control.SetWriteDeadline(time.Now().Add(timeout + grace)) // cannot fail: the socket is non-blocking
	err := p.enc.Encode(r)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Failure{Rank: p.rank, Class: ErrHang, Text: fmt.Sprintf("did not read a request for %v", timeout+grace)}
	case err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET):
		return fmt.Errorf("worker: rank %d: %w", p.rank, err)
	}
	return nil // await reports a broken connection with the exit status of the process
}

// shared is a writer for concurrent use.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// advised wraps a system call's error in gpu.ErrUnsupported and adds the limit to raise, if one is the likely cause.
func advised(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		err = fmt.Errorf("%w: raise the limit of open files (ulimit -n)", err)
	case errors.Is(err, unix.EAGAIN):
		err = fmt.Errorf("%w: raise the limit of processes and threads (ulimit -u, pids.max of the control group)", err)
	}
	return fmt.Errorf("%w: %w", err, gpu.ErrUnsupported)
}

// prefixer writes a prefix before every line.
type prefixer struct {
	mu     sync.Mutex
	w      io.Writer
	prefix string
	rest   []byte
}

func (p *prefixer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	for {
		line, rest, ok := bytes.Cut(p.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		fmt.Fprintf(p.w, "%s%s\n", p.prefix, line)
		p.rest = rest
	}
}

func (p *prefixer) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rest) > 0 {
		fmt.Fprintf(p.w, "%s%s\n", p.prefix, p.rest)
		p.rest = nil
	}
}
