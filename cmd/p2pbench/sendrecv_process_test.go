package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"
)

// longKernels is a run of kernels with a short first cell and a second one that outlasts every test.
func longKernels(more ...string) []string {
	return slices.Concat([]string{
		"sendrecv", "--device", "host", "--sizes", "8,4M", "--op", "bidir", "-n", "300", "-w", "0", "--format", "json",
	}, more)
}

// How kernels wait for each other: step by step, in a graph, and during a whole batch.
var waitingKernels = map[string][]string{
	"ws":         {"--variant", "ws"},
	"graph":      {"--variant", "put", "-G", "8"},
	"persistent": {"--variant", "put", "--launch", "persistent"},
	"ce":         {"--variant", "ce"},
}

// A rank is killed while kernels wait for each other: the run ends, names the rank, keeps its cells, and leaves no
// process.
func TestKilledKernels(t *testing.T) {
	for name, flags := range waitingKernels {
		t.Run(name, func(t *testing.T) {
			c := newCommand(t, longKernels(flags...)...)
			c.begin(t)
			pids := c.untilTimed(t, 4<<20)
			if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if code := c.end(t); code != exitLost {
				t.Errorf("exit code %d, want %d", code, exitLost)
			}
			text, err := complaint(c.stderr.String())
			if err != nil || !strings.Contains(text, "rank 1: killed by signal 9 (SIGKILL); rank 0 was in phase ") {
				t.Errorf("%q, %v", text, err)
			}
			d := document(t, c.stdout.String())
			if len(d.Cells) != 1 || d.Cells[0].Size != 8 || d.Exit != exitLost {
				t.Errorf("want the finished cell and the exit code, got %+v", d)
			}
		})
	}
}

// A rank is stopped: the other rank's kernel reports an expired deadline, or the watchdog does. Messages are small and
// many, so that progress within the deadline does not depend on the load of the machine.
func TestStoppedKernels(t *testing.T) {
	for name, flags := range waitingKernels {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			c := newCommand(t, slices.Concat([]string{
				"sendrecv", "--device", "host", "--sizes", "4K", "--op", "bidir", "-n", "1000000", "-w", "0",
				"--timeout", "1s", "-q",
			}, flags)...)
			c.begin(t)
			pids := c.untilTimed(t, 4<<10)
			if err := syscall.Kill(pids[1], syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if code := c.end(t); code != exitLost {
				t.Errorf("exit code %d, want %d", code, exitLost)
			}
			if text, err := complaint(c.stderr.String()); err != nil || !strings.HasPrefix(text, "rank 0: ") {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// Ctrl-C while kernels run.
func TestInterruptedKernels(t *testing.T) {
	for name, flags := range waitingKernels {
		t.Run(name, func(t *testing.T) {
			c := newCommand(t, longKernels(flags...)...)
			c.begin(t)
			c.untilTimed(t, 4<<20)
			if err := c.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if code := c.end(t); code != exitInterrupt {
				t.Errorf("exit code %d, want %d", code, exitInterrupt)
			}
			if text, err := complaint(c.stderr.String()); err != nil || text != "interrupted" {
				t.Errorf("stderr: %q, %v", text, err)
			}
			if d := document(t, c.stdout.String()); len(d.Cells) != 1 || d.Cells[0].Size != 8 || d.Exit != exitInterrupt {
				t.Errorf("want the cell that was complete and the exit code, got %d cells, exit %d", len(d.Cells), d.Exit)
			}
		})
	}
}

// Concurrent runs of kernels are independent.
func TestTwoRunsOfKernels(t *testing.T) {
	var runs []*command
	for _, flags := range [][]string{{"--variant", "ws", "--op", "bidir"}, {"--ring", "--ranks", "3"}} {
		c := newCommand(t, slices.Concat([]string{
			"sendrecv", "--device", "host", "--sizes", "8,64K", "-n", "100", "--format", "json",
		}, flags)...)
		c.begin(t)
		runs = append(runs, c)
	}
	for _, c := range runs {
		if code := c.end(t); code != exitOK {
			t.Errorf("exit code %d: %s", code, c.stderr.String())
			continue
		}
		for _, cell := range document(t, c.stdout.String()).Cells {
			if cell.Verified == nil || !*cell.Verified {
				t.Errorf("%d bytes between %d ranks: not verified", cell.Size, cell.Ranks)
			}
		}
	}
}

// A rank of a ring that is killed ends the others, too.
func TestKilledInARing(t *testing.T) {
	c := newCommand(t, longKernels("--ring", "--ranks", "3", "--variant", "ws")...)
	c.begin(t)
	var pids []int
	eventually(t, "all three are there, and the first measures", func() bool {
		pids = c.workers()
		if len(pids) != 3 {
			return false
		}
		s, err := doing(pids[0], 0)
		return err == nil && s.Size == 4<<20
	})
	if err := syscall.Kill(pids[2], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := c.end(t); code != exitLost {
		t.Errorf("exit code %d, want %d", code, exitLost)
	}
	if text, err := complaint(c.stderr.String()); err != nil || !strings.Contains(text, "rank 2: killed by signal 9") {
		t.Errorf("%q, %v", text, err)
	}
}
