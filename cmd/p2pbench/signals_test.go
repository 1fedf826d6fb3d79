package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/p2pbench/p2pbench/internal/gpu"
	"github.com/p2pbench/p2pbench/internal/sweep"
	"github.com/p2pbench/p2pbench/internal/sweep/worker"
)

// render ends with the first signal while it waits for the rest of its input.
func TestInterruptedRender(t *testing.T) {
	for sig, code := range signalExitCodes {
		for _, what := range []string{"-", "fifo"} {
			t.Run(fmt.Sprint(sig, " ", what), func(t *testing.T) {
				fifo := filepath.Join(t.TempDir(), "fifo")
				if err := unix.Mkfifo(fifo, 0o600); err != nil {
					t.Fatal(err)
				}
				f, err := os.OpenFile(fifo, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = f.Close() }()
				if _, err := f.WriteString("{"); err != nil {
					t.Fatal(err)
				}
				c := newCommand(t, "render", what)
				if c.Stdin = f; what == "fifo" {
					c.Args[2], c.Stdin = fifo, nil
				}
				c.begin(t)
				eventually(t, "render reads", func() bool {
					n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
					return err == nil && n == 0
				})
				if err := c.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				if got := c.end(t); got != code || c.stdout.Len() > 0 {
					t.Errorf("exit code %d, want %d; stdout %q", got, code, c.stdout.String())
				}
				if text, err := complaint(c.stderr.String()); err != nil || text != "interrupted" {
					t.Errorf("stderr: %q, %v", text, err)
				}
			})
		}
	}
}

// catches reports whether the process has a handler for a signal.
func catches(t *testing.T, pid int, sig syscall.Signal) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var caught uint64
	_, line, _ := strings.Cut(string(status), "SigCgt:")
	if _, err := fmt.Sscanf(line, "%x", &caught); err != nil {
		t.Fatal(err)
	}
	return caught>>(sig-1)&1 == 1
}

// Signals that nohup, or a shell that starts a background job, has ignored stay ignored.
func TestIgnoredSignals(t *testing.T) {
	c := newCommandUnder(t, []string{"sh", "-c", `trap "" HUP INT; exec "$@"`, "sh"},
		"ipc", "--device", "host", "--sizes", "8", "--op", "latency", "-n", "100000000", "-q")
	c.begin(t)
	c.untilTimed(t, 8)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if catches(t, c.Process.Pid, sig) {
			t.Errorf("%v is caught although it was to be ignored", sig)
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != exitTerminate {
		t.Errorf("exit code %d, want %d", code, exitTerminate)
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		sig  os.Signal
		want int
	}{
		{usagef("no such flag"), nil, exitUsage},
		{fmt.Errorf("cuda: %w", gpu.ErrUnsupported), nil, exitUsage},
		{fmt.Errorf("1 of 2 cells: %w", sweep.ErrInvalid), nil, exitInvalid},
		{&worker.Failure{Class: worker.ErrCorrupt}, nil, exitCorrupt},
		{&worker.Failure{Class: worker.ErrHang}, nil, exitLost},
		{&worker.Failure{Class: worker.ErrCrash}, nil, exitLost},
		{&worker.Failure{Class: worker.ErrCrash}, syscall.SIGHUP, exitHangup},
		{&worker.Failure{Class: worker.ErrCrash}, syscall.SIGINT, exitInterrupt},
		{&worker.Failure{Class: worker.ErrCrash}, syscall.SIGTERM, exitTerminate},
		{errors.New("nobody thought of this"), nil, exitInternal},
	} {
		if got := exitCode(c.err, c.sig); got != c.want {
			t.Errorf("%v, signal %v: exit code %d, want %d", c.err, c.sig, got, c.want)
		}
	}
}

// An error of cobra is a usage error; an unclassified error of a command, or a panic, is a defect.
func TestUnforeseen(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		run  func() error
		want int
	}{
		"no such command": {[]string{"sideways"}, nil, exitUsage},
		"unclassed":       {[]string{"act"}, func() error { return errors.New("unclassed") }, exitInternal},
		"panic":           {[]string{"act"}, func() error { panic("at the disco") }, exitInternal},
	} {
		t.Run(name, func(t *testing.T) {
			a := &app{stdout: &standardOutput{w: t.Output()}, stderr: t.Output(), caught: func() os.Signal { return nil }}
			root := a.root()
			root.AddCommand(&cobra.Command{Use: "act", RunE: func(*cobra.Command, []string) error { return c.run() }})
			root.SetArgs(c.args)
			err := a.execute(context.Background(), root)
			if err == nil || exitCode(err, nil) != c.want {
				t.Errorf("%v: want exit code %d", err, c.want)
			}
			if name == "panic" && !strings.Contains(err.Error(), "at the disco") {
				t.Errorf("%v: does not say what happened", err)
			}
		})
	}
}
