package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Whoever interrupts a comparison gets its exit code and one line, and no process or file is left.
func TestInterruptedAB(t *testing.T) {
	for _, command := range []string{"ab", "calibrate"} {
		for sig, code := range signalExitCodes {
			t.Run(command+" "+sig.String(), func(t *testing.T) {
				tmp := t.TempDir()
				c := newCommand(t, command, "-q", "--", "ipc", "--device", "host", "--sizes", "8", "--op", "latency", "-n", "100000000")
				c.Env = append(c.Env, "TMPDIR="+tmp)
				c.begin(t)
				eventually(t, "a run measures", func() bool { // this one, the run, and its workers
					files, _ := filepath.Glob(filepath.Join(tmp, "*", "*", "*.json")) // the pattern is well-formed
					return len(files) > 0 && len(tagged(c.tag)) >= 4
				})
				if err := c.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				if got := c.end(t); got != code {
					t.Errorf("exit code %d, want %d", got, code)
				}
				if text, err := complaint(c.stderr.String()); err != nil || text != "interrupted" {
					t.Errorf("stderr: %q, %v", c.stderr.String(), err)
				}
				if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
					t.Errorf("left in the temporary folder: %v, %v", left, err)
				}
			})
		}
	}
}
