package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/p2pbench/p2pbench/internal/report"
	"github.com/p2pbench/p2pbench/internal/verdict"
)

// seriesArm is one side of a series of runs: a binary and its command.
type seriesArm struct {
	name   string // of its folder
	binary string // "": this program
	args   []string
}

// series runs commands repeatedly, each as a fresh process with fresh workers, and keeps their results.
type series struct {
	command string // name of the command that measures, for errors
	dir     string // for run files, in a folder for each arm
	began   time.Time
	budget  time.Duration // 0: none
	slowest time.Duration // of the blocks so far
	sides   map[string]*verdict.Side
}

// newSeries stores run files in keep, which must be empty or absent, or in a temporary folder until done is called.
func newSeries(command, keep string, budget time.Duration) (s *series, done func(), err error) {
	s = &series{command: command, dir: keep, began: time.Now(), budget: budget, sides: map[string]*verdict.Side{}}
	if keep == "" {
		s.dir, err = os.MkdirTemp("", "p2pbench-"+command+"-")
		return s, func() { _ = os.RemoveAll(s.dir) }, err
	}
	if entries, gone := os.ReadDir(keep); gone == nil && len(entries) > 0 {
		return nil, nil, usagef("%s: --keep %s: the folder is not empty: use a new one", command, keep)
	}
	if err = os.MkdirAll(keep, 0o777); err != nil {
		err = usagef("%s: --keep %s: %w", command, keep, cause(err))
	}
	return s, func() {}, err
}

// fits reports whether another block of the same duration ends within the budget. The first block always fits.
func (s *series) fits() bool {
	return s.budget == 0 || s.slowest == 0 || time.Since(s.began)+s.slowest <= s.budget
}

// block runs the arms one after another.
func (s *series) block(ctx context.Context, arms []seriesArm) error {
	began := time.Now()
	for _, arm := range arms {
		if err := s.run(ctx, arm); err != nil {
			return err
		}
	}
	s.slowest = max(s.slowest, time.Since(began))
	return nil
}

// runError is the failure of a run. It ends the series with the exit code of the run.
type runError struct {
	code int
	text string
}

func (e *runError) Error() string { return e.text }

// stopWithin is the time within which a run that was asked to stop must end, with its workers.
const stopWithin = 20 * time.Second

// run measures once. The run has its own process group, so that an interrupt of this program reaches it only once.
func (s *series) run(ctx context.Context, arm seriesArm) error {
	side := s.sides[arm.name]
	if side == nil {
		side = &verdict.Side{Name: arm.name}
		s.sides[arm.name] = side
	}
	dir := filepath.Join(s.dir, arm.name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("%s: %w", s.command, err)
	}
	file := filepath.Join(dir, fmt.Sprintf("%03d.json", len(side.Runs)+1))
	binary := arm.binary
	if binary == "" {
		binary = "/proc/self/exe"
	}
	cmd := exec.CommandContext(ctx, binary, slices.Concat(arm.args, []string{"--quiet", "--out", file})...)
	if arm.binary == "" {
		cmd.Args[0] = os.Args[0]
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopWithin
	runtime.LockOSThread() // Pdeathsig is sent when this thread ends
	err := cmd.Run()
	runtime.UnlockOSThread()
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return s.failed(arm, err, stderr.String())
	}
	return s.read(arm, side, file)
}

func (s *series) failed(arm seriesArm, err error, stderr string) error {
	text := strings.TrimSpace(stderr)
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	text = strings.TrimPrefix(text, "p2pbench: ")
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return usagef("%s: %s: %w", s.command, arm.name, err)
	}
	e := &runError{exitLost, fmt.Sprintf("%s: a run of %s failed: %s", s.command, arm.name, text)}
	if code := exit.ExitCode(); code == exitUsage || code == exitInvalid || code == exitCorrupt {
		e.code = code
	}
	if text == "" {
		e.text += err.Error()
	}
	return e
}

func (s *series) read(arm seriesArm, side *verdict.Side, file string) error {
	data, err := readFile(file)
	if err != nil {
		return &runError{exitInvalid, fmt.Sprintf("%s: a run of %s wrote no result: %v", s.command, arm.name, err)}
	}
	run, err := verdict.Read(arm.name, data)
	if err != nil {
		return &runError{exitInvalid, fmt.Sprintf("%s: a run of %s: %v", s.command, arm.name, err)}
	}
	run.Session = s.dir
	run.Name = fmt.Sprintf("%s, run %d", arm.name, len(side.Runs)+1)
	side.Runs = append(side.Runs, run)
	return nil
}

// pathArgs checks the path command as far as possible without running its binary.
func pathArgs(command string, args []string) error {
	if len(args) == 0 {
		return usagef("%s: give a path command and its flags after --, such as -- ipc --sizes 4K,1M", command)
	}
	if _, ok := pathNamed(args[0]); !ok {
		return usagef("%s: no path command %q after --: use %s", command, report.Clean(args[0]), pathNames())
	}
	return ownFlags(command, args)
}

// ownFlags refuses flags that a series sets itself.
func ownFlags(command string, args []string) error {
	for _, w := range args {
		name, _, _ := strings.Cut(w, "=")
		if slices.Contains([]string{"--out", "--format", "--wide"}, name) {
			return usagef("%s: %s: leave it out after --: %s stores the runs itself (--keep DIR)", command, name, command)
		}
	}
	return nil
}
