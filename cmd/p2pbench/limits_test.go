package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// With a low limit of open files the run works, or fails with a one-line error.
func TestFewOpenFiles(t *testing.T) {
	worked := false
	for _, limit := range []int{12, 16, 18, 20, 24, 64} {
		c := newCommandUnder(t, []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, limit), "sh"},
			"ipc", "--device", "host", "--sizes", "8", "-n", "10", "--format", "json")
		c.begin(t)
		switch code := c.end(t); code {
		case exitOK:
			worked = true
		case exitUsage, exitLost:
			if text, err := complaint(c.stderr.String()); err != nil || !strings.Contains(text, "open files") {
				t.Errorf("limit %d: %q, %v", limit, text, err)
			}
			if c.stdout.Len() > 0 {
				t.Errorf("limit %d: stdout %q", limit, c.stdout.String())
			}
		default:
			t.Errorf("limit %d: exit code %d: %s", limit, code, c.stderr.String())
		}
	}
	if !worked {
		t.Error("64 open files are not enough")
	}
}

// A limit that is too low gives a one-line error before the start, even if Go's runtime could not start.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limit string // shell command
		flags []string
		says  string
	}{
		"no address space for Go":    {"ulimit -v 300000", nil, "the address space is limited to 300000 KiB"},
		"hardly any address space":   {"ulimit -v 1500000", nil, "the address space is limited to 1500000 KiB"},
		"none for the buffers":       {"ulimit -v 5000000", []string{"--sizes", "512M"}, "the address space is limited to 5000000 KiB: raise the limit (ulimit -v) to "},
		"files smaller than inboxes": {"ulimit -f 20000", []string{"--sizes", "16M"}, "files are limited to "},
		"no file that ranks share":   {"ulimit -f 10", nil, "files are limited to "},
	} {
		t.Run(name, func(t *testing.T) {
			p := newCommandUnder(t, []string{"sh", "-c", c.limit + `; exec "$@"`, "sh"},
				append([]string{"ipc", "--device", "host", "--op", "latency", "--sizes", "8", "-n", "3"}, c.flags...)...)
			p.begin(t)
			if code := p.end(t); code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			if text, err := complaint(p.stderr.String()); err != nil || !strings.Contains(text, c.says) {
				t.Errorf("%q (%v), want %q", text, err, c.says)
			}
		})
	}
}

// With a low limit of threads the run works, or fails with a one-line error.
func TestFewThreads(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run as a user who has no other processes")
	}
	exe := everybodys(t)
	worked := false
	for _, limit := range []int{2, 4, 6, 8, 12, 20, 30, 40, 200} {
		// The limit counts all threads of the user, so the shell that sets it runs as that user.
		c := newCommandUnder(t, []string{"setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "prlimit", fmt.Sprintf("--nproc=%d", limit)},
			"ipc", "--device", "host", "--sizes", "8", "-n", "10", "--format", "json")
		c.Args[slices.Index(c.Args, self(t))] = exe
		c.begin(t)
		switch code := c.end(t); code {
		case exitOK:
			worked = true
		case exitUsage:
			if text, err := complaint(c.stderr.String()); err != nil || !strings.Contains(text, "ulimit -u") {
				t.Errorf("limit %d: %q, %v", limit, text, err)
			}
		default:
			t.Errorf("limit %d: exit code %d: %s", limit, code, c.stderr.String())
		}
	}
	if !worked {
		t.Error("200 threads are not enough")
	}
}

// everybodys returns a copy of this binary that every user may execute.
func everybodys(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p2pbench-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b, err := os.ReadFile(self(t))
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "p2pbench")
	if err := errors.Join(os.WriteFile(exe, b, 0o700), os.Chmod(exe, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return exe
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// group makes a control group below that of this process, sets these files, and returns the command line of a shell
// that enters it.
func group(t *testing.T, controller string, files map[string]string) []string {
	t.Helper()
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	parent := ""
	for line := range strings.SplitSeq(string(membership), "\n") {
		f := strings.SplitN(line, ":", 3)
		switch {
		case len(f) == 3 && f[1] == controller:
			parent = filepath.Join("/sys/fs/cgroup", controller, f[2])
		case len(f) == 3 && f[0] == "0" && parent == "":
			parent = filepath.Join("/sys/fs/cgroup", f[2])
		}
	}
	dir := filepath.Join(parent, "p2pbench-"+newTag())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no control group can be made here: %v", err)
	}
	t.Cleanup(func() { eventually(t, "the control group is empty", func() bool { return os.Remove(dir) == nil }) })
	set := false
	for name, value := range files { // for both versions, of which one exists
		set = os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600) == nil || set
	}
	if !set {
		t.Skipf("the controller %s does not work in %s", controller, dir)
	}
	return []string{"sh", "-c", fmt.Sprintf(`echo $$ > %s/cgroup.procs && exec "$@"`, dir), "sh"}
}

// Memory limit of a control group: a plan that does not fit is refused, and the error about an OOM kill names the
// limit.
func TestMemoryLimit(t *testing.T) {
	in := group(t, "memory", map[string]string{"memory.limit_in_bytes": "100M", "memory.max": "100M"})
	c := newCommandUnder(t, in, "ipc", "--device", "host", "--sizes", "64M", "--op", "latency", "-n", "3")
	c.begin(t)
	if code := c.end(t); code != exitUsage {
		t.Errorf("exit code %d, want %d", code, exitUsage)
	}
	if text, err := complaint(c.stderr.String()); err != nil || !strings.Contains(text, "CPU memory needs 0.2 GiB") {
		t.Errorf("too large: %q, %v", text, err)
	}
	c = newCommandUnder(t, in, "ipc", "--device", "host", "--sizes", "8", "-q", "--launcher", "tail /dev/zero")
	c.begin(t) // tail allocates memory for a line without end
	if code := c.end(t); code != exitLost {
		t.Errorf("exit code %d, want %d", code, exitLost)
	}
	text, err := complaint(c.stderr.String())
	if err != nil || !strings.Contains(text, "killed by signal 9 (SIGKILL), because the control group was out of memory: raise /sys/fs/cgroup/") {
		t.Errorf("killed: %q, %v", text, err)
	}
}

// An exhausted CPU quota makes cells invalid, and a warning says that ranks share CPU time.
func TestQuota(t *testing.T) {
	in := group(t, "cpu", map[string]string{"cpu.cfs_quota_us": "20000", "cpu.max": "20000 100000"})
	c := newCommandUnder(t, in, "ipc", "--device", "host", "--sizes", "256K", "--op", "latency", "-n", "2000", "--format", "json", "-q")
	c.begin(t)
	if code := c.end(t); code != exitInvalid {
		t.Fatalf("exit code %d, want %d: %s", code, exitInvalid, c.stderr.String())
	}
	d := document(t, c.stdout.String())
	if len(d.Warnings) != 1 || !strings.HasPrefix(d.Warnings[0], "2 ranks share the time of 0.2 CPU(s)") {
		t.Errorf("warnings %q, want one about the quota", d.Warnings)
	}
	for _, cell := range d.Cells {
		if cell.Invalid == nil || !strings.Contains(*cell.Invalid, "quota of CPU time was used up in ") || cell.Counters["cpu_throttled_periods"] == 0 {
			t.Errorf("%+v, %v: want it invalid", cell.Invalid, cell.Counters)
		}
	}
}
