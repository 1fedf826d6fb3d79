package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary run as p2pbench in scripts, and as a worker that a run starts from /proc/self/exe.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "worker" || os.Getenv(asCommand) != "" {
		main()
	}
	testscript.Main(m, map[string]func(){"p2pbench": main})
}

// asCommand makes the test binary run as p2pbench if it is started by a shell under its own name.
const asCommand = "P2PBENCH_TEST_AS_COMMAND"

// tagVariable marks every process that a test starts, workers included, since they inherit the environment.
const tagVariable = "P2PBENCH_TEST_TAG"

var tags atomic.Int64

func newTag() string { return fmt.Sprintf("%d-%d", os.Getpid(), tags.Add(1)) }

// tagged lists the processes with that tag, except zombies.
func tagged(tag string) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	var pids []int
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+tagVariable+"="+tag+"\x00")) {
			continue // ended, a zombie, or not accessible
		}
		var pid int
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// patience is the deadline of a test's waits; only failures take that long.
const patience = 60 * time.Second

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v: %s", patience, what)
		}
	}
}

// command is a running p2pbench.
type command struct {
	*exec.Cmd
	tag            string
	stdout, stderr bytes.Buffer
}

// newCommand prepares p2pbench as a separate process.
func newCommand(t *testing.T, args ...string) *command {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &command{Cmd: exec.Command(exe, args...), tag: newTag()}
	c.Args[0] = "p2pbench"
	c.Env = append(os.Environ(), tagVariable+"="+c.tag)
	c.Stdout, c.Stderr = &c.stdout, &c.stderr
	c.WaitDelay = 10 * time.Second
	return c
}

// newCommandUnder prepares a program that executes p2pbench, whose command line follows the program's own.
func newCommandUnder(t *testing.T, program []string, args ...string) *command {
	t.Helper()
	c := newCommand(t, args...)
	inner := c.Cmd
	c.Cmd = exec.Command(program[0], slices.Concat(program[1:], []string{inner.Path}, args)...)
	c.Env, c.Stdout, c.Stderr, c.WaitDelay = append(inner.Env, asCommand+"=1"), inner.Stdout, inner.Stderr, inner.WaitDelay
	return c
}

// begin starts the command and kills its processes at the end of the test.
func (c *command) begin(t *testing.T) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.cleanUp(t)
}

func (c *command) cleanUp(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		for _, pid := range tagged(c.tag) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = c.Wait() // most tests have waited already
	})
}

// end waits for the command, checks that its workers have ended, and returns its exit code.
func (c *command) end(t *testing.T) int {
	t.Helper()
	watchdog := time.AfterFunc(patience, func() { _ = c.Process.Signal(syscall.SIGABRT) })
	defer watchdog.Stop()
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if pids := tagged(c.tag); len(pids) > 0 {
		t.Errorf("%v ended and left processes %v", c.Args, pids)
	}
	return c.ProcessState.ExitCode()
}

// exitsWith runs p2pbench and checks its exit code.
func exitsWith(t *testing.T, code int, args ...string) *command {
	t.Helper()
	c := newCommand(t, args...)
	c.begin(t)
	if got := c.end(t); got != code {
		t.Fatalf("%v: exit code %d, want %d\nstderr: %s", c.Args, got, code, c.stderr.String())
	}
	return c
}

// complaint returns the one-line error on stderr.
func complaint(stderr string) (string, error) {
	line, rest, whole := strings.Cut(stderr, "\n")
	text, ok := strings.CutPrefix(line, "p2pbench: ")
	if !ok || !whole || rest != "" || strings.TrimSpace(text) == "" {
		return "", fmt.Errorf("want one line that begins with p2pbench: , got %q", stderr)
	}
	return text, nil
}
