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

// TestMain lets the test binary play the command: under the name p2pbench in scripts, and as the worker that a run
// makes of /proc/self/exe.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "worker" || os.Getenv(asCommand) != "" {
		main()
	}
	testscript.Main(m, map[string]func(){"p2pbench": main})
}

// asCommand makes the test binary the command where a shell that starts it cannot choose its name.
const asCommand = "P2PBENCH_TEST_AS_COMMAND"

// tagVariable marks every process that a test starts, workers included, since they inherit the environment.
const tagVariable = "P2PBENCH_TEST_TAG"

var tags atomic.Int64

func newTag() string { return fmt.Sprintf("%d-%d", os.Getpid(), tags.Add(1)) }

// tagged lists the processes with that tag. A zombie is not one: it holds nothing and its parent knows.
func tagged(tag string) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	var pids []int
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+tagVariable+"="+tag+"\x00")) {
			continue // gone, a zombie, or not ours
		}
		var pid int
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// patience bounds what a test waits for; nothing but a failure takes so long.
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

// command is one p2pbench under way.
type command struct {
	*exec.Cmd
	tag            string
	stdout, stderr bytes.Buffer
}

// newCommand prepares p2pbench as a process of its own.
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

// newCommandUnder prepares another program that shall execute p2pbench, whose command line follows its own.
func newCommandUnder(t *testing.T, program []string, args ...string) *command {
	t.Helper()
	c := newCommand(t, args...)
	inner := c.Cmd
	c.Cmd = exec.Command(program[0], slices.Concat(program[1:], []string{inner.Path}, args)...)
	c.Env, c.Stdout, c.Stderr, c.WaitDelay = append(inner.Env, asCommand+"=1"), inner.Stdout, inner.Stderr, inner.WaitDelay
	return c
}

// begin starts it and sees to it that nothing outlives the test.
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

// end waits for it, checks that it took its workers with it, and returns its exit code.
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

// exitsWith runs p2pbench to its end.
func exitsWith(t *testing.T, code int, args ...string) *command {
	t.Helper()
	c := newCommand(t, args...)
	c.begin(t)
	if got := c.end(t); got != code {
		t.Fatalf("%v: exit code %d, want %d\nstderr: %s", c.Args, got, code, c.stderr.String())
	}
	return c
}

// complaint is the one line on stderr that says why a command failed.
func complaint(stderr string) (string, error) {
	line, rest, whole := strings.Cut(stderr, "\n")
	text, ok := strings.CutPrefix(line, "p2pbench: ")
	if !ok || !whole || rest != "" || strings.TrimSpace(text) == "" {
		return "", fmt.Errorf("want one line that begins with p2pbench: , got %q", stderr)
	}
	return text, nil
}
